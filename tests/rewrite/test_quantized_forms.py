"""Quantized convolutions and products are computed with integers, whatever the form that a quantizer writes."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import run
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error
from graphopt.optimize import optimize_graph
from graphopt.target import target

INTEGER = {"ConvInteger", "QLinearConv", "QLinearMatMul"} | {
    f"com.microsoft::{op}" for op in ("MatMulIntegerToFloat", "QGemm")
}
FLOAT = {"Conv", "Gemm", "MatMul"}
BIAS = "float32[256]{0.5, ...}"
BIASES = {"no bias": "", "float": f", {BIAS}", "integer": ", DequantizeLinear(int32[256]{7, ...}, 0.0002)"}
TAILS = {"quantized": "y = QuantizeLinear(c, 0.1, uint8[]{0})", "float": "y = Sigmoid(c)"}


def ops_of(core: str, bias: str, tail: str, shape: str, weights: str, zeros: bool) -> set[str]:
    """The ops of a quantized model as a program computes it; its results are those of the model."""
    rng, zx, zw = np.random.default_rng(0), *((", uint8[]{3}", ", int8[]{0}") if zeros else ("", ""))
    steps = Constant.of(rng.integers(-127, 128, sizes(weights), np.int8))
    operands = f"d = DequantizeLinear(x, 0.02{zx}) e = DequantizeLinear(int8[{weights}]{{#0}}, 0.01{zw})"
    text = f"x: uint8[{shape}] {operands} c = {core.format(bias=BIASES[bias])} {TAILS[tail]} return y"
    graph = parse(text, [steps])
    made, _ = optimize_graph(graph, target=target("cpu"))
    rows = rng.integers(0, 256, sizes(shape), np.uint8)
    (want,), (got,) = (run(g, {"x": rows}).values() for g in (graph, made))
    if tail == "quantized":  # one step, where rounding decides
        assert want.dtype == got.dtype
        assert np.abs(want.astype(int) - got).max() <= 1
    else:
        assert error(want, got) <= 1
    return {node.op for node in made.nodes()}


def sizes(shape: str) -> list[int]:
    return [int(size) for size in shape.split(", ")]


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize(
    ("core", "shape", "weights"),
    [
        ("Conv(d, e{bias}, pads=[1, 1, 1, 1])", "1, 64, 14, 14", "256, 64, 3, 3"),
        ("Conv(d, e{bias}, group=2)", "1, 64, 9", "256, 32, 1"),
        ("Gemm(d, e{bias}, transB=1)", "32, 128", "256, 128"),
        ("Gemm(d, e{bias})", "32, 128", "128, 256"),
    ],
)
def test_a_program_computes_with_integers(
    core: str, shape: str, weights: str, bias: str, tail: str, zeros: bool
) -> None:
    found = ops_of(core, bias, tail, shape, weights, zeros)
    assert found & INTEGER
    assert not found & FLOAT


@pytest.mark.parametrize("turned", [0, 1, 2])
def test_weights_by_rows_and_by_columns(turned: int) -> None:
    ops_of(f"Gemm(d, e{{bias}}, transB={turned})", "float", "float", "8, 256", "256, 256", True)


def test_sums_that_int32_has_no_room_for_are_of_floats() -> None:
    assert "Gemm" in ops_of("Gemm(d, e{bias})", "no bias", "float", "2, 33026", "33026, 2", True)
