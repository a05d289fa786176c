"""Determinants against ONNX's node tests and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt.lowering.operators.determinants import TABLE
from tests.lowering.operators.lowered import agree, cases_of, check, not_lowered


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Any) -> None:
    check(case)


def test_every_case_is_lowered() -> None:
    assert not_lowered(TABLE) == set()


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_sizes(n: int) -> None:
    x = np.random.default_rng(n).uniform(-1, 1, (3, n, n)).astype(np.float32)
    agree("Det", [x])
    agree("Det", [x], [("b", "n", "n")])


@pytest.mark.parametrize("n", [0, 8, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_longer_than_a_vector(n: int, dtype: str) -> None:
    """Their rows are exchanged often: the largest elements stand in no order."""
    random = np.random.default_rng(n)
    x = (random.uniform(-0.1, 0.1, (2, n, n)) + np.eye(n)[random.permutation(n)]).astype(dtype)
    agree("Det", [x])
    agree("Det", [x], [("b", "n", "n")])
    if n:
        x[0, :, -1] = 0
        x[1, :, n // 2] = 0
        agree("Det", [x])


@pytest.mark.parametrize("n", [0, 1, 2, 5, 9])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_inverses(n: int, dtype: str) -> None:
    x = (np.random.default_rng(n).uniform(-1, 1, (2, 3, n, n)) + 2 * np.eye(n)).astype(dtype)
    agree("com.microsoft::Inverse", [x])
    agree("com.microsoft::Inverse", [x], [("b", 3, "n", "n")])
    agree("com.microsoft::Inverse", [x[0, 0, ::-1].copy()])


def test_rows_that_depend_on_each_other() -> None:
    agree("Det", [np.array([[1.0, 2.0], [2.0, 4.0]], np.float32)])
    agree("Det", [np.array([[0.0, 2.0, 1.0], [0.0, 4.0, 3.0], [0.0, 1.0, 1.0]])])
    agree("Det", [np.array([[0.0, 1.0], [1.0, 0.0]])])
