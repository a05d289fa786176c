"""Poolings made by numpy are those of the reference."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from onnx.reference.ops import op_pool_common

from tests import onnx_suite


@pytest.mark.parametrize("kind", ["MAX", "AVG", "LPPOOL"])
def test_large_volumes_are_pooled_as_small_ones(kind: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 6, 7)).astype(np.float32)
    given, options = (x, x.shape, [2, 2, 3], [1, 1, 1], [4, 5, 5], kind), {"p": 3} if kind == "LPPOOL" else {}
    want = op_pool_common.pool(*given, **options)
    with mock.patch.object(onnx_suite, "LARGE", 0):
        got = onnx_suite.pool(*given, **options)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_node_tests_come_first_and_others_by_their_folders() -> None:
    found = onnx_suite.suite("simple", "pytorch-operator")
    assert [case.model_dir for case in found] == sorted(str(case.model_dir) for case in found)
