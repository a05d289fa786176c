"""Resize in all modes against ONNX's cases and the reference, at many sizes."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.ir import evaluate
from graphopt.ir.graph import Attrs
from graphopt.ir.tolerance import error
from graphopt.lowering.loops.compute import ElementwiseStage, producers_first
from graphopt.lowering.loops.expressions import Const, Var
from graphopt.lowering.operators.coordinates import ResizedAxis
from graphopt.lowering.operators.operation import NotLowered
from graphopt.lowering.operators.resize import TABLE
from graphopt.lowering.operators.table import describe
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered
from tests.lowering.operators.shaped import ints, numbers, operation, run

TRANSFORMATIONS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
MODES = ("nearest", "linear", "cubic")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


def coordinate(y: int, scale: Fraction, size: int, count: int, transformation: str) -> Fraction:
    """Where the y-th element lies in the input, exactly (the reference rounds, and is now and then wrong by one)."""
    width, half = scale * size, Fraction(1, 2)
    match transformation:
        case "asymmetric":
            return y / scale
        case "align_corners":
            return Fraction(0) if width == 1 else y * (size - 1) / (width - 1)
        case "pytorch_half_pixel" if width == 1:
            return -half
        case "half_pixel_symmetric":
            return Fraction(size, 2) * (1 - count / width) + (y + half) / scale - half
    return (y + half) / scale - half


def nearest_of(x: Fraction, mode: str) -> int:
    """The nearest whole number."""
    match mode:
        case "floor":
            return floor(x)
        case "ceil":
            return ceil(x)
        case "round_prefer_floor":
            return ceil(x - Fraction(1, 2))
    return floor(x + Fraction(1, 2))


def weights_of(part: float, mode: str) -> dict[int, float]:
    """The weights of the elements around, by their distance from the one before the coordinate."""
    if mode == "linear":
        return {0: 1 - part, 1: part}
    near = {k: abs(k - part) for k in (-1, 0, 1, 2)}
    a = -0.75
    return {
        k: (a + 2) * d**3 - (a + 3) * d**2 + 1 if d <= 1 else a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        for k, d in near.items()
    }


def expected(x: Any, scale: Fraction, count: int, transformation: str, mode: str, nearest: str = "floor") -> Any:
    """The last axis resized."""
    found, size = [], x.shape[-1]
    for y in range(count):
        at = coordinate(y, scale, size, count, transformation)
        if mode == "nearest":
            taps = {nearest_of(at, nearest): 1.0}
        else:
            taps = {floor(at) + k: w for k, w in weights_of(float(at - floor(at)), mode).items()}
        found.append(sum(w * x[..., min(max(k, 0), size - 1)] for k, w in taps.items()))
    return np.stack(found, -1)


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("nearest", NEAREST)
@pytest.mark.parametrize("scale", [2.0, 3.0, 0.5, 0.25, 0.6, 1.7, 2.5, 1 / 3])
def test_nearest(transformation: str, nearest: str, scale: float) -> None:
    x, scales = numbers(1, 9), floats(1, scale)
    attrs = {"mode": "nearest", "coordinate_transformation_mode": transformation, "nearest_mode": nearest}
    (found,) = computed("Resize", [x, None, scales], known={2}, **attrs)
    exact = Fraction(float(scales[1]))
    assert np.array_equal(found, expected(x, exact, floor(9 * exact), transformation, "nearest", nearest))


SIZES = (st.integers(1, 12), st.integers(1, 24), st.sampled_from(TRANSFORMATIONS))


@settings(max_examples=150, deadline=None)
@given(*SIZES, st.sampled_from(NEAREST), st.booleans())
def test_nearest_to_any_size(size: int, count: int, transformation: str, nearest: str, named: bool) -> None:
    attrs = {"mode": "nearest", "coordinate_transformation_mode": transformation, "nearest_mode": nearest}
    shapes = [["n"], None, None, [1]] if named else None
    (found,) = computed("Resize", [numbers(size), None, None, ints(count)], shapes, known={3}, **attrs)
    want = expected(numbers(size), Fraction(count, size), count, transformation, "nearest", nearest)
    assert np.array_equal(found, want)


@settings(max_examples=80, deadline=None)
@given(*SIZES, st.sampled_from(["linear", "cubic"]), st.booleans(), st.sampled_from(["float32", "float64"]))
def test_weighted_to_any_size(size: int, count: int, transformation: str, mode: str, named: bool, dtype: str) -> None:
    x = numbers(2, size, dtype=dtype)
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transformation, "axes": (1,)}
    shapes = [["b", "n"], None, None, [1]] if named else None
    (found,) = computed("Resize", [x, None, None, ints(count)], shapes, known={3}, **attrs)
    want = expected(x.astype(np.float64), Fraction(count, size), count, transformation, mode)
    assert error(want.astype(dtype), found) <= 1.0


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("excludes", [0, 1])
@pytest.mark.parametrize(("height", "width"), [(2, 2.0), (0.6, 1.7), (0.5, 3), (1.0, 0.25)])
def test_weighted(mode: str, transformation: str, excludes: int, height: float, width: float) -> None:
    x = RNG.standard_normal((1, 2, 4, 5)).astype(np.float32)
    attrs = {"mode": mode, "coordinate_transformation_mode": transformation, "exclude_outside": excludes}
    agree("Resize", [x, None, floats(1, 1, height, width)], known={2}, **attrs)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("excludes", [0, 1])
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("sizes", [(3, 2), (8, 3), (1, 1), (2, 9)])
def test_antialias(mode: str, excludes: int, transformation: str, sizes: tuple[int, int]) -> None:
    x = RNG.standard_normal((8, 7)).astype(np.float32)
    attrs = {
        "mode": mode,
        "antialias": 1,
        "exclude_outside": excludes,
        "coordinate_transformation_mode": transformation,
    }
    agree("Resize", [x, None, None, ints(*sizes)], known={3}, **attrs)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("axes", [(1, 2), (2, 1)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_sizes_that_keep_the_ratio(policy: str, axes: tuple[int, int], mode: str) -> None:
    arrays = [numbers(2, 3, 4), floats(), floats(), ints(7, 5)]
    attrs = {"axes": axes, "keep_aspect_ratio_policy": policy, "mode": mode}
    (want,) = evaluate.compute("Resize", Attrs(attrs), [arrays[0], None, None, arrays[3]], 1)
    assert error(np.asarray(want), run("Resize", arrays, want.shape, {3}, **attrs)) <= 1.0
    with pytest.raises(NotLowered, match="input 3"):
        run("Resize", arrays, want.shape, **attrs)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("roi", [(0.0, 0.2, 1.0, 0.7), (-0.3, 0.4, 0.6, 1.5), (0.5, 0.5, 0.5, 0.5)])
@pytest.mark.parametrize("known", [True, False])
def test_a_part_is_cropped(mode: str, roi: tuple[float, ...], known: bool) -> None:
    x = RNG.standard_normal((5, 6)).astype(np.float32)
    attrs: dict[str, Any] = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    arrays = [x, floats(*roi), None, ints(3, 7)]
    agree("Resize", arrays, known={1, 3} if known else {3}, mode=mode, **attrs)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "float16"])
def test_other_dtypes(mode: str, dtype: str) -> None:
    x = RNG.integers(0, 120, (3, 4)).astype(dtype)
    agree("Resize", [x, None, floats(2, 1.5)], known={2}, mode=mode)
    agree("Resize", [x, None, floats(0.5, 0.6)], known={2}, mode=mode, antialias=1)


def test_booleans_have_neighbours() -> None:
    (found,) = computed("Resize", [np.array([True, False, True]), None, floats(2)], known={2}, mode="nearest")
    assert found.tolist() == [True, True, False, False, True, True]


@pytest.mark.parametrize("mode", MODES[1:])
def test_booleans_have_no_mean(mode: str) -> None:
    """Neither ONNX Runtime nor the reference computes it."""
    with pytest.raises(NotLowered, match=f"{mode} interpolation gives of booleans"):
        computed("Resize", [np.array([True, False, True]), None, floats(2)], known={2}, mode=mode)


@pytest.mark.parametrize(("mode", "antialias"), [*((m, 0) for m in MODES), *((m, 1) for m in MODES[1:])])
def test_scales_may_be_known_only_when_it_runs(mode: str, antialias: int) -> None:
    attrs: dict[str, Any] = {"mode": mode, "antialias": antialias}
    for scales in ((2.0, 1.5), (0.5, 3.0), (1.0, 0.4)):
        arrays = [numbers(4, 5), None, floats(*scales)]
        (want,) = evaluate.compute("Resize", Attrs(attrs), arrays, 1)
        assert error(np.asarray(want), run("Resize", arrays, want.shape, **attrs)) <= 1


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("excludes", [0, 1])
@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_antialias_of_sizes_that_are_open(mode: str, excludes: int, policy: str) -> None:
    attrs: dict[str, Any] = {"mode": mode, "antialias": 1, "exclude_outside": excludes}
    attrs["keep_aspect_ratio_policy"] = policy
    x, sizes = RNG.standard_normal((9, 5)).astype(np.float32), ints(4, 6)
    (want,) = evaluate.compute("Resize", Attrs(attrs), [x, None, None, sizes], 1)
    (found,) = computed("Resize", [x, None, None, sizes], [("h", "w"), None, None, (2,)], known={3}, **attrs)
    assert error(np.asarray(want), found) <= 1


@pytest.mark.parametrize(
    ("transformation", "nearest"),
    [("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")],
)
def test_doubling_divides_the_index_by_two(transformation: str, nearest: str) -> None:
    i, n = Var("i"), Var("n")
    for size, count in ((Const(5), Const(10)), (n, n * 2)):
        line = ResizedAxis(size, count, 2.0, transformation, ratio=(Const(2), Const(1)))
        assert line.nearest(i, nearest) == i // 2


def test_one_stage_where_few_elements_take_part() -> None:
    x, scales = numbers(1, 1, 4, 4), floats(1, 1, 2, 2)
    for mode in ("nearest", "linear"):
        (made,) = describe(operation("Resize", [x, floats(), scales], (1, 1, 8, 8), known={1, 2}, mode=mode))
        assert isinstance(made.stage, ElementwiseStage)


@pytest.mark.parametrize(("size", "stored"), [(64, 0), (16, 0), (48, 1), (30, 1)])
def test_places_are_stored_by_axis_but_for_whole_factors(size: int, stored: int) -> None:
    modes: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    x, sizes = numbers(1, 2, 3, 32), ints(1, 2, 3, size)
    (made,) = describe(operation("Resize", [x, None, None, sizes], (1, 2, 3, size), known={3}, **modes))
    stages = [t.stage for t in producers_first([made]) if isinstance(t.stage, ElementwiseStage)]
    assert sum(stage.is_stored for stage in stages) == stored
