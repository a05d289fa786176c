"""Shape profiles: the sizes at which a graph with open sizes is priced.

One profile is enough where the cheapest graph is much the same at all sizes. A decoder with a key-value cache has two
phases in which it is not: one position is computed beside a long past (decode), or many beside none (prefill). What is
chosen for one may be slow in the other, so that both count alike: each node costs the sum of its shares of the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from graphopt.ir.caches import caches
from graphopt.ir.graph import Graph
from graphopt.ir.types import TensorType, substitute, sums, symbols

Profiles: TypeAlias = tuple[tuple[Mapping[str, int], float], ...]
"""What named sizes count as, and the weight of what nodes cost then."""

PAST = 1024
"""Positions that a cache holds while one more is decoded."""

NEW = 128
"""Positions that are computed at once while the cache is empty."""


def phases(graph: Graph) -> tuple[Mapping[str, int], ...]:
    """The sizes of decode and of prefill, as far as they are open; none for a graph without a cache.

    A cache is an input that a Concat puts before something new, along an axis of open size, and that is an output then.
    A size that the model or its caller states says which phase is meant: a past of 0 is a prefill, one of another
    size or a single new position a decode.
    """
    grown = caches(graph)
    if not grown:
        return ()
    decode: dict[str, int] = {}
    prefill: dict[str, int] = {}
    is_decode = is_prefill = True
    for past, new in grown:
        if isinstance(past, int):
            is_prefill &= past == 0
            is_decode &= past > 0
        if isinstance(new, int):
            is_prefill &= new > 1
            is_decode &= new == 1
        for size, one, many in ((past, PAST, 0), (new, 1, NEW)):
            decode.update(dict.fromkeys(symbols(size), one))
            prefill.update(dict.fromkeys(symbols(size), many))
    if not decode:
        return ()
    types = [graph.types.get(v) for v in graph.inputs]
    shapes = [t.shape for t in types if isinstance(t, TensorType) and isinstance(t.shape, tuple)]
    for name, total in sums(set().union(*(symbols(size) for shape in shapes for size in shape))).items():
        for phase in (decode, prefill):
            if isinstance(count := substitute(total, {**phase}), int):
                phase[name] = count
    return tuple(
        p for p, is_meant in ((decode, is_decode), (prefill, is_prefill)) if is_meant or is_decode == is_prefill
    )
