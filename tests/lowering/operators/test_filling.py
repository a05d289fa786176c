"""Tensors made of sizes and few numbers, against ONNX's cases and the reference."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.lowering.operators.filling import TABLE
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered
from tests.lowering.operators.shaped import ints, numbers


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_constant_of_shape(shape: tuple[int, ...]) -> None:
    agree("ConstantOfShape", [ints(*shape)], known={0})
    for value in (np.array([-7], np.int8), np.array([True]), np.array([np.nan], np.float16)):
        agree("ConstantOfShape", [ints(*shape)], known={0}, value=Constant.of(value))


def test_sizes() -> None:
    agree("Shape", [numbers(2, 0, 3)], [["n", "m", 3]])
    agree("Shape", [numbers(2, 1, 3)], [["n", "m", 3]], start=-2)
    agree("Shape", [numbers()])
    agree("Size", [numbers(2, 3)], [["n", "m"]])
    agree("Size", [numbers()])


@pytest.mark.parametrize(
    ("start", "limit", "delta", "dtype"),
    [
        (0, 5, 1, "int64"),
        (10, 0, -3, "int32"),
        (3, 3, 1, "int64"),
        (0.5, 2.5, 0.25, "float32"),
        (1, -1, -0.5, "float64"),
    ],
)
def test_ranges(start: float, limit: float, delta: float, dtype: str) -> None:
    agree("Range", [np.array(v, dtype) for v in (start, limit, delta)], known={0, 1, 2})


@pytest.mark.parametrize("k", [-3, -1, 0, 2, 9])
def test_diagonals(k: int) -> None:
    agree("EyeLike", [numbers(3, 5)], [["n", "m"]], k=k)
    agree("EyeLike", [numbers(3, 5)], k=k, dtype=7)


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("dtype", ["int64", "int8", "float32", "uint8"])
def test_one_hot(axis: int, dtype: str) -> None:
    indices = np.array([[0, 2, 1], [4, 3, 4]]).astype(dtype)
    agree("OneHot", [indices, np.array(5), np.array([2, 9], np.int32)], known={1}, axis=axis)
    agree("OneHot", [indices, np.array(5), np.array([2, 9], np.int32)], [["n", "m"], [], [2]], known={1}, axis=axis)


def test_an_index_out_of_range_is_hot_nowhere() -> None:
    values = np.array([0, 1], ml_dtypes.bfloat16)
    (found,) = computed("OneHot", [ints(-1, -4, 3, 10**15, -(10**15)), np.array(3), values], known={1})
    assert found.astype(int).tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
