"""Interpreter of tensor programs, in plain Python: the oracle for schedules and for compiled kernels.

The program becomes Python source with names of our own (``b0`` buffers, ``v0`` variables, ``f0`` functions).
Indices are Python's integers, elements numpy's scalars. What a schedule may get wrong is checked at every
step: an index outside of its buffer, an axis outside of its extent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NoReturn, TypeAlias

import numpy as np

from graphopt.errors import ExecutionError
from graphopt.ir.text.elements import numpy_dtype
from graphopt.lowering.loops.expressions import FLOATS, INDEX, Apply, Const, Expr, Load, Var, walk
from graphopt.lowering.loops.nest import (
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
)
from graphopt.lowering.loops.scalars import OPERATORS, function

Array: TypeAlias = np.ndarray[Any, Any]
Intrinsics: TypeAlias = Mapping[str, Nest]
_LOOPS_DEEP = 12  # Python allows 20 loops in one function
_PARENTHESES_DEEP = 40  # and 200 parentheses in one another


def interpret(
    nest: Nest,
    arrays: Mapping[str, Array] | Sequence[Array],
    sizes: Mapping[str, int] | None = None,
    intrinsics: Intrinsics | None = None,
) -> None:
    """Runs the program on its buffers, given by name or in order, and fills those that it writes.

    Sizes that are an axis of some array need not be given. ``intrinsics`` are the descriptions of what the
    program invokes. Raises ValueError where arrays do not fit, IndexError where an index is out of range
    (naming buffer, index and shape), and ExecutionError where a check of the program's fails.
    """
    given = arrays if isinstance(arrays, Mapping) else dict(zip([b.name for b in nest.buffers], arrays, strict=True))
    missing = [b.name for b in nest.buffers if b.name not in given]
    if missing or len(given) != len(nest.buffers):
        raise ValueError(f"{nest.name} takes {', '.join(b.name for b in nest.buffers)}, and not {', '.join(given)}")
    ordered = [given[b.name] for b in nest.buffers]
    bound = bound_sizes(nest, ordered, sizes or {})
    with np.errstate(all="ignore"):
        _compiled(nest, intrinsics or {})(*ordered, *(bound[v.name] for v in nest.sizes))


def bound_sizes(nest: Nest, arrays: Sequence[Array], sizes: Mapping[str, int]) -> dict[str, int]:
    """The program's sizes, from those given and from the shapes; raises ValueError where an array does not fit."""
    bound = dict(sizes)
    for buffer, array in zip(nest.buffers, arrays, strict=True):
        if array.dtype != numpy_dtype(buffer.dtype) or array.ndim != len(buffer.shape):
            raise ValueError(
                f"{nest.name}: {buffer.name} is {buffer.dtype} of rank {len(buffer.shape)}, "
                f"and the array is {array.dtype} of rank {array.ndim}"
            )
        for extent, n in zip(buffer.shape, array.shape, strict=True):
            if isinstance(extent, Var):
                bound.setdefault(extent.name, n)
    if unknown := [v.name for v in nest.sizes if v.name not in bound]:
        raise ValueError(f"{nest.name}: no array tells the size {unknown[0]}: give it")
    for buffer, array in zip(nest.buffers, arrays, strict=True):
        if (shape := tuple(value(e, bound) for e in buffer.shape)) != array.shape:
            raise ValueError(f"{nest.name}: {buffer.name} has the shape {shape}, and the array {array.shape}")
    return bound


def value(expr: Expr, sizes: Mapping[str, int]) -> int:
    """The value of an expression of sizes."""
    writer = _PythonWriter({})
    for name in sizes:
        writer.bind(Var(name))
    text = writer.expr(expr)
    bound = {writer.names[Var(name)]: n for name, n in sizes.items()}
    return int(eval(text, {**writer.globals, **bound}))


def _compiled(nest: Nest, intrinsics: Intrinsics) -> Callable[..., None]:
    """The program as a Python function of its buffers, then its sizes."""
    writer = _PythonWriter(intrinsics)
    exec(compile(writer.nest(nest), f"<{nest.name}>", "exec"), writer.globals)
    run: Callable[..., None] = writer.globals["run"]
    return run


