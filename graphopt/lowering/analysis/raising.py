"""Raising: the tensor expressions that a program computes, found from its loops; the inverse of ``compute.nest``.

A program of blocks in serial loops, each of which makes elements of buffers at axes of its own or reduces into them, is
a chain of tensors. As such it is fused, laid out and scheduled as any op is. All else (procedures, programs that are
scheduled by hand) is not raised, and ``NotRaised`` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from types import MappingProxyType

from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_values import BlockValues, NotRaised, combined, values_of
from graphopt.lowering.index.arithmetic import simplify
from graphopt.lowering.loops import compute
from graphopt.lowering.loops.compute import ElementwiseStage, ReduceStage, Requirement, Tensor, producers_first
from graphopt.lowering.loops.expressions import (
    Apply,
    Const,
    Expr,
    Load,
    Var,
    apply,
    conjunction,
    const,
    equal,
    rewrite,
    select,
    substitute,
    variables,
)
from graphopt.lowering.loops.nest import (
    BY_RULE,
    FUSION_KIND,
    TRUE,
    Axis,
    Block,
    Buffer,
    Check,
    For,
    Nest,
    Seq,
    Stmt,
    Store,
    loads,
    statements,
)
from graphopt.lowering.loops.script_print import show_expr

_NONE: Mapping[Var, Expr] = MappingProxyType({})


def raised(
    nest: Nest, inputs: Sequence[Tensor], sizes: Mapping[Var, Expr], requirements: Sequence[Requirement] = ()
) -> tuple[Tensor, ...]:
    """The tensors that a program computes, one for each buffer that it writes, from tensors for those that it reads.

    ``sizes`` are the program's sizes as expressions; ``requirements`` have to hold before anything is computed.
    Elements that no block writes are zero. Raises NotRaised where the program is no chain of tensors.
    """
    if any(note != BY_RULE and note[0] != FUSION_KIND for note in nest.notes):
        raise NotRaised("the program has notes")
    for buffer in (*nest.buffers, *nest.allocs):
        if buffer.scope != "global" or buffer.strides is not None:
            raise NotRaised(f"{buffer.name} is laid out by hand")
    sites = list(_sites(nest.body, ()))
    for a, b in combinations(sites, 2):
        _check_apart(a, b)
    raiser = _Raiser(nest, inputs, sizes, requirements)
    for site in sites:
        try:
            raiser.block(site)
        except NotRaised as why:
            raise NotRaised(f"block {site.block.name}: {why}") from None
    return raiser.results()


# ------------------------------------------------------------------ blocks and their loops


@dataclass(frozen=True)
class _Site:
    """A block, and the loops around it, outermost first."""

    block: Block
    loops: tuple[For, ...]

    @property
    def axes(self) -> dict[Var, Expr]:
        """The axes that loops bind, by the loops' variables; a loop of one step is 0."""
        bound = {v: a.var for a, v in zip(self.block.axes, self.block.values, strict=True) if isinstance(v, Var)}
        return {s.var: bound.get(s.var, Const(0)) for s in self.loops}

    def check(self) -> None:
        """NotRaised unless each loop binds one axis, from end to end."""
        block = self.block
        if block.notes or any(s.kind != "serial" or s.notes for s in self.loops):
            raise NotRaised("it is scheduled by hand")
        if block.of_kind("ordered"):
            raise NotRaised("its steps are in order")
        left = {s.var: s.extent for s in self.loops}
        for axis, value in zip(block.axes, block.values, strict=True):
            extent = left.pop(value, None) if isinstance(value, Var) else None
            if extent is None and value == Const(0) and axis.extent == Const(1):
                continue
            if extent is None or not _same(extent, axis.extent):
                raise NotRaised(f"its axis {axis.var.name} = {show_expr(value)} has no loop of its own")
        for var, extent in left.items():
            if extent != Const(1):
                raise NotRaised(f"the loop {var.name} runs it again")


def _sites(stmt: Stmt, loops: tuple[For, ...]) -> Iterator[_Site]:
    """The blocks of a program, in order."""
    match stmt:
        case For():
            yield from _sites(stmt.body, (*loops, stmt))
        case Seq():
            for s in stmt.stmts:
                yield from _sites(s, loops)
        case Block(axes=(), init=None, predicate=predicate, notes=()) if predicate == TRUE and any(
            isinstance(s, Block) for s in statements(stmt.body)
        ):
            yield from _sites(stmt.body, loops)
        case Block():
            yield _Site(stmt, loops)
        case _:
            raise NotRaised(f"a {type(stmt).__name__.lower()} stands outside of blocks")


