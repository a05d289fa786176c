"""Dependence analysis: which loops may be reordered, or run in parallel.

Within a block its axes say it: spatial ones may run in any order. So two questions are left for a
loop: do its iterations reach different points of the spatial axes, and does what one block writes in
an iteration stay within it where another block reads it? Both are answered by *owners*: functions that
tell from the point (or from the index of an element) which iteration it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias, TypeGuard

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_refs import LoopSite, extents_around
from graphopt.lowering.analysis.regions import with_regions
from graphopt.lowering.index.arithmetic import cover, polynomial, prove, ranges_over, simplify
from graphopt.lowering.index.polynomials import Polynomial
from graphopt.lowering.index.ranges import Ranges
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Var, substitute, variables
from graphopt.lowering.loops.nest import (
    Axis,
    AxisKind,
    Block,
    BufferRegion,
    For,
    Invoke,
    Range,
    Stmt,
    Store,
    inner,
)

CURE: Final = "take a loop of a spatial axis"
TRIES: Final = 64
"""The maximal number of index parts in a search for an owner."""
_LazyExpr: TypeAlias = Callable[[], Expr]
"""Writes an expression, which is written only where it is an answer."""


@dataclass(frozen=True, slots=True)
class BlockInLoop:
    """A block beneath a loop, with the extents around it, split at the loop."""

    block: Block
    outside: Mapping[Var, Expr]
    inside: Mapping[Var, Expr]
    """The loop itself and the loops from it down to the block."""

    @property
    def extents(self) -> dict[Var, Expr]:
        """All extents around the block."""
        return {**self.outside, **self.inside}

    def moved(self, loop: Var) -> list[Axis]:
        """The axes that depend on the loop."""
        pairs = [(a, v) for a, v in zip(self.block.axes, self.block.values, strict=True) if loop in variables(v)]
        if all(v == loop for _, v in pairs) and self.inside.get(loop) != Const(1):  # one step moves nothing
            return [a for a, _ in pairs]
        facts = ranges_over(self.extents)
        return [a for a, v in pairs if any(loop in variables(atom) for atom in facts.polynomial(v).atoms)]

    def kinds(self, loop: Var) -> set[AxisKind]:
        """The kinds of the axes that depend on the loop."""
        return {a.kind for a in self.moved(loop)}

    def at_loops(self, region: BufferRegion) -> BufferRegion:
        """A region of the block in terms of the loops around it."""
        values = dict(zip((a.var for a in self.block.axes), self.block.values, strict=True))
        return BufferRegion(
            region.buffer,
            tuple(
                Range(simplify(substitute(r.start, values), self.extents), substitute(r.extent, values))
                for r in region.ranges
            ),
        )


def placed(site: LoopSite) -> list[BlockInLoop]:
    """The blocks directly beneath a loop; raises ScheduleError for stores outside of blocks."""
    outside = extents_around(site.above)
    blocks: list[BlockInLoop] = []

    def visit(stmt: Stmt, inside: Mapping[Var, Expr]) -> None:
        if isinstance(stmt, Block):
            blocks.append(BlockInLoop(stmt, outside, inside))
        elif isinstance(stmt, Store | Invoke):
            raise ScheduleError(
                f"{site.stmt.var.name}: beneath it something is written outside of blocks, "
                "of which nothing says in which order it may run"
            )
        else:
            for child in inner(stmt):
                visit(child, {**inside, **extents_around([stmt])})

    visit(site.stmt, {})
    return blocks


def regions(block: Block) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """The reads and writes of a block: declared ones, or else those of its statements."""
    declared = block if block.reads or block.writes else with_regions(block)
    return declared.reads, declared.writes


# ------------------------------------------------------------------ owners


def owner(wanted: Var, indices: Sequence[Expr], running: Mapping[Var, Expr], facts: Ranges) -> Expr | None:
    """The variable as a function of indices, written ``at(0), at(1), ...``; None where no such function was found.

    ``running`` are the variables that change; all others are known. An index ``4 * i + j`` with j below 4 tells
    ``i`` by a division; ``f // 8`` and ``f % 8`` together tell ``f``.
    """
    parts: list[tuple[Polynomial, _LazyExpr]] = [(facts.polynomial(e), partial(at, k)) for k, e in enumerate(indices)]
    seen: dict[Polynomial, _LazyExpr] = {}
    while parts and len(seen) < TRIES:
        p, value = parts.pop(0)
        fixed = Polynomial({t: n for t, n in p.terms.items() if not _runs(t, running)})
        if fixed.terms:
            p, value = p - fixed, partial(_difference, value, fixed, facts)
        if not p.terms or p in seen:
            continue
        seen[p] = value
        if p.single == wanted:
            return value()
        parts += _divided(p, value, facts)
        parts += _joined(seen, facts)
    return None


def at(axis: int) -> Var:
    """The placeholder of an index in an owner."""
    return Var(f"@{axis}")


def _runs(t: Sequence[Expr], running: Mapping[Var, Expr]) -> bool:
    return any(v in running for a in t for v in variables(a))


def _difference(value: _LazyExpr, fixed: Polynomial, facts: Ranges) -> Expr:
    return value() - facts.expr(fixed)


def _divided(p: Polynomial, value: _LazyExpr, facts: Ranges) -> Iterator[tuple[Polynomial, _LazyExpr]]:
    """Quotients and remainders that fall into parts of a sum."""
    if len(p.terms) == 1 and p.single is None:
        ((t, n),) = p.terms.items()
        divisors = [Polynomial({t[:k] + t[k + 1 :]: abs(n)}) for k in range(len(t))]
    else:
        divisors = []
        for t, n in p.terms.items():
            for k in range(len(t)):
                divisor = Polynomial({t[:k] + t[k + 1 :]: abs(n)})
                if divisor.number != 1 and divisor not in divisors:
                    divisors.append(divisor)
    known_atoms = set(p.atoms)
    for d in divisors:
        if facts.at_least_zero(d - 1):
            q, r = facts.division(p, d)
            if {*q.atoms, *r.atoms} <= known_atoms:
                yield q, partial(_quotient, value, d, facts)
                yield r, partial(_remainder, value, d, facts)


def _quotient(value: _LazyExpr, d: Polynomial, facts: Ranges) -> Expr:
    return value() // facts.expr(d)


def _remainder(value: _LazyExpr, d: Polynomial, facts: Ranges) -> Expr:
    return value() % facts.expr(d)


def _joined(seen: Mapping[Polynomial, _LazyExpr], facts: Ranges) -> Iterator[tuple[Polynomial, _LazyExpr]]:
    """The dividends of divisions of which both quotient and remainder are known."""
    singles = {p.single: e for p, e in seen.items() if p.single is not None}
    for single, remainder in singles.items():
        if isinstance(single, Apply) and single.fn == "mod":
            x, d = single.args
            quotient = facts.division(facts.polynomial(x), facts.polynomial(d))[0].single
            if quotient in singles:
                yield facts.polynomial(x), partial(_whole, singles[quotient], d, remainder)


def _whole(quotient: _LazyExpr, d: Expr, remainder: _LazyExpr) -> Expr:
    return quotient() * d + remainder()


# ------------------------------------------------------------------ questions


def private_scopes(thread: str | None) -> frozenset[str]:
    """The scopes of which each iteration of a loop has memory of its own: one that is bound to an axis of threads or
    blocks, or that is parallel."""
    return frozenset({"local", "shared"} if thread is not None and thread.startswith("blockIdx") else {"local"})


def check_parallel(site: LoopSite, private: frozenset[str] = frozenset(), reduces: bool = False) -> None:
    """Checks that the iterations of a loop may run in parallel; raises ScheduleError.

    Buffers of the scopes ``private`` exist once for each iteration, so that what is written there may be the same
    elements, as long as nothing is read that another iteration wrote. ``reduces`` allows reduce axes.
    """
    loop = site.stmt
    name = loop.var.name
    if loop.extent == Const(1):
        return
    below = placed(site)
    for b in below:
        for axis in b.moved(loop.var):
            if axis.kind == "ordered":
                raise ScheduleError(f"{name}: axis {axis.var.name} of block {b.block.name} keeps its order; {CURE}")
            if axis.kind == "reduce" and not reduces:
                raise ScheduleError(
                    f"{name}: axis {axis.var.name} of block {b.block.name} is reduced into one element; "
                    f"use rfactor, or {CURE}"
                )
        if not (reduces and b.kinds(loop.var) == {"reduce"}) and not _kept_apart(b, loop.var, private):
            buffer = next(r.buffer.name for r in regions(b.block)[1])
            raise ScheduleError(
                f"{name}: block {b.block.name} writes the same elements of {buffer} in several of its iterations; "
                f"take another loop, or set_scope {buffer} to what each iteration has of its own"
            )
    check_exchange(site, below, private)


def _kept_apart(b: BlockInLoop, loop: Var, private: frozenset[str]) -> bool:
    """Whether the iterations of the loop reach different spatial points, or write what is their own."""
    return tells(b, loop) or all(r.buffer.scope in private for r in regions(b.block)[1])


def tells(b: BlockInLoop, loop: Var) -> bool:
    """Whether the spatial point of a block determines the iteration of a loop."""
    spatial = [v for a, v in zip(b.block.axes, b.block.values, strict=True) if a.kind == "spatial"]
    whole = [*spatial, *_undivided(spatial)]
    return loop in whole or owner(loop, whole[::-1], b.inside, ranges_over(b.extents)) is not None


def _undivided(values: Sequence[Expr]) -> Iterator[Expr]:
    """The expressions of which the values hold all digits: ``x % a``, ``x // a % b``, ``x // (a * b)``, as loops that
    were fused leave them. To look for them first saves a long search where sizes are not known."""
    digits = [e for e in values if is_digit(e)]
    for x in dict.fromkeys(e.args[0] for e in digits if e.fn == "mod"):
        by_place = {_divisor(e.args[0] if e.fn == "mod" else e, x): e for e in digits}
        divisor = polynomial(Const(1))
        while (digit := by_place.pop(divisor, None)) is not None and digit.fn == "mod":
            divisor = divisor * polynomial(digit.args[1])
        if digit is not None:
            yield x


def is_digit(value: Expr) -> TypeGuard[Apply]:
    """Whether the expression is a quotient or a remainder, such as fused loops leave."""
    return isinstance(value, Apply) and value.fn in ("mod", "floordiv")


def _divisor(value: Expr, x: Expr) -> Polynomial | None:
    """By what an expression is divided in a value; None where that is something else."""
    if value == x:
        return polynomial(Const(1))
    if not is_digit(value) or value.fn != "floordiv" or value.args[0] != x:
        return None
    return polynomial(value.args[1])


def check_exchange(site: LoopSite, below: Sequence[BlockInLoop], private: frozenset[str]) -> None:
    """Checks that no block beneath a loop uses what another block writes in another iteration; raises ScheduleError."""
    for writer in below if len(below) > 1 else ():
        for other in below:
            if other is not writer:
                check_use(site.stmt.var, writer, other, private)


def check_use(loop: Var, writer: BlockInLoop, other: BlockInLoop, private: frozenset[str] = frozenset()) -> None:
    """Checks that a block does not use what another block writes in another iteration of a loop; raises
    ScheduleError."""
    for written in map(writer.at_loops, regions(writer.block)[1]):
        used = [r for part in regions(other.block) for r in part if r.buffer == written.buffer]
        for r in map(other.at_loops, used):
            if not _within_iteration(loop, writer, written, other, r, private):
                raise ScheduleError(
                    f"{loop.name}: block {other.block.name} uses elements of {r.buffer.name} that "
                    f"block {writer.block.name} may write in another iteration; take the blocks apart first"
                )


def _within_iteration(
    loop: Var,
    writer: BlockInLoop,
    written: BufferRegion,
    other: BlockInLoop,
    used: BufferRegion,
    private: frozenset[str],
) -> bool:
    iteration = owner(loop, *_elements(written, writer))
    if iteration is not None:
        indices, _, facts = _elements(used, other)
        there = substitute(iteration, {at(k): e for k, e in enumerate(indices)})
        if facts.simplified(there) == loop:
            return True
    if written.buffer.scope not in private:
        return False
    outside = {**writer.outside, loop: writer.inside[loop]}
    whole = cover([written], {v: e for v, e in writer.inside.items() if v != loop}, outside)
    part = cover([used], {v: e for v, e in other.inside.items() if v != loop}, outside)
    return all(
        prove(w.start <= u.start, outside)
        # what loops reach beyond the buffer's end no block uses
        and (prove(u.start + u.extent <= w.start + w.extent, outside) or prove(size <= w.start + w.extent, outside))
        for w, u, size in zip(whole.ranges, part.ranges, written.buffer.shape, strict=True)
    )


def _elements(region: BufferRegion, b: BlockInLoop) -> tuple[list[Expr], Mapping[Var, Expr], Ranges]:
    """The indices of any element of a region, what varies in them, and what is known of that."""
    steps = {Var(f"@step{k}"): r.extent for k, r in enumerate(region.ranges)}
    indices = [r.start + step for r, step in zip(region.ranges, steps, strict=True)]
    return indices, {**b.inside, **steps}, ranges_over({**b.extents, **steps})


def check_order(site: LoopSite, before: Sequence[For], after: Sequence[For]) -> None:
    """Checks that the loops of a chain, outermost at the site, may be reordered; raises ScheduleError."""
    after_at = {loop.var: k for k, loop in enumerate(after)}
    swapped = [
        (a.var, b.var) for k, a in enumerate(before) for b in before[k + 1 :] if after_at[a.var] > after_at[b.var]
    ]  # fmt: skip
    below = placed(site)
    for b in below:
        for outer, later in swapped:
            _check_pair(b, outer, later)
    if len(below) > 1:
        for loop in dict.fromkeys(v for pair in swapped for v in pair):
            chain = list(before)
            k = next(k for k, f in enumerate(chain) if f.var == loop)
            here = LoopSite(chain[k], (*site.above, *chain[:k]))
            check_exchange(here, placed(here), frozenset({"shared", "local"}))


def _check_pair(b: BlockInLoop, outer: Var, later: Var) -> None:
    """Whether ``later`` may move out of ``outer`` as far as one block goes."""
    # Loop interchange by the kinds of the axes that the two loops move (Allen and Kennedy, 2001): spatial ones commute,
    # ordered ones do not, and a reduction keeps its loops around one start.
    kinds, others = b.kinds(outer), b.kinds(later)
    name = b.block.name
    if "ordered" in kinds | others:
        if "ordered" in kinds and "ordered" in others:
            raise ScheduleError(f"{later.name}: it and {outer.name} both move ordered axes of block {name}; keep them")
        still = others if "ordered" in kinds else kinds
        if still != {"spatial"} or ("ordered" in kinds and not _keeps_to_itself(b, later)):
            raise ScheduleError(
                f"{later.name}: block {name} keeps the order of {outer.name if 'ordered' in kinds else later.name}, "
                "and what it reads was written before at other points; leave the loops as they are"
            )
    if "reduce" in kinds & others and kinds | others != {"reduce"}:
        raise ScheduleError(
            f"{later.name}: it or {outer.name} moves spatial axes of block {name} together with reduced ones, "
            "so that a reduction might not start at its beginning; reorder before they are fused"
        )
    if b.block.of_kind("reduce") and "reduce" in kinds | others:
        for loop, moved in ((outer, kinds), (later, others)):
            if "reduce" not in moved and not tells(b, loop) and b.extents[loop] != Const(1):
                raise ScheduleError(
                    f"{loop.name}: block {name} adds up the same elements in several of its iterations; "
                    "leave it around the loops of reduce axes"
                )


def _keeps_to_itself(b: BlockInLoop, loop: Var) -> bool:
    """Whether what a block reads of its own output lies at the same point of the axes that the loop moves."""
    moved = {a.var for a, v in zip(b.block.axes, b.block.values, strict=True) if loop in variables(v)}
    read, written = regions(b.block)
    for w in written:
        for r in read:
            if r.buffer == w.buffer:
                same = {w.ranges[k].start for k in range(len(w.ranges)) if w.ranges[k] == r.ranges[k]}
                if not moved <= same:
                    return False
    return True
