"""Simulated libraries: cuBLAS products and cuDNN convolutions in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from typing import Any, Final, TypeAlias

import numpy as np

from graphopt.runtime.dtypes import STORAGE
from graphopt.runtime.library_calls import AXIS, Convolution, Function, Gemm
from graphopt.runtime.steps import Array

MemoryView: TypeAlias = Callable[[int, np.dtype[Any]], Array]
"""The elements from an address on."""


def compute(function: Function, args: Mapping[str, int], memory: MemoryView) -> None:
    """Computes a function with these arguments."""
    if isinstance(function, Gemm):
        gemm(function, args, memory)
    else:
        convolution(function, args, memory)


def gemm(function: Gemm, args: Mapping[str, int], memory: MemoryView) -> None:
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
        result = sums.type(function.alpha) * (wide(a) @ wide(b)) + bias
        if function.beta:
            result += sums.type(function.beta) * wide(c)
        c[...] = narrow(_EPILOGUES[function.epilogue](result))


def _matrix(elements: Array, shape: tuple[int, int], apart: int) -> Array:
    """A matrix whose rows begin so many elements apart."""
    return _strided(elements, shape, (apart, 1))


def convolution(function: Convolution, args: Mapping[str, int], memory: MemoryView) -> None:
    """``y = epilogue(x * w + bias + residual)``, an element of the windows at a time."""
    dtype = STORAGE[function.dtype]
    axes, groups = range(function.rank), args["groups"]
    batch, depth, filters = args["batch"], args["channels"], args["filters"]
    size, outputs, window, stride, dilation, before = ([args[f"{name}_{a}"] for a in axes] for name in AXIS)

    def tensor(name: str, shape: tuple[int, ...], like: str = "") -> Array:
        outer = "filter" if name == "w" else "batch"
        strides = [args[f"{like or name}_{way}"] for way in (outer, "channel", *axes)]
        return _strided(memory(args[name], dtype), shape, strides)

    wide, narrow = (_from_bfloat, _to_bfloat) if function.dtype == "bfloat16" else (np.float32, dtype.type)
    x, w = wide(tensor("x", (batch, groups * depth, *size))), wide(tensor("w", (filters, depth, *window)))
    y = tensor("y", (batch, filters, *outputs))
    if not y.size:
        return
    reach = [(m - 1) * s + (n - 1) * d + 1 for m, n, s, d in zip(outputs, window, stride, dilation, strict=True)]
    pads = [(b, max(r - n - b, 0)) for b, r, n in zip(before, reach, size, strict=True)]
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    x, w = x.reshape(batch, groups, depth, *x.shape[2:]), w.reshape(groups, filters // groups, *w.shape[1:])
    result = np.zeros((batch, groups, filters // groups, *outputs), np.float32)
    for at in np.ndindex(*window):
        ends = zip(at, outputs, stride, dilation, strict=True)
        here: Any = (..., *(slice(k * d, k * d + (m - 1) * s + 1, s) for k, m, s, d in ends))
        result += np.einsum("ngc...,gkc->ngk...", x[here], w[(..., *at)])
    result = result.reshape(y.shape)
    if function.has_bias:
        result += wide(memory(args["bias"], dtype)[:filters]).reshape(-1, *(1 for _ in axes))
    if function.has_residual:
        result += wide(tensor("residual", y.shape, "y"))
    y[...] = narrow(_EPILOGUES[function.epilogue](result))


def _strided(elements: Array, shape: tuple[int, ...], strides: Sequence[int]) -> Array:
    """A tensor in memory that reaches as far as its last element."""
    if 0 in shape:
        return np.empty(shape, elements.dtype)
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if last >= len(elements):
        raise IndexError(
            f"a tensor of {shape} with elements {tuple(strides)} apart goes beyond {len(elements)} elements"
        )
    view: Array = np.lib.stride_tricks.as_strided(elements, shape, [s * elements.itemsize for s in strides])
    return view


def _from_bfloat(x: Array) -> Array:
    """bfloat16, kept as uint16, as float32."""
    wide: Array = (x.astype(np.uint32) << 16).view(np.float32)
    return wide


def _to_bfloat(x: Array) -> Array:
    """The bfloat16 nearest to float32, kept as uint16."""
    whole = np.ascontiguousarray(x).view(np.uint32)
    rounded = np.where(np.isnan(x), whole >> 16 | 0x40, whole + 0x7FFF + (whole >> 16 & 1) >> 16)
    return rounded.astype(np.uint16)


def _gelu_tanh(x: Array) -> Array:
    result: Array = x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2
    return result.astype(x.dtype)


_EPILOGUES: Final[Mapping[str, Callable[[Array], Array]]] = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu_tanh": _gelu_tanh,
}