def _check_apart(a: _Site, b: _Site) -> None:
    """NotRaised unless one block may run for all steps of the loops around both before the other runs.

    It may where each step of these has elements of its own in every buffer through which they depend.
    """
    shared = [s for s, t in zip(a.loops, b.loops, strict=False) if s is t and s.extent != Const(1)]
    if not shared:
        return
    accessed = [_accessed(site) for site in (a, b)]
    written = {buffer for buffer, _, is_write in (*accessed[0], *accessed[1]) if is_write}
    common = {buffer for buffer, *_ in accessed[0]} & {buffer for buffer, *_ in accessed[1]} & written
    for buffer in common:
        for loop in shared:
            places = [
                {d for d, index in enumerate(indices) if index == site.axes.get(loop.var)}
                for site, found in zip((a, b), accessed, strict=True)
                for other, indices, _ in found
                if other == buffer
            ]
            if not set.intersection(*places):
                raise NotRaised(
                    f"blocks {a.block.name} and {b.block.name}: a step of {loop.var.name} around both may depend on "
                    f"{buffer.name} of other steps"
                )


def _accessed(site: _Site) -> list[tuple[Buffer, tuple[Expr, ...], bool]]:
    """The elements that a block reads and writes, by its axes."""
    found: list[tuple[Buffer, tuple[Expr, ...], bool]] = []
    for part in (site.block.body, site.block.init):
        if part is not None:
            found += [(s.buffer, s.indices, True) for s in statements(part) if isinstance(s, Store)]
            found += [(e.buffer, e.indices, False) for e in loads(part)]
    found += [(e.buffer, e.indices, False) for e in loads(Check(site.block.predicate, ""))]
    return [(buffer, tuple(substitute(i, site.axes) for i in indices), w) for buffer, indices, w in found]


def _same(a: Expr, b: Expr) -> bool:
    return a == b or simplify(a - b, {}) == Const(0)


# ------------------------------------------------------------------ where a block writes


@dataclass(frozen=True)
class _Target:
    """Where a block writes a buffer: at which axis, and how far from its start, along each axis of the buffer."""

    axes: tuple[Axis | None, ...]
    offsets: tuple[Expr, ...]
    shape: tuple[Expr, ...]
    held: tuple[Var, ...]
    """Axes of one step that no index names."""

    @property
    def is_whole(self) -> bool:
        """Whether the block writes all of the buffer."""
        return not any(True for p in zip(self.axes, self.offsets, self.shape, strict=True) for _ in _ends(*p))


def _ends(axis: Axis | None, offset: Expr, size: Expr) -> Iterator[str]:
    """At which ends of an axis of the buffer the block leaves elements out: ``point`` is all but one."""
    if axis is None:
        yield from ["point"] if size != Const(1) else []
        return
    if offset != Const(0):
        yield "start"
    if not _same(offset + axis.extent, size):
        yield "end"


def _target(block: Block, buffer: Buffer, indices: Sequence[Expr]) -> _Target:
    """Where it writes a buffer. NotRaised where it writes some elements more than once."""
    spatial = {a.var: a for a in block.of_kind("spatial")}
    bound = {a.var for a in block.axes}
    places = [_axis_and_offset(index, spatial) for index in indices]
    for index, (_, offset) in zip(indices, places, strict=True):
        if variables(offset) & bound or any(True for _ in loads(Check(offset, ""))):
            raise NotRaised(f"it writes {buffer.name} at {show_expr(index)}, which is no axis of it")
    used = [a.var for a, _ in places if a is not None]
    if len(set(used)) < len(used) or any(v not in used and a.extent != Const(1) for v, a in spatial.items()):
        raise NotRaised(f"it writes elements of {buffer.name} several times")
    held = tuple(v for v in spatial if v not in used)
    return _Target(tuple(a for a, _ in places), tuple(o for _, o in places), buffer.shape, held)


