"""GridSample and AffineGrid against ONNX's cases and the reference, at coordinates on and beyond the border."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt.errors import ExecutionError
from graphopt.lowering.operators.sampling import TABLE
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered
from tests.lowering.operators.shaped import ints, numbers

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_images(mode: str, padding: str, aligned: int) -> None:
    x = RNG.standard_normal((2, 2, 3, 4)).astype(np.float32)
    grid = RNG.uniform(-2.5, 2.5, (2, 3, 5, 2)).astype(np.float32)
    attrs: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    agree("GridSample", [x, grid], **attrs)
    agree("GridSample", [x, grid], [["n", "c", "h", "w"], ["n", "a", "b", 2]], **attrs)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_volumes(mode: str, padding: str) -> None:
    x = RNG.standard_normal((1, 1, 2, 3, 4)).astype(np.float32)
    grid = RNG.uniform(-1.5, 1.5, (1, 2, 2, 2, 3)).astype(np.float32)
    agree("GridSample", [x, grid], mode=mode, padding_mode=padding)


def test_volumes_by_cubes() -> None:
    x = RNG.standard_normal((1, 1, 4, 4, 4)).astype(np.float32)
    agree("GridSample", [x, RNG.uniform(-1, 1, (1, 1, 1, 2, 3)).astype(np.float32)], mode="cubic")


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_no_coordinate_leaves_memory(padding: str, aligned: int, mode: str) -> None:
    far = np.array([1e9, -1e9, 3e38, -3e38, np.inf, -np.inf, np.nan, 0], np.float32)
    grid = np.stack(np.meshgrid(far, far), -1)[None]
    for shape in ((1, 1, 2, 3), (1, 1, 1, 1)):
        computed("GridSample", [numbers(*shape), grid], mode=mode, padding_mode=padding, align_corners=aligned)


def test_a_grid_for_other_images_ends_the_program() -> None:
    with pytest.raises(ExecutionError, match="GridSample"):
        computed(
            "GridSample", [numbers(2, 1, 2, 2), np.zeros((1, 1, 1, 2), np.float32)], [["n", 1, 2, 2], ["m", 1, 1, 2]]
        )


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (1, 1, 2, 3, 4)])
def test_affine_grids(aligned: int, size: tuple[int, ...]) -> None:
    rank = len(size) - 2
    theta = RNG.standard_normal((size[0], rank, rank + 1)).astype(np.float32)
    agree("AffineGrid", [theta, ints(*size)], known={1}, align_corners=aligned)
