"""Block and loop references: lookup by name, and navigation to neighbours.

Primitives name a loop by its variable and a block by its name: both are unique in a nest and survive
rewrites of other parts, so a ``LoopRef`` or ``BlockRef`` is no more than that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import wraps
from itertools import count, pairwise, takewhile
from typing import Final, ParamSpec, TypeAlias, TypeVar

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.loops.expressions import Expr, Var, apply, substitute, variables
from graphopt.lowering.loops.nest import (
    ROOT_BLOCK,
    Block,
    Buffer,
    For,
    If,
    Nest,
    Seq,
    Stmt,
    declared,
    inner,
    mutate,
    seq,
    statements,
    with_inner,
    with_names,
)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A reference to a block, by name.

    >>> isinstance(s.get_block("y"), schedule.BlockRef), schedule.BlockRef("y")
    (True, BlockRef(name='y'))
    """

    name: str


@dataclass(frozen=True, slots=True)
class LoopRef:
    """A reference to a loop, by the name of its variable.

    >>> i, j = s.get_loops(schedule.BlockRef("y"))
    >>> isinstance(i, schedule.LoopRef), i
    (True, LoopRef(name='i'))
    """

    name: str


ROOT: Final = LoopRef("<root>")
"""In place of a loop to compute a block at: the block stays where it is."""
INLINE: Final = LoopRef("<inline>")
"""In place of a loop to compute a block at: it is written out where it is read."""
AnyLoop: TypeAlias = LoopRef | str
AnyBlock: TypeAlias = BlockRef | str


def primitive(fn: Callable[P, R]) -> Callable[P, R]:
    """A decorator: errors of the function begin with its name."""

    @wraps(fn)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except ScheduleError as error:
            raise ScheduleError(f"{fn.__name__}: {error}") from None

    return named


