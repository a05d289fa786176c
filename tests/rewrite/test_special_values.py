"""Small chains of ops at the numbers where floating point is not the reals, original beside result.

ONNX Runtime, its own optimizations off, runs both. What the classes promise is held to bit by bit under ``exact`` and
``finite``; under the default, ``reals``, the few chains that give something else anywhere are listed, each with why.
"""

from __future__ import annotations

from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import graphopt

Term: TypeAlias = "str | float | tuple[Any, ...]"

MAGIC = 1.5 * 2.0**23
"""A number of single precision that is added and subtracted to round to integers."""
SPECIAL = np.array(
    [np.nan, np.inf, 0.0, 1e-45, 1e-40, 1.2e-38, 1e-30, 1e-20, 1e-10, 0.1, 0.3, 0.5, 0.7, 1.0, 1.5, 2.5, 3.4, 88.0,
     89.0, 104.0, 100.3, 4097.3, MAGIC, 2.0**23 + 1, 1e10, 1e20, 1e30, 3e38], np.float32,
)  # fmt: skip
NUMBERS = np.concatenate([SPECIAL, -SPECIAL])


def chains() -> dict[str, Term]:
    """Terms of an input ``x``: two ops with constants of special magnitudes, and pairs of functions."""
    made: dict[str, Term] = {}
    for c in (1e38, MAGIC, 1e4, 1.0):
        made[f"x + {c:g} - {c:g}"] = ("Sub", ("Add", "x", c), c)
    for c in (MAGIC, 1.0):
        made[f"{c:g} - ({c:g} - x)"] = ("Sub", c, ("Sub", c, "x"))
    for c, d in product((1e38, 255.0), repeat=2):
        made[f"x * {c:g} * 1 / {d:g}"] = ("Mul", ("Mul", "x", c), 1 / d)
        made[f"x * {c:g} + x * {-d:g}"] = ("Add", ("Mul", "x", c), ("Mul", "x", -d))
    for c in (1e38, 1e-38):
        made[f"x * {c:g} * {c:g}"] = ("Mul", ("Mul", "x", c), c)
        made[f"x / {c:g} / {c:g}"] = ("Div", ("Div", "x", c), c)
    rounded = ("Sub", ("Add", ("Div", "x", 0.1), MAGIC), MAGIC)
    made |= {
        "round(x / 0.1) * 0.1": ("Mul", rounded, 0.1),
        "round(x + 0.3)": ("Sub", ("Add", ("Add", "x", 0.3), MAGIC), MAGIC),
        "exp(log(x))": ("Exp", ("Log", "x")),
        "log(exp(x))": ("Log", ("Exp", "x")),
        "sqrt(x) * sqrt(x)": ("Mul", ("Sqrt", "x"), ("Sqrt", "x")),
        "sqrt(x * x)": ("Sqrt", ("Mul", "x", "x")),
        "exp(x) * exp(-x)": ("Mul", ("Exp", "x"), ("Exp", ("Neg", "x"))),
        "exp(x) / exp(x / 2)": ("Div", ("Exp", "x"), ("Exp", ("Mul", "x", 0.5))),
        "log(exp(x) + 1)": ("Log", ("Add", ("Exp", "x"), 1.0)),
        "x ** 0.5": ("Pow", "x", 0.5),
        "x ** -1": ("Pow", "x", -1.0),
        "x * (1 / x)": ("Mul", "x", ("Reciprocal", "x")),
        "x - x": ("Sub", "x", "x"),
        "x + x * -1": ("Add", "x", ("Mul", "x", -1.0)),
        "(x + m) + (x - m)": ("Add", ("Add", "x", MAGIC), ("Sub", "x", MAGIC)),
        "x * 0": ("Mul", "x", 0.0),
        "1 / max(x, 0)": ("Reciprocal", ("Max", "x", 0.0)),
        "1 / min(max(x, 0), 6)": ("Reciprocal", ("Min", ("Max", "x", 0.0), 6.0)),
    }
    return made


CHAINS = chains()

REALS = {
    "log(exp(x) + 1)": "Softplus does not overflow",
    "1 / max(x, 0)": "the sign of zero",
    "1 / min(max(x, 0), 6)": "the sign of zero",
}
"""What gives something else at some number under the policy ``reals``, and why that may be."""


def model() -> ModelProto:
    """A model with an input and an output for each chain."""
    nodes, constants = [], []

    def made(term: Term, name: str, given: str) -> str:
        if term == "x":
            return given
        if isinstance(term, float):
            constants.append(numpy_helper.from_array(np.array(term, np.float32), name))
        else:
            assert isinstance(term, tuple)
            inputs = [made(t, f"{name}_{i}", given) for i, t in enumerate(term[1:])]
            nodes.append(helper.make_node(term[0], inputs, [name]))
        return name

    places = range(len(CHAINS))
    for i, term in enumerate(CHAINS.values()):
        made(term, f"y{i}", f"x{i}")
    inputs, outputs = (
        [helper.make_tensor_value_info(f"{v}{i}", TensorProto.FLOAT, [len(NUMBERS)]) for i in places] for v in "xy"
    )
    graph = helper.make_graph(nodes, "chains", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def results(model: ModelProto) -> list[npt.NDArray[np.float32]]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {f"x{i}": NUMBERS for i in range(len(CHAINS))}))


def differ(old: npt.NDArray[np.float32], new: npt.NDArray[np.float32], policy: str) -> npt.NDArray[np.bool_]:
    """Where a result is another than the policy allows: the bits, or NaN, infinities and numbers up to rounding."""
    both = np.isnan(old) & np.isnan(new)
    if policy != "reals":
        changed = (old.view(np.uint32) != new.view(np.uint32)) & ~both
        return changed & np.isfinite(NUMBERS) if policy == "finite" else changed
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.isfinite(old) & (np.abs(old - new) <= 1e-6 + 1e-5 * np.abs(old))
    return ~(both | (old == new) | near)


def changed(policy: str, target: str) -> dict[str, list[float]]:
    """The chains that give something else, with the numbers at which they do."""
    new = results(graphopt.optimize(model(), policy=policy, target=target, verify="off"))
    found = (NUMBERS[differ(*pair, policy)].tolist() for pair in zip(results(model()), new, strict=True))
    return {name: at for name, at in zip(CHAINS, found, strict=True) if at}


@pytest.mark.parametrize("policy", ["exact", "finite"])
@pytest.mark.parametrize("target", ["portable", "ort"])
def test_nothing_changes_under_the_strict_policies(policy: str, target: str) -> None:
    assert changed(policy, target) == {}


@pytest.mark.parametrize("target", ["portable", "ort"])
def test_little_changes_by_default(target: str) -> None:
    assert set(changed("reals", target)) == set(REALS)


def test_there_are_36_patterns_of_which_three_change() -> None:
    """Other optimizers change at most three of these."""
    assert len(CHAINS) == 36
    assert len(REALS) <= 3
