"""Functions of one byte, looked up: the same bits as computed, and only where that is cheaper."""

from __future__ import annotations

import numpy as np
import pytest

import graphopt
from graphopt.compile import linked_for
from graphopt.ir import evaluate
from graphopt.ir.text import parse
from graphopt.ir.text.elements import numpy_dtype
from graphopt.lowering.fuse.byte_tables import CODES, LEAST, tabulated
from graphopt.lowering.loops.compute import Tensor, compute, nest, placeholder
from graphopt.lowering.loops.expressions import INDEX, Expr, apply, cast
from graphopt.lowering.loops.interpret import interpret
from graphopt.run.settings import Settings

BYTES = ["uint8", "int8"]


def chain(dtype: str, shape: str, between: str, out: str = "") -> str:
    """Between two roundings, as models have it."""
    return (
        f"x: {dtype}[{shape}]\nd = DequantizeLinear(x, 0.02, {dtype}[]{{3}})\na = {between}\n"
        f"y = QuantizeLinear(a, 0.017, {out or dtype}[]{{5}})\nreturn y"
    )


def sources(text: str) -> str:
    return "\n".join(kernel.source for kernel in linked_for(parse(text), Settings()).kernels)


@pytest.mark.parametrize("between", ["Identity(d)", "Relu(d)", "HardSwish(d)", "Gelu(d)", "Clip(Exp(d), 0.5, 2.0)"])
@pytest.mark.parametrize("shape", ["2, 1024", "n, 24, m"])
@pytest.mark.parametrize("dtype", BYTES)
def test_chains_of_functions_are_looked_up(dtype: str, shape: str, between: str) -> None:
    graph = parse(chain(dtype, shape, between))
    program = graphopt.compile(graph, jobs=0)
    assert "lookup(" in sources(chain(dtype, shape, between))
    random = np.random.default_rng(0)
    for sizes in [(2, 1024)] if shape == "2, 1024" else [(0, 24, 3), (1, 24, 1), (3, 24, 17), (2, 24, 64)]:
        x = random.integers(0, 256, sizes).astype(np.uint8).view(dtype)
        want = evaluate.run(graph, {"x": x})["y"]
        assert np.abs(program(x)["y"].astype(int) - want.astype(int)).max(initial=0) <= ("Identity" not in between)


@pytest.mark.parametrize(
    ("why", "text"),
    [
        ("there are few", chain("uint8", f"{LEAST - 1}", "Gelu(d)")),
        ("there are more codes", chain("uint16", "4096", "Gelu(d)")),
        ("there are more results", chain("uint8", "4096", "Gelu(d)", "int16")),
        ("it is of two bytes", chain("uint8", "64, 64", "Mul(d, Transpose(d, perm=[1, 0]))")),
        ("it depends on where it is", chain("uint8", "1024, 4", "Add(d, float32[4]{0.0, 1.0, 2.0, 3.0})")),
        ("it lies elsewhere", chain("uint8", "4096", "Gelu(Slice(d, [4095], [-4097], [0], [-1]))")),
        ("it costs no more", "x: uint8[4096]\ny = BitwiseAnd(x, uint8[]{7})\nreturn y"),
    ],
)
def test_others_are_computed(why: str, text: str) -> None:
    assert "lookup(" not in sources(text), why


def function(byte: Expr) -> Expr:
    return apply("saturate", apply("round", apply("exp", cast(byte, "float32") / 50.0) * 10.0), dtype="uint8")


@pytest.mark.parametrize("dtype", BYTES)
def test_a_table_has_an_entry_for_each_byte(dtype: str) -> None:
    x = placeholder((LEAST,), dtype)
    plain = compute((LEAST,), lambda i: function(x[i]), "uint8", "y")
    made = tabulated(plain)
    assert made.stage != plain.stage
    data = np.arange(LEAST).astype(np.uint8).view(dtype)
    want, found = (result_of(tensor, x, data) for tensor in (plain, made))
    np.testing.assert_array_equal(found, want)
    assert len(np.unique(want)) > CODES // 4


def test_a_number_that_is_no_byte_keeps_its_formula() -> None:
    x = placeholder((LEAST,), "uint8")
    for plain in (
        compute((LEAST,), lambda i: function(x[i]) + cast(i, "uint8"), "uint8", "y"),
        compute((LEAST,), lambda i: cast(function(x[i]), INDEX), INDEX, "y"),
    ):
        assert tabulated(plain) is plain


def result_of(tensor: Tensor, x: Tensor, data: np.ndarray) -> np.ndarray:
    """What a tensor is, interpreted."""
    out = np.zeros(data.shape, numpy_dtype(tensor.dtype))
    interpret(nest("case", [x], [tensor]), [data, out])
    return out