@dataclass(frozen=True, slots=True)
class LoopSite:
    """A loop, and the statements around it from the outermost in."""

    stmt: For
    above: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class BlockSite:
    """A block, and the statements around it from the outermost in."""

    stmt: Block
    above: tuple[Stmt, ...]

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops around the block up to the next block, from the outermost in."""
        return loops_of(self.above)

    @property
    def chain(self) -> tuple[For, ...]:
        """The loops around the block that hold nothing else, from the outermost in."""
        held = list(takewhile(lambda s: isinstance(s, For), reversed(self.above)))
        return tuple(s for s in reversed(held) if isinstance(s, For))


@dataclass(frozen=True, slots=True)
class StatementSite:
    """Any statement, and the statements around it from the outermost in."""

    stmt: Stmt
    above: tuple[Stmt, ...]


Site: TypeAlias = LoopSite | BlockSite | StatementSite


def loops_of(above: tuple[Stmt, ...]) -> tuple[For, ...]:
    """The innermost loops of a path, up to the innermost block on it."""
    loops: list[For] = []
    for stmt in reversed(above):
        if isinstance(stmt, Block):
            break
        if isinstance(stmt, For):
            loops.append(stmt)
    return tuple(reversed(loops))


def loops_split_at(site: BlockSite, loop: AnyLoop) -> tuple[tuple[For, ...], tuple[For, ...]]:
    """The loops around a block outside of one of them, and from that on; raises ScheduleError."""
    name = loop if isinstance(loop, str) else loop.name
    names = [s.var.name for s in site.loops]
    if name not in names:
        raise ScheduleError(f"{name} is not around {site.stmt.name}; its loops are {_listed(names)}")
    position = names.index(name)
    return site.loops[:position], site.loops[position:]


def branch_conditions(path: Sequence[Stmt]) -> Iterator[Expr]:
    """The conditions of the branches that a path goes through."""
    for stmt, below in pairwise(path):
        if isinstance(stmt, If):
            yield stmt.condition if stmt.then is below else apply("not", stmt.condition)


def paths(stmt: Stmt, above: tuple[Stmt, ...] = ()) -> Iterator[tuple[Stmt, tuple[Stmt, ...]]]:
    """Each statement with its path, in textual order."""
    yield stmt, above
    for child in inner(stmt):
        yield from paths(child, (*above, stmt))


def find_loop(nest: Nest, loop: AnyLoop) -> LoopSite:
    """Looks a loop up by name; raises ScheduleError."""
    name = loop if isinstance(loop, str) else getattr(loop, "name", repr(loop))
    for stmt, above in paths(nest.body):
        if isinstance(stmt, For) and stmt.var.name == name:
            return LoopSite(stmt, above)
    raise ScheduleError(f"there is no loop {name}; the loops are {_listed(s.var.name for s in _fors(nest))}")


def find_block(nest: Nest, block: AnyBlock) -> BlockSite:
    """Looks a block up by name; raises ScheduleError."""
    name = block if isinstance(block, str) else block.name
    for stmt, above in paths(nest.body):
        if isinstance(stmt, Block) and stmt.name == name:
            return BlockSite(stmt, above)
    names = (s.name for s in statements(nest.body) if isinstance(s, Block))
    what = f"root is {nest.name} as a whole, and no block in it" if name == ROOT_BLOCK else f"there is no block {name}"
    raise ScheduleError(f"{what}; the blocks are {_listed(names)}")


def find_place(nest: Nest, within: BlockRef | LoopRef | str) -> LoopSite | BlockSite:
    """Looks a block or loop up; a plain name is that of a block or, where there is none, of a loop."""
    if isinstance(within, LoopRef):
        return find_loop(nest, within)
    named = any(isinstance(s, Block) and s.name == within for s in statements(nest.body))
    return find_block(nest, within) if named or isinstance(within, BlockRef) else find_loop(nest, within)


def _fors(nest: Nest) -> Iterator[For]:
    return (s for s in statements(nest.body) if isinstance(s, For))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def outer_blocks(stmt: Stmt) -> Iterator[Block]:
    """The outermost blocks within a statement."""
    if isinstance(stmt, Block):
        yield stmt
    else:
        for child in inner(stmt):
            yield from outer_blocks(child)


def extents_around(above: Iterable[Stmt]) -> dict[Var, Expr]:
    """The extents of the loop variables and block axes along a path, from the outermost in."""
    extents: dict[Var, Expr] = {}
    for stmt in above:
        if isinstance(stmt, For):
            extents[stmt.var] = stmt.extent
        elif isinstance(stmt, Block):
            extents |= {a.var: a.extent for a in stmt.axes}
    return extents


def replaced(nest: Nest, site: Site, stmt: Stmt | None) -> Nest:
    """The nest with a statement replaced; None removes it, and the loops left empty."""
    old: Stmt = site.stmt
    for parent in reversed(site.above):
        if stmt is not None:
            child = stmt
            stmt = with_inner(parent, tuple(child if c is old else c for c in inner(parent)))
        elif isinstance(parent, Seq):
            stmt = seq(*(c for c in parent.stmts if c is not old))
        elif isinstance(parent, If) and parent.otherwise is not None:
            kept = parent.otherwise if parent.then is old else parent.then
            stmt = If(apply("not", parent.condition) if parent.then is old else parent.condition, kept)
        old = parent
    if stmt is None:
        raise ScheduleError("nothing of the program would be left")
    return replace(nest, body=stmt)


def with_predicates_of_loops(nest: Nest) -> Nest:
    """The nest with each block's predicate in terms of the loops around it, where it speaks of the block's axes."""

    def changed(s: Stmt) -> Stmt | None:
        if not isinstance(s, Block) or not variables(s.predicate) & {a.var for a in s.axes}:
            return None
        values = {a.var: v for a, v in zip(s.axes, s.values, strict=True)}
        return replace(s, predicate=substitute(s.predicate, values))

    body = mutate(nest.body, changed)
    return nest if body is nest.body else replace(nest, body=body)


def names_in(nest: Nest) -> set[str]:
    """All names of variables, blocks and buffers in a nest."""
    names = {p.name for p in nest.params} | {b.name for b in nest.allocs}
    for s in statements(nest.body):
        if isinstance(s, For):
            names.add(s.var.name)
        elif isinstance(s, Block):
            names |= {s.name, *(a.var.name for a in s.axes)}
    return names


def free_name(names: set[str], wanted: str) -> str:
    """An unused name: the wanted one, with a number where needed; it is added to ``names``."""
    candidates = (wanted if k == 0 else f"{wanted}_{k}" for k in count())
    name = next(c for c in candidates if c not in names)
    names.add(name)
    return name


def with_free_names(stmt: Stmt, names: set[str], suffix: str = "") -> Stmt:
    """The statement with unused names for its loops and axes: theirs with the suffix, which are added to ``names``."""
    own = dict.fromkeys(v for s in statements(stmt) for v in declared(s))
    return with_names(stmt, {v: Var(free_name(names, v.name + suffix)) for v in own})


# ------------------------------------------------------------------ questions


def is_root(nest: Nest, within: BlockRef | LoopRef | str) -> bool:
    """Whether a reference is that of the root block: the whole program, whose notes are the program's."""
    if isinstance(within, LoopRef) or getattr(within, "name", within) != ROOT_BLOCK:
        return False
    return not any(isinstance(s, Block) and s.name == ROOT_BLOCK for s in statements(nest.body))


