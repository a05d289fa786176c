"""Nests for CUDA as loops of the processor: what each kernel means when its blocks and threads take turns, as native
code, beside which some of its blocks are run in the simulation of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

import numpy as np

from graphopt.ir.constants import Array
from graphopt.ir.tolerance import error
from graphopt.kernels.cuda import simulate
from graphopt.kernels.cuda.simulate import Triple
from graphopt.kernels.kernel import STORED
from graphopt.lowering.analysis.dataflow import accesses_in
from graphopt.lowering.cuda.barriers import BARRIER
from graphopt.lowering.emit.kernel_source import Launchable, LibraryCall
from graphopt.lowering.intrinsics.tensor_intrin import descriptions, find_intrinsic, placed
from graphopt.lowering.link.options import Options
from graphopt.lowering.loops.expressions import Var, conjunction, substitute
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Buffer, For, If, Invoke, Nest, Stmt, blocks, mutate, rename_buffers, seq
from tests.lowering.cuda.simulated import perform
from tests.lowering.native import Native, number, numpy_dtype

AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
BETWEEN = 1
"""How many blocks of a kernel are simulated beside the first and the last."""
UNTOUCHED = 0x5A
"""The byte that outputs are filled with, to tell what is written."""
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan)


def in_turn(kernel: Nest, buffers: tuple[Buffer, ...]) -> Nest:
    """A kernel's part of a nest as plain loops over plain memory, with two more sizes for each axis of blocks: the
    first of them that is run, and the first that is not any more."""
    ends = {axis: (Var(f"first_{axis[-1]}"), Var(f"end_{axis[-1]}")) for axis in AXES}
    held: list[Buffer] = []

    def written_out(call: Invoke) -> Stmt:
        """A call of what only a GPU has, as the loops that describe it."""
        description = find_intrinsic(call.intrinsic).description
        given = {p: a for p, a in zip(description.params, call.args, strict=True) if isinstance(p, Var)}
        own = {
            b: replace(b, name=f"{b.name}{len(held)}", shape=tuple(substitute(size, given) for size in b.shape))
            for b in description.allocs
        }
        held.extend(own.values())
        return placed(replace(description, body=rename_buffers(description.body, own), allocs=()), call)

    def plain(stmt: Stmt) -> Stmt | None:
        if stmt == BARRIER:
            return seq()
        if isinstance(stmt, Invoke) and ".cuda." in str(find_intrinsic(stmt.intrinsic).function):
            return written_out(stmt)
        if not isinstance(stmt, For):
            return None
        body = stmt.body
        if stmt.thread in ends:
            first, end = ends[stmt.thread]
            body = If(conjunction(first <= stmt.var, stmt.var < end), body)
        return For(stmt.var, stmt.extent, body)

    moved = {b: replace(b, scope="global", strides=None) for b in kernel.allocs}
    body = rename_buffers(mutate(kernel.body, plain), moved)
    params = tuple(moved.get(b, b) for b in buffers)
    own = (*(made for b, made in moved.items() if b not in buffers), *held)
    return Nest(kernel.name, (*params, *kernel.sizes, *(v for pair in ends.values() for v in pair)), body, own)


class Runner(Protocol):
    """A nest that can be run."""

    def run(self, arrays: Sequence[Array], sizes: Sequence[int]) -> None:
        """Runs it on its buffers."""


@dataclass(frozen=True)
class Interpreted:
    """A nest run by the interpreter, which is quick where there is little to do: nothing is compiled."""

    nest: Nest

    def run(self, arrays: Sequence[Array], sizes: Sequence[int]) -> None:
        """Runs it on its buffers."""
        named = {v.name: n for v, n in zip(self.nest.sizes, sizes, strict=True)}
        interpret(self.nest, arrays, named, descriptions(self.nest))


@dataclass(frozen=True)
class Kernels:
    """How nests become kernels, what their sizes are, and what runs them in turn."""

    options: Options
    sizes: Mapping[Var, int]
    runner: Callable[[Nest], Runner] = Native

    def check(self, nest: Nest, arrays: Mapping[Buffer, Array]) -> int:
        """Sees to it that a nest's kernels, one after another, compute what it says, and that each of them does in the
        simulation of a GPU what it means. Returns how many were simulated."""
        outputs = nest.outputs
        want = {b: a.copy() if b in outputs else a for b, a in arrays.items()}
        held = {b: untouched(a) if b in outputs else a for b, a in arrays.items()}
        self.runner(nest).run([want[b] for b in nest.buffers], self.passed(nest))
        simulated = 0
        for part in self.options.parts(nest):
            for kernel, made in self.options.emit(self.options.schedule(part)):
                for b in made.buffers:
                    if b not in held:
                        held[b] = untouched(np.empty([number(e, self.sizes) for e in b.shape], numpy_dtype(b.dtype)))
                if isinstance(made, LibraryCall):
                    perform(made, held, self.sizes)
                else:
                    assert isinstance(made, Launchable)
                    self.step(kernel, made, held)
                    simulated += 1
        for b in outputs:
            assert error(want[b], held[b]) <= 1.0, f"{nest.name}: {b.name} is another as scheduled"
        return simulated

    def passed(self, nest: Nest) -> list[int]:
        """The sizes that a nest takes."""
        return [self.sizes[v] for v in nest.sizes]

    def step(self, kernel: Nest, made: Launchable, held: dict[Buffer, Array]) -> None:
        """Some blocks of a kernel on arrays as they are, in both ways; then all of it natively."""
        plain, own = self.runner(in_turn(kernel, made.buffers)), self.passed(kernel)
        x, y, z = (number(e, self.sizes) for e in made.grid)
        grid = x, y, z
        accesses = list(accesses_in(kernel.body))
        written = [b for b in made.buffers if any(a.is_write and a.buffer == b for a in accesses)]
        read = {a.buffer for a in accesses if not a.is_write}
        for place in chosen(grid):
            before = {b: held[b] if b in read else untouched(held[b]) for b in written}
            natively, simulated = ({**held, **{b: a.copy() for b, a in before.items()}} for _ in range(2))
            plain.run([natively[b] for b in made.buffers], [*own, *(n for at in place for n in (at, at + 1))])
            self.simulate(made, grid, place, simulated)
            changed = 0
            for b in written:
                is_touched = touched(before[b], natively[b]) | touched(before[b], simulated[b])
                changed += is_touched.sum()
                apart = error(natively[b][is_touched], simulated[b][is_touched])
                assert apart <= 1.0, f"{kernel.name}: {b.name} is another in block {place} as simulated"
            assert changed, f"{kernel.name}: nothing is written in block {place}"
        plain.run([held[b] for b in made.buffers], [*own, *(n for size in grid for n in (0, size))])

    def simulate(self, made: Launchable, grid: Triple, place: Triple, held: Mapping[Buffer, Array]) -> None:
        """One block of a kernel in the simulation of a GPU."""
        status = np.zeros(1, np.int32)
        flat = [held[b].reshape(-1).view(STORED.get(b.dtype, b.dtype)) for b in made.buffers]
        sizes = [number(e, self.sizes) for e in made.sizes]
        simulate.run(made.kernel, grid, made.block, [*flat, *sizes, *([status] if made.messages else [])], [place])
        assert not status[0], made.messages[status[0] - 1]


def chosen(grid: Triple) -> list[Triple]:
    """Which blocks of a kernel are simulated: the first, the last, and some in between."""
    x, y, z = grid
    count = x * y * z
    rng = Random(count)
    numbers = {0, count - 1, *(rng.randrange(count) for _ in range(BETWEEN))} if count else set()
    return [(n % x, n // x % y, n // (x * y)) for n in sorted(numbers)]


def untouched(array: Array) -> Array:
    """An array like it that tells where something is written."""
    return np.full(array.nbytes, UNTOUCHED, np.uint8).view(array.dtype).reshape(array.shape)


def touched(before: Array, after: Array) -> Array:
    """Where an array has other bytes."""
    words = np.dtype(f"u{before.itemsize}")
    changed: Array = before.view(words) != after.view(words)
    return changed


def arrays_for(nest: Nest, sizes: Mapping[Var, int], seed: int = 0) -> dict[Buffer, Array]:
    """An array for each buffer: small whole numbers where sums are to be the same in any order, others and special ones
    where nothing is summed up; 0 and 1 for integers, which may say a place."""
    rng = np.random.default_rng(seed)
    sums = any(b.init is not None for b in blocks(nest.body))
    made = {}
    for b in nest.buffers:
        shape, dtype = [number(e, sizes) for e in b.shape], numpy_dtype(b.dtype)
        if dtype.kind in "iub":
            values = rng.integers(0, 2, shape, np.int8)
        elif sums:
            values = rng.integers(-3, 4, shape, np.int8)
        else:
            values = np.where(rng.random(shape) < 0.1, rng.choice(SPECIAL, shape), rng.standard_normal(shape) * 4)
        made[b] = values.astype(dtype)
    return made
