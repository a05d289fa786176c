"""Structural equality of tensor programs: whether two are the same but for the names in them, and where they differ.

A program is read as a sequence of parts, in which a buffer or variable is its number in order of appearance. Two
programs are equal where their sequences are, the hash is that of the sequence, and the first parts that differ are the
difference: one walk serves all three. Names of the program, its buffers, sizes, loops, axes and blocks do not count;
order, dtypes, memory scopes, kinds of loops, notes and what blocks declare do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import count, zip_longest
from operator import itemgetter
from typing import Final, NamedTuple

from graphopt.display import shortened
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var
from graphopt.lowering.loops.nest import (
    Block,
    Buffer,
    BufferRegion,
    Check,
    For,
    If,
    Invoke,
    Nest,
    Notes,
    Seq,
    Stmt,
    Store,
)
from graphopt.lowering.loops.script_print import show_expr, show_stmt

LINE: Final = 60
"""So much of either side is told, and twice as much of the statements that they are in."""


class _Part(NamedTuple):
    """What must agree (``key``), and how it is told where it does not."""

    key: tuple[object, ...]
    words: Callable[[], str]
    block: str
    stmt: Stmt | None


def difference(a: Nest, b: Nest) -> str | None:
    """None where two tensor programs are equal up to names, else the first difference in one line: the block and
    statement that it is in, and both sides."""
    if a is b:
        return None
    for p, q in zip_longest(_Parts().of(a), _Parts().of(b)):
        if p is None or q is None or p.key != q.key:
            return _told(p, q)
    return None


def equal(a: Nest, b: Nest) -> bool:
    """Whether two tensor programs are equal up to names."""
    return difference(a, b) is None


def structural_hash(nest: Nest) -> bytes:
    """A hash of 16 bytes, the same for programs that are equal up to names, in every process."""
    hasher = blake2b(digest_size=16)
    for part in _Parts().of(nest):
        hasher.update(repr(part.key).encode())
    return hasher.digest()


def _told(p: _Part | None, q: _Part | None) -> str:
    """The difference of two parts."""
    sides = " against ".join("nothing" if part is None else shortened(part.words(), LINE) for part in (p, q))
    known = p or q
    assert known is not None
    where = f"block {known.block}: " if known.block else ""
    if p is None or q is None or p.stmt is None or q.stmt is None:
        return f"{where}{sides}"
    lines = tuple(_line(part.stmt) for part in (p, q) if part.stmt is not None)
    if lines[0] == lines[1]:
        return f"{where}{sides} in `{lines[0]}`"
    told = f"{where}`{lines[0]}` against `{lines[1]}`"
    return told if sides == " against ".join(lines) else f"{told}: {sides}"


def _line(stmt: Stmt) -> str:
    """The first line of a statement; a store is one."""
    if isinstance(stmt, Store):
        text = f"{show_expr(Load(stmt.buffer, stmt.indices))} = {show_expr(stmt.value, stmt.buffer.dtype)}"
        return shortened(text, 2 * LINE)
    alone = replace(stmt, body=Seq(())) if isinstance(stmt, For) else stmt
    return next(show_stmt(alone)).removesuffix(":")


class _Parts:
    """The parts of one program."""

    def __init__(self) -> None:
        self.numbers: dict[Var | Buffer, int] = {}
        self.fresh = count()
        """Not how many there are: loops beside each other may have one name, which is bound anew."""
        self.block = ""
        self.at: Stmt | None = None

    def part(self, words: str | Callable[[], str], *key: object) -> _Part:
        return _Part(key, (lambda: words) if isinstance(words, str) else words, self.block, self.at)

    def of(self, nest: Nest) -> Iterator[_Part]:
        kinds = tuple("size" if isinstance(p, Var) else "buffer" for p in nest.params)
        yield self.part(f"parameters ({', '.join(kinds)})", kinds)
        for size in nest.sizes:
            self.numbers[size] = next(self.fresh)
        for buffer in nest.buffers:
            yield from self.buffer(buffer)
        yield from self.notes(nest.notes)
        yield self.part(f"{len(nest.allocs)} buffers of its own", "allocs", len(nest.allocs))
        yield from self.stmt(nest.body)
        self.block, self.at = "", None
        for buffer in nest.allocs:  # those that nothing uses
            yield from self.buffer(buffer)

    def stmt(self, stmt: Stmt) -> Iterator[_Part]:
        outer, self.at = (self.block, self.at), stmt
        yield self.part(lambda: _line(stmt), type(stmt).__name__)
        match stmt:
            case For(var, extent, body, kind, thread, notes):
                yield from self.expr(extent)
                yield self.part(f"{kind}{f' on {thread}' if thread else ''}", kind, thread)
                yield from self.notes(notes)
                self.numbers[var] = next(self.fresh)
                yield from self.stmt(body)
            case Block():
                yield from self.of_block(stmt)
            case Store(buffer, indices, value):
                yield from self.buffer(buffer)
                for expr in (*indices, value):
                    yield from self.expr(expr)
            case Seq(stmts):
                self.at = None
                yield self.part(f"{len(stmts)} statements", len(stmts))
                for inner in stmts:
                    yield from self.stmt(inner)
            case If(condition, then, otherwise):
                yield from self.expr(condition)
                yield self.part("no else" if otherwise is None else "an else", otherwise is None)
                yield from self.stmt(then)
                if otherwise is not None:
                    yield from self.stmt(otherwise)
            case Check(condition, message):
                yield from self.expr(condition)
                yield self.part(f"the message {message!r}", message)
            case Invoke(intrinsic, args):
                yield self.part(f"{intrinsic} of {len(args)}", intrinsic, len(args))
                for arg in args:
                    yield from self.region(arg) if isinstance(arg, BufferRegion) else self.expr(arg)
        self.block, self.at = outer

    def of_block(self, block: Block) -> Iterator[_Part]:
        """A block's values are of the loops around it; all else may speak of its axes."""
        self.block = block.name
        kinds = [a.kind for a in block.axes]
        yield self.part(f"axes ({', '.join(kinds)})", *kinds)
        for axis, value in zip(block.axes, block.values, strict=True):
            yield from self.expr(axis.extent)
            yield from self.expr(value)
        for axis in block.axes:
            self.numbers[axis.var] = next(self.fresh)
        yield from self.expr(block.predicate)
        yield self.part("no init" if block.init is None else "an init", block.init is None)
        if block.init is not None:
            yield from self.stmt(block.init)
        yield from self.stmt(block.body)
        # behind the statements, which tell a difference better than the regions that follow from them
        for word, regions in (("reads", block.reads), ("writes", block.writes)):
            yield self.part(f"{word} of {len(regions)} regions", word, len(regions))
            for region in regions:
                yield from self.region(region)
        yield from self.notes(block.notes)

    def region(self, region: BufferRegion) -> Iterator[_Part]:
        yield from self.buffer(region.buffer)
        for r in region.ranges:
            yield from self.expr(r.start)
            yield from self.expr(r.extent)

    def notes(self, notes: Notes) -> Iterator[_Part]:
        """Notes are compared by key: their order says nothing."""
        for key, value in sorted(notes, key=itemgetter(0)):
            yield self.part(f"the note {key}: {value!r}", key, repr(value))
        yield self.part("no more notes" if notes else "no notes", "notes", len(notes))

    def buffer(self, buffer: Buffer) -> Iterator[_Part]:
        """A buffer, with what it is where it first appears."""
        if buffer in self.numbers:
            yield self.part(buffer.name, "buffer", self.numbers[buffer])
            return
        self.numbers[buffer] = next(self.fresh)
        yield self.part(buffer.name, "buffer", self.numbers[buffer])

        def words() -> str:
            shape = ", ".join(map(show_expr, buffer.shape))
            strides = f" of strides {', '.join(map(show_expr, buffer.strides))}" if buffer.strides is not None else ""
            return f"the buffer {buffer.name} as {buffer.dtype}[{shape}] in {buffer.scope} memory{strides}"

        yield self.part(words, buffer.dtype, len(buffer.shape), buffer.scope, buffer.strides is None)
        for extent in (*buffer.shape, *(buffer.strides or ())):
            for part in self.expr(extent):
                yield part._replace(words=words)

    def expr(self, expr: Expr) -> Iterator[_Part]:
        def words() -> str:
            return show_expr(expr, None if expr.dtype == "float32" else expr.dtype)

        match expr:
            case Const(value, dtype):
                yield self.part(words, "const", repr(value), dtype)
            case Var():
                yield self.part(words, "var", self.numbers.get(expr, expr.name))  # a name: bound nowhere
            case Load(buffer, indices):
                yield self.part(words, "load", len(indices))
                for part in self.buffer(buffer):
                    yield part if part.key[0] != "buffer" else part._replace(words=words)
                yield from self.exprs(indices)
            case Apply(fn, args, dtype):
                yield self.part(words, "apply", fn, len(args), dtype)
                yield from self.exprs(args)

    def exprs(self, exprs: Sequence[Expr]) -> Iterator[_Part]:
        for expr in exprs:
            yield from self.expr(expr)
