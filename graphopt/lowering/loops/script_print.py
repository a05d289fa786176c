"""Printer of tensor programs: a Python-embedded script that reads back as an equal program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from itertools import count as count_from
from typing import Final

from graphopt.lowering.loops.expressions import (
    COMPARISONS,
    FLOATS,
    INDEX,
    LOGIC,
    Apply,
    Const,
    Expr,
    Load,
    ScalarNumber,
    Var,
    apply,
    children,
    loads_in,
    variables,
)
from graphopt.lowering.loops.nest import (
    ROOT_BLOCK,
    TRUE,
    Axis,
    Block,
    Buffer,
    BufferRegion,
    Check,
    For,
    If,
    Invoke,
    Nest,
    Note,
    Notes,
    Seq,
    Stmt,
    Store,
    accesses,
    statements,
)

WIDTH: Final = 120
OPERATORS: Final = {
    "or": ("or", 1),
    "and": ("and", 2),
    **dict.fromkeys(["lt", "le", "gt", "ge", "eq", "ne"], ("", 4)),
    "bitor": ("|", 5),
    "bitxor": ("^", 6),
    "bitand": ("&", 7),
    "shl": ("<<", 8),
    "shr": (">>", 8),
    "add": ("+", 9),
    "sub": ("-", 9),
    "mul": ("*", 10),
    "div": ("/", 10),
    "floordiv": ("//", 10),
    "mod": ("%", 10),
    "pow": ("**", 12),
} | {fn: (sign, 4) for fn, sign in [("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="), ("ne", "!=")]}
"""Function -> its operator in Python, and how tightly that binds."""
SIGNS: Final = {"not": ("not ", 3), "neg": ("-", 11), "invert": ("~", 11)}
SPELLED: Final = {"and": "and_", "or": "or_", "not": "not_"}
"""The names of functions that Python keeps for itself."""
CONVERSIONS: Final = frozenset({"cast", "saturate", "bits"})
KINDS: Final = {"spatial": "S", "reduce": "R", "ordered": "O"}
_ATOM: Final = 13
_UNARY: Final = 11


def operand_dtype(fn: str, dtype: str | None) -> str | None:
    """The dtype of a bare number among operands of which none has a dtype, for a result of ``dtype``."""
    if fn in ("and", "or", "not"):
        return "bool"
    return None if fn in COMPARISONS or fn in LOGIC or fn in CONVERSIONS else dtype


def literal_dtype(value: ScalarNumber) -> str:
    """The dtype of a bare number where nothing else decides it."""
    return "bool" if isinstance(value, bool) else INDEX if isinstance(value, int) else "float32"


def show(nest: Nest) -> str:
    """The script of a program; ``script.read`` gives an equal program back."""
    return "\n".join(_lines(nest)) + "\n"


def show_expr(expr: Expr, dtype: str | None = INDEX) -> str:
    """The script of an expression; bare numbers in it have the dtype."""
    return _Expression(dtype).text(expr, 0)


def show_stmt(stmt: Stmt) -> Iterator[str]:
    """The lines of a statement by itself."""
    return _Statements({}, set()).lines(stmt)


def _lines(nest: Nest) -> Iterator[str]:
    params = [f"{p.name}: {_annotation(p) if isinstance(p, Buffer) else 'size'}" for p in nest.params]
    head = f"def {nest.name}({', '.join(params)}):"
    yield "@program"
    if len(head) <= WIDTH:
        yield head
    else:
        yield from (f"def {nest.name}(", *(f"    {p}," for p in params), "):")
    if nest.notes:
        yield f"    notes({_notes(nest.notes)})"
    for buffer in nest.allocs:
        yield f"    {buffer.name} = alloc({_storage(buffer)})"
    is_root = isinstance(nest.body, Block) and nest.body.name == ROOT_BLOCK  # which alone would be the program
    deep = 2 if is_root else 1
    if is_root:
        yield f"    with block({_quoted(ROOT_BLOCK)}):"
    yield from ("    " * deep + line for line in _Statements({}, _names(nest), deep).lines(nest.body))


def _names(nest: Nest) -> set[str]:
    """The names of a program's buffers and variables."""
    names = {p.name for p in (*nest.params, *nest.allocs)}
    for stmt in statements(nest.body):
        match stmt:
            case For(var):
                names.add(var.name)
            case Block(axes=axes):
                names |= {a.var.name for a in axes}
    return names


