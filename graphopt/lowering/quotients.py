"""Index arithmetic that a loop need not repeat: divisions and bounds in what it addresses that none of the loops within
changes. A compiler cannot move them out by itself where memory is written between, or where they stand in a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from graphopt.lowering.addresses import Bounds, Polynomial, polynomial
from graphopt.lowering.expressions import INDEX, Apply, Expr, Load, Var, variables, walk
from graphopt.lowering.loops import Block, For, If, Stmt, Store, inner, statements
from graphopt.lowering.places import Place

COSTLY = frozenset({"floordiv", "mod", "min", "max", "select"})
SUMS = frozenset({"add", "sub", "mul", "neg"})
Address: TypeAlias = Callable[[Load], Polynomial]
"""The number of an element, counted from its buffer's start."""


def quotients(stmt: Stmt, place: Place, address: Address, bounds: Bounds) -> list[Expr]:
    """The costly index arithmetic of a statement that is over variables from outside of it alone,
    parts before the whole that they are in."""
    own = frozenset(s.var for s in statements(stmt) if isinstance(s, For))
    found: dict[Expr, None] = {}
    for expr in _expressions(stmt, place):
        for total in _indices(expr, address, bounds):
            found.update(dict.fromkeys(_atoms(total, own, bounds)))
    return list(found)


def _expressions(stmt: Stmt, place: Place) -> Iterator[Expr]:
    """The expressions of a statement over loop variables, blocks opened."""
    match stmt:
        case For():
            yield place.of(stmt.extent)
        case Block():
            place = place.bind({a.var: place.of(v) for a, v in zip(stmt.axes, stmt.values, strict=True)})
        case Store():
            yield place.of(Load(stmt.buffer, stmt.indices))
            yield place.of(stmt.value)
        case If():
            yield place.of(stmt.condition)
    for child in inner(stmt):
        yield from _expressions(child, place)


def _indices(expr: Expr, address: Address, bounds: Bounds) -> Iterator[Polynomial]:
    """The addresses of what is loaded, and the index expressions."""
    if isinstance(expr, Load):
        yield address(expr)
    elif isinstance(expr, Apply):
        if expr.dtype == INDEX and expr.fn in SUMS | COSTLY:
            yield polynomial(expr, bounds)
        else:
            for arg in expr.args:
                yield from _indices(arg, address, bounds)


def _atoms(total: Polynomial, own: frozenset[Var], bounds: Bounds) -> Iterator[Expr]:
    for product in total.terms:
        for atom in product:
            if not isinstance(atom, Apply) or atom.fn not in COSTLY:
                continue
            for arg in atom.args:
                yield from _atoms(polynomial(arg, bounds), own, bounds)
            if not own & variables(atom) and not any(isinstance(e, Load) for e in walk(atom)):
                yield atom
