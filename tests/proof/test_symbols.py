"""What terms stand for is what ONNX's reference implementation computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import evaluate
from graphopt.ir.graph import Attrs, Graph, Header, Value
from graphopt.ir.types import TensorType
from graphopt.proof.symbolic_ops import compute
from graphopt.proof.symbols import Algebra

RANDOM = np.random.default_rng(20)


def number(algebra: Algebra, term: int, given: dict[Any, float]) -> float:
    """The number that a term is where its symbols are these."""
    match algebra._terms[term]:
        case ("polynomial", parts):
            powers = [np.prod([number(algebra, a, given) ** e for a, e in monomial]) for monomial, _ in parts]
            return float(sum(float(c) * p for (_, c), p in zip(parts, powers, strict=True)))
        case ("symbol", name):
            return given[name]
        case ("value", text):
            return float(text)
        case ("sqrt", inner):
            return float(np.sqrt(number(algebra, inner, given)))
        case (op, _, inputs):
            arrays = [Constant.of(np.asarray(number(algebra, i, given))) for i in inputs]
            return float(evaluate(op, Attrs(), arrays, 1, 21)[0].array)
    raise AssertionError(algebra._terms[term])


_REAL = ("ConvTranspose", "Attention", "AveragePool", "ReduceLogSumExp", "ReduceL1")
"""Ops of which no more than what they depend on is known bit by bit."""


@pytest.mark.parametrize("is_real", [True, False])
@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "n_outputs"),
    [
        ("Max", [(2, 3), (3,), (2, 1)], {}, 1),
        ("ReduceMax", [(2, 3)], {"keepdims": 1}, 1),
        ("ReduceMin", [(2, 3)], {"keepdims": 0}, 1),
        ("Abs", [(3,)], {}, 1),
        ("Relu", [(3,)], {}, 1),
        ("LayerNormalization", [(2, 3), (3,), (3,)], {"axis": -1}, 3),
        ("LayerNormalization", [(2, 2, 2), (2, 2)], {"axis": 1}, 1),
        ("DepthToSpace", [(1, 4, 1, 2)], {"blocksize": 2}, 1),
        ("BatchNormalization", [(2, 3), (3,), (3,), (3,), (3,)], {}, 1),
        ("MaxPool", [(1, 2, 4, 3)], {"kernel_shape": (2, 2), "strides": (2, 1), "pads": (1, 0, 1, 0)}, 1),
        ("AveragePool", [(1, 2, 4, 3)], {"kernel_shape": (2, 2), "pads": (1, 0, 0, 1)}, 1),
        ("AveragePool", [(1, 2, 3)], {"kernel_shape": (2,), "pads": (1, 0), "count_include_pad": 1}, 1),
        ("GlobalMaxPool", [(2, 2, 3, 1)], {}, 1),
        ("ReduceLogSumExp", [(2, 3)], {"keepdims": 0}, 1),
        ("ReduceL1", [(2, 3)], {"keepdims": 0}, 1),
        ("ConvTranspose", [(1, 2, 3), (2, 2, 2), (2,)], {"strides": (2,), "pads": (0, 1)}, 1),
        ("ConvTranspose", [(1, 2, 2, 2), (2, 1, 2, 1)], {"dilations": (2, 1)}, 1),
        ("InstanceNormalization", [(2, 3, 2), (3,), (3,)], {"epsilon": 0.5}, 1),
        ("GroupNormalization", [(2, 4, 2), (4,), (4,)], {"num_groups": 2}, 1),
        ("LpNormalization", [(2, 3)], {"axis": 0, "p": 2}, 1),
        ("Attention", [(1, 2, 2, 3), (1, 1, 3, 3), (1, 1, 3, 2)], {}, 1),
        (
            "Attention",
            [(1, 2, 4), (1, 2, 4), (1, 2, 2), (2, 2)],
            {"q_num_heads": 2, "kv_num_heads": 2, "scale": 0.5, "is_causal": 1},
            1,
        ),
    ],
)
def test_ops(op: str, shapes: Sequence[tuple[int, ...]], attrs: dict[str, Any], n_outputs: int, is_real: bool) -> None:
    if not is_real and (op.endswith("Normalization") or op in _REAL):
        pytest.skip("bit by bit it is any function of its operands")
    dtype = "float32" if n_outputs > 1 else "float64"  # the reference's means are float32
    arrays = [RANDOM.uniform(0.5, 2, s).astype(dtype) for s in shapes]
    check(op, arrays, attrs, n_outputs, Algebra(is_real))


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0, 4.0, -1.0, -2.0, 0.5, -0.5, 0.0, 2.5])
def test_powers(power: float) -> None:
    check("Pow", [RANDOM.uniform(0.5, 2, 4), np.asarray(power)], {}, 1, Algebra(True), n_symbolic=1)


@pytest.mark.parametrize("is_real", [True, False])
def test_ops_that_keep_zero(is_real: bool) -> None:
    for op in ("Abs", "Neg", "Relu", "Tanh", "Floor", "Sign", "Erf", "Elu"):
        check(op, [np.zeros(1)], {}, 1, Algebra(is_real), n_symbolic=0)


def test_dequantization() -> None:
    # over the reals it is linear in what is shifted by the zero point
    algebra = Algebra(True)
    x, s, z = (algebra.symbol(n) for n in "xsz")
    term = algebra.call("DequantizeLinear", (), [x, s, z])
    quantized = [np.asarray(-7, np.int8), np.asarray(0.25), np.asarray(3, np.int8)]
    (want,) = evaluate("DequantizeLinear", Attrs(), [Constant.of(a) for a in quantized], 1, 21)
    assert number(algebra, term, dict(zip("xsz", map(float, quantized), strict=True))) == want.array


def check(
    op: str, arrays: list[Any], attrs: dict[str, Any], n_outputs: int, algebra: Algebra, n_symbolic: int = 9
) -> None:
    graph = Graph(header=Header(opsets=(("", 23),)))
    values: list[Value] = []
    symbolic: dict[Value, str] = {}
    given = {}
    for i, array in enumerate(arrays):
        if i < n_symbolic:
            values.append(graph.add_input(f"x{i}", TensorType(str(array.dtype), array.shape)))
            symbolic[values[-1]] = f"x{i}"
            given |= {(f"x{i}", at): float(array[at]) for at in np.ndindex(*array.shape)}
        else:
            values.append(graph.add_constant(Constant.of(array)))
    node = graph.add(op, tuple(values), Attrs(attrs), n_outputs)
    for i, value in enumerate(node.outputs):
        graph.add_output(f"y{i}", value)
    wanted = evaluate(op, Attrs(attrs), [Constant.of(a) for a in arrays], n_outputs, 23)
    for got, want in zip(compute(graph, algebra, symbolic), wanted, strict=True):
        assert got.shape == want.shape
        numbers = [number(algebra, int(t), given) for t in got.reshape(-1)]
        np.testing.assert_allclose(numbers, want.array.reshape(-1), rtol=1e-5, atol=1e-9)