class _PythonWriter:
    """Writes Python source; what it refers to by name is in ``globals``."""

    def __init__(self, intrinsics: Intrinsics) -> None:
        self.intrinsics = intrinsics
        self.names: dict[Var | Buffer, str] = {}
        self.globals: dict[str, Any] = {"outside": _outside, "beyond": _beyond, "part": _part, "failed": _failed}
        self.provided: dict[Any, str] = {}
        self.lines: list[str] = []
        self.numbers = count()
        self.indent = 0
        self.loops = 0

    # -- the source

    def line(self, text: str) -> None:
        self.lines.append(" " * self.indent + text)

    @contextmanager
    def inside(self, head: str) -> Iterator[None]:
        """The lines below a line that ends in a colon."""
        self.line(head)
        self.indent += 1
        yield
        self.line("pass")
        self.indent -= 1

    def bind(self, what: Var | Buffer) -> str:
        """A name for a variable or a buffer."""
        prefix = "b" if isinstance(what, Buffer) else "v"
        self.names[what] = f"{prefix}{next(self.numbers)}"
        return self.names[what]

    def provide(self, prefix: str, key: Any, thing: Any) -> str:
        """The name of a thing that the source refers to; one for each key."""
        if key not in self.provided:
            self.provided[key] = f"{prefix}{len(self.provided)}"
            self.globals[self.provided[key]] = thing
        return self.provided[key]

    def nest(self, nest: Nest) -> str:
        """The whole program as a function ``run``."""
        params = [*map(self.bind, nest.buffers), *map(self.bind, nest.sizes)]
        with self.inside(f"def run({', '.join(params)}):"):
            for buffer in nest.allocs:
                shape = "".join(f"{self.expr(e)}, " for e in buffer.shape)
                make = self.provide("m", ("make", buffer.dtype), _maker(buffer.dtype))
                self.line(f"{self.bind(buffer)} = {make}(({shape}))")
            for buffer in (*nest.buffers, *nest.allocs):
                self.accessors(buffer)
            self.stmt(nest.body)
        return "\n".join(self.lines)

    def accessors(self, buffer: Buffer) -> None:
        """Functions that read and write one element, within bounds."""
        name = self.names[buffer]
        self.line(f"s_{name} = {name}.shape")
        axes = range(len(buffer.shape))
        at = "".join(f"i{k}, " for k in axes)
        if axes:
            self.line("".join(f"n{k}_{name}, " for k in axes) + f"= s_{name}")
        fits = " and ".join(f"0 <= i{k} < n{k}_{name}" for k in axes) or "True"
        label = self.provide("t", ("text", buffer.name), buffer.name)
        with self.inside(f"def load_{name}({at}):"):
            self.line(f"if {fits}: return {name}[({at})]")
            self.line(f"outside({label}, ({at}), s_{name})")
        with self.inside(f"def store_{name}({at}x):"):
            self.line(f"if not ({fits}): outside({label}, ({at}), s_{name})")
            self.line(f"{name}[({at})] = x")

    # -- statements

    def stmt(self, stmt: Stmt) -> None:
        match stmt:
            case For(var, extent, body):
                self.loop(var, extent, body)
            case Block():
                self.block(stmt)
            case Store(buffer, indices, what):
                at = "".join(f"{self.expr(i)}, " for i in indices)
                self.line(f"store_{self.names[buffer]}({at}{self.expr(what)})")
            case Seq(stmts):
                for s in stmts:
                    self.stmt(s)
            case If(condition, then, otherwise):
                with self.inside(f"if {self.expr(condition)}:"):
                    self.stmt(then)
                if otherwise is not None:
                    with self.inside("else:"):
                        self.stmt(otherwise)
            case Check(condition, message):
                self.line(f"if not {self.expr(condition)}: failed({self.provide('t', ('text', message), message)})")
            case Invoke():
                self.invoke(stmt)

    def loop(self, var: Var, extent: Expr, body: Stmt) -> None:
        self.loops += 1
        head = f"for {self.bind(var)} in range({self.expr(extent)}):"
        if self.loops % _LOOPS_DEEP == 0:
            call = f"part{next(self.numbers)}()"
            with self.inside(f"def {call}:"), self.inside(head):
                self.stmt(body)
            self.line(call)
        else:
            with self.inside(head):
                self.stmt(body)
        self.loops -= 1

    def block(self, block: Block) -> None:
        """The axes get their values where the predicate holds, and it may speak of them."""
        axes = {a.var for a in block.axes}
        early = block.predicate != TRUE and not axes & {e for e in walk(block.predicate) if isinstance(e, Var)}
        if early:
            self.line(f"if {self.expr(block.predicate)}:")
            self.indent += 1
        for axis, where in zip(block.axes, block.values, strict=True):
            text = self.expr(where)
            self.line(f"{self.bind(axis.var)} = {text}")
        if block.predicate != TRUE and not early:
            self.line(f"if {self.expr(block.predicate)}:")
            self.indent += 1
        label = self.provide("t", ("text", block.name), block.name)
        for axis in block.axes:
            name, extent = self.names[axis.var], self.expr(axis.extent)
            axis_label = self.provide("t", ("text", axis.var.name), axis.var.name)
            self.line(f"if not 0 <= {name} < {extent}: beyond({label}, {axis_label}, {name}, {extent})")
        if block.init is not None:
            starts = [f"{self.names[a.var]} == 0" for a in block.of_kind("reduce")]
            with self.inside(f"if {' and '.join(starts) or 'True'}:"):
                self.stmt(block.init)
        self.stmt(block.body)
        if block.predicate != TRUE:
            self.line("pass")
            self.indent -= 1

    def invoke(self, stmt: Invoke) -> None:
        description = self.intrinsics.get(stmt.intrinsic)
        if description is None:
            raise ValueError(f"no description of the intrinsic {stmt.intrinsic} is given")
        kinds = [isinstance(p, Buffer) for p in description.params]
        if kinds != [isinstance(a, BufferRegion) for a in stmt.args]:
            raise ValueError(f"{stmt.intrinsic} takes regions and scalars as {description.name} does")
        given = list(zip(description.params, stmt.args, strict=True))
        args = [
            *(self.region(a, len(p.shape)) for p, a in given if isinstance(p, Buffer) and isinstance(a, BufferRegion)),
            *(self.expr(a) for p, a in given if isinstance(p, Var) and isinstance(a, Expr)),
        ]
        key = ("intrinsic", stmt.intrinsic)
        run = self.provided.get(key) or self.provide("f", key, _compiled(description, self.intrinsics))
        self.line(f"{run}({', '.join(args)})")

    def region(self, arg: BufferRegion, rank: int) -> str:
        """A view of a box of a buffer."""
        label = self.provide("t", ("text", arg.buffer.name), arg.buffer.name)
        starts = "".join(f"{self.expr(r.start)}, " for r in arg.ranges)
        extents = "".join(f"{self.expr(r.extent)}, " for r in arg.ranges)
        return f"part({label}, {self.names[arg.buffer]}, ({starts}), ({extents}), {rank})"

    # -- expressions

    def expr(self, expr: Expr) -> str:
        """The expression as Python."""
        return self.text(expr)[0]

    def text(self, expr: Expr) -> tuple[str, int]:
        """The expression as Python, and how deep its parentheses are."""
        if isinstance(expr, Const):
            return self.constant(expr), 1
        if isinstance(expr, Var):
            return self.names[expr], 0
        if isinstance(expr, Load):
            parts = [self.text(i) for i in expr.indices]
            return self.shallow(f"load_{self.names[expr.buffer]}({', '.join(p for p, _ in parts)})", parts)
        assert isinstance(expr, Apply)
        parts = [self.text(a) for a in expr.args]
        args = [p for p, _ in parts]
        if expr.fn == "select":
            return self.shallow(f"({args[1]} if {args[0]} else {args[2]})", parts)
        if expr.fn in OPERATORS:
            return self.shallow(OPERATORS[expr.fn].format(*args), parts)
        source = expr.args[0].dtype
        name = self.provide("f", (expr.fn, source, expr.dtype), function(expr.fn, source, expr.dtype))
        return self.shallow(f"{name}({', '.join(args)})", parts)

    def shallow(self, text: str, parts: Sequence[tuple[str, int]]) -> tuple[str, int]:
        """The text with its depth; one too deep for Python is a function of its own, called in its place."""
        deep = 1 + max((d for _, d in parts), default=0)
        if deep < _PARENTHESES_DEEP:
            return text, deep
        call = f"e{next(self.numbers)}()"
        self.line(f"def {call}: return {text}")
        return call, 1

    def constant(self, expr: Const) -> str:
        if expr.dtype == "bool":
            return str(bool(expr.value))
        if expr.dtype == INDEX:
            return str(expr.value) if expr.value >= 0 else f"({expr.value})"
        kind = numpy_dtype(expr.dtype).type
        return self.provide("c", (expr.dtype, repr(expr.value)), kind(expr.value))