def _annotation(buffer: Buffer) -> str:
    if buffer.scope != "global" or buffer.strides is not None:
        return f"Buffer({_storage(buffer)})"
    return f'Buffer[{_sizes(buffer.shape)}, "{buffer.dtype}"]'


def _storage(buffer: Buffer) -> str:
    parts = [_sizes(buffer.shape), f'"{buffer.dtype}"']
    if buffer.scope != "global":
        parts.append(f'scope="{buffer.scope}"')
    if buffer.strides is not None:
        parts.append(f"strides={_sizes(buffer.strides)}")
    return ", ".join(parts)


def _sizes(sizes: Sequence[Expr]) -> str:
    """A tuple of sizes; what is no number stands in quotes, so that Python need not know the name."""
    return _tuple([show_expr(s) if isinstance(s, Const) else _quoted(show_expr(s)) for s in sizes])


def _tuple(parts: Sequence[str]) -> str:
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _notes(notes: Notes) -> str:
    return "{" + ", ".join(f"{_quoted(name)}: {_note(value)}" for name, value in notes) + "}"


def _note(value: Note) -> str:
    if isinstance(value, tuple):
        return _tuple([_note(v) for v in value])
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    """A string in double quotes, on one line."""
    return json.dumps(text, ensure_ascii=False)


class _Expression:
    """Writes one expression; ``dtype`` is what a bare number means where it stands."""

    def __init__(self, dtype: str | None) -> None:
        self.dtype = dtype

    def text(self, expr: Expr, tightness: int) -> str:
        """The expression, in parentheses where it binds less tightly than asked."""
        if isinstance(expr, Const):
            return self.constant(expr, self.dtype or literal_dtype(expr.value), tightness)
        if isinstance(expr, Var):
            return expr.spelled
        if isinstance(expr, Load):
            return f"{expr.buffer.name}[{', '.join(show_expr(i) for i in expr.indices) or '()'}]"
        assert isinstance(expr, Apply)
        text, precedence = self.operator(expr) or (self.call(expr), _ATOM)
        return f"({text})" if precedence < tightness else text

    def constant(self, expr: Const, dtype: str, tightness: int) -> str:
        """A number, bare where it would be read as the dtype that it has."""
        if expr.dtype == "bool":
            return str(bool(expr.value))
        number = repr(float(expr.value)) if expr.dtype in FLOATS else repr(int(expr.value))
        if expr.dtype != dtype or (expr.dtype in FLOATS) != isinstance(expr.value, float):
            return f"{expr.dtype}({number})"
        return f"({number})" if number.startswith("-") and tightness > _UNARY else number

    def operator(self, expr: Apply) -> tuple[str, int] | None:
        """The expression with Python's operator and how tightly that binds; None where it has none or where an
        operator would be simplified to something else."""
        fn, args = expr.fn, expr.args
        if not _is_simple(expr) or (args[0].dtype == "bool" and fn in ("bitand", "bitor", "invert")):
            return None
        if fn in SIGNS:
            sign, precedence = SIGNS[fn]
            if isinstance(args[0], Const):
                return None
            return sign + _Expression(operand_dtype(fn, self.dtype)).text(args[0], precedence), precedence
        if fn not in OPERATORS:
            return None
        sign, precedence = OPERATORS[fn]
        if fn == "add" and isinstance(n := args[1], Const) and n.dtype == INDEX and -(2**63) < n.value < 0:
            sign, args = "-", (args[0], Const(-n.value))
            if apply("sub", *args) != expr:
                return None
        left, right = (precedence, precedence + 1) if fn != "pow" else (precedence + 1, _UNARY)
        if precedence == 4:
            left = precedence + 1  # a < b < c is a chain
        parts = self.operands(fn, args, [left, right])
        return f"{parts[0]} {sign} {parts[1]}", precedence

    def call(self, expr: Apply) -> str:
        """The expression as a call by name."""
        name = SPELLED.get(expr.fn, expr.fn)
        if expr.fn in CONVERSIONS:
            return f'{name}({_Expression(None).text(expr.args[0], 0)}, "{expr.dtype}")'
        if expr.fn == "select":
            condition = _Expression("bool").text(expr.args[0], 0)
            return f"select({', '.join([condition, *self.operands(expr.fn, expr.args[1:], [0, 0])])})"
        return f"{name}({', '.join(self.operands(expr.fn, expr.args, [0] * len(expr.args)))})"

    def operands(self, fn: str, args: Sequence[Expr], tightness: Sequence[int]) -> list[str]:
        """The operands; bare numbers among them are of the dtype of the first that has one of its own."""
        inner = _Expression(operand_dtype(fn, self.dtype))
        bare = [isinstance(a, Const) and a.dtype != "bool" for a in args]
        dtype = next((a.dtype for a, b in zip(args, bare, strict=True) if not b), None)
        if dtype is None:
            first = args[0]
            assert isinstance(first, Const)
            dtype = inner.dtype or literal_dtype(first.value)
            if first.dtype != dtype:
                rest = [_Expression(first.dtype).text(a, t) for a, t in zip(args[1:], tightness[1:], strict=True)]
                return [inner.constant(first, dtype, tightness[0]), *rest]
        return [
            inner.constant(a, dtype, t) if isinstance(a, Const) else inner.text(a, t)
            for a, t in zip(args, tightness, strict=True)
        ]


