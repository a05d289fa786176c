"""Common subexpressions and loop invariants: parts of expressions that may be computed once, in a statement and in a
loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from graphopt.lowering.loops.expressions import Apply, Expr, Load, Var, loads_in, variables, walk
from graphopt.lowering.loops.nest import Buffer, For, Nest, Stmt, Store, loads, statements


def private(nest: Nest) -> dict[Var, frozenset[Buffer]]:
    """The private buffers of each vectorized loop: local buffers used only within one iteration."""
    locals = [b for b in nest.allocs if b.scope == "local"]
    everywhere = uses(nest.body)
    return {
        s.var: frozenset(b for b in locals if (n := inside[b]) and n == everywhere[b])
        for s in statements(nest.body)
        if isinstance(s, For) and s.kind == "vectorized"
        for inside in [uses(s)]
    }


def uses(stmt: Stmt) -> Counter[Buffer]:
    """The number of reads and writes of each buffer."""
    written = [s.buffer for s in statements(stmt) if isinstance(s, Store)]
    return Counter([*written, *(load.buffer for load in loads(stmt))])


def eager(expr: Expr, written: set[Buffer], safe: set[Expr]) -> Iterator[Expr]:
    """The parts of an expression worth a name that may be computed unconditionally."""
    if isinstance(expr, Load):
        if expr.buffer.scope != "local" and not any(e.buffer in written for e in loads_in(expr)):  # in indices, too
            yield expr
    elif isinstance(expr, Apply):
        if expr.dtype != "int64" and not any(e.buffer in written for e in loads_in(expr)):
            yield expr
        for k, arg in enumerate(expr.args):
            if k == 0 or expr.fn != "select" or loads_in(arg) <= safe:
                yield from eager(arg, written, safe)


def invariant(expr: Expr, var: Var, written: set[Buffer]) -> Iterator[Expr]:
    """The largest loop-invariant parts of an expression that are loads, or computed from loads; of indices, loads
    alone."""
    # Top down: the first part on each path that neither the variable nor a store changes.
    loads_ = loads_in(expr)
    same = var not in variables(expr) and not any(e.buffer in written for e in loads_)
    if isinstance(expr, Load):
        if same and expr.buffer.scope != "local":
            yield expr
        for index in () if same else expr.indices:
            for part in walk(index):
                if isinstance(part, Load):
                    yield from invariant(part, var, written)
    elif isinstance(expr, Apply):
        if same and expr.dtype != "int64" and any(e.buffer.scope != "local" for e in loads_):
            yield expr
            return
        for arg in expr.args[:1] if expr.fn == "select" else expr.args:
            yield from invariant(arg, var, written)
