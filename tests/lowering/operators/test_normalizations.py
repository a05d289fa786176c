"""Normalizations over channels and vectors against ONNX's cases, and over sizes that are not known."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.tolerance import error
from graphopt.lowering.operators.normalizations import TABLE
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered

IMAGE = np.random.default_rng(1).normal(2, 3, (2, 4, 3, 2)).astype(np.float32)
SHAPE = ("n", 4, "h", "w")
SCALE, SHIFT, MEAN = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32)
VARIANCE = np.array([0.5, 1, 2, 4], np.float32)


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


def test_batches() -> None:
    parameters = [SCALE, SHIFT, MEAN, VARIANCE]
    agree("BatchNormalization", [IMAGE, *parameters], [SHAPE, *[(4,)] * 4], epsilon=0.01)
    agree("BatchNormalization", [IMAGE, *parameters], [("n", "c", "h", "w"), *[("c",)] * 4])
    agree("BatchNormalization", [IMAGE[:, :, 0, 0].copy(), *parameters], [("n", 4), *[(4,)] * 4])
    half = [IMAGE.astype(np.float16), *(p.astype(np.float16) for p in parameters)]
    agree("BatchNormalization", half)


def test_batches_in_training() -> None:
    arrays = [IMAGE, SCALE, SHIFT, MEAN, VARIANCE]
    agree("BatchNormalization", arrays, [SHAPE, *[(4,)] * 4], n_outputs=3, training_mode=1, momentum=0.8)


def test_instances() -> None:
    agree("InstanceNormalization", [IMAGE, SCALE, SHIFT], [SHAPE, (4,), (4,)], epsilon=0.01)
    agree("InstanceNormalization", [IMAGE.astype(np.float16), SCALE.astype(np.float16), SHIFT.astype(np.float16)])


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_groups(groups: int) -> None:
    x = IMAGE.astype(np.float64).reshape(2, groups, -1)
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.01)
    want = normal.reshape(IMAGE.shape) * SCALE[:, None, None] + SHIFT[:, None, None]
    for shapes in (None, [SHAPE, (4,), (4,)], [("n", "c", "h", "w"), ("c",), ("c",)]):
        got = computed("GroupNormalization", [IMAGE, SCALE, SHIFT], shapes, epsilon=0.01, num_groups=groups)
        assert error(want.astype(np.float32), got[0]) <= 1.0


def test_mean_and_variance() -> None:
    agree("MeanVarianceNormalization", [IMAGE], [SHAPE])
    agree("MeanVarianceNormalization", [IMAGE], [SHAPE], axes=(-1, 0))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_vectors_of_length_one(p: int, axis: int) -> None:
    x = IMAGE[0].copy()
    x[:, 0, :] = 0
    x[0] = 0
    want = x / np.where((n := np.linalg.norm(x, p, axis, keepdims=True)) == 0, 1, n)
    got = computed("LpNormalization", [x], [("a", "b", "c")], axis=axis, p=p)
    assert error(want.astype(np.float32), got[0]) <= 1.0


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("beta", [0.75, 0.6])
def test_local_response(size: int, beta: float) -> None:
    agree("LRN", [IMAGE], [SHAPE], size=size, alpha=0.5, beta=beta, bias=2.0)
    agree("LRN", [IMAGE], [("n", "c", "h", "w")], size=size, alpha=0.5, beta=beta, bias=2.0)


def test_a_large_mean_does_not_hide_the_variance() -> None:
    x = (IMAGE + 1e4).astype(np.float32)
    wide = x.astype(np.float64)
    normal = (wide - wide.mean((2, 3), keepdims=True)) / wide.std((2, 3), keepdims=True)
    got = computed("InstanceNormalization", [x, np.ones(4, np.float32), np.zeros(4, np.float32)], epsilon=0.0)
    assert np.abs(got[0] - normal).max() < 1e-2