def _axis_and_offset(index: Expr, axes: Mapping[Var, Axis]) -> tuple[Axis | None, Expr]:
    match index:
        case Var() if index in axes:
            return axes[index], Const(0)
        case Apply(fn="add", args=(Var() as a, b)) if a in axes:
            return axes[a], b
        case Apply(fn="add", args=(a, Var() as b)) if b in axes:
            return axes[b], a
        case Apply(fn="sub", args=(Var() as a, b)) if a in axes:
            return axes[a], -b
    return None, index


# ------------------------------------------------------------------ tensors


class _Raiser:
    """The tensors that the buffers are so far, block by block."""

    def __init__(
        self, nest: Nest, inputs: Sequence[Tensor], sizes: Mapping[Var, Expr], requirements: Sequence[Requirement]
    ) -> None:
        self.nest, self.sizes = nest, sizes
        self.waiting = list(requirements)
        self.checking: set[int] = set()
        """The stages with checks, which must not be left out."""
        written = set(nest.outputs)
        read = (b for b in nest.buffers if b not in written)
        self.tensors: dict[Buffer, Tensor] = dict(zip(read, inputs, strict=True))
        for buffer, tensor in self.tensors.items():
            if buffer.dtype != tensor.dtype:
                raise NotRaised(f"{buffer.name} is {buffer.dtype}, and the input is held as {tensor.dtype}")

    def results(self) -> tuple[Tensor, ...]:
        """What the program gives, with all that it checks."""
        results = tuple(self.tensors[b] for b in self.nest.outputs)
        if self.waiting or not self.checking <= {t.number for t in producers_first(results)}:
            raise NotRaised("it checks what nothing depends on")
        return results

    def block(self, site: _Site) -> None:
        site.check()
        block = site.block
        if isinstance(block.body, Check):
            if block.init is not None or block.predicate != TRUE:
                raise NotRaised("the check is conditional")
            self.waiting.append(self.requirement(site, block.body))
            return
        found = values_of(block, site.axes)
        targets = {b: _target(block, b, indices) for b, indices in found.indices.items()}
        unknown = [b for b in found.read if b not in self.tensors and b not in found.starts]
        if unknown:
            raise NotRaised(f"it reads {unknown[0].name}, to which nothing is written before")
        if found.starts or block.of_kind("reduce"):
            self.tensors.update(self.reduced(block, found, targets))
        else:
            self.tensors.update(self.elementwise(found, targets))

    def requirement(self, site: _Site, check: Check) -> Requirement:
        axes = site.block.axes
        condition = substitute(check.condition, site.axes)

        def holds(*at: Expr) -> Expr:
            return self.expr(condition, dict(zip((a.var for a in axes), at, strict=True)))

        return compute.require([self.expr(a.extent) for a in axes], holds, check.message)

    def elementwise(self, found: BlockValues, targets: Mapping[Buffer, _Target]) -> dict[Buffer, Tensor]:
        """The tensors of a block that makes each element by itself: one stage where they are of one shape."""

        def element(buffer: Buffer, at: Sequence[Expr]) -> Expr:
            points = self.points(targets[buffer], at)
            for other, var in found.before.items():
                points[var] = self.before(other, [self.expr(i, points) for i in found.indices[other]])
            points[found.before[buffer]] = before = self.before(buffer, at)
            return select(self.reached(targets[buffer], at), self.expr(found.values[buffer], points), before)

        if len(set(targets.values())) > 1:
            return {b: self.computed(b, lambda *at, b=b: element(b, at)) for b in targets}
        tensors = self.stage(list(targets), lambda *at: [element(b, at) for b in targets])
        return dict(zip(targets, tensors, strict=True))

    def reduced(self, block: Block, found: BlockValues, targets: Mapping[Buffer, _Target]) -> dict[Buffer, Tensor]:
        """The tensors of a block that reduces, each started from something else where it is."""
        if len(set(targets.values())) > 1:
            raise NotRaised("what it reduces into is not of one shape")
        buffers = list(found.values)[::-1]  # the one that others compare with is stored last
        target, axes = targets[buffers[0]], block.of_kind("reduce")
        starts = [self.start(found, b) for b in buffers]
        reduction = combined(axes, buffers, found, starts)
        stage = reduction.stage

        def element(*at: Expr) -> ReduceStage:
            steps = [compute.reduce_axis(self.expr(a.extent)) for a in axes]
            points = self.points(target, at) | {a.var: s.var for a, s in zip(axes, steps, strict=True)}
            inside = self.reached(target, at)
            pairs = zip(stage.values, stage.identities, strict=True)
            values = tuple(select(inside, self.expr(v, points), identity) for v, identity in pairs)
            return replace(stage, axes=tuple(s.axis for s in steps), values=values)

        totals = self.stage(buffers, element)
        made: dict[Buffer, Tensor] = {}
        for buffer, total, start, identity, fn in zip(
            buffers, totals, starts, stage.identities, reduction.functions, strict=True
        ):
            is_everywhere = not found.starts or (found.begins == TRUE and target.is_whole)
            if start == identity and is_everywhere:
                made[buffer] = total
            else:
                made[buffer] = self.computed(buffer, self.started(found, target, buffer, total, fn))
        return made

    def start(self, found: BlockValues, buffer: Buffer) -> Expr | None:
        """What a reduction starts from, where the same is before it everywhere or its init says so."""
        if found.starts:
            return found.starts[buffer]
        before = self.tensors.get(buffer)
        stage = None if before is None else before.stage
        value = stage.values[before.port] if before is not None and isinstance(stage, ElementwiseStage) else None
        return value if isinstance(value, Const) else None

    def started(
        self, found: BlockValues, target: _Target, buffer: Buffer, total: Tensor, fn: str | None
    ) -> Callable[..., Expr]:
        """The elements of a reduction that starts from something, or not everywhere."""

        def element(*at: Expr) -> Expr:
            before, whole = self.before(buffer, at), Load(total, tuple(at))
            if not found.starts:
                return whole if fn is None else apply(fn, before, whole)
            points = self.points(target, at)
            begun = whole if fn is None else apply(fn, self.expr(found.starts[buffer], points), whole)
            inside = conjunction(self.reached(target, at), self.expr(found.begins, points))
            return select(inside, begun, before)

        return element

    # -- stages and expressions

    def stage(
        self, buffers: Sequence[Buffer], element: Callable[..., ReduceStage | Sequence[Expr]]
    ) -> tuple[Tensor, ...]:
        """The tensors of one stage, with the checks that stand before it."""
        requirements, self.waiting = self.waiting, []
        shape = tuple(map(self.expr, buffers[0].shape))
        tensors = compute.compute_several(shape, element, [b.name for b in buffers], requirements)
        self.checking |= {tensors[0].number} if requirements else set()
        return tensors

    def computed(self, buffer: Buffer, element: Callable[..., Expr]) -> Tensor:
        """A tensor, element by element."""
        (tensor,) = self.stage([buffer], lambda *at: [element(*at)])
        return tensor

    def before(self, buffer: Buffer, at: Sequence[Expr]) -> Expr:
        """An element as it is so far."""
        tensor = self.tensors.get(buffer)
        return const(0, buffer.dtype) if tensor is None else Load(tensor, tuple(at))

    def points(self, target: _Target, at: Sequence[Expr]) -> dict[Var, Expr]:
        """The axes of a block that writes an element."""
        places = zip(target.axes, at, target.offsets, strict=True)
        points: dict[Var, Expr] = {a.var: i - self.expr(o) for a, i, o in places if a is not None}
        return points | dict.fromkeys(target.held, Const(0))

    def reached(self, target: _Target, at: Sequence[Expr]) -> Expr:
        """Whether a block writes an element."""
        conditions = []
        for axis, offset, size, i in zip(target.axes, target.offsets, target.shape, at, strict=True):
            start = self.expr(offset)
            stop = start if axis is None else start + self.expr(axis.extent)
            sides = {"point": equal(i, start), "start": i >= start, "end": i < stop}
            conditions += [sides[end] for end in _ends(axis, offset, size)]
        return conjunction(*conditions)

    def expr(self, expr: Expr, values: Mapping[Var, Expr] = _NONE) -> Expr:
        """An expression of the program over tensors, with its sizes and variables replaced."""

        def load(e: Expr) -> Expr | None:
            if not isinstance(e, Load) or isinstance(e.buffer, Tensor):
                return None
            if e.buffer not in self.tensors:
                raise NotRaised(f"it reads {e.buffer.name}, to which nothing is written before")
            return Load(self.tensors[e.buffer], e.indices)

        return rewrite(substitute(expr, {**self.sizes, **values}), load)
