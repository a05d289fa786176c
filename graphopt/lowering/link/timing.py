"""Timing of one nest, compiled as it stands, and run without Python between the runs."""

from __future__ import annotations

from dataclasses import replace

from graphopt.lowering.link.nest_function import NestFunction
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.runtime.timing import Timing

__all__ = ["Timing", "time_nest"]


def time_nest(nest: Nest, number: int = 10, repeat: int = 3, *, threads: int = 1, **sizes: int) -> Timing:
    """Times a nest as it stands, whatever its notes say: ``repeat`` series of ``number`` runs, after some to warm up.

    ``sizes`` are what its sizes are, by name. Floats that it reads are random numbers, integers 0. Raises UsageError
    where a size is missing or is no size, and CompilationError where it does not compile. ``nest.time`` is the same for
    nests that are called, which are scheduled by rule where a note says so.
    """
    as_it_stands = replace(nest, notes=tuple(n for n in nest.notes if n != BY_RULE))
    return NestFunction(as_it_stands, threads=threads).time(number=number, repeat=repeat, **sizes)
