"""Quantization guards: functions of rules on scales, zero points and ranges."""

from __future__ import annotations

from math import isclose, isfinite
from typing import Any

from graphopt.rewrite.guards.comparison import Unknown

_RANGES = {
    "uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767), "uint4": (0, 15),
    "int4": (-8, 7),
}  # fmt: skip


def least(dtype: str) -> int:
    """The least integer that a quantized tensor of this dtype holds."""
    return _range(dtype)[0]


def _range(dtype: str) -> tuple[int, int]:
    if dtype not in _RANGES:
        raise Unknown(f"{dtype} is not quantized to integers here")
    return _RANGES[dtype]


def has_step(scale: Any) -> bool:
    """Whether quantizing by this scale, positive and far from the limits, gives back what was dequantized by it."""
    numbers = _numbers(scale)
    return bool(numbers) and all(1e-30 < s < 1e30 for s in numbers)


def saturates(dtype: str, scale: float, zero: int, low: float, high: float) -> bool:
    """Whether the bounds lie at or beyond the ends of the quantized range, which does then what a Clip does."""
    first, last = _range(dtype)
    if not (isfinite(scale) and scale > 0):
        return False
    return low / scale + zero <= first + 0.499 and high / scale + zero >= last - 0.499


def is_bias_scale(bias: Any, *factors: Any) -> bool:
    """Whether a bias has the scale, or the scales, that a product of operands with these scales has."""
    given, (first, second) = _numbers(bias), map(_numbers, factors)
    n = max(map(len, (given, first, second)))
    if any(len(numbers) not in (1, n) for numbers in (given, first, second)):
        return False
    a, b, c = (numbers * (n // len(numbers)) for numbers in (given, first, second))
    return all(isclose(x, y * z, rel_tol=1e-5) for x, y, z in zip(a, b, c, strict=True))


def all_zero(zeros: Any) -> bool:
    """Whether a zero point, or each of several, is zero."""
    return not any(_numbers(zeros))


def _numbers(value: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in value) if isinstance(value, tuple | list) else (float(value),)
