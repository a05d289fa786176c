"""RoiAlign against ONNX's cases and the reference, MaxRoiPool against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt.errors import ExecutionError
from graphopt.lowering.operators.regions import TABLE
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered
from tests.lowering.operators.shaped import ints

RNG = np.random.default_rng(0)
ROIS = np.array([[0, 0, 4, 4], [1, 2, 3.5, 6], [-3, -1, 2, 9], [5, 5, 4, 4], [20, 20, 30, 30]], np.float32)


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
def test_bins(mode: str, ratio: int, transformation: str) -> None:
    x = RNG.standard_normal((2, 2, 6, 5)).astype(np.float32)
    attrs: dict[str, Any] = {
        "mode": mode, "sampling_ratio": ratio, "coordinate_transformation_mode": transformation,
        "output_height": 2, "output_width": 3, "spatial_scale": 0.8,
    }  # fmt: skip
    arrays = [x, ROIS, ints(0, 1, 1, 0, 1)]
    agree("RoiAlign", arrays, **attrs)
    agree("RoiAlign", arrays, [["n", "c", "h", "w"], ["r", 4], ["r"]], **attrs)


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("image", [2, -1, 10**15])
def test_an_image_that_is_not_there_ends_the_program(ratio: int, image: int) -> None:
    x = np.zeros((2, 1, 3, 3), np.float32)
    with pytest.raises(ExecutionError, match="RoiAlign"):
        computed("RoiAlign", [x, ROIS[:1], ints(image)], sampling_ratio=ratio)


def test_regions_nowhere_never_leave_the_image() -> None:
    rois = np.array([[np.nan, 0, 1, 1], [1e30, 1e30, 1e30, 1e30], [np.inf, 0, np.inf, 1]], np.float32)
    computed("RoiAlign", [np.zeros((1, 1, 3, 3), np.float32), rois, ints(0, 0, 0)], sampling_ratio=2)


def largest(x: Any, rois: Any, sizes: tuple[int, int], scale: float) -> Any:
    """The largest elements of bins of regions."""
    found = np.zeros((len(rois), x.shape[1], *sizes), x.dtype)
    for r, (n, *corners) in enumerate(rois):
        left, top, right, bottom = (int(np.copysign(np.floor(abs(e * scale) + 0.5), e)) for e in corners)
        spans = [(top, bottom, sizes[0], x.shape[2]), (left, right, sizes[1], x.shape[3])]
        for at in np.ndindex(*sizes):
            cuts = []
            for (first, last, count, size), i in zip(spans, at, strict=True):
                length = max(last - first + 1, 1) / count
                ends = int(np.floor(i * length)) + first, int(np.ceil((i + 1) * length)) + first
                cuts.append(slice(*(min(max(end, 0), size) for end in ends)))
            part = x[int(n), :, cuts[0], cuts[1]]
            if part.size:
                found[(r, slice(None), *at)] = part.max((1, 2))
    return found


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("channels", [2, 11])
def test_the_largest_of_bins(scale: float, channels: int) -> None:
    x = RNG.standard_normal((2, channels, 6, 5)).astype(np.float32)
    rois = np.concatenate([np.array([[0], [1], [1], [0], [1]]), ROIS], 1).astype(np.float32)
    attrs = {"pooled_shape": (2, 3), "spatial_scale": scale}
    for shapes in (None, [["n", "c", "h", "w"], ["r", 5]]):
        (y,) = computed("MaxRoiPool", [x, rois], shapes, **attrs)
        np.testing.assert_array_equal(y, largest(x, rois, (2, 3), scale))


def test_a_region_of_no_image_ends_the_program() -> None:
    with pytest.raises(ExecutionError, match="MaxRoiPool"):
        computed("MaxRoiPool", [np.zeros((1, 1, 3, 3), np.float32), np.ones((1, 5), np.float32)], pooled_shape=(1, 1))
