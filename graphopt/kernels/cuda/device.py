"""Device functions: formulas over values become functions of CUDA kernels, on scalars as ``vector_type.py`` does on
vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphopt.kernels.cuda.target import intrinsic
from graphopt.kernels.vector_type import Define, EmitVector, lane_by_lane, resolver


def function(define: Define) -> Any:
    """The function that kernel source calls, by the name of ``define``, with its documentation."""
    return intrinsic(resolver(define))


def elementwise(trace: EmitVector, kinds: str = "f", result: Callable[[Any], Any] | None = None) -> Any:
    """The function of scalars that kernel source calls, by the name of ``trace``, which appends the instructions; its
    arguments are those of ``vector_type.elementwise``."""
    return function(lane_by_lane(trace, kinds, result))
