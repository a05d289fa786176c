"""Dataflow analysis: reads and writes of statements, over which loops, and in which order.

A *unit* is an outermost block, or a statement outside of all blocks that reads or writes by itself;
primitives on blocks move, copy and join units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_refs import BlockSite, paths
from graphopt.lowering.intrinsics.tensor_intrin import outputs_of
from graphopt.lowering.loops.expressions import Expr, Load, Var, substitute, walk
from graphopt.lowering.loops.nest import (
    Block,
    Buffer,
    Check,
    For,
    If,
    Invoke,
    Nest,
    Stmt,
    Store,
    expressions,
    inner,
    map_expressions,
    mutate,
)


@dataclass(frozen=True, slots=True)
class AccessSet:
    """The elements of one access, for all values of the variables of ``extents``: loops within the analyzed statement.
    Other variables in its indices are bound around that."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_write: bool
    extents: Mapping[Var, Expr]


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: an outermost block or a bare statement, and the statements around it from the outermost in."""

    stmt: Stmt
    above: tuple[Stmt, ...]

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"block {self.stmt.name}" if isinstance(self.stmt, Block) else "a statement outside of blocks"


def units(stmt: Stmt, above: tuple[Stmt, ...] = ()) -> Iterator[Unit]:
    """The units within a statement, in the order of the text."""
    bare = isinstance(stmt, If) and any(isinstance(e, Load) for e in walk(stmt.condition))
    if bare or isinstance(stmt, Block | Store | Check | Invoke):
        yield Unit(stmt, above)
        return
    for child in inner(stmt):
        yield from units(child, (*above, stmt))


def scope(above: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The path from the root to the scope of a block: down to the block around it."""
    return tuple(above[: max((k + 1 for k, s in enumerate(above) if isinstance(s, Block)), default=0)])


def units_beside(nest: Nest, site: BlockSite) -> list[Unit]:
    """The units in the scope of a block, itself included, in the order of the text."""
    outside = scope(site.above)
    return list(units((*site.above, site.stmt)[len(outside)] if outside else nest.body, outside))


def shared(a: Sequence[Stmt], b: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The common part of two paths."""
    common: list[Stmt] = []
    for x, y in zip(a, b, strict=False):
        if x is not y:
            break
        common.append(x)
    return tuple(common)


def accesses_in(
    stmt: Stmt, values: Mapping[Var, Expr] | None = None, extents: Mapping[Var, Expr] | None = None
) -> Iterator[AccessSet]:
    """Every access within a statement in textual order, with indices over loops: axes are replaced by their
    ``values``."""
    bindings, loops = values or {}, extents or {}
    match stmt:
        case For():
            yield from _read(stmt.extent, bindings, loops)
            yield from accesses_in(stmt.body, bindings, {**loops, stmt.var: substitute(stmt.extent, bindings)})
        case Block():
            for expr in (*stmt.values, stmt.predicate):
                yield from _read(expr, bindings, loops)
            bound = {a.var: substitute(v, bindings) for a, v in zip(stmt.axes, stmt.values, strict=True)}
            for child in inner(stmt):
                yield from accesses_in(child, {**bindings, **bound}, loops)
        case Store():
            for e in (*stmt.indices, stmt.value):
                yield from _read(e, bindings, loops)
            yield AccessSet(stmt.buffer, tuple(substitute(i, bindings) for i in stmt.indices), True, loops)
        case Invoke():
            yield from _invoked(stmt, bindings, loops)
        case _:
            for e in expressions(stmt):
                yield from _read(e, bindings, loops)
            for child in inner(stmt):
                yield from accesses_in(child, bindings, loops)


def _read(expr: Expr, values: Mapping[Var, Expr], extents: Mapping[Var, Expr]) -> Iterator[AccessSet]:
    for e in walk(expr):
        if isinstance(e, Load):
            yield AccessSet(e.buffer, tuple(substitute(i, values) for i in e.indices), False, extents)


def _invoked(stmt: Invoke, values: Mapping[Var, Expr], extents: Mapping[Var, Expr]) -> Iterator[AccessSet]:
    """The elements of an intrinsic's regions; what it writes, it may read as well."""
    outputs = outputs_of(stmt)
    for k, arg in enumerate(stmt.args):
        if isinstance(arg, Expr):
            yield from _read(arg, values, extents)
            continue
        steps = {Var(f"_{k}_{d}"): substitute(r.extent, values) for d, r in enumerate(arg.ranges)}
        indices = tuple(substitute(r.start, values) + v for r, v in zip(arg.ranges, steps, strict=True))
        for is_write in (False, True) if k in outputs else (False,):
            yield AccessSet(arg.buffer, indices, is_write, {**extents, **steps})


def buffers_read(stmt: Stmt) -> frozenset[Buffer]:
    """The buffers that a statement loads from."""
    return frozenset(a.buffer for a in accesses_in(stmt) if not a.is_write)


def buffers_written(stmt: Stmt) -> frozenset[Buffer]:
    """The buffers that a statement writes."""
    return frozenset(a.buffer for a in accesses_in(stmt) if a.is_write)


def readers(among: Iterable[Unit], buffer: Buffer) -> list[Unit]:
    """The units that read a buffer and do not write it."""
    return [u for u in among if buffer in buffers_read(u.stmt) - buffers_written(u.stmt)]


def writers(among: Iterable[Unit], buffer: Buffer) -> list[Unit]:
    """The units that write a buffer."""
    return [u for u in among if buffer in buffers_written(u.stmt)]


def written_by_others(nest: Nest, block: Block, buffer: Buffer) -> list[str]:
    """What writes a buffer outside of a block, by the names of the blocks that it stands in."""
    names = []
    for part, above in paths(nest.body):
        if isinstance(part, Store | Invoke) and not any(s is block for s in above) and buffer in buffers_written(part):
            names.append(
                next((s.name for s in reversed(above) if isinstance(s, Block)), "a statement outside of blocks")
            )
    return names


def without_unused(nest: Nest, candidates: Iterable[Buffer]) -> Nest:
    """The nest without unused local allocations among the buffers."""
    gone = set(candidates) - {a.buffer for a in accesses_in(nest.body)}
    return replace(nest, allocs=tuple(b for b in nest.allocs if b not in gone))


def reindexed(stmt: Stmt, old: Buffer, new: Buffer, where: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]) -> Stmt:
    """The statement with each access to a buffer replaced by one of another, at the indices that ``where`` gives."""

    def load(e: Expr) -> Expr | None:
        return Load(new, where(e.indices)) if isinstance(e, Load) and e.buffer == old else None

    def store(s: Stmt) -> Stmt | None:
        return Store(new, where(s.indices), s.value) if isinstance(s, Store) and s.buffer == old else None

    return mutate(map_expressions(stmt, load), store)


def kept_inside(nest: Nest, buffer: Buffer, why: str) -> None:
    """Checks that a buffer is local to the nest; raises ScheduleError."""
    if buffer not in nest.allocs:
        raise ScheduleError(f"{buffer.name} is a parameter of {nest.name}{why}")
