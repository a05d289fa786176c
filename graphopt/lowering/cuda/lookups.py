"""Elements that are looked up: kernels that follow one that found an index out of range run all the same, and must not
reach beyond their buffers."""

from __future__ import annotations

from dataclasses import replace

from graphopt.lowering.expressions import Expr, Load, loads_in, maximum, minimum
from graphopt.lowering.loops import Check, Nest, map_expressions, statements


def kept_inside(nest: Nest) -> Nest:
    """The nest with indices that are read from memory held within their buffers, where something is checked at all: the
    same for indices that are in range."""
    if not any(isinstance(s, Check) for s in statements(nest.body)):
        return nest

    def inside(index: Expr, extent: Expr) -> Expr:
        return maximum(minimum(index, extent - 1), 0) if loads_in(index) else index

    def held(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or not loads_in(e) - {e}:
            return None
        return Load(e.buffer, tuple(map(inside, e.indices, e.buffer.shape)))

    return replace(nest, body=map_expressions(nest.body, held))
