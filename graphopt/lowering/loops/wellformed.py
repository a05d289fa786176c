"""Verifier of tensor programs: names, ranks and dtypes agree, and variables are bound where they are used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from graphopt.errors import NestError
from graphopt.ir.text.elements import numpy_dtype
from graphopt.lowering.loops.expressions import (
    COMPARISONS,
    FLOATS,
    FUNCTIONS,
    INDEX,
    LOGIC,
    Apply,
    Const,
    Expr,
    Load,
    Var,
)
from graphopt.lowering.loops.nest import (
    THREADS,
    TRUE,
    Block,
    Buffer,
    BufferRegion,
    Check,
    For,
    If,
    Invoke,
    Nest,
    Seq,
    Stmt,
    Store,
    inner,
    statements,
)
from graphopt.lowering.loops.scalars import is_defined
from graphopt.lowering.loops.script_expressions import DTYPES, INTEGERS
from graphopt.lowering.loops.script_print import CONVERSIONS, show_expr

DECIDING: Final = ("select", "and", "or")
"""Functions whose first argument may decide whether the others are read."""
IndexBounds: TypeAlias = tuple[int, int]
AxisRange: TypeAlias = tuple[IndexBounds, frozenset[Var]]
"""The least and the largest value of a loop's variable or an axis, and the loops that it is made of."""


def check(nest: Nest) -> None:
    """Verifies a program; raises NestError, which says where it is malformed.

    Indices are refused where they leave an extent for sure: constants tell, and nothing guards them.
    """
    _Checker(nest).nest()


