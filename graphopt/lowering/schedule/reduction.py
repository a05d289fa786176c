"""Reduction transformations: decomposition, and factoring into partial results (rfactor)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_refs import (
    AnyBlock,
    AnyLoop,
    BlockRef,
    BlockSite,
    branch_conditions,
    extents_around,
    find_block,
    find_loop,
    free_name,
    loops_split_at,
    names_in,
    outer_blocks,
    primitive,
    replaced,
)
from graphopt.lowering.analysis.iteration_domains import are_disjoint, check_start
from graphopt.lowering.analysis.regions import refreshed, simplified
from graphopt.lowering.index.arithmetic import prove, simplify
from graphopt.lowering.loops.accumulation import HORIZONTAL, accumulated, identity
from graphopt.lowering.loops.expressions import (
    Const,
    Expr,
    Load,
    Var,
    apply,
    conjunction,
    conjuncts,
    select,
    substitute,
    variables,
    walk,
)
from graphopt.lowering.loops.nest import (
    Axis,
    Block,
    Buffer,
    For,
    Nest,
    Range,
    Stmt,
    Store,
    blocks,
    seq,
    substitute_in,
)
from graphopt.lowering.schedule.loop_transforms import in_copies


@primitive
def decompose_reduction(nest: Nest, block: AnyBlock, loop: AnyLoop) -> tuple[Nest, BlockRef]:
    """Make the initialization of a reduction a block of its own before a loop; returns that block.

    No reduction loop is outside that loop. Where the reduction has no steps, its elements are set all the same, which
    the block by itself leaves as they are.
    Before::

        for i0, i1 in grid(4, 16):
            with block("B"):
                v0, v1 = axis.remap("SR", [i0, i1])
                with init():
                    B[v0] = 0.0
                B[v0] = B[v0] + A[v0, v1]

    After ``s.decompose_reduction("B", "i0")``::

        for i0_init in serial(4):
            with block("B_init"):
                v0_init = axis.remap("S", [i0_init])
                B[v0_init] = 0.0
        for i0, i1 in grid(4, 16):
            with block("B"):
                v0, v1 = axis.remap("SR", [i0, i1])
                B[v0] = B[v0] + A[v0, v1]
    """
    # As TVM's decompose_reduction: check that each element starts once below the loop, copy the spatial loops with the
    # init as a block of its own, and put it before the loop.
    site = find_block(nest, block)
    stmt = site.stmt
    if stmt.init is None:
        raise ScheduleError(f"{stmt.name} has no init to take out of it")
    if stmt.of_kind("ordered"):
        raise ScheduleError(f"{stmt.name} has ordered axes: its init may have to run between its steps")
    outer, below = loops_split_at(site, loop)
    roles = _Roles.of(stmt)
    _unmixed(stmt, roles, site.loops)
    for around in outer:
        if around.var in roles.reduce:
            raise ScheduleError(
                f"{around.var.name} around {below[0].var.name} is a loop of the reduction: "
                f"{stmt.name} would start again in each of its steps; name it or a loop around it"
            )
    spatial = [(a, v) for a, v in zip(stmt.axes, stmt.values, strict=True) if a.kind == "spatial"]
    again = _repeating(below, roles, [v for _, v in spatial], stmt.predicate, extents_around(site.above))
    if again is not None:
        raise ScheduleError(
            f"{again.var.name} runs {stmt.name} for some elements again, which would then not start anew; "
            "name a loop within it"
        )
    started = {loop.var: Const(0) for loop in below if loop.var not in roles.spatial}
    check_start(stmt, started)
    names = names_in(nest)
    loops = {loop.var: Var(free_name(names, f"{loop.var.name}_init")) for loop in below if loop.var in roles.spatial}
    axes = {a.var: Var(free_name(names, f"{a.var.name}_init")) for a in stmt.of_kind("spatial")}
    position = site.above.index(below[0])
    conditions = [stmt.predicate, *branch_conditions((*site.above[position:], stmt))]
    name = free_name({b.name for b in blocks(nest.body)}, f"{stmt.name}_init")
    block_of_init = Block(
        name,
        tuple(replace(a, var=axes[a.var]) for a, _ in spatial),
        tuple(v for _, v in spatial),
        substitute_in(stmt.init, axes),
        predicate=conjunction(*conditions),
    )
    init = in_copies(block_of_init, below, {**started, **loops})
    init = simplified(init, extents_around(site.above[:position]), [name])
    without = replaced(nest, site, replace(stmt, init=None))
    at = find_loop(without, loop)
    return refreshed(replaced(without, at, seq(init, at.stmt)), [name, stmt.name]), BlockRef(name)


@primitive
def rfactor(nest: Nest, loop: AnyLoop, position: int = 0) -> tuple[Nest, BlockRef]:
    """Factor a reduction: a block of partial results, one for each step of a loop, which is returned, and one that
    combines them.

    A new buffer holds them, with the loop as an axis at the position.
    Before::

        for i0, i1, i2 in grid(4, 8, 2):
            with block("B"):
                v0 = axis.spatial(4, i0)
                v1 = axis.reduce(16, i1 * 2 + i2)
                with init():
                    B[v0] = 0.0
                B[v0] = B[v0] + A[v0, v1]

    After ``s.rfactor("i2", 1)``::

        B_rf = alloc((4, 2), "float32")
        for i0, i1, i2 in grid(4, 8, 2):
            with block("B_rf"):
                v0, vi2, vi1 = axis.remap("SSR", [i0, i2, i1])
                with init():
                    B_rf[v0, vi2] = 0.0
                B_rf[v0, vi2] = B_rf[v0, vi2] + A[v0, vi2 + vi1 * 2]
        for i0_1, i2_1 in grid(4, 2):
            with block("B"):
                v0_1, vi2_1 = axis.remap("SR", [i0_1, i2_1])
                with init():
                    B[v0_1] = 0.0
                B[v0_1] = B[v0_1] + B_rf[v0_1, vi2_1]
    """
    site = find_block(nest, _block_under(nest, loop))
    parts = _PartialReduction.of(nest, site, find_loop(nest, loop).stmt, position)
    name = free_name({b.name for b in blocks(nest.body)}, f"{site.stmt.name}_rf")
    top = find_loop(nest, parts.chain[0].var.name)
    both = seq(parts.partial_results(name, extents_around((*site.above, site.stmt))), parts.combined())
    rewritten = replaced(nest, top, both)
    names = [name, site.stmt.name]
    rewritten = replace(rewritten, body=simplified(rewritten.body, {}, names), allocs=(*rewritten.allocs, parts.buffer))
    return refreshed(rewritten, names), BlockRef(name)


@dataclass(frozen=True, slots=True)
class _PartialReduction:
    """A reduction block in loops that hold nothing else, to be done in parts: one for each step of ``factor``.

    ``buffer`` is for the partial results, and has the factor's steps at the axis ``position``; ``reduce_axes``
    are the axes that the loops of the reduction become.
    """

    block: Block
    chain: Sequence[For]
    factor: For
    roles: _Roles
    update: Update
    buffer: Buffer
    position: int
    reduce_axes: Mapping[Var, Var]
    names: set[str]

    @staticmethod
    def of(nest: Nest, site: BlockSite, factor: For, position: int) -> _PartialReduction:
        block, chain = site.stmt, site.chain
        if block.of_kind("ordered"):
            raise ScheduleError(f"{block.name} has ordered axes, which have to stay in their order")
        roles = _Roles.of(block)
        _unmixed(block, roles, site.loops)
        if factor.extent == Const(1) and factor.var not in roles.spatial:  # a step of it is all there is
            roles = replace(roles, reduce=roles.reduce | {factor.var})
        if factor.var not in roles.reduce:
            raise ScheduleError(f"{factor.var.name} is no loop of a reduction of {block.name}")
        update = update_of(block)
        if missing := sorted(v.name for v in roles.reduce if v not in {s.var for s in chain}):
            raise ScheduleError(f"{missing[0]} around {block.name} holds other statements as well")
        if others := {v.name for v in variables(factor.extent) if v not in nest.sizes}:
            raise ScheduleError(f"the extent of {factor.var.name} changes with {min(others)}; factor another loop")
        target = update.store.buffer
        if moved := [a for a in block.of_kind("reduce") if any(a.var in variables(i) for i in update.store.indices)]:
            raise ScheduleError(
                f"{block.name} finds the element of {target.name} to reduce into by its reduce axis "
                f"{moved[0].var.name}; a loop of it has no partial result for each element"
            )
        rank = len(target.shape)
        if not -rank - 1 <= position <= rank:
            raise ScheduleError(f"{target.name} has {rank} axes, and position {position} is not among them")
        at = position if position >= 0 else position + rank + 1
        names = names_in(nest)
        shape = (*target.shape[:at], factor.extent, *target.shape[at:])
        buffer = replace(target, name=free_name(names, f"{target.name}_rf"), shape=shape, strides=None)
        renamed = {s.var: Var(free_name(names, f"v{s.var.name}")) for s in chain if s.var in roles.reduce}
        return _PartialReduction(block, chain, factor, roles, update, buffer, at, renamed, names)

    @property
    def spatial(self) -> list[tuple[Axis, Expr]]:
        """The spatial axes and their values."""
        pairs = zip(self.block.axes, self.block.values, strict=True)
        return [(a, v) for a, v in pairs if a.kind == "spatial"]

    @property
    def step(self) -> Var:
        """The axis that the factor becomes."""
        return self.reduce_axes[self.factor.var]

    def at(self, indices: Sequence[Expr], step: Expr) -> tuple[Expr, ...]:
        """The indices of a step's partial result for the element at the indices."""
        return (*indices[: self.position], step, *indices[self.position :])

    def partial_results(self, name: str, around: Mapping[Var, Expr]) -> Stmt:
        """The loops with a block that reduces into the buffer of partial results."""
        # As TVM's rfactor: the update with the factor as one more spatial axis of the result.
        left = [s for s in self.chain if s.var in self.roles.reduce and s is not self.factor]
        axes = [a for a, _ in self.spatial]
        axes.append(Axis(self.step, self.factor.extent, "spatial"))
        axes += [Axis(self.reduce_axes[s.var], s.extent, "reduce") for s in left]
        values = (*(v for _, v in self.spatial), self.factor.var, *(s.var for s in left))
        pairs = zip(self.block.axes, self.block.values, strict=True)
        steps = {a.var: substitute(v, self.reduce_axes) for a, v in pairs if a.kind == "reduce"}
        term, neutral = substitute(self.update.term, steps), identity(self.update.fn, self.buffer.dtype)
        kept: list[Expr] = []
        for condition in conjuncts(self.block.predicate):
            first = substitute(condition, {s.var: Const(0) for s in left})
            if not variables(condition) & self.roles.reduce or prove(first, around):
                kept.append(condition)
            elif variables(condition) <= self.roles.reduce:
                # there may be steps of the factor in which nothing runs: their partial result is the identity
                term = select(substitute(condition, self.reduce_axes), term, neutral)
            else:
                raise ScheduleError(
                    f"{self.block.name} runs where more holds than a condition on its reduction's loops"
                )
        where = self.at(self.update.store.indices, self.step)
        value = apply(self.update.fn, Load(self.buffer, where), term) if left else term
        stmt: Stmt = Block(
            name,
            tuple(axes),
            values,
            Store(self.buffer, where, value),
            Store(self.buffer, where, neutral) if left else None,
            conjunction(*kept),
            notes=self.block.notes,
        )
        for loop in reversed(self.chain):
            stmt = replace(loop, body=stmt)
        return stmt

    def combined(self) -> Stmt:
        """The spatial loops and the factor with a block that reduces over the partial results."""
        around = [s for s in self.chain if s.var not in self.roles.reduce]
        loops = {s.var: Var(free_name(self.names, s.var.name)) for s in (*around, self.factor)}
        points = {a.var: Var(free_name(self.names, a.var.name)) for a, _ in self.spatial}
        step = Var(free_name(self.names, self.step.name))
        store = self.update.store
        where = tuple(substitute(i, points) for i in store.indices)
        value = apply(self.update.fn, Load(store.buffer, where), Load(self.buffer, self.at(where, step)))
        conditions = [c for c in conjuncts(self.block.predicate) if not variables(c) & self.roles.reduce]
        stmt: Stmt = replace(
            self.block,
            axes=(*(replace(a, var=points[a.var]) for a, _ in self.spatial), Axis(step, self.factor.extent, "reduce")),
            values=(*(substitute(v, loops) for _, v in self.spatial), loops[self.factor.var]),
            body=Store(store.buffer, where, value),
            init=None if self.block.init is None else substitute_in(self.block.init, points),
            predicate=conjunction(*(substitute(c, loops) for c in conditions)),
        )
        stmt = For(loops[self.factor.var], self.factor.extent, stmt)
        for loop in reversed(around):
            stmt = For(loops[loop.var], loop.extent, stmt, loop.kind, loop.thread)
        return stmt


