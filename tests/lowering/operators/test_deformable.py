"""Deformable convolutions against ONNX's node tests and what the reference computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt.ir.constants import Array
from graphopt.lowering.operators.deformable import TABLE
from tests.lowering.operators.lowered import agree, cases_of, check, not_lowered


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Any) -> None:
    check(case)


def test_every_case_is_lowered() -> None:
    assert not_lowered(TABLE) == set()


def _floats(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def test_strides_dilations_groups_and_a_mask() -> None:
    x, w, offset = _floats(2, 4, 6, 5), _floats(6, 2, 2, 2, seed=2), _floats(2, 16, 3, 4, seed=3) * 3
    agree("DeformConv", [x, w, offset], strides=(2, 1), group=2, offset_group=2)
    mask = _floats(2, 8, 3, 4, seed=4)
    agree("DeformConv", [x, w, offset, _floats(6), mask], strides=(2, 1), group=2, offset_group=2)
    wide = _floats(2, 16, 6, 5, seed=3)
    agree("DeformConv", [x, w, wide], dilations=(2, 2), pads=(1, 1, 1, 1), group=2, offset_group=2)
