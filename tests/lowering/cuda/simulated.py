"""Nests for CUDA run in the simulation of a GPU, beside the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from graphopt.ir.constants import Array
from graphopt.kernels.cuda.simulate import STORED, run
from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.emit import LibraryCall
from graphopt.lowering.expressions import Expr, Var
from graphopt.lowering.interpret import interpret
from graphopt.lowering.intrinsics import descriptions
from graphopt.lowering.loops import Buffer, Nest
from graphopt.tolerance import error
from tests.lowering.native import number, numpy_dtype, random_arrays


def launch(nest: Nest, arrays: Sequence[Array], sizes: Sequence[int] = ()) -> None:
    """Writes the nest down as kernels and runs them one after another on its buffers."""
    known = dict(zip(nest.sizes, sizes, strict=True))
    buffers = dict(zip(nest.buffers, arrays, strict=True))
    for _, made in emit(nest):
        for b in made.buffers:
            if b not in buffers:
                buffers[b] = np.full([number(e, known) for e in b.shape], 77, numpy_dtype(b.dtype))
        if isinstance(made, LibraryCall):
            multiply(made, buffers, known)
            continue
        status = np.zeros(1, np.int32)
        flat = [buffers[b].reshape(-1).view(STORED.get(b.dtype, b.dtype)) for b in made.buffers]
        numbers = [number(e, known) for e in made.sizes]
        grid = [number(e, known) for e in made.grid]
        run(made.kernel, grid, made.block, [*flat, *numbers, *([status] if made.messages else [])])
        if status[0]:
            raise IndexError(made.messages[status[0] - 1])


def multiply(call: LibraryCall, buffers: Mapping[Buffer, Array], known: Mapping[Var, int]) -> None:
    """Does what the library's product of matrices does."""
    told = dict(call.attributes)
    m, n, k, *rows, batch, step_a, step_b, step_c = [number(e, known) for e in call.sizes]
    sides = [(m, k), (k, n), (m, n)]
    turned = [told.get("transpose_a"), told.get("transpose_b"), False]

    def matrix(place: tuple[Buffer, Expr], side: tuple[int, int], row: int, step: int, is_turned: object) -> Array:
        flat = buffers[place[0]].reshape(-1)[number(place[1], known) :]
        strides = (step, 1, row) if is_turned else (step, row, 1)
        return as_strided(flat, (batch, *side), [s * flat.itemsize for s in strides])

    parts = zip(call.places, sides, rows, (step_a, step_b, step_c), turned, strict=False)
    a, b, c = (matrix(*part) for part in parts)
    found = a.astype(np.float64) @ b.astype(np.float64)
    if told.get("has_bias"):
        bias, at = call.places[3]
        found += buffers[bias].reshape(-1)[number(at, known) :][:n]
    c[...] = np.maximum(found, 0) if told.get("epilogue") == "relu" else found


def check(plain: Nest, scheduled: Nest, sizes: Sequence[int] = (), is_run: bool = True) -> None:
    """Sees to it that a nest computes, scheduled for CUDA, what it says: by the interpreter, and where ``is_run`` as
    kernels."""
    want = random_arrays(plain, sizes)
    found = [[a.copy() for a in want] for _ in range(1 + is_run)]
    outputs = set(plain.outputs)
    for arrays in found:
        for buffer, array in zip(plain.buffers, arrays, strict=True):
            if buffer in outputs:
                array[...] = 77
    interpret(plain, want)
    interpret(scheduled, found[0], intrinsics=descriptions(scheduled))
    if is_run:
        launch(scheduled, found[1], sizes)
    for arrays in found:
        for a, b in zip(want, arrays, strict=True):
            assert error(a, b) <= 1.0
