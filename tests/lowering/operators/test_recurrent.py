"""LSTM, GRU and RNN against ONNX's node tests, and against a step-by-step account in numpy of all their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import graphopt
from graphopt.errors import ExecutionError
from graphopt.ir.constants import Array
from graphopt.ir.tolerance import error
from graphopt.lowering.operators.recurrent import TABLE
from tests.lowering.operators.lowered import cases_of, check, computed, not_lowered

GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Any) -> None:
    check(case)


def test_every_case_is_lowered() -> None:
    assert not_lowered(TABLE) == set()


# -- the ops as their text in ONNX has them, one sequence at a time


Function = Callable[[Array], Array]


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


PLAIN: Mapping[str, tuple[Function, ...]] = {
    "GRU": (_sigmoid, np.tanh),
    "LSTM": (_sigmoid, np.tanh, np.tanh),
    "RNN": (np.tanh,),
}


def _step(op: str, x: Array, h: Array, c: Array, w: Array, r: Array, b: Array, p: Array, options: Any) -> Any:
    """One step of one sequence in one direction."""
    limit = options.get("clip", np.inf)
    plain: tuple[Function, ...] = options.get("functions", PLAIN[op])

    def clipped(function: Function) -> Function:
        return lambda v: function(np.clip(v, -limit, limit))

    functions = [clipped(f) for f in plain]
    n = len(h)
    own, rec = b[: GATES[op] * n], b[GATES[op] * n :]
    wx = (w @ x + own).reshape(GATES[op], n)
    rh = (r @ h + rec).reshape(GATES[op], n)
    if op == "RNN":
        return functions[0](wx[0] + rh[0]), c
    if op == "GRU":
        f, g = functions
        z, reset = f(wx[0] + rh[0]), f(wx[1] + rh[1])
        inner = r[2 * n :] @ (reset * h) + rec[2 * n :]
        new = g(wx[2] + (reset * rh[2] if options.get("linear_before_reset") else inner))
        return (1 - z) * new + z * h, c
    f, g, out = functions
    pi, po, pf = p.reshape(3, n)
    i = f(wx[0] + rh[0] + pi * c)
    forget = 1 - i if options.get("input_forget") else f(wx[2] + rh[2] + pf * c)
    c = forget * c + i * g(wx[3] + rh[3])
    return f(wx[1] + rh[1] + po * c) * out(c), c


def reference(op: str, inputs: list[Array | None], direction: str = "forward", **options: Any) -> list[Array]:
    """Y, Y_h and Y_c in layout 0."""
    x, w, r, b, lens, h0, c0, p = [*inputs, *[None] * 8][:8]
    assert x is not None
    assert w is not None
    assert r is not None
    steps, batch, _ = x.shape
    ways, n = r.shape[0], r.shape[2]
    b = np.zeros((ways, 2 * GATES[op] * n)) if b is None else b
    p = np.zeros((ways, 3 * n)) if p is None else p
    lens = np.full(batch, steps) if lens is None else lens
    y = np.zeros((steps, ways, batch, n))
    hs = np.zeros((ways, batch, n)) if h0 is None else np.array(h0, np.float64)
    cs = np.zeros((ways, batch, n)) if c0 is None else np.array(c0, np.float64)
    for d in range(ways):
        for k in range(batch):
            order = range(lens[k]) if direction == "forward" or (direction == "bidirectional" and d == 0) else None
            for s in order if order is not None else reversed(range(lens[k])):
                hs[d, k], cs[d, k] = _step(op, x[s, k], hs[d, k], cs[d, k], w[d], r[d], b[d], p[d], options)
                y[s, d, k] = hs[d, k]
    return [y, hs, cs][: 3 if op == "LSTM" else 2]


def _inputs(op: str, ways: int, steps: int, batch: int, width: int, hidden: int, dtype: str = "float32") -> list[Array]:
    random = np.random.default_rng(5)
    gates = GATES[op] * hidden
    shapes = [(steps, batch, width), (ways, gates, width), (ways, gates, hidden), (ways, 2 * gates)]
    return [random.uniform(-1, 1, s).astype(dtype) for s in shapes]


def _states(ways: int, batch: int, hidden: int) -> list[Array]:
    random = np.random.default_rng(6)
    return [random.uniform(-1, 1, (ways, batch, hidden)).astype(np.float32) for _ in range(2)]


def _agree(want: list[Array], got: list[Array]) -> None:
    for a, b in zip(want, got, strict=True):
        assert a.shape == b.shape
        assert error(a.astype(b.dtype), b) <= 1.0


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("hidden", [3, 8, 19])
def test_directions_and_sizes(op: str, direction: str, hidden: int) -> None:
    ways = 2 if direction == "bidirectional" else 1
    inputs = _inputs(op, ways, 3, 2, 4, hidden)
    got = computed(op, inputs, n_outputs=3 if op == "LSTM" else 2, direction=direction, hidden_size=hidden)
    _agree(reference(op, [*inputs], direction), got)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_sequences_of_different_lengths_and_initial_states(op: str, direction: str) -> None:
    ways = 2 if direction == "bidirectional" else 1
    inputs: list[Array | None] = [*_inputs(op, ways, 4, 3, 2, 5)]
    inputs += [np.array([4, 0, 2], np.int32), *_states(ways, 3, 5)[: 2 if op == "LSTM" else 1]]
    got = computed(op, inputs, n_outputs=3 if op == "LSTM" else 2, direction=direction, hidden_size=5)
    _agree(reference(op, inputs, direction), got)


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("LSTM", {"clip": 0.3}),
    ("LSTM", {"input_forget": 1}),
    ("GRU", {"linear_before_reset": 1}),
    ("GRU", {"clip": 0.3}),
    ("RNN", {"clip": 0.3}),
]


@pytest.mark.parametrize(("op", "options"), OPTIONS)
def test_options(op: str, options: dict[str, Any]) -> None:
    inputs = _inputs(op, 1, 3, 2, 4, 9)
    got = computed(op, inputs, n_outputs=2, hidden_size=9, **options)
    _agree(reference(op, [*inputs], **options)[:2], got)


def test_peepholes() -> None:
    peepholes = np.random.default_rng(7).uniform(-1, 1, (2, 15)).astype(np.float32)
    inputs: list[Array | None] = [*_inputs("LSTM", 2, 3, 2, 4, 5), None, *_states(2, 2, 5), peepholes]
    got = computed("LSTM", inputs, n_outputs=3, hidden_size=5, direction="bidirectional")
    _agree(reference("LSTM", inputs, "bidirectional"), got)


def test_activations_take_their_numbers_in_turn() -> None:
    inputs = _inputs("LSTM", 1, 3, 2, 4, 5)
    got = computed(
        "LSTM",
        inputs,
        n_outputs=1,
        hidden_size=5,
        activations=("HardSigmoid", "relu", "LeakyRelu"),
        activation_alpha=(0.3, 0.05),
        activation_beta=(0.4,),
    )
    functions = (
        lambda x: np.clip(0.3 * x + 0.4, 0, 1),
        lambda x: np.maximum(x, 0),
        lambda x: np.where(x < 0, 0.05 * x, x),
    )
    _agree(reference("LSTM", [*inputs], functions=functions)[:1], got)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_batch_first(op: str) -> None:
    x, *rest = _inputs(op, 2, 3, 2, 4, 5)
    h, _ = _states(2, 2, 5)
    y, y_h = reference(op, [x, *rest, None, h], "bidirectional")[:2]
    got = computed(
        op,
        [x.swapaxes(0, 1), *rest, None, h.swapaxes(0, 1)],
        n_outputs=2,
        hidden_size=5,
        direction="bidirectional",
        layout=1,
    )
    _agree([y.transpose(2, 0, 1, 3), y_h.swapaxes(0, 1)], got)


@pytest.mark.parametrize(("steps", "batch"), [(0, 2), (3, 0), (1, 1)])
def test_sizes_that_are_not_known(steps: int, batch: int) -> None:
    inputs = _inputs("LSTM", 1, steps, batch, 4, 5)
    shapes = [("s", "b", 4), *(a.shape for a in inputs[1:])]
    got = computed("LSTM", inputs, shapes, n_outputs=3, hidden_size=5)
    _agree(reference("LSTM", [*inputs]), got)


@pytest.mark.parametrize(
    ("op", "linear"), [("LSTM", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("RNN", {})]
)
@pytest.mark.parametrize("layout", [0, 1])
def test_rows_to_spare_change_nothing(op: str, linear: dict[str, int], layout: int) -> None:
    for steps, batch in ((1, 3), (3, 4), (2, 9), (5, 2), (7, 1)):
        inputs: list[Array | None] = [*_inputs(op, 1, steps, batch, 4, 5)]
        lens = np.random.default_rng(batch).integers(0, steps + 1, batch, np.int32)
        states = _states(1, batch, 5)[: 2 if op == "LSTM" else 1]
        want = reference(op, [*inputs, lens, *states], **linear)
        turned = [a.swapaxes(0, 1) if layout else a for a in (inputs[0], *states) if a is not None]
        given = [turned[0], *inputs[1:], lens, *turned[1:]]
        shapes = [("b", "s", 4) if layout else ("s", "b", 4), *(a.shape for a in inputs[1:] if a is not None), ("b",)]
        shapes += [("b", 1, 5) if layout else (1, "b", 5)] * len(states)
        got = computed(op, given, shapes, n_outputs=len(want), hidden_size=5, layout=layout, **linear)
        if layout:
            got = [np.moveaxis(got[0], 0, 2), *(a.swapaxes(0, 1) for a in got[1:])]
        _agree(want, got)


def test_halves_are_computed_in_single_precision() -> None:
    inputs = _inputs("GRU", 1, 3, 2, 4, 5, "float16")
    got = computed("GRU", inputs, n_outputs=2, hidden_size=5)
    assert got[0].dtype == np.float16
    for a, b in zip(reference("GRU", [*inputs]), got, strict=True):
        np.testing.assert_allclose(a, b.astype(np.float64), atol=1e-3)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    ("steps", "batch", "width", "hidden"), [(1, 13, 3, 2), (2, 7, 0, 1), (14, 1, 1, 17), (2, 2, 3, 0)]
)
def test_tiles_of_all_kinds(op: str, steps: int, batch: int, width: int, hidden: int) -> None:
    x, w, r, b = _inputs(op, 1, steps, batch, width, hidden)
    h, c = _states(1, batch, hidden)
    inputs = [x, w, r, b, None, h, *([c] if op == "LSTM" else [])]
    got = computed(op, inputs, n_outputs=3 if op == "LSTM" else 2, hidden_size=hidden)
    _agree(reference(op, inputs), got)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_gate_that_is_reset_after_its_product(steps: int, with_bias: bool) -> None:
    x, w, r, b = _inputs("GRU", 2, steps, 2, 4, 5)
    given: list[Array | None] = [x, w, r, b if with_bias else None, None, _states(2, 2, 5)[0]]
    options: dict[str, Any] = {"direction": "bidirectional", "linear_before_reset": 1}
    got = computed("GRU", given, n_outputs=2, hidden_size=5, **options)
    _agree(reference("GRU", given, **options), got)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, -0.0, 1e38])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_special_values(op: str, value: float) -> None:
    x, *rest = _inputs(op, 1, 3, 2, 4, 5)
    x[1, 1, 2] = value
    with np.errstate(all="ignore"):
        want = reference(op, [x, *rest])
    _agree(want, computed(op, [x, *rest], n_outputs=3 if op == "LSTM" else 2, hidden_size=5))


@pytest.mark.parametrize(
    ("op", "short", "options"),
    [
        *(("LSTM", k, {}) for k in (1, 2, 3, 7)),
        *(("GRU", k, {"linear_before_reset": 1}) for k in (1, 2, 3)),
        ("RNN", 1, {}),
    ],
)
def test_sizes_are_compared_before_anything_is_read(op: str, short: int, options: dict[str, Any]) -> None:
    arrays: list[Array | None] = [*_inputs(op, 1, 3, 2, 4, 5), *[None] * 4][:8]
    if op == "LSTM":
        arrays[7] = np.ones((1, 15), np.float32)
    shapes = [None if a is None else (1, "n", *a.shape[2:]) if k == short else a.shape for k, a in enumerate(arrays)]
    (got,) = computed(op, arrays, shapes, hidden_size=5, **options)
    _agree(reference(op, arrays, **options)[:1], [got])
    given = arrays[short]
    assert given is not None
    arrays[short] = given[:, :1]
    with pytest.raises(ExecutionError, match="sizes of its inputs do not agree"):
        computed(op, arrays, shapes, hidden_size=5, **options)


# -- compiled


def model(op: str, arrays: list[Array], shape: tuple[int | str, ...], **options: Any) -> onnx.ModelProto:
    """The op on an input of the shape, and on constants."""
    names = ["Y", "Y_h", "Y_c"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(op, [*"XWRB"], names, hidden_size=arrays[2].shape[2], **options)
    held = [numpy_helper.from_array(a, n) for n, a in zip("WRB", arrays[1:], strict=True)]
    inputs = [helper.make_tensor_value_info("X", 1, shape)]
    outputs = [helper.make_tensor_value_info(n, 1, None) for n in names]
    return helper.make_model(helper.make_graph([node], "g", inputs, outputs, held))


@pytest.mark.parametrize(
    ("op", "steps", "batch", "hidden", "options"),
    [
        ("LSTM", 4, 1, 20, {}),
        ("LSTM", 1, 9, 33, {}),
        ("GRU", 5, 1, 16, {"linear_before_reset": 1}),
        ("RNN", 13, 8, 5, {}),
    ],
)
def test_compiled(op: str, steps: int, batch: int, hidden: int, options: dict[str, Any]) -> None:
    arrays = _inputs(op, 1, steps, batch, 3, hidden)
    with graphopt.compile(model(op, arrays, arrays[0].shape, **options), strict=True, optimize=False) as compiled:
        got = compiled(arrays[0])
        constants = compiled.compiled.program.code.constants.values()
    _agree(reference(op, [*arrays], **options), [*got.values()])
    assert not {a.shape for a in arrays[1:]} & {a.shape for a in constants}  # weights are packed, and held once


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_rows_and_directions_are_shared_out(op: str) -> None:
    arrays = _inputs(op, 2, 3, 14, 3, 5)
    made = model(op, arrays, ("s", "b", 3), direction="bidirectional")
    with graphopt.compile(made, optimize=False, threads=2) as compiled:
        assert any(p.emitted.parallel for p in compiled.compiled.linked.parts)
        for batch in range(15):
            x = arrays[0][:, :batch]
            _agree(reference(op, [x, *arrays[1:]], "bidirectional"), [*compiled(x).values()])
