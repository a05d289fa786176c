"""Safe gathers: indices clamped to their buffers, because kernels run on after one reported a bad index."""

from __future__ import annotations

from dataclasses import replace

from graphopt.lowering.loops.expressions import Expr, Load, loads_in, maximum, minimum
from graphopt.lowering.loops.nest import Buffer, Check, Nest, Stmt, Store, map_expressions, mutate, statements


def kept_inside(nest: Nest) -> Nest:
    """The nest with indices that are read from memory held within their buffers, where something is checked at all."""
    if not any(isinstance(s, Check) for s in statements(nest.body)):
        return nest
    return replace(nest, body=inside_buffers(nest.body))


def inside_buffers(stmt: Stmt) -> Stmt:
    """The statement with indices that are read from memory held within their buffers: the same, where they are."""

    def held(indices: tuple[Expr, ...], buffer: Buffer) -> tuple[Expr, ...]:
        pairs = zip(indices, buffer.shape, strict=True)
        return tuple(maximum(minimum(i, n - 1), 0) if loads_in(i) else i for i, n in pairs)

    def load(e: Expr) -> Expr | None:
        return Load(e.buffer, held(e.indices, e.buffer)) if isinstance(e, Load) and loads_in(e) - {e} else None

    def store(s: Stmt) -> Stmt | None:
        return replace(s, indices=held(s.indices, s.buffer)) if isinstance(s, Store) else None

    return mutate(map_expressions(stmt, load), store)
