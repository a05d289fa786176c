"""Softmax and losses against ONNX's cases, and for large, infinite and ignored values."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.errors import ExecutionError
from graphopt.lowering.operators.softmax import TABLE
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_axes_and_sizes(op: str, axis: int) -> None:
    for sizes in ((2, 3, 4), (1, 1, 1), (2, 0, 3), (0, 2, 1)):
        x = np.random.default_rng(1).normal(size=sizes).astype(np.float32)
        if 0 not in sizes:
            agree(op, [x], [("n", "m", "k")], axis=axis)
        assert computed(op, [x], [("n", "m", "k")], axis=axis)[0].shape == sizes
    agree(op, [x[:, :, 0].T.copy().astype(np.float16)], axis=-1)


def test_large_numbers_do_not_overflow() -> None:
    x = np.array([[1e4, 1e4, 0], [-1e4, 0, -np.inf], [3e38, -3e38, 0]], np.float32)
    shares = computed("Softmax", [x])[0]
    assert shares.tolist() == [[0.5, 0.5, 0], [0, 1, 0], [1, 0, 0]]
    logarithms = computed("LogSoftmax", [x[:2]])[0]
    assert np.allclose(logarithms, [[-np.log(2), -np.log(2), -1e4 - np.log(2)], [-1e4, 0, -np.inf]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_would_be_subnormal_is_zero(dtype: str) -> None:
    """It adds nothing, and what is computed from it takes some processors a hundred times as long."""
    smallest = np.log(np.finfo(dtype).smallest_normal)
    x = np.array([[0, smallest + 1, smallest - 1, 2 * smallest, -np.inf, 0]], dtype)
    (y,) = computed("Softmax", [x], axis=-1)
    assert (y[0, 2:5] == 0).all()
    assert y[0, 1] > 0
    np.testing.assert_allclose(y[0, [0, 5]], 0.5, rtol=1e-6)
    x[0, 4] = np.nan
    assert np.isnan(computed("Softmax", [x], axis=-1)[0]).all()


def test_rows_without_a_largest_number_are_nan() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 0], [np.nan, 0], [1, 1]], np.float32)
    got = computed("Softmax", [x])[0]
    assert np.isnan(got[0]).all()
    assert np.isnan(got[1]).any()
    assert np.isnan(got[2]).all()
    assert got[3].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_losses_over_sizes_that_are_not_known(op: str, reduction: str) -> None:
    x = np.random.default_rng(2).normal(size=(3, 4, 2)).astype(np.float32)
    target = np.array([[0, 3], [1, -1], [2, 2]], np.int64)
    weight = np.array([1, 0.5, 2, 0.25], np.float32)
    shapes = [("n", "c", "d"), ("n", "d"), ("c",)]
    agree(op, [x, target, weight], shapes, reduction=reduction, ignore_index=-1)
    agree(op, [x, np.abs(target).astype(np.int32)], shapes[:2], reduction=reduction)


def test_a_target_beyond_the_classes_is_an_error() -> None:
    x = np.zeros((2, 3), np.float32)
    for target in ([0, 3], [-1, 0]):
        with pytest.raises(ExecutionError, match="NegativeLogLikelihoodLoss: a target is not the number of a class"):
            computed("NegativeLogLikelihoodLoss", [x, np.array(target)])
