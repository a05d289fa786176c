"""Random arrays of all dtypes for the operands of examples."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from graphopt.ir.constants import BITS, Array
from graphopt.rewrite.checking.examples.sample import Misfit, Want


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype of the arrays that hold elements of this name. Raises Misfit where no tensor has such elements."""
    if name not in BITS and name != "string":
        raise Misfit(f"no tensor has elements of the dtype {name!r}")
    return np.dtype(getattr(ml_dtypes, name, name)) if name != "string" else np.dtype(object)


def special(dtype: str) -> Array:
    """What the elements of a dtype are that computations stumble over: zeros of both signs, extremes, NaN."""
    if "int" in dtype:
        info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        return np.asarray([info.min, info.min + 1, -1 if info.min else 2, 0, 1, 3, info.max // 2 + 1, info.max], dtype)
    limits: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    largest, normal, least = (float(v) for v in (limits.max, limits.tiny, limits.smallest_subnormal))
    sides = [v for n in (0.0, 1.0, largest, least * 3, normal) for v in (n, -n)]
    return np.asarray([*sides, 0.5, np.inf, -np.inf, np.nan])


WHOLE = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
"""Dtypes of whole numbers that extremes are drawn of."""


def array(generator: np.random.Generator, want: Want, way: str) -> Array:
    """Elements for a value."""
    shape, dtype = want.shape or (), want.dtype or "float32"
    target = numpy_dtype(dtype)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype == "string":
        return np.asarray(generator.choice(["a", "b", ""], shape), dtype=object)
    low, high = want.low, want.high
    if "float" not in dtype and "complex" not in dtype:
        least = 0 if dtype.startswith("u") else -4
        bounds = (int(least if low is None else low), int(5 if high is None else high))
        if way == "extreme" and low is None and high is None and dtype in WHOLE:
            return np.asarray(generator.choice(special(dtype), shape), target)
        whole = generator.integers(bounds[0], max(bounds[1], bounds[0]) + 1, shape)
        return np.where((whole == 0) & (low is None), 3, whole).astype(target).reshape(shape)
    if low is not None or high is not None:
        ends = 0.0 if low is None else low, 1.0 if high is None else high
        within: Array = np.asarray(generator.uniform(*ends, shape))
        if way in ("special", "finite"):
            within = np.where(generator.random(shape) < 0.4, generator.choice(ends, shape), within)
        return within.astype(target)
    drawn: Array = np.asarray(generator.normal(0, 1.5, shape))
    if way == "positive":
        drawn = np.abs(drawn) + 0.05
    elif (
        way == "masked" and shape and generator.random() < 0.5
    ):  # scores of which some, and some whole rows, do not count
        drawn = np.where(generator.random(shape) < 0.2, -np.inf, drawn)
        drawn = np.where(generator.random((*shape[:-1], 1)) < 0.3, -np.inf, drawn)
    elif way in ("special", "finite") and "complex" not in dtype:
        pool = special(dtype)
        odd = generator.choice(pool if way == "special" else pool[np.isfinite(pool)], shape)
        drawn = np.where(generator.random(shape) < 0.6, odd, drawn)
    with np.errstate(over="ignore"):
        return np.asarray(drawn).astype(target).reshape(shape)


def as_dtype(value: Any, dtype: str) -> Array:
    """A number as an array. Raises Misfit where it is none of the dtype's."""
    try:
        with np.errstate(invalid="ignore"):
            elements = np.asarray(value).astype(numpy_dtype(dtype))
    except (OverflowError, ValueError) as error:
        raise Misfit(str(error)) from error
    if not np.array_equal(elements.astype(np.float64), np.asarray(value, np.float64)) and "float" not in dtype:
        raise Misfit(f"{value} is no {dtype}")
    return elements
