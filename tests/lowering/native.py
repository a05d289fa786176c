"""Nests compiled and run as they are in programs, beside the interpreter."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from itertools import pairwise

import ml_dtypes
import numpy as np

from graphopt.ir.constants import Array
from graphopt.ir.tolerance import error
from graphopt.kernels.compile import compile_kernels
from graphopt.lowering.link.options import for_the_host
from graphopt.lowering.loops.expressions import Const, Expr, Var, substitute
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Nest
from graphopt.runtime.objects import Image


def numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def number(expr: Expr, sizes: Mapping[Var, int]) -> int:
    value = substitute(expr, {v: Const(n) for v, n in sizes.items()})
    assert isinstance(value, Const)
    return int(value.value)


class Native:
    """A nest compiled as it is in programs."""

    def __init__(self, nest: Nest) -> None:
        self.nest, self.parts = nest, [emitted for _, emitted in for_the_host(nest)]
        self.image = Image(compile_kernels([p.kernel for p in self.parts], jobs=0))

    def run(self, arrays: Sequence[Array], sizes: Sequence[int] = (), pieces: int = 1) -> None:
        """Runs it on its buffers, the work items handed out in so many pieces."""
        known = dict(zip(self.nest.sizes, sizes, strict=True))
        buffers = dict(zip(self.nest.buffers, arrays, strict=True))
        for part, entry in zip(self.parts, self.image.entries, strict=True):
            for b in part.buffers:
                if b not in buffers:
                    buffers[b] = np.full([number(e, known) for e in b.shape], 77, numpy_dtype(b.dtype))
            args = [buffers[b].ctypes.data for b in part.buffers] + [number(e, known) for e in part.sizes]
            table = np.array(args, np.int64)
            function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(entry)
            extent = number(part.extent, known)
            bounds = [extent * k // pieces for k in range(pieces + 1)]
            for low, high in pairwise(bounds):
                status = function(table.ctypes.data, low, high)
                if status:
                    raise IndexError(part.messages[status - 1])


def run(nest: Nest, arrays: Sequence[Array], sizes: Sequence[int] = (), pieces: int = 1) -> None:
    """Compiles the nest and runs it on its buffers, the work items handed out in so many pieces."""
    Native(nest).run(arrays, sizes, pieces)


def random_arrays(nest: Nest, sizes: Sequence[int] = (), seed: int = 0) -> list[Array]:
    """An array for each buffer, with special values among those of floats."""
    known, rng = dict(zip(nest.sizes, sizes, strict=True)), np.random.default_rng(seed)
    made = []
    for b in nest.buffers:
        values = np.asarray(rng.standard_normal([number(e, known) for e in b.shape]) * 4)
        made.append(np.asarray(values > 0 if b.dtype == "bool" else values.astype(numpy_dtype(b.dtype))))
    return made


def check(
    nest: Nest,
    scheduled: Nest | Native,
    sizes: Sequence[int] = (),
    seed: int = 0,
    pieces: int | Sequence[int] = 1,
) -> None:
    """The scheduled nest, compiled, leaves in every buffer what the nest itself leaves there when it is interpreted.

    It is run once for each number of pieces.
    """
    given = random_arrays(nest, sizes, seed)
    want = [a.copy() for a in given]
    interpret(nest, want)
    made = scheduled if isinstance(scheduled, Native) else Native(scheduled)
    for count in [pieces] if isinstance(pieces, int) else pieces:
        got = [np.full_like(a, 77) if b in nest.outputs else a.copy() for b, a in zip(nest.buffers, given, strict=True)]
        made.run(got, sizes, count)
        for a, b in zip(want, got, strict=True):
            assert error(a, b) <= 1.0