# ------------------------------------------------------------------ what reductions are made of


@dataclass(frozen=True, slots=True)
class _Roles:
    """The loops that a block's spatial axes depend on, and those that its reduce axes depend on."""

    spatial: frozenset[Var]
    reduce: frozenset[Var]

    @staticmethod
    def of(block: Block) -> _Roles:
        pairs = list(zip(block.axes, block.values, strict=True))
        return _Roles(
            frozenset(x for a, v in pairs if a.kind != "reduce" for x in variables(v)),
            frozenset(x for a, v in pairs if a.kind == "reduce" for x in variables(v)),
        )


@dataclass(frozen=True, slots=True)
class Update:
    """An update: a store that combines ``term`` into the element that it writes."""

    store: Store
    fn: str
    term: Expr


def update_of(block: Block) -> Update:
    """The update of a reduction block; raises ScheduleError where it has another form."""
    store = block.body
    if not isinstance(store, Store):
        raise ScheduleError(f"{block.name} holds more than one store")
    accumulation = accumulated(Load(store.buffer, store.indices), store.value)
    if accumulation is not None and not any(
        isinstance(e, Load) and e.buffer == store.buffer for e in walk(accumulation[1])
    ):
        return Update(store, *accumulation)
    raise ScheduleError(
        f"{block.name} does not combine into {store.buffer.name} by one of {', '.join(sorted(HORIZONTAL))}"
    )