def _maker(dtype: str) -> Callable[[tuple[int, ...]], Array]:
    """Makes buffers in which nothing is written yet, so that reading from them shows."""

    def make(shape: tuple[int, ...]) -> Array:
        if dtype in FLOATS:
            return np.full(shape, np.nan, numpy_dtype(dtype))
        buffer = np.empty(shape, numpy_dtype(dtype))
        buffer.reshape(-1).view(np.uint8)[:] = 1 if dtype == "bool" else 0x5A
        return buffer

    return make


def _outside(name: str, index: tuple[Any, ...], shape: tuple[int, ...]) -> NoReturn:
    raise IndexError(f"{name}{[int(i) for i in index]} lies outside of the shape {list(shape)}")


def _beyond(block: str, axis: str, index: Any, extent: Any) -> NoReturn:
    raise IndexError(f"block {block}: the axis {axis} is {int(index)}, outside of its extent {int(extent)}")


def _failed(message: str) -> NoReturn:
    raise ExecutionError(message)


def _part(name: str, array: Array, starts: Sequence[int], extents: Sequence[int], rank: int) -> Array:
    """The box of an array, without leading axes of one element that are more than the rank."""
    for start, extent, n in zip(starts, extents, array.shape, strict=True):
        if not (start >= 0 and start + extent <= n):
            raise IndexError(
                f"{name}{[f'{s}:{s + e}' for s, e in zip(starts, extents, strict=True)]} lies outside of the shape "
                f"{list(array.shape)}"
            )
    spare = array.ndim - rank
    dropped: list[int] = []
    for k, extent in enumerate(extents):
        if extent == 1 and len(dropped) < spare:
            dropped.append(k)
    at = tuple(s if k in dropped else slice(s, s + e) for k, (s, e) in enumerate(zip(starts, extents, strict=True)))
    part = array[at]
    if part.ndim != rank:
        raise ValueError(f"{name}: a region of rank {part.ndim} stands for a buffer of rank {rank}")
    return part if isinstance(part, np.ndarray) else array[(*at, ...)]
