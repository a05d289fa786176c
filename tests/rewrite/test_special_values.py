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
from graphopt.ir import onnx_io
from graphopt.ir.text import parse

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


def session(model: ModelProto) -> onnxruntime.InferenceSession:
    """A model in ONNX Runtime, as it stands."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def results(model: ModelProto) -> list[npt.NDArray[np.float32]]:
    return list(session(model).run(None, {f"x{i}": NUMBERS for i in range(len(CHAINS))}))


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


IDIOMS = {
    **{
        f"{op} {c:g}": f"y = {op}(x, {c:.1f})"
        for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")
        for c in (0, 1)
    },
    "0 - x": "y = Sub(0.0, x)",
    "x * -1": "y = Mul(x, -1.0)",
    "x ** 2": "y = Pow(x, 2.0)",
    "x / x": "y = Div(x, x)",
    "--x": "y = Neg(Neg(x))",
    "|-x|": "y = Abs(Neg(x))",
    "|x| * |x|": "a = Abs(x) y = Mul(a, a)",
    "sign(x) * |x|": "y = Mul(Sign(x), Abs(x))",
    "clip": "y = Clip(x, 0.0, 6.0)",
    "max of min": "y = Max(Min(x, 6.0), 0.0)",
    "max of max": "y = Max(Max(x, 0.0), 1.0)",
    "clip of relu": "y = Clip(Relu(x), _, 6.0)",
    "relu twice": "y = Relu(Relu(x))",
    "where less": "y = Where(Less(x, 0.0), 0.0, x)",
    "where greater": "y = Where(Greater(x, 0.0), x, 0.0)",
    "not less": "y = Cast(Not(Less(x, 1.0)), to=1)",
    "through float64": "y = Cast(Cast(x, to=11), to=1)",
    "through float16": "y = Cast(Cast(x, to=10), to=1)",
    "through int64": "y = Cast(Cast(Clip(x, -1e9, 1e9), to=7), to=1)",
}
"""What exporters write of a float32 input ``x``."""


@pytest.mark.parametrize("target", ["portable", "ort"])
@pytest.mark.parametrize("policy", ["exact", "finite"])
def test_idioms_give_the_same_bits_under_the_strict_policies(policy: str, target: str) -> None:
    text = f"x: float32[{len(NUMBERS)}]\n"
    for i, body in enumerate(IDIOMS.values()):
        text += body.replace("y =", f"y{i} =").replace("a =", f"a{i} =").replace("a, a", f"a{i}, a{i}") + "\n"
    before = onnx_io.to_proto(parse(text + "return " + ", ".join(f"y{i}" for i in range(len(IDIOMS)))))
    after = graphopt.optimize(before, policy=policy, target=target, verify="off")
    assert len(after.graph.node) < len(before.graph.node)
    given = np.where(np.isfinite(NUMBERS), NUMBERS, 2) if policy == "finite" else NUMBERS
    pairs = zip(IDIOMS, *(session(m).run(None, {"x": given.astype("f4")}) for m in (before, after)), strict=True)
    assert [name for name, old, new in pairs if differ(old, new, policy).any()] == []


DTYPES = {"bool": 9, "int8": 3, "uint8": 2, "int32": 6, "int64": 7, "float16": 10, "float32": 1, "float64": 11}
"""What casts are tried between, with ONNX's numbers."""


def is_defined(given: npt.NDArray[Any], dtype: str) -> bool:
    """Whether ONNX says what a cast gives: of floats only those that fit an integer have one."""
    if given.dtype.kind != "f" or np.dtype(dtype).kind not in "iu":
        return True
    return bool((np.trunc(given) >= np.iinfo(dtype).min).all() and (given <= np.iinfo(dtype).max).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_casts_there_and_back_give_the_same_bits_under_exact(dtype: str) -> None:
    """Two casts are one only where the first loses nothing."""
    rng, size = np.random.default_rng(0), 500
    if dtype.startswith("float"):
        edges = [1 + 2**-11 + 2**-24, 1 + 2**-11, 2049, 1.5, 0.5]
        given = np.concatenate([edges, rng.uniform(0, 127, size)]).astype(dtype)
    else:
        least, most = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        given = rng.integers(least, most, size, np.int64, endpoint=True).astype(dtype)
    with np.errstate(over="ignore"):
        pairs = [
            (a, b) for a, b in product(DTYPES, repeat=2) if is_defined(given, a) and is_defined(given.astype(a), b)
        ]
    assert len(pairs) > len(DTYPES) ** 2 / 2
    body = "\n".join(f"y{k} = Cast(Cast(x, to={DTYPES[a]}), to={DTYPES[b]})" for k, (a, b) in enumerate(pairs))
    outputs = ", ".join(f"y{k}" for k in range(len(pairs)))
    before = onnx_io.to_proto(parse(f"x: {dtype}[{given.size}]\n{body}\nreturn {outputs}"))
    after = graphopt.optimize(before, policy="exact", verify="off")
    assert len(after.graph.node) < len(before.graph.node)
    results = zip(pairs, *(session(m).run(None, {"x": given}) for m in (before, after)), strict=True)
    assert [pair for pair, old, new in results if not np.array_equal(old, new, equal_nan=old.dtype.kind == "f")] == []


@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_a_range_of_integers_that_wrap_around_keeps_its_length_under_exact(op: str) -> None:
    before = onnx_io.to_proto(parse(f"x: float32[n], c: int64[] y = {op}(Range(0, Squeeze(Shape(x)), 1), c) return y"))
    after = graphopt.optimize(before, policy="exact", verify="off")
    far = np.array(2**63 - 3 if op == "Add" else -(2**63) + 3)
    old, new = (session(m).run(None, {"x": np.zeros(9, np.float32), "c": far})[0] for m in (before, after))
    assert old.tolist() == new.tolist()
    assert len(old) == 9


MOVED = ("Sin", "Cos", "Tan", "Exp", "Log", "Sqrt", "Erf", "Sigmoid", "Tanh", "Softmax", "Softplus", "Reciprocal",
         "Atan", "Elu", "HardSwish", "LogSoftmax", "ReduceSum", "ReduceMean", "MatMul", "Floor", "Neg")  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("policy", ["exact", "finite"])
def test_what_is_computed_ahead_has_the_runtimes_bits_under_the_strict_policies(policy: str, dtype: str) -> None:
    given = np.random.default_rng(0).uniform(0.2, 3, (64, 64)).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(given.dtype)
    nodes = [helper.make_node(op, ["c", "c"] if op == "MatMul" else ["c"], [op]) for op in MOVED]
    nodes += [helper.make_node("Mul", ["x", op], [f"{op}_y"]) for op in MOVED]
    outputs = [helper.make_tensor_value_info(f"{op}_y", kind, [None, None]) for op in MOVED]
    inputs = [helper.make_tensor_value_info("x", kind, [1, 1])]
    graph = helper.make_graph(nodes, "folds", inputs, outputs, [numpy_helper.from_array(given, "c")])
    before = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    after = graphopt.optimize(before, policy=policy, growth=10_000, verify="off")
    assert (dtype == "float32") == ("Neg" not in {n.op_type for n in after.graph.node})  # else nothing is tested
    feeds = {"x": np.ones((1, 1), dtype)}
    pairs = zip(MOVED, *(session(m).run(None, feeds) for m in (before, after)), strict=True)
    assert [op for op, old, new in pairs if old.tobytes() != new.tobytes()] == []
