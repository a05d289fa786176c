"""Tensorization: replaces a block that matches the description of a tensor intrinsic by a call of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_refs import (
    BlockRef,
    LoopRef,
    extents_around,
    find_block,
    primitive,
    replaced,
)
from graphopt.lowering.analysis.block_refs import get_loop as known_loop
from graphopt.lowering.analysis.regions import refreshed
from graphopt.lowering.index.arithmetic import affine, simplify
from graphopt.lowering.intrinsics.tensor_intrin import TensorIntrin, find_intrinsic, sides
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, substitute, variables
from graphopt.lowering.loops.loop_nests import peeled
from graphopt.lowering.loops.nest import (
    TRUE,
    Axis,
    Block,
    Buffer,
    BufferRegion,
    For,
    Invoke,
    Nest,
    Range,
    Seq,
    Stmt,
    Store,
)
from graphopt.lowering.loops.script import show_expr
from graphopt.lowering.schedule.blockize import blockize

COMMUTATIVE = frozenset({"add", "mul", "min", "max", "and", "or", "eq", "ne"})


@primitive
def tensorize(nest: Nest, where: LoopRef | BlockRef | str, intrinsic: str) -> tuple[Nest, None]:
    """Replace a tile (a loop, which is blockized, or a block of blocks) by a tensor intrinsic.

    The tile matches the description of the intrinsic up to names, offsets and the order of loops; else ScheduleError
    has the first difference.
    Before::

        for i0_0, i1_0, i0_1, i1_1, i2 in grid(2, 2, 4, 4, 8):
            with block("C"):
                v0 = axis.spatial(8, i0_0 * 4 + i0_1)
                v1 = axis.spatial(8, i1_0 * 4 + i1_1)
                v2 = axis.reduce(8, i2)
                C[v0, v1] = C[v0, v1] + A[v0, v2] * B[v2, v1]

    After ``s.tensorize("i0_1", "product_4x4_float32")``::

        for i0_0, i1_0 in grid(2, 2):
            with block("C_o"):
                v0_o, v1_o = axis.remap("SS", [i0_0, i1_0])
                reads(A[v0_o * 4:v0_o * 4 + 4, :], B[:, v1_o * 4:v1_o * 4 + 4])
                writes(C[v0_o * 4:v0_o * 4 + 4, v1_o * 4:v1_o * 4 + 4])
                invoke("product_4x4_float32", C[v0_o * 4:v0_o * 4 + 4, v1_o * 4:v1_o * 4 + 4],
                       A[v0_o * 4:v0_o * 4 + 4, :], B[:, v1_o * 4:v1_o * 4 + 4], 8)
    """
    intrin = find_intrinsic(intrinsic)
    if isinstance(where, LoopRef) or (isinstance(where, str) and _is_loop(nest, where)):
        nest, block = blockize(nest, where)
    else:
        block = where if isinstance(where, BlockRef) else BlockRef(where)
    site = find_block(nest, block)
    loops, inner = _tile(site.stmt)
    around = {**extents_around((*site.above, site.stmt)), **{s.var: s.extent for s in loops}}
    call = _Match(intrin, inner, around).call(loops)
    tensorized = replaced(nest, site, replace(site.stmt, body=call))
    return refreshed(tensorized, [site.stmt.name]), None


def _is_loop(nest: Nest, name: str) -> bool:
    try:
        known_loop(nest, name)
    except ScheduleError:
        return False
    return True


def _tile(outer: Block) -> tuple[tuple[For, ...], Block]:
    """The loops within a block and the block in them."""
    loops, stmt = peeled(outer.body)
    if not isinstance(stmt, Block):
        raise ScheduleError(f"{outer.name} holds no single block in its loops; name a loop around a block")
    return loops, stmt


@dataclass(frozen=True, slots=True)
class _PartialMatch:
    """A partial match: the bindings of a description's names to those of the program."""

    vars: Mapping[Var, Var]
    loads: tuple[tuple[Load, Load], ...] = ()

    def with_var(self, theirs: Var, ours: Var) -> _PartialMatch | None:
        """With a variable as another; None where one of them is something else."""
        if self.vars.get(theirs, ours) != ours or any(o == ours and t != theirs for t, o in self.vars.items()):
            return None
        return replace(self, vars={**self.vars, theirs: ours})