def _unmixed(block: Block, roles: _Roles, loops: Sequence[For]) -> None:
    for loop in loops:
        if loop.var in roles.spatial and loop.var in roles.reduce:
            raise ScheduleError(
                f"{loop.var.name} is at once a loop of {block.name}'s spatial axes and of its reduction"
            )


def _repeating(
    loops: Sequence[For], roles: _Roles, values: Sequence[Expr], predicate: Expr, extents: Mapping[Var, Expr]
) -> For | None:
    """A loop, not of the reduction, of which several steps reach the same elements; None where there is none."""
    spatial = [s for s in loops if s.var not in roles.reduce]
    running = {s.var: s.extent for s in spatial}
    once = {c for s in spatial for c in (s.var < 1, simplify(s.var < 1, extents))}
    kept = set(conjuncts(predicate)) & once
    for loop in spatial:
        held = any(loop.var in variables(c) for c in kept)
        if not held and not are_disjoint([Range(v) for v in values], [loop], running, extents):
            return loop
    return None


def _block_under(nest: Nest, loop: AnyLoop) -> AnyBlock:
    """The only block under a loop."""
    blocks = list(outer_blocks(find_loop(nest, loop).stmt))
    if len(blocks) != 1:
        name = loop if isinstance(loop, str) else loop.name
        raise ScheduleError(f"{name} holds {len(blocks)} blocks, not just one that reduces")
    return BlockRef(blocks[0].name)
