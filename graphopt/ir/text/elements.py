"""Text form of constants' elements: exact, and as short as that allows."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np

from graphopt.ir.constants import Array, Constant

SHORT = 16
"""Constants of at most this many elements are written out."""


def is_short(constant: Constant) -> bool:
    """Whether the elements are written out, instead of being kept beside the text."""
    return constant.splat is not None or constant.size <= SHORT


def show_elements(constant: Constant) -> str:
    """What stands between the braces: elements, one element repeated, or bytes where numbers would lose some."""
    if constant.splat is not None:
        return f"{_show(constant.splat.reshape(-1), constant.dtype)}, ..."
    return _show(constant.array.reshape(-1), constant.dtype)


def show_plain(constant: Constant) -> str | None:
    """The constant as a bare number, truth value or list, where that reads back; else None."""
    if constant.splat is not None or constant.dtype not in ("float32", "int64", "bool"):
        return None
    body = show_elements(constant)
    if body.startswith("hex") or len(constant.shape) > 1:
        return None
    if constant.shape == ():
        return body
    return f"[{body}]" if constant.dtype != "bool" and constant.size else None


def _show(array: Array, dtype: str) -> str:
    if dtype == "string":
        return ", ".join(show_text(s) for s in array.tolist())
    numbers = [] if "complex" in dtype else [show_number(x, dtype) for x in array]
    if len(numbers) == array.size and _same_bits(read_numbers([parse_number(n) for n in numbers], dtype), array):
        return ", ".join(numbers)
    return f'hex "{np.ascontiguousarray(array).tobytes().hex()}"'


def _same_bits(a: Array, b: Array) -> bool:
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def show_text(text: str | bytes) -> str:
    """A quoted string, or quoted bytes."""
    if isinstance(text, bytes):
        return 'b"' + "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\x{c:02x}" for c in text) + '"'
    return json.dumps(text, ensure_ascii=False)


def show_number(x: Any, dtype: str = "") -> str:
    """The shortest text that gives the number back; floats always look like floats."""
    if dtype == "bool" or isinstance(x, bool):
        return str(bool(x)).lower()
    if "int" in dtype or isinstance(x, int):
        return str(int(x))
    text = str(x) if dtype in ("float32", "float16", "float64") else repr(float(x))
    return text if any(c in text for c in ".en") else f"{text}.0"


def parse_number(text: str) -> float | bool:
    """The number that a text is."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else float(text)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """numpy's dtype of that name, ml_dtypes' included. Raises TypeError where there is none."""
    return np.dtype(object if name == "string" else getattr(ml_dtypes, name, name))


def read_numbers(values: list[Any], dtype: str) -> Array:
    """An array of rank 1 of these numbers or strings."""
    if dtype == "string":
        strings = np.empty(len(values), object)
        strings[:] = values
        return strings
    with np.errstate(over="ignore"):
        return np.array(values, np.float64 if dtype not in ("int64", "uint64", "bool") and values else None).astype(
            numpy_dtype(dtype)
        )