class _Checker:
    """The scope of a statement: the names, extents and conditions known there."""

    def __init__(self, program: Nest) -> None:
        self.program = program
        self.buffers: dict[str, Buffer] = {}
        self.names: set[str] = set()
        self.blocks: set[tuple[str, tuple[Var, ...]]] = set()
        self.bound: set[Var] = set()
        self.ranges: dict[Var, AxisRange] = {}
        self.where = program.name
        self.guarded = False

    def need(self, holds: bool, message: str) -> None:
        """Raises the error where something does not hold."""
        if not holds:
            where = self.program.name if self.where == self.program.name else f"{self.program.name}, {self.where}"
            raise NestError(f"{where}: {message}")

    def declare(self, name: str) -> None:
        self.need(name.isidentifier(), f"{name!r} is no name")
        self.need(name not in self.names, f"{name} names two things")
        self.names.add(name)

    def nest(self) -> None:
        """Everything."""
        for size in self.program.sizes:
            self.declare(size.name)
            self.need(size.dtype == INDEX, f"the size {size.name} is {size.dtype}, and not {INDEX}")
            self.bound.add(size)
        for buffer in (*self.program.buffers, *self.program.allocs):
            self.declare(buffer.name)
            self.need(buffer.dtype in DTYPES, f"{buffer.name} is of the dtype {buffer.dtype}, which is none")
            self.each(INDEX, (*buffer.shape, *(buffer.strides or ())))
            self.need(
                buffer.strides is None or len(buffer.strides) == len(buffer.shape),
                f"{buffer.name} has {len(buffer.shape)} axes and {len(buffer.strides or ())} strides",
            )
            self.buffers[buffer.name] = buffer
        self.stmt(self.program.body)

    # -- statements

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case For():
                self.loop(stmt)
            case Block():
                before, self.where = self.where, f"block {stmt.name}"
                self.block(stmt)
                self.where = before
            case Store(buffer, indices, value):
                self.access(buffer, indices)
                self.expr(value, buffer.dtype)
            case Seq(stmts):
                self.need(len(stmts) != 1, "a sequence has one statement")
                for s in stmts:
                    self.need(not isinstance(s, Seq), "a sequence stands in a sequence")
                    self.stmt(s)
            case If(condition, then, otherwise):
                self.expr(condition, "bool")
                before_guard, self.guarded = self.guarded, True
                self.stmt(then)
                if otherwise is not None:
                    self.stmt(otherwise)
                self.guarded = before_guard
            case Check(condition, _):
                self.expr(condition, "bool")
            case Invoke(_, args):
                for a in args:
                    if isinstance(a, BufferRegion):
                        self.region(a)
                    else:
                        self.expr(a, None)

    def loop(self, loop: For) -> None:
        self.each(INDEX, [loop.extent])
        self.need(
            (loop.kind == "bound") == (loop.thread is not None) and loop.thread in (None, *THREADS),
            f"the loop {loop.var.name} is {loop.kind}, with the thread {loop.thread}",
        )
        self.declare(loop.var.name)
        self.bind([loop.var])
        before, extent = self.guarded, loop.extent
        if isinstance(extent, Const) and extent.value >= 1:
            self.ranges[loop.var] = (0, int(extent.value) - 1), frozenset([loop.var])
        elif not (isinstance(extent, Var) and extent in self.program.sizes):
            self.guarded = True  # it may be that no step is taken, whatever the sizes are
        self.stmt(loop.body)
        self.guarded = before
        self.bound.discard(loop.var)

    def bind(self, variables: Sequence[Var]) -> None:
        for var in variables:
            self.need(var not in self.bound, f"{var.name} is bound twice")
            self.need(var.dtype == INDEX, f"{var.name} is {var.dtype}, and not {INDEX}")
        self.bound.update(variables)

    def block(self, block: Block) -> None:
        self.need(len(block.axes) == len(block.values), f"{len(block.axes)} axes and {len(block.values)} values")
        self.each(INDEX, (*(a.extent for a in block.axes), *block.values))
        for axis, value in zip(block.axes, block.values, strict=True):
            if block.predicate == TRUE:
                self.within(f"the axis {axis.var.name} = {show_expr(value)} runs", value, axis.extent)
            loops: set[Var] = set()
            range = bounds(value, self.ranges, loops)
            if range is not None:
                self.ranges[axis.var] = range, frozenset(loops)
        axes = tuple(a.var for a in block.axes)
        if (block.name, axes) not in self.blocks:  # else the block stands here once more
            self.blocks.add((block.name, axes))
            for var in axes:
                self.declare(var.name)
        self.bind(axes)
        self.expr(block.predicate, "bool")
        before, self.guarded = self.guarded, self.guarded or block.predicate != TRUE
        for part in (block.init, block.body):
            if part is not None:
                self.stmt(part)
        within = [s for part in inner(block) for s in statements(part)]
        local = {s.var for s in within if isinstance(s, For)}
        local |= {a.var for s in within if isinstance(s, Block) for a in s.axes}
        self.bound |= local  # what a block reads and writes may be said by the loops in it
        self.guarded = True  # what is said of a block is not read
        for region in (*block.reads, *block.writes):
            self.region(region)
        self.guarded = before
        self.bound -= local.union(axes)

    def within(self, what: str, value: Expr, extent: Expr) -> None:
        """Complains of an axis or an index that leaves its extent for sure."""
        outside = None if self.guarded else left(value, extent, self.ranges)
        self.need(outside is None, f"{what} {outside}, and its extent is {show_expr(extent)}")

    def region(self, region: BufferRegion) -> None:
        self.declared(region.buffer)
        n, rank = len(region.ranges), len(region.buffer.shape)
        self.need(n == rank, f"{region.buffer.name} has {rank} axes, and a region of it {n}")
        self.each(INDEX, [e for r in region.ranges for e in (r.start, r.extent)])

    # -- expressions

    def declared(self, buffer: Buffer) -> None:
        declared = self.buffers.get(buffer.name)
        self.need(declared is not None, f"the buffer {buffer.name} is not declared")
        self.need(declared == buffer, f"the buffer {buffer.name} is not the one that is declared")

    def access(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        self.declared(buffer)
        n, rank = len(indices), len(buffer.shape)
        self.need(n == rank, f"{buffer.name} has {rank} axes, and is used at {n} indices")
        self.each(INDEX, indices)
        for axis, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            self.within(f"the index {show_expr(index)} of axis {axis} of {buffer.name} runs", index, extent)

    def each(self, dtype: str, exprs: Iterable[Expr]) -> None:
        for e in exprs:
            self.expr(e, dtype)

    def expr(self, expr: Expr, dtype: str | None) -> None:
        """Checks the parts of an expression, and its dtype where one is asked for."""
        match expr:
            case Const(value, kind):
                fits = (
                    isinstance(value, bool)
                    if kind == "bool"
                    else isinstance(value, float)
                    if kind in FLOATS
                    else kind in INTEGERS and type(value) is int and value in INTEGERS[kind]
                )
                self.need(fits, f"{value!r} is no {kind}")
            case Var(name, _):
                self.need(expr in self.bound, f"{name} is not bound where it is used")
            case Load(buffer, indices):
                self.access(buffer, indices)
            case Apply(fn, args, _):
                self.need(len(args) == FUNCTIONS.get(fn), f"{fn} of {len(args)} arguments is no function")
                before = self.guarded
                for k, a in enumerate(args):
                    self.guarded = before or (k > 0 and fn in DECIDING)
                    self.expr(a, None)
                self.guarded = before
                self.need(is_typed(expr), f"{_signature(expr)} is not what {fn} gives")
        self.need(dtype in (None, expr.dtype), f"{show_expr(expr, None)} is {expr.dtype}, where {dtype} is expected")


def left(index: Expr, extent: Expr, ranges: Mapping[Var, AxisRange]) -> str | None:
    """How an index leaves its extent for sure: ``from 0 to 8``; None where nobody can tell, or it does not."""
    reached = bounds(index, ranges, set())
    if reached is None or not isinstance(extent, Const) or 0 <= reached[0] <= reached[1] < int(extent.value):
        return None
    return f"from {reached[0]} to {reached[1]}"


def bounds(expr: Expr, ranges: Mapping[Var, AxisRange], seen: set[Var]) -> IndexBounds | None:
    """The least and largest value, both of them reached; None where that is not plain, as for a loop used twice. Loops
    are added to those ``seen``."""
    # Interval arithmetic (Moore, 1966) as long as the ends are reached: no variable occurs twice.
    if isinstance(expr, Const):
        return int(expr.value), int(expr.value)
    if isinstance(expr, Var):
        range, loops = ranges.get(expr, (None, frozenset()))
        if not seen.isdisjoint(loops):
            return None
        seen |= loops
        return range
    if not isinstance(expr, Apply) or expr.fn not in ("add", "sub", "mul", "floordiv") or len(expr.args) != 2:
        return None
    a, b = (bounds(e, ranges, seen) for e in expr.args)
    if a is None or b is None:
        return None
    match expr.fn:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            ends = [x * y for x in a for y in b]
            return min(ends), max(ends)
    return (a[0] // b[0], a[1] // b[0]) if b[0] == b[1] > 0 else None


def is_typed(expr: Apply) -> bool:
    """Whether the dtypes of a function's arguments and of its result agree."""
    kinds = [a.dtype for a in expr.args]
    if expr.fn in CONVERSIONS:
        widths = {numpy_dtype(dtype).itemsize for dtype in (*kinds, expr.type) if dtype in DTYPES}
        return {*kinds, expr.type} <= DTYPES and (expr.fn != "bits" or len(widths) == 1)
    if expr.fn == "select":
        return kinds == ["bool", expr.type, expr.type]
    if not is_defined(expr.fn, kinds[0]):
        return False
    if expr.fn in ("shl", "shr"):
        return kinds[0] == expr.type
    if expr.fn in COMPARISONS or expr.fn in LOGIC:
        return len(set(kinds)) == 1 and expr.type == "bool"
    return set(kinds) == {expr.type}


def _signature(expr: Apply) -> str:
    return f"{expr.fn}({', '.join(a.dtype for a in expr.args)}) as {expr.type}"
