"""What rounding does to a model: how far outputs are off, and whether the model itself moves as far."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphopt.ir.onnx_io import save
from graphopt.ir.text import parse
from graphopt.verify.conditioning import explained_by_rounding, is_rounding, is_whole, moved_inputs, moved_weights, off
from graphopt.verify.runtimes import ONNX_RUNTIME, open_model

X = np.float32([1.5, -2.25, 0.0])


@pytest.mark.parametrize(
    ("want", "got", "units"),
    [
        (X, X, 0.0),
        ([X, X], [X, X + 1], 1.0),
        ([X], [X, X], inf),
        (None, None, 0.0),
        (None, X, inf),
        ({1: 2.0}, {1: 2.0}, 0.0),
        ({1: 2.0}, {1: 3.0}, inf),
    ],
)
def test_how_far_outputs_are_off(want: Any, got: Any, units: float) -> None:
    assert off(want, got) == units if units in (0.0, inf) else off(want, got) > units


def test_inputs_and_weights_move_by_one_ulp_but_for_whole_numbers() -> None:
    feeds = {"x": X, "whole": np.float32([1, 2]), "i": np.array([3])}
    seen = [moved["x"] for moved in moved_inputs(feeds)]
    assert seen
    for x in seen:
        assert x[2] == 0
        assert (np.abs(x - X)[:2] == np.spacing(np.abs(X))[:2]).all() or (x != X)[:2].all()
    assert all(moved["whole"] is feeds["whole"] and moved["i"] is feeds["i"] for moved in moved_inputs(feeds))
    assert not list(moved_inputs({"i": np.array([3])}))
    assert is_whole(feeds["whole"])
    graph = parse("x: float32[2] w = float32[2]{0.1, 0.3} k = float32[2]{1.0, 2.0} y = Mul(Add(x, w), k) return y")
    before, after = (
        [n.attrs["value"].array for n in g.nodes() if n.op == "Constant"]  # type: ignore[union-attr]
        for g in (graph, moved_weights(graph, 1, np.random.default_rng(0)))
    )
    changed = [not np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert sorted(changed) == [False, True]


def test_rounding_is_what_moves_a_value_about_as_far() -> None:
    wide = np.float32([10.0, 20.0])
    assert is_rounding(wide, wide + 4, wide + 1)
    assert not is_rounding(wide, wide + 5, wide + 1)
    assert not is_rounding(wide, wide.astype(np.float64), wide + 1)
    assert not is_rounding(wide, np.float32([np.nan, 20]), wide)
    assert is_rounding(np.array([1, 2]), np.array([1, 3]), np.array([2, 2]))
    assert is_rounding([wide], [wide + 4], [wide + 1])


@pytest.mark.parametrize(
    ("text", "feeds", "how"),
    [
        ("x: float32[2] y = Sub(Add(x, 300000.5), 300001.25) return y", {"x": np.float32([0.3, 0.6])}, "its weights"),
        ("x: float32[2] y = Mul(x, x) return y", {"x": np.float32([0.3, 0.6])}, "its inputs"),
        ("i: int64[2] y = Mul(Cast(i, to=1), 0.1) return y", {"i": np.array([3, 4])}, "its weights"),
        ("i: int64[2] y = Add(i, i) return y", {"i": np.array([3, 4])}, ""),
    ],
)
def test_how_a_model_moves(text: str, feeds: dict[str, Any], how: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    graph = parse(text)
    save(graph, tmp_path / "m.onnx")
    run, _ = open_model(tmp_path / "m.onnx", ONNX_RUNTIME)
    once = run(feeds)
    near = np.nextafter(once[0], np.inf, dtype=once[0].dtype) if how else once[0] + 1
    found = explained_by_rounding(tmp_path / "m.onnx", ONNX_RUNTIME, graph, run, feeds, once, {0: near}, {0: 0.0})
    assert found.keys() == ({0} if how else set())
    assert all(what.startswith(how) for what, _ in found.values())
    assert not explained_by_rounding(
        tmp_path / "m.onnx", ONNX_RUNTIME, graph, run, feeds, once, {0: once[0] + 1}, {0: 0.0}
    )


def test_the_next_way_is_asked_where_one_moves_a_result_too_little(tmp_path: Path) -> None:
    """An input moves one of the steps, weights many."""
    pytest.importorskip("onnxruntime")
    steps = "Concat(Floor(Mul(x, 8.0)), Floor(Mul(Cast(i, to=1), 0.1)), axis=0)"
    graph = parse(f"x: float32[1] i: int64[40] y = Cast({steps}, to=7) return y")
    save(graph, tmp_path / "m.onnx")
    run, _ = open_model(tmp_path / "m.onnx", ONNX_RUNTIME)
    feeds = {"x": np.float32([0.3125]), "i": np.arange(10, 410, 10)}
    once = run(feeds)
    found = explained_by_rounding(
        tmp_path / "m.onnx", ONNX_RUNTIME, graph, run, feeds, once, {0: once[0] - (np.arange(41) > 20)}, {0: 0.0}
    )
    assert found[0][0].startswith("its weights")


@pytest.mark.parametrize(
    ("text", "feeds", "made", "how"),
    [
        # what is left of the square of one number without itself is rounding, and nothing in ONNX Runtime
        (
            "x: float32[2, 1] s = Mul(x, x) m = ReduceMean(s, [-1]) y = Sub(m, s) return y",
            {"x": np.float32([[0.3], [0.7]])},
            np.float32([[3e-9], [-2e-8]]),
            "float64 takes",
        ),
        (
            "x: float32[2, 1] s = Mul(x, x) m = ReduceMean(s, [-1]) y = Sub(m, s) return y",
            {"x": np.float32([[0.3], [0.7]])},
            np.float32([[1e-5], [0]]),
            "",
        ),
        (
            "x: float64[2, 1] s = Mul(x, x) m = ReduceMean(s, [-1]) y = Sub(m, s) return y",
            {"x": np.float64([[0.3], [0.7]])},
            np.float64([[3e-18], [-2e-17]]),
            "float64 takes",
        ),
        # beyond 65504, which ONNX Runtime does not see where it keeps halves in single precision
        (
            "x: float16[2] e = Exp(x) k = float16[]{1000.0} y = Div(e, k) return y",
            {"x": np.float16([13.0, 1.0])},
            np.float16([np.inf, 0.002718]),
            "ONNX's reference evaluator computes it",
        ),
        (
            "x: float16[2] e = Exp(x) k = float16[]{1000.0} y = Div(e, k) return y",
            {"x": np.float16([9.0, 1.0])},
            np.float16([np.inf, 0.002718]),
            "",
        ),
        # what is not finite excuses nothing
        ("x: float32[2] z = Sub(x, x) y = Div(1.5, z) return y", {"x": X[:2]}, np.float32([5, -np.inf]), ""),
        ("x: float32[2] y = Log(x) return y", {"x": np.float32([0, 0.7])}, np.float32([123, -0.35667494]), ""),
        ("x: float32[2] y = Log(x) return y", {"x": np.float32([-1, 0.7])}, np.float32([123, -0.35667494]), ""),
        # what is single precision inside is not as coarse as the half at its end
        (
            "x: float32[2] m = Mul(x, 1000.1) s = Sub(m, 300.2) y = Cast(s, to=10) return y",
            {"x": np.float32([0.3001, 0.3003])},
            np.float16([0.93, 1.13]),
            "",
        ),
    ],
)
def test_what_cancels_or_leaves_the_range_of_a_dtype_inside(
    text: str, feeds: dict[str, Any], made: np.ndarray, how: str, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    graph = parse(text)
    save(graph, tmp_path / "m.onnx")
    run, _ = open_model(tmp_path / "m.onnx", ONNX_RUNTIME)
    found = explained_by_rounding(tmp_path / "m.onnx", ONNX_RUNTIME, graph, run, feeds, run(feeds), {0: made}, {0: 0.0})
    assert found.keys() == ({0} if how else set())
    assert all(what.startswith(how) and moved[0].dtype == made.dtype for what, moved in found.values())
