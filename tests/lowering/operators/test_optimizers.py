"""Optimizers against ONNX's cases, and at their first and later steps."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir import evaluate
from graphopt.ir.graph import Attrs
from graphopt.ir.tolerance import error
from graphopt.lowering.operators.optimizers import TABLE
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import cases_of, check, computed, not_lowered

ATTRIBUTES = {
    "Adagrad": {"decay_factor": 0.1, "epsilon": 1e-3, "norm_coefficient": 0.5},
    "Adam": {"alpha": 0.9, "beta": 0.8, "epsilon": 1e-3, "norm_coefficient": 0.5, "norm_coefficient_post": 0.25},
    "Momentum": {"alpha": 0.9, "beta": 0.8, "mode": "nesterov", "norm_coefficient": 0.5},
}


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


@pytest.mark.parametrize("op", sorted(ATTRIBUTES))
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_steps(op: str, steps: int) -> None:
    n = 4 if op == "Adam" else 3
    tensors = [a.astype(np.float32) for a in np.abs(np.random.default_rng(1).normal(size=(n, 2, 3)))]
    arrays = [np.array(0.1, np.float32), np.array(steps, np.int64), *tensors]
    name = f"ai.onnx.preview.training::{op}"
    got = computed(name, arrays, n_outputs=n - 1, **ATTRIBUTES[op])
    want = evaluate.compute(name, Attrs(ATTRIBUTES[op]), arrays, n - 1)
    for a, b in zip(want, got, strict=True):
        assert error(a.astype(np.float32), b) <= 1.0
