"""Nests for CUDA run in the simulation of a GPU, beside the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphopt.ir.constants import Array
from graphopt.ir.tolerance import error
from graphopt.kernels.cuda.simulate import run
from graphopt.kernels.cuda.simulated_library import compute
from graphopt.kernels.kernel import STORED
from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.emit.kernel_source import LibraryCall
from graphopt.lowering.intrinsics.tensor_intrin import descriptions
from graphopt.lowering.loops.expressions import Var
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Buffer, Nest
from graphopt.runtime.library_calls import FUNCTIONS
from tests.lowering.native import number, numpy_dtype, random_arrays

FAR = 1 << 40
"""How far operands are apart."""


def launch(nest: Nest, arrays: Sequence[Array], sizes: Sequence[int] = ()) -> None:
    """Writes the nest down as kernels and runs them one after another on its buffers."""
    known = dict(zip(nest.sizes, sizes, strict=True))
    buffers = dict(zip(nest.buffers, arrays, strict=True))
    for _, made in emit(nest):
        for b in made.buffers:
            if b not in buffers:
                buffers[b] = np.full([number(e, known) for e in b.shape], 77, numpy_dtype(b.dtype))
        if isinstance(made, LibraryCall):
            perform(made, buffers, known)
            continue
        status = np.zeros(1, np.int32)
        flat = [buffers[b].reshape(-1).view(STORED.get(b.dtype, b.dtype)) for b in made.buffers]
        numbers = [number(e, known) for e in made.sizes]
        grid = [number(e, known) for e in made.grid]
        run(made.kernel, grid, made.block, [*flat, *numbers, *([status] if made.messages else [])])
        if status[0]:
            raise IndexError(made.messages[status[0] - 1])


def perform(call: LibraryCall, buffers: Mapping[Buffer, Array], known: Mapping[Var, int]) -> None:
    """Does what the library's function does, as the simulated device has it: an address is the number of an operand,
    and the byte of it."""
    function = FUNCTIONS[call.name](**dict(call.attributes))  # type: ignore[arg-type]
    held = [buffers[b].reshape(-1).view(np.uint8) for b, _ in call.places]
    addresses = [k * FAR + number(at, known) * buffers[b].itemsize for k, (b, at) in enumerate(call.places)]
    numbers = [number(e, known) for e in call.sizes]

    def memory(address: int, dtype: np.dtype[Any]) -> Array:
        return held[address // FAR][address % FAR :].view(dtype)

    compute(function, dict(zip(function.params, (*addresses, *numbers), strict=True)), memory)


def check(
    plain: Nest,
    scheduled: Nest,
    sizes: Sequence[int] = (),
    is_run: bool = True,
    given: Callable[[Array], Array] = lambda array: array,
) -> None:
    """Sees to it that a nest computes, scheduled for CUDA, what it says: by the interpreter, and where ``is_run`` as
    kernels. ``given``: what it is given, of random arrays."""
    want = list(map(given, random_arrays(plain, sizes)))
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
