"""MaxUnpool against ONNX's node tests and what the reference computes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from graphopt.compile import linked_for
from graphopt.ir.text import parse
from graphopt.lowering.operators.unpooling import TABLE
from graphopt.run.settings import Settings
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Any) -> None:
    check(case)


def test_every_case_is_lowered() -> None:
    assert not_lowered(TABLE) == set()


def test_images_and_channels() -> None:
    x = np.arange(1, 17, dtype=np.float32).reshape(2, 2, 2, 2)
    places = np.array([[5, 7, 13, 15], [16, 18, 24, 31], [32, 39, 40, 47], [63, 62, 56, 55]]).reshape(x.shape)
    agree("MaxUnpool", [x, places], kernel_shape=(2, 2), strides=(2, 2))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_open_sizes(size: int) -> None:
    random = np.random.default_rng(size)
    x = random.standard_normal((2, 3, size, size)).astype(np.float32)
    places = random.permutation(4 * x.size)[: x.size].reshape(x.shape)
    agree("MaxUnpool", [x, places], [("n", 3, "s", "s")] * 2, kernel_shape=(2, 2), strides=(2, 2))


@pytest.mark.parametrize("shape", ["2, 3, 4, 4", "n, 3, s, s"])
def test_an_index_is_an_address(shape: str) -> None:
    """It counts the elements of the result, so that nothing is divided to find one."""
    model = (
        f"x: float32[{shape}]\ni: int64[{shape}]\ny = MaxUnpool(x, i, kernel_shape=[2, 2], strides=[2, 2])\nreturn y"
    )
    (kernel,) = linked_for(parse(model, []), Settings()).kernels
    assert re.search(r"maxunpool\[x1\[\w+\]\] = x0", kernel.source)


def test_indices_out_of_range_end_the_program() -> None:
    x = np.ones((1, 1, 1), np.float32)
    with pytest.raises(Exception, match="out of range"):
        computed("MaxUnpool", [x, np.array([[[2]]])], kernel_shape=(2,), strides=(2,))
