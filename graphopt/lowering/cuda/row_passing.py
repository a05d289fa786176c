"""Row value passing: fused row blocks keep results in registers, or compute them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from graphopt.lowering.cuda.row_plans import RowPlan
from graphopt.lowering.cuda.rows import RowBlock, RowBlocks
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, substitute, variables
from graphopt.lowering.loops.nest import (
    Buffer,
    Seq,
    Stmt,
    Store,
    expressions,
    inner,
    map_expressions,
    mutate,
    seq,
    statements,
)

CarriedKey: TypeAlias = "Load | Buffer"
"""What is held of rows: elements that are read, as they are named by the row and the element; or what is made."""


class Passing:
    """Value passing between the blocks of some rows. ``needed`` are the buffers that have to be in memory in the end;
    the others are gone, but where elements do not fit into registers and cannot be computed again."""

    def __init__(self, owner: DeviceScheduling, rows: RowBlocks, plan: RowPlan, needed: set[Buffer]) -> None:
        self.rows, self.plan, self.needed = rows, plan, needed
        self.results: dict[Buffer, Buffer] = {}
        """The one result of a row that a thread has of each buffer."""
        self.held: dict[CarriedKey, Buffer] = {}
        """The elements of a row that a thread has."""
        self.inlined: dict[Buffer, tuple[RowBlock, Store]] = {}
        """Elements that are computed again wherever they are needed."""
        self.written = {s.buffer for m in rows.members for s in m.chain.stores}
        for member in rows.members:
            self._place(owner, member)
        passed = self.results.keys() | self.held.keys() | self.inlined.keys()
        owner.gone |= {b for b in owner.nest.allocs if b in passed and b not in needed}
        self.to_come = dict(self._read_often())
        for key in self.to_come:
            self.held[key] = self._registers(key.buffer)

    def _place(self, owner: DeviceScheduling, member: RowBlock) -> None:
        stores = member.chain.stores
        for store in stores:
            buffer = store.buffer
            if member.reduces or not member.elements:
                self.results[buffer] = self.plan.teams.local(buffer.name, (), buffer.dtype)
            elif self.plan.steps is not None:
                if self._readers(buffer, member):
                    self.held[buffer] = self._registers(buffer)
            elif len(stores) == 1 and buffer not in self.needed and not _branches(member):
                self.inlined[buffer] = member, store

    def _registers(self, buffer: Buffer) -> Buffer:
        count = (self.plan.steps or 0) * self.plan.access
        return self.plan.teams.local(buffer.name, (Const(count),), buffer.dtype)

    def _readers(self, buffer: Buffer, but: RowBlock) -> bool:
        return any(a.buffer == buffer for m in self.rows.members if m is not but for a in m.chain.accesses)

    def is_inlined(self, member: RowBlock) -> bool:
        """Whether a block is done wherever its elements are needed."""
        return any(s.buffer in self.inlined for s in member.chain.stores)

    # ------------------------------------------------------------------ what is read

    def key(self, member: RowBlock, load: Load) -> Load:
        """An element that a block reads, as all blocks name it that read the same one."""
        names: dict[Var, Expr] = {a.var: Const(0) for a in member.chain.axes}
        names.update({a.var: Var(f"@row{k}") for k, a in enumerate(member.rows)})
        names.update({a.var: Var(f"@element{k}") for k, a in enumerate(member.elements)})
        return Load(load.buffer, tuple(substitute(i, names) for i in load.indices))

    def _read_often(self) -> Iterator[tuple[Load, RowBlock]]:
        """Elements of rows that several blocks read, with the first that does."""
        if self.plan.steps is None:
            return
        first: dict[Load, RowBlock] = {}
        count: Counter[Load] = Counter()
        for member in self.rows.members:
            along = {a.var for a in member.elements}
            for load in dict.fromkeys(_certain(member)):
                if load.buffer not in self.written and along & variables(load):
                    key = self.key(member, load)
                    count[key] += 1
                    first.setdefault(key, member)
        yield from ((key, member) for key, member in first.items() if count[key] > 1)

    def to_read(self, member: RowBlock) -> list[tuple[Load, RowBlock]]:
        """Loads to make before a block that is the first to need them."""
        wanted = [k for k, m in self.to_come.items() if m is member]
        loads = dict.fromkeys(_certain(member))
        return [(load, member) for key in wanted for load in loads if self.key(member, load) == key]

    # ------------------------------------------------------------------ bodies

    def body(
        self, member: RowBlock, stmt: Stmt, row: Expr, lane: Expr, slot: Expr | None, private: set[Buffer] | None = None
    ) -> Stmt:
        """A block's statements, which find what others made where it is, and leave theirs there. The buffers ``own``
        are left alone."""
        at, alone = self.plan.teams.arranged(row, lane), private or set()

        def load(e: Expr) -> Expr | None:
            if not isinstance(e, Load) or e.buffer in alone:
                return None
            if e.buffer in self.results:
                return Load(self.results[e.buffer], at)
            if e.buffer in self.inlined:
                return self._again(member, e, row, lane, slot)
            key = e.buffer if e.buffer in self.written else self.key(member, e) if self.to_come else e
            return Load(self.held[key], (*at, slot)) if slot is not None and key in self.held else None

        def store(s: Stmt) -> Stmt | None:
            if not isinstance(s, Store) or s.buffer in alone:
                return None
            if s.buffer in self.results:
                return Store(self.results[s.buffer], at, s.value)
            if s.buffer not in self.held or slot is None:
                return None
            kept = Load(self.held[s.buffer], (*at, slot))
            keep = Store(kept.buffer, kept.indices, s.value)
            return seq(keep, Store(s.buffer, s.indices, kept)) if s.buffer in self.needed else keep

        return mutate(map_expressions(stmt, load), store)

    def _again(self, member: RowBlock, load: Load, row: Expr, lane: Expr, slot: Expr | None) -> Expr:
        """The value of an element that is computed again."""
        maker, store = self.inlined[load.buffer]
        there: dict[Var, Expr] = {a.var: Const(0) for a in maker.chain.axes}
        pairs = zip((*maker.rows, *maker.elements), (*member.rows, *member.elements), strict=True)
        there.update({a.var: b.var for a, b in pairs})
        stmt = self.body(maker, store, row, lane, slot)
        assert isinstance(stmt, Store)
        return substitute(stmt.value, there)


def _certain(member: RowBlock) -> Iterator[Load]:
    """Loads of a block that are made whatever it chooses."""
    for part in () if _branches(member) else inner(member.chain.block):
        for s in statements(part):
            for e in expressions(s):
                yield from _always(e)


def _always(expr: Expr) -> Iterator[Load]:
    if isinstance(expr, Load):
        yield expr
    for arg in expr.indices if isinstance(expr, Load) else expr.args if isinstance(expr, Apply) else ():
        yield from _always(arg)
        if isinstance(expr, Apply) and expr.fn == "select":
            return


def _branches(member: RowBlock) -> bool:
    return any(not isinstance(s, Store | Seq) for s in statements(member.chain.block.body))