class _Match:
    """The search for a description in a block."""

    def __init__(self, intrinsic: TensorIntrin, block: Block, extents: Mapping[Var, Expr]) -> None:
        self.intrinsic, self.block, self.extents = intrinsic, block, extents
        self.name, self.description = intrinsic.name, intrinsic.description
        self.loops, self.wanted = _described(intrinsic)
        self.axes = {a.var: a for a in block.axes}
        self.difference: tuple[int, str] = (-1, "")

    def differs(self, depth: int, message: str) -> None:
        """Keeps the difference that was found furthest on."""
        if depth > self.difference[0]:
            self.difference = (depth, message)

    def call(self, loops: Sequence[For]) -> Invoke:
        """The call that does what the block does; raises ScheduleError where the intrinsic does something else."""
        block, wanted = self.block, self.wanted
        if block.predicate != TRUE:
            raise ScheduleError(
                f"{block.name} runs only for a part of its tile: pad it before, as {self.name} does all of it"
            )
        if (block.init is None) != (wanted.init is None):
            has = "no init" if wanted.init is None else "an init"
            raise ScheduleError(
                f"{block.name}: {self.name} has {has}; use decompose_reduction where that is in the way"
            )
        self.whole(loops)
        for match in self.statements(wanted, _PartialMatch({})):
            args = self.arguments(match)
            if args is not None:
                return Invoke(self.name, args)
        raise ScheduleError(f"{block.name} is not {self.name}: {self.difference[1] or 'nothing in it is alike'}")

    def whole(self, loops: Sequence[For]) -> None:
        """Raises ScheduleError where the loops do not run over each point of the block's axes once."""
        left = {s.var: s.extent for s in loops if s.extent != Const(1)}
        for axis, value in zip(self.block.axes, self.block.values, strict=True):
            linear = affine(value, [s.var for s in loops], self.extents)
            steps = (
                []
                if linear is None
                else sorted(
                    (
                        (int(c.value), v)
                        for v, c in linear.coefficients.items()
                        if isinstance(c, Const) and c != Const(0)
                    ),
                    key=lambda s: s[0],
                )
            )
            reach: Expr = Const(1)
            for step, var in steps:
                if var not in left or reach != Const(step):
                    break
                reach = simplify(reach * left.pop(var), {})
            if reach != simplify(axis.extent, {}):
                raise ScheduleError(
                    f"{self.block.name}: the loops of its tile are not all of {axis.var.name}, each point once"
                )
        if left:
            raise ScheduleError(f"{min(v.name for v in left)} repeats the tile of {self.block.name}")

    # ------------------------------------------------------------------ statements and expressions

    def statements(self, wanted: Block, match: _PartialMatch) -> Iterator[_PartialMatch]:
        """Ways to take the block for the description's."""
        for extended in self.stmt(wanted.body, self.block.body, match):
            if wanted.init is None or self.block.init is None:
                yield extended
            else:
                yield from self.stmt(wanted.init, self.block.init, extended)

    def stmt(self, theirs: Stmt, ours: Stmt, match: _PartialMatch) -> Iterator[_PartialMatch]:
        match theirs, ours:
            case Store(), Store():
                target = Load(theirs.buffer, theirs.indices), Load(ours.buffer, ours.indices)
                for extended in self.expr(*target, match):
                    yield from self.expr(theirs.value, ours.value, extended)
            case Seq(), Seq() if len(theirs.stmts) == len(ours.stmts):
                yield from self.all(list(zip(theirs.stmts, ours.stmts, strict=True)), match)
            case _:
                self.differs(len(match.loads), f"{_words(theirs)} is wanted, and {_words(ours)} is there")

    def all(self, pairs: Sequence[tuple[Stmt, Stmt]], match: _PartialMatch) -> Iterator[_PartialMatch]:
        if not pairs:
            yield match
            return
        for extended in self.stmt(*pairs[0], match):
            yield from self.all(pairs[1:], extended)

    def expr(self, theirs: Expr, ours: Expr, match: _PartialMatch) -> Iterator[_PartialMatch]:
        """Ways to take an expression for one of the description."""
        if isinstance(theirs, Load) and isinstance(ours, Load):
            yield from self.load(theirs, ours, match)
            return
        if isinstance(theirs, Apply) and isinstance(ours, Apply) and (theirs.fn, theirs.type) == (ours.fn, ours.type):
            orders = [ours.args, ours.args[::-1]] if theirs.fn in COMMUTATIVE else [ours.args]
            for order in orders:
                yield from self.each(list(zip(theirs.args, order, strict=True)), match)
            return
        if isinstance(theirs, Var) and isinstance(ours, Var) and ours in self.axes:
            extended = match.with_var(theirs, ours)
            if extended is not None:
                yield extended
                return
        elif isinstance(theirs, Const) and theirs == ours:
            yield match
            return
        self.differs(len(match.loads), f"{show_expr(theirs)} is wanted, and {show_expr(ours)} is there")

    def each(self, pairs: Sequence[tuple[Expr, Expr]], match: _PartialMatch) -> Iterator[_PartialMatch]:
        if not pairs:
            yield match
            return
        for extended in self.expr(*pairs[0], match):
            yield from self.each(pairs[1:], extended)

    def load(self, theirs: Load, ours: Load, match: _PartialMatch) -> Iterator[_PartialMatch]:
        """A load with the description's buffer as the program's, from some base on."""
        # Unification of loads: axes of the description are bound to those of the program, index by index, and what is
        # left over has to be a base that does not move.
        depth = len(match.loads)
        if theirs.dtype != ours.dtype:
            self.differs(depth, f"{theirs.buffer.name} is {theirs.dtype}, and {ours.buffer.name} {ours.dtype}")
            return
        if theirs.buffer.scope not in ("global", ours.buffer.scope):
            self.differs(depth, f"{ours.buffer.name} is not {theirs.buffer.scope}")
            return
        if any((t.buffer == theirs.buffer) != (o.buffer == ours.buffer) for t, o in match.loads):
            self.differs(depth, f"{ours.buffer.name} is there, and not what {theirs.buffer.name} is elsewhere")
            return
        moving = [k for k, i in enumerate(ours.indices) if variables(i) & self.axes.keys()]
        rank = len(theirs.indices)
        if len(moving) > rank or len(ours.indices) < rank:
            self.differs(
                depth, f"{ours.buffer.name} moves along {len(moving)} axes, and {theirs.buffer.name} along {rank}"
            )
            return
        for their_index, our_index in zip(theirs.indices, self.aligned(ours, rank), strict=True):
            axis_vars = variables(our_index) & self.axes.keys()
            if isinstance(their_index, Var):
                linear = affine(our_index, list(axis_vars), self.extents) if len(axis_vars) == 1 else None
                (var,) = axis_vars if len(axis_vars) == 1 else (None,)
                if var is None:
                    if axis_vars or self.size(their_index) != Const(1):
                        self.differs(depth, self.unlike(theirs, ours))
                        return
                    continue
                if linear is None or linear.coefficients[var] != Const(1):
                    self.differs(depth, self.unlike(theirs, ours))
                    return
                extended = match.with_var(their_index, var)
                if extended is None:
                    self.differs(depth, self.unlike(theirs, ours))
                    return
                match = extended
        yield replace(match, loads=(*match.loads, (theirs, ours)))

    def unlike(self, theirs: Load, ours: Load) -> str:
        return f"{show_expr(theirs)} is wanted, and {show_expr(ours)} is there"

    def aligned(self, load: Load, rank: int) -> list[Expr]:
        """The indices that are those of a buffer of the rank: from the left, those that do not move are passed over."""
        extra = len(load.indices) - rank
        kept: list[Expr] = []
        for index in load.indices:
            if extra and not variables(index) & self.axes.keys():
                extra -= 1
            else:
                kept.append(index)
        return kept[:rank] if not extra else list(load.indices[-rank:])

    def size(self, var: Var) -> Expr:
        """The extent of an axis of the description."""
        return next((a.extent for a in self.wanted.axes if a.var == var), Const(-1))

    # ------------------------------------------------------------------ arguments

    def arguments(self, match: _PartialMatch) -> tuple[BufferRegion | Expr, ...] | None:
        """The arguments of the call; None (and a difference) where extents or kinds of axes do not fit."""
        sizes: dict[Var, Expr] = {}
        ours = {v: a for v, a in self.axes.items() if a.extent != Const(1)}
        for axis in self.wanted.axes:
            var = match.vars.get(axis.var)
            our_axis = self.axes[var] if var is not None else None
            if not self.fits(axis, our_axis, sizes):
                return None
            if var is not None:
                ours.pop(var, None)
        if ours:
            self.differs(99, f"{min(v.name for v in ours)} is no axis of {self.name}")
            return None
        regions: dict[Buffer, BufferRegion] = {}
        for theirs, load in match.loads:
            region = self.region(theirs, load, match, sizes)
            if region is None or regions.setdefault(theirs.buffer, region) != region:
                self.differs(99, f"{load.buffer.name} is used from several places on")
                return None
        args: list[BufferRegion | Expr] = []
        for param in self.description.params:
            arg = regions.get(param) if isinstance(param, Buffer) else sizes.get(param)
            if arg is None:
                self.differs(99, f"nothing tells what {param.name} of {self.name} is")
                return None
            args.append(arg)
        return tuple(args)

    def fits(self, axis: Axis, our_axis: Axis | None, sizes: dict[Var, Expr]) -> bool:
        """Whether an axis of the block is as one of the description; finds sizes out."""
        extent: Expr = Const(1) if our_axis is None else our_axis.extent
        if our_axis is not None and our_axis.kind != axis.kind and extent != Const(1):
            self.differs(98, f"{our_axis.var.name} is {our_axis.kind}, and {axis.var.name} of {self.name} {axis.kind}")
            return False
        if isinstance(axis.extent, Var) and sizes.setdefault(axis.extent, extent) == extent:
            return True
        if axis.extent == extent:
            return True
        name = "an axis of 1" if our_axis is None else our_axis.var.name
        self.differs(
            98, f"{name} runs to {show_expr(extent)}, and {axis.var.name} of {self.name} to {show_expr(axis.extent)}"
        )
        return False

    def region(self, theirs: Load, ours: Load, match: _PartialMatch, sizes: Mapping[Var, Expr]) -> BufferRegion | None:
        """The box of the program's buffer that is the description's buffer."""
        moving = {v: Const(0) for v in self.axes}
        starts = [simplify(substitute(i, moving), self.extents) for i in ours.indices]
        sized = [Range(s) for s in starts]
        shape = [substitute(n, sizes) for n in theirs.buffer.shape]
        extra = len(starts) - len(shape)
        position = 0
        for k, index in enumerate(ours.indices):
            if extra and not variables(index) & self.axes.keys():
                extra -= 1
                continue
            sized[k] = Range(starts[k], shape[position])
            position += 1
        region = BufferRegion(ours.buffer, tuple(sized))
        for k, index in zip(sides(region, len(shape)), theirs.indices, strict=True):
            if simplify(ours.indices[k] - substitute(index, match.vars) - starts[k], self.extents) != Const(0):
                return None
        return region


def _described(intrinsic: TensorIntrin) -> tuple[tuple[For, ...], Block]:
    """The loops of a description and the block in them, whose axes they are."""
    loops, stmt = peeled(intrinsic.description.body)
    if not isinstance(stmt, Block) or set(stmt.values) != {s.var for s in loops}:
        raise ScheduleError(f"the description of {intrinsic.name} is no block in loops that are its axes")
    return loops, stmt


def _words(stmt: Stmt) -> str:
    return {"Store": "a store", "Seq": "several statements", "For": "a loop", "If": "a branch"}.get(
        type(stmt).__name__, f"a {type(stmt).__name__.lower()}"
    )
