"""Memory planning: which buffers may share memory, and where each one lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from graphopt.runtime.steps import (
    Bind,
    Branch,
    BufferRef,
    Code,
    HostStep,
    KernelStep,
    Launch,
    LibraryStep,
    LoopStep,
    Step,
    inner,
)

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


def up(size: int, alignment: int = ALIGNMENT) -> int:
    """A number of bytes, rounded up to whole units of alignment."""
    return -(-size // alignment) * alignment


def plan(
    sizes: Sequence[int], first: Sequence[int], last: Sequence[int], alignment: int = ALIGNMENT
) -> tuple[list[int], int]:
    """The offset of each buffer, so that those that live at once do not overlap, and the bytes needed in all.

    Buffer ``k`` has ``sizes[k]`` bytes and lives from step ``first[k]`` to step ``last[k]``, both included. Large ones
    choose first, each the tightest gap that it fits (greedy by size: Pisarchyk and Lee, "Efficient Memory Management
    for Deep Neural Net Inference", 2020).
    """
    order = sorted(range(len(sizes)), key=lambda k: (-sizes[k], first[k], k))
    width = np.array([up(sizes[k], alignment) for k in order], np.int64)
    begin, end = np.array([first[k] for k in order], np.int64), np.array([last[k] for k in order], np.int64)
    at = np.zeros(len(order), np.int64)
    for n in range(len(order)):
        rivals = np.flatnonzero((begin[:n] <= end[n]) & (end[:n] >= begin[n]) & (width[:n] > 0))
        if not len(rivals) or not width[n]:
            continue
        rivals = rivals[np.argsort(at[rivals], kind="stable")]
        ends = np.maximum.accumulate(at[rivals] + width[rivals])
        starts = np.concatenate(([0], ends[:-1]))
        gaps = at[rivals] - starts
        fitting = np.flatnonzero(gaps >= width[n])
        at[n] = starts[fitting[np.argmin(gaps[fitting])]] if len(fitting) else ends[-1]
    offsets = [0] * len(sizes)
    for n, k in enumerate(order):
        offsets[k] = int(at[n])
    return offsets, int((at + width).max(initial=0))


def lifetimes(code: Code, roots: Sequence[int]) -> dict[int, tuple[int, int]]:
    """The first and last step that uses each buffer, by the buffer whose memory it is (``roots``).

    Steps are counted through branches and loops. A buffer that is used inside of a loop and outside lives as long as
    the loop, for the next iteration may need it; outputs live to the end.
    """
    lives: dict[int, tuple[int, int]] = {}
    loops: list[tuple[int, int]] = []

    def use(buffers: Iterable[int | None], at: int) -> None:
        for b in buffers:
            if b is not None:
                first, last = lives.get(roots[b], (at, at))
                lives[roots[b]] = (min(first, at), max(last, at))

    def visit(steps: Sequence[Step], at: int) -> int:
        for step in steps:
            begin = at
            use(used(step), at)
            at += 1
            for body in inner(step):
                at = visit(body, at)
            if isinstance(step, LoopStep):
                use((step.counter, step.condition, *_of([step.count])), at)
                loops.append((begin, at))
                at += 1
        return at

    end = visit(code.steps, 0)
    use((port.buffer for port in code.outputs), end)
    for begin, finish in loops:  # those within others come first
        for b, (first, last) in lives.items():
            crosses = first <= finish and last >= begin and not (begin < first and last < finish)
            if crosses:
                lives[b] = (min(first, begin), max(last, finish))
    return lives


def moments(steps: Sequence[Step]) -> Iterator[Step]:
    """The step at each of the numbers that lifetimes count by: a loop is there twice, at its begin and its end."""
    for step in steps:
        yield step
        for body in inner(step):
            yield from moments(body)
        if isinstance(step, LoopStep):
            yield step


def used(step: Step) -> tuple[int | None, ...]:
    """The buffers that a step reads or writes itself, those within it apart."""
    match step:
        case KernelStep() | Launch() | LibraryStep():
            return _of(step.args)
        case HostStep():
            return (*step.inputs, *step.outputs)
        case Bind():
            return (step.buffer,)
        case Branch():
            return (step.condition,)
        case LoopStep():
            return (step.counter, step.condition, *_of([step.count]))


def _of(args: Iterable[object]) -> tuple[int, ...]:
    return tuple(a.buffer for a in args if isinstance(a, BufferRef))
