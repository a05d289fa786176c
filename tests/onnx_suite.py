"""ONNX's own backend tests, in the same order wherever they are installed.

The node tests are computed as they are loaded. Most of that time goes into three poolings of large volumes, element
by element in Python, which are made by numpy here, and into the texts of the tests, which nobody reads.
"""

from __future__ import annotations

import warnings
from functools import cache
from math import prod
from typing import Any
from unittest import mock

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from onnx.backend.test.case import base
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.reference.ops import op_pool_common

LARGE = 20_000
"""Elements that the reference pools in a second."""

_by_element = op_pool_common.pool


@cache
def suite(*kinds: str) -> tuple[TestCase, ...]:
    """The tests of these kinds: ``node``, ``simple``, ``pytorch-converted``, ``pytorch-operator``."""
    no_texts = mock.patch.object(base, "process_snippet", return_value=("", ""))
    with warnings.catch_warnings(), mock.patch.object(op_pool_common, "pool", pool), no_texts:
        warnings.simplefilter("ignore")  # overflow and division by zero are part of some
        found = [case for kind in kinds for case in load_model_tests(kind=kind)]
    return tuple(sorted(found, key=lambda case: case.model_dir or ""))


def pool(
    padded: Any, x_shape: Any, kernel: Any, strides: Any, out_shape: Any, kind: str, *more: Any, **options: Any
) -> Any:
    """What ``onnx.reference`` computes, which does where windows overlap in other ways than by steps of one."""
    is_plain = not more and options.keys() <= {"p"} and prod(strides) == 1
    if padded.size < LARGE or not is_plain:
        return _by_element(padded, x_shape, kernel, strides, out_shape, kind, *more, **options)
    windows = sliding_window_view(padded, kernel, tuple(range(2, padded.ndim)))
    rows = np.ascontiguousarray(windows).reshape(*windows.shape[: padded.ndim], -1)
    match kind:
        case "MAX":
            return rows.max(-1)
        case "AVG":
            return rows.mean(-1)
        case _:
            return (np.abs(rows) ** options["p"]).sum(-1) ** (1 / options["p"])
