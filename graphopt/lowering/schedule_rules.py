"""The primitive that schedules a whole nest by rule, some things of it chosen otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.errors import ScheduleError
from graphopt.lowering.default_schedules import chosen
from graphopt.lowering.loops import Nest
from graphopt.lowering.sites import primitive


@primitive
def by_rule(nest: Nest, choices: Sequence[tuple[str, int]] = ()) -> tuple[Nest, None]:
    """The nest as it is scheduled by rule, but for what is chosen here, by name: the function that computes a product,
    the rows and columns of its pieces, the tiles of a convolution.

    The nest is one that nothing was done to. Before::

        for i0 in serial(65536):
            with block("B"):
                v0 = axis.remap("S", [i0])
                B[v0] = A[v0] + 1.0

    After ``s.by_rule([["chunk", 16384]])``::

        for t2 in parallel(4):
            for i0 in vectorized(min(16384, 65536 - t2 * 16384)):
                with block("B"):
                    v0 = axis.spatial(65536, t2 * 16384 + i0)
                    B[v0] = A[v0] + 1.0
    """
    if any(len(pair) != 2 or not isinstance(pair[0], str) for pair in choices):
        raise ScheduleError(f"choices are pairs of a name and a number, and not {list(choices)}")
    made, _ = chosen(nest, {name: int(number) for name, number in choices})
    return made, None