def get_block(nest: Nest, name: str) -> BlockRef:
    """The block of that name; ``root`` is the whole program."""
    return BlockRef(ROOT_BLOCK) if is_root(nest, name) else BlockRef(find_block(nest, name).stmt.name)


def get_loop(nest: Nest, name: str) -> LoopRef:
    """The loop over the variable of that name; ``ROOT`` and ``INLINE`` by theirs."""
    if name in (ROOT.name, INLINE.name):
        return LoopRef(name)
    return LoopRef(find_loop(nest, name).stmt.var.name)


def get_loops(nest: Nest, block: AnyBlock) -> tuple[LoopRef, ...]:
    """The loops around a block, outermost first, up to the next enclosing block."""
    if is_root(nest, block):
        return ()
    return tuple(LoopRef(loop.var.name) for loop in find_block(nest, block).loops)


def get_child_blocks(nest: Nest, within: BlockRef | LoopRef | str) -> tuple[BlockRef, ...]:
    """The blocks directly within a loop or block, in order."""
    if is_root(nest, within):
        return tuple(BlockRef(b.name) for b in outer_blocks(nest.body))
    body = find_loop(nest, within).stmt.body if isinstance(within, LoopRef) else find_block(nest, within).stmt.body
    return tuple(BlockRef(b.name) for b in outer_blocks(body))


def get_parent_block(nest: Nest, within: BlockRef | LoopRef | str) -> BlockRef | None:
    """The enclosing block of a loop or block; None at the top."""
    if is_root(nest, within):
        return None
    site = find_loop(nest, within) if isinstance(within, LoopRef) else find_block(nest, within)
    return next((BlockRef(s.name) for s in reversed(site.above) if isinstance(s, Block)), None)


def buffers_read(block: Block) -> frozenset[Buffer]:
    """The declared reads of a block."""
    return frozenset(r.buffer for r in block.reads)


def buffers_written(block: Block) -> frozenset[Buffer]:
    """The declared writes of a block."""
    return frozenset(r.buffer for r in block.writes)


def _siblings(nest: Nest, site: BlockSite) -> list[Block]:
    """The blocks that stand in the same block as this one, or at the top with it."""
    parent = next((s for s in reversed(site.above) if isinstance(s, Block)), None)
    return list(outer_blocks(nest.body if parent is None else parent.body))


def get_producers(nest: Nest, block: AnyBlock) -> tuple[BlockRef, ...]:
    """The sibling blocks that write what this one reads, in order."""
    site = find_block(nest, block)
    read = buffers_read(site.stmt)
    return tuple(BlockRef(b.name) for b in _siblings(nest, site) if b is not site.stmt and read & buffers_written(b))


def get_consumers(nest: Nest, block: AnyBlock) -> tuple[BlockRef, ...]:
    """The sibling blocks that read what this one writes, in order."""
    site = find_block(nest, block)
    written = buffers_written(site.stmt)
    return tuple(BlockRef(b.name) for b in _siblings(nest, site) if b is not site.stmt and written & buffers_read(b))


def get_output_blocks(nest: Nest) -> tuple[BlockRef, ...]:
    """The outermost blocks that write a parameter of the program, in order."""
    return tuple(BlockRef(b.name) for b in outer_blocks(nest.body) if buffers_written(b) & set(nest.buffers))
