"""Ops on tables of features against what the reference computes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lowering.operators.lowered import agree, computed

ML = "ai.onnx.ml::"


def test_scaler() -> None:
    x = np.random.default_rng(0).uniform(-3, 3, (4, 3)).astype(np.float32)
    agree(ML + "Scaler", [x], offset=(0.5, -1.0, 0.0), scale=(2.0, 0.25, 1.5))
    agree(ML + "Scaler", [x], [("n", 3)], offset=(0.5,), scale=(2.0,))


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    x = np.array([[1.0, 2.0, -4.0], [0.0, 0.0, 0.0], [-1.0, -1.0, 0.5]], np.float32)
    agree(ML + "Normalizer", [x], [("n", 3)], norm=norm)


def test_labels() -> None:
    x = np.array([[1, 5], [7, 1]])
    agree(ML + "LabelEncoder", [x], keys_int64s=(1, 7), values_floats=(0.5, -2.0), default_float=9.0)
    agree(ML + "LabelEncoder", [x], keys_int64s=(1, 7), values_int64s=(3, 4))
    agree(ML + "LabelEncoder", [x + 2**53], keys_int64s=(2**53 + 1, 2**53 + 2), values_int64s=(3, 2**53 + 3))


def test_no_number_is_a_label_too() -> None:
    x = np.array([0.5, np.nan, 2.0], np.float32)
    (got,) = computed(ML + "LabelEncoder", [x], keys_floats=(0.5, float("nan")), values_int64s=(3, 4), default_int64=8)
    assert got.tolist() == [3, 4, 8]
