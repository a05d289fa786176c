"""What libraries of a GPU compute, by numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any, Final, TypeAlias

import numpy as np

from graphopt.runtime.dtypes import STORAGE
from graphopt.runtime.library_calls import Function, Gemm
from graphopt.runtime.steps import Array

Memory: TypeAlias = Callable[[int, np.dtype[Any]], Array]
"""The elements from an address on."""


def compute(function: Function, args: Mapping[str, int], memory: Memory) -> None:
    """What a function does with these arguments."""
    gemm(function, args, memory)


def gemm(function: Gemm, args: Mapping[str, int], memory: Memory) -> None:
    """``c = epilogue(alpha * (a @ b) + beta * c + bias)``."""
    dtype = STORAGE[function.dtype]
    m, n, k, batch = (args[name] for name in ("m", "n", "k", "batch"))
    if not m * n * batch:
        return
    sums = np.dtype(np.float64 if function.dtype == "float64" else np.float32)
    shape_a, shape_b = ((k, m) if function.transpose_a else (m, k)), ((n, k) if function.transpose_b else (k, n))
    elements = {name: memory(args[name], dtype) for name in ("a", "b", "c")}
    wide, narrow = (_from_bfloat, _to_bfloat) if function.dtype == "bfloat16" else (sums.type, dtype.type)
    bias = wide(memory(args["bias"], dtype)[:n]) if function.has_bias else sums.type(0)
    for at in range(batch):
        a, b, c = (
            _matrix(elements[x][at * args[f"step_{x}"] :], shape, args[f"ld{x}"])
            for x, shape in (("a", shape_a), ("b", shape_b), ("c", (m, n)))
        )
        a, b = a.T if function.transpose_a else a, b.T if function.transpose_b else b
        found = sums.type(function.alpha) * (wide(a) @ wide(b)) + bias
        if function.beta:
            found += sums.type(function.beta) * wide(c)
        c[...] = narrow(_EPILOGUES[function.epilogue](found))


def _matrix(elements: Array, shape: tuple[int, int], apart: int) -> Array:
    """A matrix whose rows begin so many elements apart, in memory that reaches as far as its last element."""
    rows, columns = shape
    if not rows * columns:
        return np.empty(shape, elements.dtype)
    if (rows - 1) * apart + columns > len(elements):
        raise IndexError(f"a matrix of {shape} with rows {apart} apart goes beyond {len(elements)} elements")
    strides = apart * elements.itemsize, elements.itemsize
    found: Array = np.lib.stride_tricks.as_strided(elements, shape, strides)
    return found


def _from_bfloat(x: Array) -> Array:
    """bfloat16, kept as uint16, as float32."""
    found: Array = (x.astype(np.uint32) << 16).view(np.float32)
    return found


def _to_bfloat(x: Array) -> Array:
    """The bfloat16 nearest to float32, kept as uint16."""
    whole = np.ascontiguousarray(x).view(np.uint32)
    rounded = np.where(np.isnan(x), whole >> 16 | 0x40, whole + 0x7FFF + (whole >> 16 & 1) >> 16)
    return rounded.astype(np.uint16)


def _gelu_tanh(x: Array) -> Array:
    found: Array = x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2
    return found.astype(x.dtype)


_EPILOGUES: Final[Mapping[str, Callable[[Array], Array]]] = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu_tanh": _gelu_tanh,
}