def _is_simple(expr: Apply) -> bool:
    """Whether the function of the arguments is this very expression."""
    try:
        return expr.fn not in CONVERSIONS and apply(expr.fn, *expr.args) == expr
    except TypeError:  # the dtypes do not agree: shown as it is, so that the fault can be seen
        return False


class _Statements:
    """Writes statements; ``extents`` are those of the loops and axes around them, ``names`` those that are taken, and
    they stand ``deep`` levels in."""

    def __init__(self, extents: dict[Var, Expr], names: set[str], deep: int = 1) -> None:
        self.extents = extents
        self.names = names
        self.deep = deep

    def lines(self, stmt: Stmt) -> Iterator[str]:
        """The statement, line by line."""
        match stmt:
            case For():
                yield from self.loops(stmt)
            case Block():
                yield f"with block({_quoted(stmt.name)}):"
                inside = _Statements(
                    {**self.extents, **{a.var: a.extent for a in stmt.axes}}, self.names, self.deep + 1
                )
                yield from _indented((*self.axes(stmt), *_declared(stmt)))
                if stmt.init is not None:
                    yield "    with init():"
                    yield from _indented(_indented(inside.lines(stmt.init)))
                yield from _indented(inside.lines(stmt.body))
            case Store(buffer, indices, value):
                target = show_expr(Load(buffer, indices))
                text = show_expr(value, buffer.dtype)
                if 4 * self.deep + len(f"{target} = {text}") > WIDTH:
                    lets, value = _shared(value, self.names)
                    yield from (f"{let.name} = {show_expr(part, None)}" for let, part in lets)
                    text = show_expr(value, buffer.dtype) if lets else text
                yield f"{target} = {text}"
            case Seq(stmts):
                if not stmts:
                    yield "pass"
                for s in stmts:
                    yield from self.lines(s)
            case If():
                yield from self.branches(stmt, "if")
            case Check(condition, message):
                yield f"check({show_expr(condition, 'bool')}, {_quoted(message)})"
            case Invoke(intrinsic, args):
                shown = [_region(a) if isinstance(a, BufferRegion) else _argument(a) for a in args]
                yield f"invoke({', '.join([_quoted(intrinsic), *shown])})"

    def branches(self, stmt: If, word: str) -> Iterator[str]:
        yield f"{word} {show_expr(stmt.condition, 'bool')}:"
        yield from _indented(self.lines(stmt.then))
        if isinstance(stmt.otherwise, If):
            yield from self.branches(stmt.otherwise, "elif")
        elif stmt.otherwise is not None:
            yield "else:"
            yield from _indented(self.lines(stmt.otherwise))

    def loops(self, stmt: For) -> Iterator[str]:
        """A loop, together with the plain loops that stand alone in it."""
        merged = [stmt]
        while _is_plain(stmt) and isinstance(last := merged[-1].body, For) and _is_plain(last):
            if variables(last.extent) & {m.var for m in merged}:
                break
            merged.append(last)
        names = ", ".join(m.var.name for m in merged)
        if len(merged) > 1:
            yield f"for {names} in grid({', '.join(show_expr(m.extent) for m in merged)}):"
        else:
            thread = f'"{stmt.thread}", ' if stmt.thread is not None else ""
            notes = f", notes={_notes(stmt.notes)}" if stmt.notes else ""
            word = "bind" if stmt.kind == "bound" else stmt.kind
            yield f"for {names} in {word}({thread}{show_expr(stmt.extent)}{notes}):"
        inside = _Statements({**self.extents, **{m.var: m.extent for m in merged}}, self.names, self.deep + 1)
        yield from _indented(inside.lines(merged[-1].body))

    def axes(self, block: Block) -> Iterator[str]:
        """The axes; those that are just a loop each are remapped together."""
        run: list[tuple[Axis, Expr]] = []
        for axis, value in zip(block.axes, block.values, strict=True):
            if isinstance(value, Var) and self.extents.get(value) == axis.extent:
                run.append((axis, value))
                continue
            yield from _remap(run)
            run = []
            yield f"{axis.var.name} = axis.{axis.kind}({show_expr(axis.extent)}, {show_expr(value)})"
        yield from _remap(run)


