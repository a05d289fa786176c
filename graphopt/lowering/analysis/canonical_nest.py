"""Canonical nests: one block after another, each in perfectly nested loops of its own, one for each axis.

Default schedules take such chains of loops apart and put them together anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from graphopt.frozen import dataclass
from graphopt.lowering.index.arithmetic import address_of
from graphopt.lowering.index.polynomials import Polynomial
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, variables, walk
from graphopt.lowering.loops.loop_nests import peeled
from graphopt.lowering.loops.nest import (
    Axis,
    Block,
    Buffer,
    For,
    Nest,
    Seq,
    Stmt,
    Store,
    described,
    expressions,
    inner,
    map_expressions,
    mutate,
    statements,
)


@dataclass(frozen=True)
class Chain:
    """A chain: a block and the loops that bind its axes one to one, outermost first."""

    loops: tuple[For, ...]
    block: Block

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The block's axes."""
        return self.block.axes

    @property
    def spatial(self) -> tuple[Axis, ...]:
        """The spatial axes."""
        return self.block.of_kind("spatial")

    @property
    def reduced(self) -> tuple[Axis, ...]:
        """The reduction axes."""
        return self.block.of_kind("reduce")

    @cached_property
    def bounds(self) -> Mapping[Var, int]:
        """The constant extents of axes."""
        return {a.var: int(a.extent.value) for a in self.axes if isinstance(a.extent, Const)}

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """All accesses of the block, by address over its axes."""
        return tuple(dict.fromkeys(_accesses(self.block, self.bounds)))

    @cached_property
    def stores(self) -> tuple[Store, ...]:
        """The stores of the block's body, in order."""
        return tuple(s for s in statements(self.block.body) if isinstance(s, Store))

    def with_values(self, values: Sequence[Expr]) -> Block:
        """The block with its axes bound to other expressions."""
        return replace(self.block, values=tuple(values))


@dataclass(frozen=True)
class Access:
    """An access to an element."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_write: bool
    address: tuple[tuple[tuple[Expr, ...], int], ...]

    @property
    def polynomial(self) -> Polynomial:
        """The address, counted from the buffer's start."""
        return Polynomial(dict(self.address))

    def stride(self, var: Var) -> Polynomial | None:
        """The stride along an axis; None where it is not constant."""
        parts = self.polynomial.split(var)
        return None if parts is None else parts[0]

    def varies(self, var: Var) -> bool:
        """Whether the address depends on an axis."""
        return any(var in variables(atom) for product, _ in self.address for atom in product)


def _accesses(block: Block, bounds: Mapping[Var, int]) -> Iterator[Access]:
    for body in inner(block):
        for s in statements(body):
            if isinstance(s, Store):
                yield _access(Load(s.buffer, s.indices), True, bounds)
            for e in expressions(s):
                for part in walk(e):
                    if isinstance(part, Load):
                        yield _access(part, False, bounds)


def _access(element: Load, is_write: bool, bounds: Mapping[Var, int]) -> Access:
    # an axis of one step keeps its stride, which says whether it is one with its neighbour
    whole = address_of(element, {v: n for v, n in bounds.items() if n != 1})
    return Access(element.buffer, element.indices, is_write, tuple(sorted(whole.terms.items(), key=repr)))


def chains(nest: Nest) -> tuple[Chain, ...] | None:
    """The chains of a nest, in order; None where it is not canonical (already scheduled, or a procedure)."""
    chains = []
    for stmt in nest.body.stmts if isinstance(nest.body, Seq) else (nest.body,):
        chain = chain_of(stmt)
        if chain is None:
            return None
        chains.append(chain)
    return tuple(chains)


def chain_of(stmt: Stmt) -> Chain | None:
    """The statement as a chain; None where it is not one."""
    # Peels perfectly nested loops off a block, and asks that each binds one axis.
    loops, block = peeled(stmt)
    if not isinstance(block, Block) or not block.axes or len(loops) != len(block.values):
        return None
    # a loop of one step is no part of what it is for, once the rest was simplified
    values = tuple(
        s.var if v == Const(0) and s.extent == Const(1) else v for s, v in zip(loops, block.values, strict=True)
    )
    if values != tuple(s.var for s in loops):
        return None
    if values != block.values:
        block = replace(block, values=values)
    if any(s.kind != "serial" for s in loops) or any(a.kind == "ordered" for a in block.axes):
        return None
    return None if any(isinstance(s, For) for s in statements(block)) else Chain(loops, block)


def exchange(stmt: Stmt, targets: Mapping[Buffer, tuple[Buffer, tuple[Expr, ...]]]) -> Stmt:
    """The statement with every access to a buffer replaced by one element of another."""

    def load(e: Expr) -> Expr | None:
        return Load(*targets[e.buffer]) if isinstance(e, Load) and e.buffer in targets else None

    def written(s: Stmt) -> Stmt | None:
        if isinstance(s, Store) and s.buffer in targets:
            buffer, indices = targets[s.buffer]
            return Store(buffer, indices, s.value)
        return described(s) if isinstance(s, Block) else None

    return mutate(map_expressions(stmt, load), written)
