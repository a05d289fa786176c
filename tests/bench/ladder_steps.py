"""The exercises of ``ladder.py``: sizes of programs, and steps that TVM's schedules take as ours do.

It imports neither of the two: each makes the programs in its own way, and gives the steps a schedule of its own. The
program sums up products in a block Y; where there is a relu, it is the block C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

PANEL, SIDE, DEPTH = 16, 32, 4
"""Columns of a packed panel, the side of a block of results, and the steps of the sum that each of these takes."""


class Scheduling(Protocol):
    """A schedule, and what the two engines call differently."""

    s: Any

    def block(self, name: str) -> Any:
        """The block of that name; of a decomposed reduction the one that sums up."""

    def written_apart(self, block: Any) -> Any:
        """The block that copies out what a block writes from then on."""

    def in_panels(self, block: Any) -> Any:
        """The block that copies the second operand of a block into panels of columns before it."""


Steps = Callable[[Scheduling], None]


def naive(on: Scheduling) -> None:
    """The loops as they are written."""


def strips(
    width: int, *, has_relu: bool = False, is_decomposed: bool = True, is_vectorized: bool = False, unrolled: int = 0
) -> Steps:
    """Columns in strips, within which rows of the second operand are added up."""

    def steps(on: Scheduling) -> None:
        s, y = on.s, on.block("Y")
        j, k = s.get_loops(y)[-2:]
        j0, j1 = s.split(j, [None, width])
        s.reorder(j0, k, j1)
        if has_relu:
            s.reverse_compute_at(on.block("C"), j0)
        if not is_decomposed:
            return
        if is_vectorized:  # TVM vectorizes no reduction that has lost its init
            s.vectorize(j1)
        start = s.decompose_reduction(y, k)
        relu = [on.block("C")] if has_relu else []
        if unrolled:
            _, k1 = s.split(s.get_loops(on.block("Y"))[-2], [None, unrolled])
            s.unroll(k1)
        for each in relu if is_vectorized else [start, *relu] if unrolled else []:
            s.vectorize(s.get_loops(each)[-1])

    return steps


def blocked(on: Scheduling, side: int = SIDE) -> tuple[Any, Any]:
    """Blocks of results, to which a few rows of the second operand are added at a time."""
    s, y = on.s, on.block("Y")
    i, j, k = s.get_loops(y)
    i0, i1 = s.split(i, [None, SIDE])
    j0, j1 = s.split(j, [None, side])
    k0, k1 = s.split(k, [None, DEPTH])
    s.reorder(i0, j0, k0, i1, k1, j1)
    s.vectorize(j1)
    s.decompose_reduction(y, k0)
    return j0, k1


def packed(on: Scheduling) -> None:
    """Blocked, the second operand copied into panels first."""
    copy = on.in_panels(on.block("Y"))
    blocked(on, PANEL)
    s = on.s
    s.vectorize(s.split(s.get_loops(copy)[-1], [None, PANEL])[1])


def kept_apart(on: Scheduling) -> None:
    """Blocked, each block of results in memory of its own until it is done, steps of the sum written out."""
    copy = on.written_apart(on.block("Y"))
    j0, k1 = blocked(on)
    on.s.reverse_compute_at(copy, j0)
    on.s.vectorize(on.s.get_loops(copy)[-1])
    on.s.unroll(k1)


def tiled(on: Scheduling) -> None:
    """Tiles of results within tiles, as a tuner makes them, each in memory of its own until it is done."""
    s, y = on.s, on.block("Y")
    i, j, k = s.get_loops(y)
    i0, i1, i2, i3 = s.split(i, [None, 1, 32, 1])
    j0, j1, j2, j3 = s.split(j, [None, 1, 8, 4])
    k0, k1 = s.split(k, [None, 2])
    s.reorder(i0, j0, i1, j1, k0, i2, j2, k1, i3, j3)
    copy = on.written_apart(y)
    s.reverse_compute_at(copy, j1)
    s.fuse(i0, j0, i1, j1)
    s.vectorize(j3)
    s.vectorize(s.get_loops(copy)[-1])
    s.decompose_reduction(y, k0)


def convolved(width: int) -> Steps:
    """Pixels of a row in vectors, which the channels and the filter are summed up into."""

    def steps(on: Scheduling) -> None:
        s, y = on.s, on.block("Y")
        w, c, ky, kx = s.get_loops(y)[-4:]
        w0, w1 = s.split(w, [None, width])
        s.reorder(w0, c, ky, kx, w1)
        s.vectorize(w1)
        s.unroll(kx)
        s.decompose_reduction(y, c)

    return steps


PRODUCT: Mapping[str, Steps] = {
    "naive": naive,
    "strips of 4": strips(4, is_decomposed=False),
    "strips of 16": strips(16, is_decomposed=False),
    "decomposed, 4": strips(4),
    "decomposed, 16": strips(16),
    "unrolled": strips(16, unrolled=4),
    "vectorized, 4": strips(4, is_vectorized=True),
    "vectorized": strips(16, is_vectorized=True),
    "vectorized, unrolled": strips(16, is_vectorized=True, unrolled=4),
    "blocked": lambda on: (blocked(on), None)[1],
    "blocked, packed": packed,
    "blocked, kept apart": kept_apart,
    "tiled": tiled,
}
BATCHED: Mapping[str, Steps] = {
    "naive": naive,
    "decomposed": strips(8, has_relu=True),
    "unrolled": strips(8, has_relu=True, unrolled=4),
    "vectorized": strips(8, has_relu=True, is_vectorized=True),
}
CONVOLUTION: Mapping[str, Steps] = {"naive": naive, "vectorized": convolved(28), "vectorized, 8": convolved(8)}

EXERCISES: Mapping[str, tuple[str, tuple[int, ...], Mapping[str, Steps]]] = {
    "product 128": ("product", (128,), PRODUCT),
    "product 100": ("product", (100,), PRODUCT),
    "product 512": ("product", (512,), PRODUCT),
    "product 1024": ("product", (1024,), PRODUCT),
    "batched 16x128": ("batched", (16, 128), BATCHED),
    "convolution": ("convolution", (16, 32, 56), CONVOLUTION),
}
"""Exercises: the kind of program, its sizes (the side; batches and the side; channels, filters and the side of the
image), and its schedules, one step after the other."""
