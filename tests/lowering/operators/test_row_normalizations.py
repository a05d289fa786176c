"""Layer normalization and its relatives against ONNX's cases and what ONNX Runtime's ops mean."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import graphopt
from graphopt.errors import ExecutionError
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error
from graphopt.lowering.operators.row_normalizations import TABLE
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered

ROWS = np.random.default_rng(1).normal(2, 3, (2, 3, 4)).astype(np.float32)
SHAPE = ("b", "s", 4)
SCALE, SHIFT, BIAS = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32)


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_layers(axis: int) -> None:
    scale, shift = (np.broadcast_to(p, ROWS.shape[axis:]).copy() for p in (SCALE, SHIFT))
    for shapes in (None, [SHAPE, scale.shape, shift.shape], [("b", "s", "h"), (4,), (4,)]):
        parameters = [SCALE, SHIFT] if shapes is not None and len(shapes[1]) == 1 else [scale, shift]
        agree("LayerNormalization", [ROWS, *parameters], shapes, n_outputs=3, axis=axis, epsilon=0.01)
    agree("LayerNormalization", [ROWS, scale], n_outputs=1, axis=axis)


def test_layers_in_half_precision() -> None:
    agree("LayerNormalization", [a.astype(np.float16) for a in (ROWS, SCALE, SHIFT)])
    agree("RMSNormalization", [a.astype(np.float16) for a in (ROWS, SCALE)])


@pytest.mark.parametrize("op", ["RMSNormalization", "SimplifiedLayerNormalization"])
def test_mean_squares(op: str) -> None:
    agree(op, [ROWS, SCALE], [SHAPE, (4,)], axis=-1, epsilon=0.01)
    agree(op, [ROWS, SCALE], [("b", "s", "h"), ("h",)])


@pytest.mark.parametrize("n_outputs", [1, 4])
@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_skips(op: str, n_outputs: int) -> None:
    skip = np.random.default_rng(3).normal(size=ROWS.shape).astype(np.float32)
    shift = [SHIFT] if op == "SkipLayerNormalization" else []
    for bias in ([], [BIAS]):
        arrays = [ROWS, skip, SCALE, *shift, *bias]
        shapes = [SHAPE, SHAPE, *[(4,)] * (len(arrays) - 2)]
        agree(f"com.microsoft::{op}", arrays, shapes, n_outputs=n_outputs, epsilon=0.01)
    agree(f"com.microsoft::{op}", [ROWS, skip[0], SCALE], [SHAPE, ("s", 4), (4,)], n_outputs=n_outputs)


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("positions", [True, False])
def test_embeddings(segments: bool, positions: bool) -> None:
    random = np.random.default_rng(4)
    ids = random.integers(0, 5, (2, 3)).astype(np.int32)
    tables = [random.normal(size=(n, 4)).astype(np.float32) for n in (5, 6, 2)]
    kinds = (ids % 2) if segments else None
    places = np.array([[3, 4, 5]], np.int32) if positions else None
    arrays = [ids, kinds, *tables[:2], tables[2] if segments else None, SCALE, SHIFT, None, places]
    agree("com.microsoft::EmbedLayerNormalization", arrays, n_outputs=3)


def test_an_embedding_that_is_not_there_is_an_error() -> None:
    ids = np.array([[0, 5]], np.int32)
    table = np.zeros((5, 4), np.float32)
    with pytest.raises(ExecutionError, match="EmbedLayerNormalization: an index is out of range"):
        computed("com.microsoft::EmbedLayerNormalization", [ids, None, table, table, None, SCALE, SHIFT])


WRITTEN_OUT = {
    "layer norm": "d = Sub(x, ReduceMean(x, [-1], keepdims=1)) v = ReduceMean(Pow(d, 2.0), [-1], keepdims=1) "
    "y = Add(Mul(Div(d, Sqrt(Add(v, 0.00001))), s), b)",
    "layer norm of a sum": "a = Add(x, r) d = Sub(a, ReduceMean(a, [-1], keepdims=1)) "
    "v = ReduceMean(Mul(d, d), [-1], keepdims=1) y = Add(Mul(Div(d, Sqrt(Add(v, 0.00001))), s), b)",
    "RMS norm": "v = ReduceMean(Pow(x, 2.0), [-1], keepdims=1) y = Mul(Div(x, Sqrt(Add(v, 0.00001))), s)",
    "softmax": "e = Exp(Sub(x, ReduceMax(x, [-1], keepdims=1))) y = Div(e, ReduceSum(e, [-1], keepdims=1))",
}


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_rows_that_are_written_out_are_one_call(name: str) -> None:
    text = WRITTEN_OUT[name]
    sides = {"x": "n, 40", "r": "n, 40", "s": "40", "b": "40"}
    used = {w for w in sides if re.search(rf"\b{w}\b", text)}
    given = " ".join(f"{w}: float32[{e}]" for w, e in sides.items() if w in used)
    graph = parse(f"graph main (ir 8, opset 17)\n{given} {text} return y")
    peer = ReferenceEvaluator(onnx_io.to_proto(graph))
    rng = np.random.default_rng(0)
    with graphopt.compile(graph, strict=True) as compiled:
        assert compiled.report.calls == 1
        for n in (0, 1, 5):
            shapes = {"x": (n, 40), "r": (n, 40), "s": (40,), "b": (40,)}
            arrays = {w: rng.standard_normal(shapes[w]).astype(np.float32) for w in sorted(used)}
            if n == 5:
                arrays["x"][1, 7], arrays["x"][2, 3], arrays["x"][3] = np.nan, np.inf, 1.0
            with np.errstate(all="ignore"):
                (want,) = peer.run(None, arrays)
            assert error(np.asarray(want), compiled(arrays)["y"]) <= 1.0
