"""Parser of script expressions and regions, with the scope that names are looked up in.

Operators simplify as they do where expressions are built in Python; a function that is called by name
is taken as it is written. A bare number takes the dtype of what it meets.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, islice
from typing import Final, TypeAlias

from graphopt.errors import ScriptError, nearest, nearest_or_some
from graphopt.frozen import dataclass
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
    ScalarNumber,
    Var,
    apply,
    conjunction,
    const,
    loads_in,
    walk,
)
from graphopt.lowering.loops.nest import (
    Buffer,
    BufferRegion,
    Range,
)
from graphopt.lowering.loops.script_print import CONVERSIONS, SPELLED, literal_dtype, operand_dtype

INTEGERS: Final[Mapping[str, range]] = {
    **{f"int{n}": range(-(2 ** (n - 1)), 2 ** (n - 1)) for n in (8, 16, 32, 64)},
    **{f"uint{n}": range(2**n) for n in (8, 16, 32, 64)},
}
DTYPES: Final = FLOATS | set(INTEGERS) | {"bool"}
"""The element types of tensor programs."""
BINARY: Final[Mapping[type[ast.AST], str]] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.And: "and",
    ast.Or: "or",
}
NAMED: Final = {SPELLED.get(fn, fn): fn for fn in FUNCTIONS}

INSTEAD: Final[Mapping[str, str]] = {
    "relu": "max(x, 0.0)",
    "let": "t = value",
    "Let": "t = value",
    "alloc_buffer": 'alloc(shape, dtype, scope="local")',
    "decl_buffer": 'alloc(shape, dtype, scope="local")',
    "block_attr": 'notes({"key": value})',
    "func_attr": 'notes({"key": value})',
    "if_then_else": "select(condition, then, otherwise)",
    "where": "select(condition, then, otherwise)",
    "power": "x ** y",
    "float": 'cast(x, "float32")',
    "int": 'cast(x, "int64")',
    "rsqrt": "1.0 / sqrt(x)",
    "pow": "x ** y",
    "maximum": "max(x, y)",
    "minimum": "min(x, y)",
    "floordiv": "x // y",
    "floormod": "x % y",
    "truncdiv": "trunc(x / y)",
}
"""What is written in place of words that other languages of the kind have."""
SHOWN: Final = 100
"""So much of a line is quoted in an error."""
LET_PARTS: Final = 4096
"""A local name stands for an expression of at most so many parts: it is written out wherever it is used."""

Operand: TypeAlias = Expr | int | float
"""An expression, or a bare number whose dtype is still open."""


@dataclass(slots=True)
class Let:
    """A local name for a value; ``stale`` is a buffer that it was read from, and that was written since."""

    value: Operand
    reads: frozenset[Buffer]
    stale: Buffer | None = None
    last_use: ast.AST | None = None


class ScriptNames:
    """The scope of a script: the variables, buffers and names bound at a point of the text."""

    def __init__(self, name: str, constants: Mapping[str, ScalarNumber], lines_before: int, text: str = "") -> None:
        self.name = name
        self.lines_before = lines_before
        self.lines = text.split("\n")
        self.constants: dict[str, ScalarNumber] = {"inf": math.inf, "nan": math.nan, **constants}
        self.bound: dict[str, Var] = {}
        self.buffers: dict[str, Buffer] = {}
        self.lets: dict[str, Let] = {}
        self.extents: dict[Var, Expr] = {}
        self.inside: list[str] = []
        self.used_names: set[str] = set()
        self.mentioned: frozenset[str] = frozenset()
        self.allocs: list[Buffer] = []

    def error(self, node: ast.AST, message: str) -> ScriptError:
        """The error at a node, with the line that it is in."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        text = self.lines[line - 1].strip() if line <= len(self.lines) else ""
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
        return ScriptError(
            f"{message}, in `{shown}`" if shown else message, self.name, line + self.lines_before, column + 1
        )

    def unique(self, name: str, node: ast.AST | None = None) -> str:
        """A name that is not in use: ``name``, with a number where needed. Two buffers or sizes of one name are an
        error."""
        if name in self.used_names and node is not None:
            raise self.error(node, f"{name} is there already")
        others = (f"{name}_{k}" for k in count(1))
        unique = (
            name
            if name not in self.used_names
            else next(o for o in others if o not in self.used_names | self.mentioned)
        )
        self.used_names.add(unique)
        return unique

    @contextmanager
    def within(self, named: Mapping[str, Var], node: ast.AST) -> Iterator[None]:
        """A context manager: the names are bound to the variables inside it."""
        for name in named:
            self.free(name, node)
        self.bound.update(named)
        yield
        for name in named:
            del self.bound[name]

    def free(self, name: str, node: ast.AST) -> None:
        """Refuses a name that stands for something already."""
        if name in self.bound or name in self.buffers or name in self.lets:
            raise self.error(node, f"{name} is bound already where it is bound again")

    # -- local names

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A context manager: local names and buffers that are bound inside it end with it."""
        lets, buffers = dict(self.lets), dict(self.buffers)
        yield
        self.lets, self.buffers = lets, buffers

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """A context manager: what is inside runs again and again, so that what it writes is written before it, too."""
        outer = list(self.lets.items())
        uses = [let.last_use for _, let in outer]
        yield
        for (name, let), before in zip(outer, uses, strict=True):
            if let.stale is not None and let.last_use is not before and let.last_use is not None:
                raise self.stale(let.last_use, name, let)

    def let(self, node: ast.stmt, name: str, value: ast.expr, dtype: str | None) -> None:
        """Binds a local name to a value."""
        if name in self.lets:
            raise self.error(
                node,
                f'{name} has a value already, and keeps it: {name} = alloc((), "float32", scope="local") may change',
            )
        self.free(name, node)
        operand = self.value(value, dtype) if dtype is None else self.expr(value, dtype)
        reads: frozenset[Buffer] = frozenset()
        if isinstance(operand, Expr):
            if len(list(islice(walk(operand), LET_PARTS + 1))) > LET_PARTS:
                raise self.error(
                    node, f"{name} stands for more than {LET_PARTS} parts, which is written out where it is used: "
                    'keep it in a buffer, alloc((), "float32", scope="local")',
                )  # fmt: skip
            reads = frozenset(load.buffer for load in loads_in(operand))
        self.lets[name] = Let(operand, reads)

    def written(self, buffers: Iterable[Buffer]) -> None:
        """Marks the local names whose values would be others if they were read now."""
        for buffer in buffers:
            for let in self.lets.values():
                if buffer in let.reads:
                    let.stale = let.stale or buffer

    def stale(self, node: ast.AST, name: str, let: Let) -> ScriptError:
        """The error of a local name that is used behind a write to what it reads."""
        assert let.stale is not None
        return self.error(
            node, f"{name} reads {let.stale.name}, which is written before {name} is used here: keep the value in a "
            f'buffer, {name} = alloc((), "{let.stale.dtype}", scope="local") and {name}[()] = ...',
        )  # fmt: skip

    def dtype(self, node: ast.expr) -> str:
        """The name of a dtype."""
        dtype = string(node)
        if dtype not in DTYPES:
            hint = nearest(dtype or "", DTYPES) or f": one of {', '.join(sorted(DTYPES))}"
            raise self.error(node, f"a dtype is expected{hint}")
        return dtype

    # -- buffers and regions

    def base(self, node: ast.Subscript) -> tuple[Buffer, list[ast.expr]]:
        """The buffer that is subscripted, and an expression for each of its axes."""
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        buffer = self.buffers.get(name)
        if buffer is None:
            hint = nearest_or_some(name, self.buffers)
            if name in self.lets:
                raise self.error(node, f"{name} is a local name for one value, and has no elements")
            if name in self.bound:
                raise self.error(node, f"{name} is a variable, and has no elements{hint}")
            raise self.error(node, f"{name or 'this'} is no buffer of the program{hint}")
        indices = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(indices) != len(buffer.shape):
            raise self.error(node, f"{name} has {len(buffer.shape)} axes and {len(indices)} indices")
        return buffer, indices

    def element(self, node: ast.Subscript) -> Load:
        """The element of a buffer."""
        buffer, indices = self.base(node)
        return Load(buffer, tuple(self.index(i) for i in indices))

    def region(self, node: ast.expr) -> BufferRegion:
        """The box of a buffer that a subscript denotes."""
        if not isinstance(node, ast.Subscript):
            raise self.error(node, "a region is expected, such as A[i:i + 4, 0]")
        buffer, indices = self.base(node)
        return BufferRegion(buffer, tuple(self.range(i, n) for i, n in zip(indices, buffer.shape, strict=True)))

    def range(self, node: ast.expr, size: Expr) -> Range:
        """An index or a slice of an axis of the size; ``start:start + extent`` has that extent, as it is written."""
        if not isinstance(node, ast.Slice):
            return Range(self.index(node))
        if node.step is not None:
            raise self.error(node, "a region has no steps")
        start = self.index(node.lower) if node.lower is not None else Const(0)
        end = node.upper
        match end, node.lower:
            case ast.BinOp(left, ast.Add(), extent), ast.expr() as lower if ast.dump(left) == ast.dump(lower):
                return Range(start, self.index(extent))
        return Range(start, apply("sub", self.index(end) if end is not None else size, start))

    def argument(self, node: ast.expr) -> BufferRegion | Expr:
        """An argument of an intrinsic: a region, or a scalar (``value(A[i])`` is the element)."""
        if isinstance(node, ast.Subscript):
            return self.region(node)
        match node:
            case ast.Call(ast.Name("value"), [ast.Subscript() as element], []):
                return self.element(element)
        return self.settled(self.value(node, None), None, node)

    # -- expressions

    def index(self, node: ast.expr) -> Expr:
        """An expression of loop variables and sizes."""
        return self.expr(node, INDEX)

    def expr(self, node: ast.expr, dtype: str) -> Expr:
        """An expression that has the dtype."""
        expr = self.settled(self.value(node, dtype), dtype, node)
        if expr.dtype != dtype:
            raise self.error(node, f'{dtype} is expected here, and this is {expr.dtype}: cast(..., "{dtype}")')
        return expr

    def settled(self, value: Operand, dtype: str | None, node: ast.AST) -> Expr:
        """The operand as an expression; a bare number gets the dtype."""
        if isinstance(value, Expr):
            return value
        wanted = dtype or literal_dtype(value)
        if wanted in FLOATS:
            return const(value, wanted)
        if isinstance(value, float) or wanted == "bool":
            raise self.error(node, f"{value!r} is no {wanted}")
        if value not in INTEGERS[wanted]:
            raise self.error(node, f"{value} is beyond the range of {wanted}")
        return const(value, wanted)

    def value(self, node: ast.expr, dtype: str | None) -> Operand:
        """Parses an operand; ``dtype`` is the default for bare numbers."""
        # Recursive descent over Python's syntax tree: a case for each form that scripts have, an error for any other.
        match node:
            case ast.Constant(bool(truth)):
                return const(truth, "bool")
            case ast.Constant(int(number) | float(number)):
                return number
            case ast.Name(name):
                return self.named(node, name)
            case ast.Subscript():
                return self.element(node)
            case ast.UnaryOp(ast.USub(), operand):
                negated = self.value(operand, dtype)
                return self.applied(node, "neg", [negated], None) if isinstance(negated, Expr) else -negated
            case ast.UnaryOp(ast.Not(), operand):
                return self.applied(node, "not", [self.expr(operand, "bool")], None)
            case ast.UnaryOp(ast.Invert(), operand):
                inverted = self.settled(self.value(operand, dtype), dtype, operand)
                return self.applied(node, "not" if inverted.dtype == "bool" else "invert", [inverted], None)
            case ast.BinOp(left, op, right):
                return self.operation(node, type(op), [self.value(left, dtype), self.value(right, dtype)], dtype)
            case ast.BoolOp(op, terms):
                condition = self.expr(terms[0], "bool")
                for term in terms[1:]:
                    condition = self.operation(node, type(op), [condition, self.expr(term, "bool")], "bool")
                return condition
            case ast.Compare(left, ops, rights):
                operands = [self.value(n, None) for n in (left, *rights)]
                pairs = zip(ops, operands, operands[1:], strict=False)
                return conjunction(*(self.operation(node, type(op), pair, None) for op, *pair in pairs))
            case ast.Call(ast.Name(name), args, []):
                return self.call(node, name, args, dtype)
        raise self.error(node, "a program has operators, functions by name, numbers and A[i] as its expressions")

    def named(self, node: ast.AST, name: str) -> Operand:
        """The variable or number of the name."""
        if name in self.bound:
            return self.bound[name]
        if (let := self.lets.get(name)) is not None:
            let.last_use = node
            if let.stale is not None:
                raise self.stale(node, name, let)
            return let.value
        if name in self.buffers:
            raise self.error(node, f"{name} is a buffer: say which element, {name}[...]")
        if name not in self.constants:
            there = [*self.bound, *self.lets]
            raise self.error(node, f"{name} is not bound here{nearest_or_some(name, there) if there else ''}")
        value = self.constants[name]
        return const(value, "bool") if isinstance(value, bool) else value

    def operation(self, node: ast.AST, op: type[ast.AST], operands: Sequence[Operand], dtype: str | None) -> Expr:
        """The operator applied to the operands, simplified."""
        if op not in BINARY:
            raise self.error(node, "this operator is none of programs")
        fn = BINARY[op]
        logical = isinstance(operands[0], Expr) and operands[0].dtype == "bool"
        fn = {"bitand": "and", "bitor": "or"}.get(fn, fn) if logical else fn
        return self.applied(node, fn, self.alike(node, fn, operands, dtype), None)

    def alike(self, node: ast.AST, fn: str, operands: Sequence[Operand], dtype: str | None) -> list[Expr]:
        """The operands as expressions of one dtype; bare numbers get that of the first operand that has one."""
        common = next((o.dtype for o in operands if isinstance(o, Expr)), None) or operand_dtype(fn, dtype)
        if common is None and operands and not isinstance(first := operands[0], Expr):
            common = literal_dtype(first)
        return [self.settled(o, common, node) for o in operands]

    def applied(self, node: ast.AST, fn: str, args: Sequence[Expr], dtype: str | None) -> Expr:
        """``apply``, with the position in the text added to its errors."""
        try:
            return apply(fn, *args, dtype=dtype)
        except (TypeError, ValueError, OverflowError) as e:
            raise self.error(node, getattr(e, "reason", str(e))) from None

    def call(self, node: ast.Call, name: str, args: Sequence[ast.expr], dtype: str | None) -> Expr:
        """A call of a function by name, not simplified; or a number, or an expression cast, of an explicit dtype."""
        if name in DTYPES and len(args) == 1:
            operand = self.value(args[0], name)
            if isinstance(operand, Expr):
                return self.applied(node, "cast", [operand], name)
            return self.settled(operand, name, node)
        fn = NAMED.get(name)
        if fn is None:
            hint = f"; write {INSTEAD[name]}" if name in INSTEAD else nearest_or_some(name, NAMED)
            raise self.error(node, f"{name} is no function of programs{hint}")
        if len(args) != (wanted := FUNCTIONS[fn] + (fn in CONVERSIONS)):
            raise self.error(node, f"{name} takes {wanted} arguments, and here are {len(args)}")
        if fn in CONVERSIONS:
            kind = self.dtype(args[1])
            value = self.settled(self.value(args[0], None), None, args[0])
            return Apply(fn, (value,), kind)
        first = [self.expr(args[0], "bool")] if fn == "select" else []
        inner = operand_dtype(fn, dtype)
        operands = self.alike(node, fn, [self.value(a, inner) for a in args[len(first) :]], dtype)
        self.applied(node, fn, [*first, *operands], None)
        result = "bool" if fn in COMPARISONS or fn in LOGIC else operands[0].dtype
        return Apply(fn, (*first, *operands), result)


def string(node: ast.expr) -> str | None:
    """The value of a string literal."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