def _shared(expr: Expr, names: set[str]) -> tuple[list[tuple[Var, Expr]], Expr]:
    """Local names for what an expression computes more than once, inner ones first, and the expression by them.

    Only for what reads elements and is no index, for which operators do not simplify as they are read back.
    """
    uses: dict[Expr, int] = {}
    order: list[Expr] = []

    def count(part: Expr) -> None:
        uses[part] = uses.get(part, 0) + 1
        if uses[part] == 1:
            for child in children(part):
                count(child)
            if isinstance(part, Apply | Load) and part.dtype not in (INDEX, "bool") and loads_in(part):
                order.append(part)

    count(expr)
    lets: dict[Expr, Var] = {}
    done: dict[Expr, Expr] = {}

    def named(part: Expr) -> Expr:
        if part in lets:
            return lets[part]
        if part not in done:
            before = children(part)
            after = tuple([named(child) for child in before])
            kept = all(a is b for a, b in zip(before, after, strict=True))
            done[part] = part if kept or not isinstance(part, Apply) else Apply(part.fn, after, part.type)
        return done[part]

    result = []
    for part in order:
        if uses[part] > 1:
            written = named(part)
            name = next(n for n in chain("t", (f"t_{k}" for k in count_from(1))) if n not in names)
            names.add(name)
            lets[part] = Var(name, part.dtype)
            result.append((lets[part], written))
    return result, named(expr)


def _indented(lines: Sequence[str] | Iterator[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def _is_plain(loop: For) -> bool:
    return loop.kind == "serial" and not loop.notes and loop.thread is None


def _remap(run: Sequence[tuple[Axis, Expr]]) -> Iterator[str]:
    if run:
        names = ", ".join(axis.var.name for axis, _ in run)
        values = ", ".join(show_expr(value) for _, value in run)
        yield f'{names} = axis.remap("{"".join(KINDS[axis.kind] for axis, _ in run)}", [{values}])'


def _declared(block: Block) -> Iterator[str]:
    """The declarations of a block besides its axes, as far as they do not follow from its statements."""
    reads, writes = accesses(block)
    if block.predicate != TRUE:
        yield f"where({show_expr(block.predicate, 'bool')})"
    if block.reads != reads:
        yield f"reads({', '.join(map(_region, block.reads))})"
    if block.writes != writes:
        yield f"writes({', '.join(map(_region, block.writes))})"
    if block.notes:
        yield f"notes({_notes(block.notes)})"


def _region(region: BufferRegion) -> str:
    parts = []
    for r, size in zip(region.ranges, region.buffer.shape, strict=True):
        if r.extent == Const(1):
            parts.append(show_expr(r.start))
        elif r.start == Const(0) and r.extent == size:
            parts.append(":")
        elif isinstance(r.start, Const) and (isinstance(r.extent, Const) or r.start == Const(0)):
            parts.append(f"{show_expr(r.start)}:{show_expr(apply('add', r.start, r.extent))}")
        else:
            # The end is not simplified: the reader takes the extent from the start's repetition.
            parts.append(f"{show_expr(r.start)}:{_Expression(INDEX).text(r.start, 9)} + {_end(r.extent)}")
    return f"{region.buffer.name}[{', '.join(parts) or '()'}]"


def _end(extent: Expr) -> str:
    return _Expression(INDEX).text(extent, 10)


def _argument(expr: Expr) -> str:
    """A scalar argument of an intrinsic; an element is told from a region of one element."""
    return f"value({show_expr(expr)})" if isinstance(expr, Load) else show_expr(expr, None)
