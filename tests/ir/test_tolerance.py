from math import inf

import ml_dtypes
import numpy as np
import pytest

from graphopt.ir.tolerance import error


def test_equal_is_no_error() -> None:
    a = np.array([1.0, np.nan, np.inf, -0.0], "f4")
    assert error(a, a.copy()) == 0


def test_floats_are_measured_against_the_largest_of_the_tensor() -> None:
    a = np.array([100.0, 1e-3], "f4")
    assert error(a, np.array([100.0, 1.1e-3], "f4")) < 1
    assert error(a, np.array([100.0, 1.0], "f4")) > 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_rounding_is_right_and_a_wrong_result_is_wrong_in_every_float(dtype: object) -> None:
    a = np.linspace(1, 2, 9).astype(dtype)
    assert error(a, (a.astype("f8") * (1 + np.finfo("f8").eps)).astype(dtype)) <= 1
    assert error(a, (a.astype("f8") * 2).astype(dtype)) > 1


@pytest.mark.parametrize(
    ("want", "got"),
    [
        (np.zeros(2, "f4"), np.zeros(2, "f8")),
        (np.zeros(2, "f4"), np.zeros((2, 1), "f4")),
        (np.array([1, 2]), np.array([1, 3])),
        (np.array([True]), np.array([False])),
        (np.array(["a"], object), np.array(["b"], object)),
        (np.array([np.nan], "f4"), np.array([0], "f4")),
        (np.array([np.inf], "f4"), np.array([-np.inf], "f4")),
    ],
)
def test_wrong_in_kind(want: object, got: object) -> None:
    assert error(want, got) == inf  # type: ignore[arg-type]


def test_nothing_is_equal_to_nothing() -> None:
    assert error(np.zeros((0, 3), "f4"), np.zeros((0, 3), "f4")) == 0
