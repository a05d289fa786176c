"""Row kernels on CUDA: row reductions and their consumers (softmax, normalization) fused into one kernel.

Every thread takes elements of its row in turn, combines what it has with the others of the row, and goes on with the
whole result. It holds what it has of the row where that fits into its registers; else it reads again, and computes
again what lies between. Few long rows are shared out to several blocks of threads: those leave what they have in
memory, and a second kernel reduces that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from graphopt.lowering.analysis.access_analysis import known_size, taken_apart, total_size
from graphopt.lowering.analysis.canonical_nest import Chain, exchange
from graphopt.lowering.cpu.scheduling import Taken
from graphopt.lowering.cuda.combining import PartialResult, combined
from graphopt.lowering.cuda.row_passing import Passing
from graphopt.lowering.cuda.row_plans import ACCESSES, RowPlan, planned, with_choices
from graphopt.lowering.cuda.rows import RowBlock, RowBlocks, rows_of
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.loops.accumulation import accumulated, identity
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, apply, equal, substitute
from graphopt.lowering.loops.nest import (
    Axis,
    Block,
    Buffer,
    For,
    If,
    Seq,
    Stmt,
    Store,
    described,
    seq,
)


def row_wise(owner: DeviceScheduling, chains: Sequence[Chain], is_split: bool = True) -> Taken | None:
    """The kernels of the first blocks that work on the same rows, and how many those are; None where the first block is
    none of rows. Only where ``is_split`` says so rows may be shared out to several blocks of threads."""
    found = _found(owner, chains, is_split)
    if found is None:
        return None
    rows, plan, count = found
    if plan.blocks > 1:
        return _in_two(owner, rows, plan, chains)
    plan = with_choices(rows, plan)
    return Taken(RowKernel(owner, rows, plan, _needed(owner, chains[:count], chains[count:])).kernel(), count)


def together(owner: DeviceScheduling, chains: Sequence[Chain]) -> int:
    """How many of the first blocks ``row_wise`` takes."""
    found = _found(owner, chains, True)
    return 0 if found is None else found[2]


def _found(owner: DeviceScheduling, chains: Sequence[Chain], is_split: bool) -> tuple[RowBlocks, RowPlan, int] | None:
    """The rows of the first blocks, their plan, and how many blocks those are; None where there are none."""
    for count in range(len(chains), 0, -1):
        rows = rows_of(chains[:count])
        if rows is not None and ((plan := planned(owner, rows, is_split)).blocks == 1 or count == 1):
            return rows, plan, count
    return None


def _needed(owner: DeviceScheduling, kernel_chains: Sequence[Chain], rest: Sequence[Chain]) -> set[Buffer]:
    """The buffers that blocks write and that have to be in memory when their kernel has ended."""
    read = {a.buffer for chain in rest for a in chain.accesses}
    return {s.buffer for c in kernel_chains for s in c.stores if s.buffer in read or s.buffer not in owner.nest.allocs}


def _in_two(owner: DeviceScheduling, rows: RowBlocks, plan: RowPlan, chains: Sequence[Chain]) -> Taken:
    """A reduction in two kernels: the second reduces what the blocks of the first have left."""
    (member,) = rows.members
    count, block = total_size(rows.extents), Axis(owner.var("s"), Const(plan.blocks), "reduce")
    number: Expr = Const(0)
    for axis in member.rows:
        number = number * axis.extent + axis.var
    indices, shape = plan.teams.arranged(number, block.var), plan.teams.arranged(count, Const(plan.blocks))
    partials = {s.buffer: owner.memory(s.buffer.name, shape, s.buffer.dtype) for s in member.chain.stores}
    first = RowKernel(owner, rows, plan, set(partials), partials).kernel()
    steps = []
    for store in member.chain.stores:
        buffer, fn = _fold(store)
        total, part = Load(buffer, store.indices), Load(partials[buffer], indices)
        steps.append(Store(buffer, store.indices, apply(fn, total, part)))
    axes = (*member.chain.spatial, block)
    second = replace(member.chain.block, axes=axes, values=tuple(a.var for a in axes), body=seq(*steps))
    chain = Chain(tuple(For(a.var, a.extent, Seq(())) for a in axes), described(second))
    rest = row_wise(owner, [chain, *chains[1:]], is_split=False)
    assert rest is not None
    return Taken(seq(first, rest.stmt), rest.count)


class RowKernel:
    """Writes one kernel. ``needed`` are the buffers that have to be in memory behind it.

    Where each row is shared out to several blocks, ``parts`` are what those leave instead of the results.
    """

    def __init__(
        self,
        owner: DeviceScheduling,
        rows: RowBlocks,
        plan: RowPlan,
        needed: set[Buffer],
        parts: dict[Buffer, Buffer] | None = None,
    ) -> None:
        self.owner, self.rows, self.plan, self.teams, self.parts = owner, rows, plan, plan.teams, parts
        self.passing = Passing(owner, rows, plan, needed)
        self.count, self.length = total_size(rows.extents), total_size(rows.length)
        self.block: Expr = Const(0)
        """The number of the kernel's block of threads."""

    def kernel(self) -> Stmt:
        """The whole."""
        groups = (self.count + (self.teams.rows - 1)) // self.teams.rows

        def body(block: Expr) -> Stmt:
            self.block = block
            stmts: list[Stmt] = []
            for member in self.rows.members:
                if not self.passing.is_inlined(member):
                    stmts += self.of(member)
            return seq(*stmts)

        return self.owner.over_blocks(groups * self.plan.blocks, body)

    def of(self, member: RowBlock) -> list[Stmt]:
        """The statements of one block."""
        stmts = [self.read_ahead(load, m) for load, m in self.passing.to_read(member)]
        if member.reduces:
            return stmts + self.reduction(member)
        if member.elements:
            return [*stmts, self.teams.phase(lambda row, lane: self.each(row, lane, self.element(member, row, lane)))]
        return [*stmts, self.teams.phase(lambda row, lane: self.of_row(member, row, lane))]

    # ------------------------------------------------------------------ places

    def row(self, row: Expr) -> Expr:
        """The number of a row, of its number within the block of threads."""
        group = self.block if self.plan.blocks == 1 else self.block // self.plan.blocks
        return group * self.teams.rows + row

    def guarded(self, row: Expr, body: Stmt) -> Stmt:
        """The body, where there is such a row."""
        return self.owner.within(self.row(row), self.count, self.teams.rows, lambda _: body)

    def values(self, member: RowBlock, row: Expr, element: Expr | None) -> dict[Var, Expr]:
        """Values of a block's axes at an element of a row."""
        values: dict[Var, Expr] = {a.var: Const(0) for a in member.chain.axes}
        values.update(taken_apart(self.row(row), member.rows))
        if element is not None:
            values.update(taken_apart(element, member.elements))
        return values

    def each(self, row: Expr, lane: Expr, body: Callable[[Expr, Expr], Stmt]) -> Stmt:
        """The body for each element that a thread takes, by its number in the row and in what the thread holds."""
        access, steps, lanes = self.plan.access, self.plan.steps, self.teams.lanes
        blocks = self.plan.blocks
        first = lane if blocks == 1 else self.block % blocks * lanes + lane
        together = lanes * blocks

        def several(step: Expr) -> Stmt:
            unit = step * together + first
            if access == 1:
                return body(unit, step)
            one = self.owner.var("u")
            return For(one, Const(access), body(unit * access + one, step * access + one), "vectorized")

        step = self.owner.var("k")
        units = self.length // access
        if steps is None:
            rounds, turn, rest = (units - first + (together - 1)) // together, self.owner.var("k"), self.owner.var("k")
            four = For(turn, Const(ACCESSES), several(step * ACCESSES + turn), "unrolled")
            last = For(rest, rounds % ACCESSES, several(rounds // ACCESSES * ACCESSES + rest))
            return self.guarded(row, seq(For(step, rounds // ACCESSES, four), last))
        extent = known_size([units])
        assert extent is not None
        whole = extent // lanes
        stmts: list[Stmt] = [For(step, Const(whole), several(step), "unrolled")] if whole else []
        if whole < steps:
            stmts.append(If(first + whole * lanes < units, several(Const(whole))))
        return self.guarded(row, seq(*stmts))

    # ------------------------------------------------------------------ kinds of blocks

    def read_ahead(self, load: Load, member: RowBlock) -> Stmt:
        """Reads what several blocks need of a row."""

        def one(row: Expr, lane: Expr) -> Callable[[Expr, Expr], Stmt]:
            def at(element: Expr, slot: Expr) -> Stmt:
                values = self.values(member, row, element)
                indices = tuple(substitute(i, values) for i in load.indices)
                held = self.passing.held[self.passing.key(member, load)]
                return Store(held, (*self.teams.arranged(row, lane), slot), Load(load.buffer, indices))

            return at

        return self.teams.phase(lambda row, lane: self.each(row, lane, one(row, lane)))

    def element(self, member: RowBlock, row: Expr, lane: Expr) -> Callable[[Expr, Expr], Stmt]:
        """The body of a block for one element."""

        def at(element: Expr, slot: Expr) -> Stmt:
            values = self.values(member, row, element)
            body = self.passing.body(member, member.chain.block.body, row, lane, slot)
            block = replace(member.chain.block, body=body)
            return described(replace(block, values=tuple(values[a.var] for a in block.axes)))

        return at

    def of_row(self, member: RowBlock, row: Expr, lane: Expr) -> Stmt:
        """The body of a block for each row, run by every thread of the row."""
        values = self.values(member, row, None)
        body = self.passing.body(member, member.chain.block.body, row, lane, None)
        block = replace(member.chain.block, body=body, values=tuple(values[a.var] for a in member.chain.axes))
        return self.guarded(row, seq(described(block), *self.written(member, row, lane)))

    def written(self, member: RowBlock, row: Expr, lane: Expr) -> list[Stmt]:
        """A row's results as they have to be in memory, written by one of its threads."""
        values = self.values(member, row, None)
        stores: list[Stmt] = []
        for store in member.chain.stores:
            if store.buffer in self.passing.needed:
                result = Load(self.passing.results[store.buffer], self.teams.arranged(row, lane))
                stores.append(Store(store.buffer, tuple(substitute(i, values) for i in store.indices), result))
        if not stores or self.teams.lanes == 1:
            return stores
        return [If(equal(lane, 0), seq(*stores))]

    def reduction(self, member: RowBlock) -> list[Stmt]:
        """One result of each row, which every thread of the row has then."""
        teams, block = self.teams, member.chain.block
        is_alone = teams.lanes == 1 and self.parts is None
        results = {b: self.passing.results[b] for b in (s.buffer for s in member.chain.stores)}
        needed = self.passing.needed & results.keys()
        parts = results if is_alone else {b: teams.local(b.name, (), b.dtype) for b in results}
        folds = [] if is_alone else [_fold(s) for s in member.chain.stores]

        def into(stmt: Stmt, where: dict[Buffer, Buffer], row: Expr, lane: Expr) -> Stmt:
            return exchange(stmt, {b: (local, teams.arranged(row, lane)) for b, local in where.items()})

        def start(row: Expr, lane: Expr) -> Stmt:
            if is_alone:
                return self.guarded(row, self.started(member, into, results, row, lane))
            stores = [Store(parts[b], teams.arranged(row, lane), identity(fn, b.dtype)) for b, fn in folds]
            return seq(*stores)

        def step(row: Expr, lane: Expr) -> Callable[[Expr, Expr], Stmt]:
            def at(element: Expr, slot: Expr) -> Stmt:
                values = self.values(member, row, element)
                body = into(self.passing.body(member, block.body, row, lane, slot, set(results)), parts, row, lane)
                step_block = replace(block, init=None, body=body, values=tuple(values[a.var] for a in block.axes))
                return described(step_block)

            return at

        def finish(row: Expr, lane: Expr) -> Stmt:
            stmts = [self.started(member, into, results, row, lane)] if not is_alone else []
            for buffer, fn in folds:
                operands = [Load(b, teams.arranged(row, lane)) for b in (results[buffer], parts[buffer])]
                stmts.append(Store(operands[0].buffer, operands[0].indices, apply(fn, *operands)))
            return self.guarded(row, seq(*stmts, *self.written(member, row, lane)))

        def left(row: Expr, lane: Expr) -> Stmt:
            assert self.parts is not None
            indices = teams.arranged(self.row(row), self.block % self.plan.blocks)
            stores = [Store(self.parts[b], indices, Load(parts[b], teams.arranged(row, lane))) for b in parts]
            last: Stmt = seq(*stores)
            return self.guarded(row, last if teams.lanes == 1 else If(equal(lane, 0), last))

        loops = [teams.phase(start), teams.phase(lambda row, lane: self.each(row, lane, step(row, lane)))]
        loops += combined(teams, [PartialResult(parts[b], fn) for b, fn in folds])
        if is_alone and not needed:
            return loops
        return [*loops, teams.phase(finish if self.parts is None else left)]

    def started(
        self,
        member: RowBlock,
        into: Callable[[Stmt, dict[Buffer, Buffer], Expr, Expr], Stmt],
        results: dict[Buffer, Buffer],
        row: Expr,
        lane: Expr,
    ) -> Stmt:
        """A reduction's results before its first step."""
        chain, values = member.chain, self.values(member, row, None)
        assert chain.block.init is not None
        init = into(self.passing.body(member, chain.block.init, row, lane, None, set(results)), results, row, lane)
        at = tuple(values[a.var] for a in chain.spatial)
        return described(Block(f"{chain.block.name}_init", chain.spatial, at, init))


def _fold(store: Store) -> tuple[Buffer, str]:
    """The buffer into which a step of a reduction combines, and its function."""
    operation = accumulated(Load(store.buffer, store.indices), store.value)
    assert operation is not None
    return store.buffer, operation[0]
