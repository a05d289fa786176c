"""RoiAlign against ONNX's cases and the reference."""

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
