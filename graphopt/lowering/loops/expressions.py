"""Scalar expressions: constants, variables, loads and functions of them.

``Expr`` is ``Const | Var | Load | Apply``, each immutable and compared by structure. Operators build
expressions (``a + b``, ``a < b``, ``a // b``; ``equal(a, b)`` for equality, since ``a == b`` compares
structure); a Python number takes the dtype of what it meets. Arithmetic on integers folds constants
and drops neutral elements as it is built, so that index expressions stay short.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from graphopt.display import shortened
from graphopt.errors import ExpressionError
from graphopt.frozen import dataclass

if TYPE_CHECKING:
    from graphopt.lowering.loops.nest import Buffer

E = TypeVar("E")

ScalarNumber: TypeAlias = bool | int | float
INDEX = "int64"
"""The dtype of loop variables, sizes and indices."""
LEAST_CODE = {"uint8": 0, "int8": -128}
"""The dtypes of codes of a byte, with the least of each,"""
CODES = 256
"""and how many there are."""

COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
LOGIC = frozenset({"and", "or", "not", "isnan", "isinf"})
FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
FUNCTIONS: Mapping[str, int] = {
    # arithmetic; integer ``floordiv`` and ``mod`` round down, ``div`` of integers rounds toward zero, ``fmod`` is C's
    **dict.fromkeys(["add", "sub", "mul", "div", "floordiv", "mod", "fmod", "pow", "min", "max"], 2),
    **dict.fromkeys(["lt", "le", "gt", "ge", "eq", "ne", "and", "or"], 2),
    **dict.fromkeys(["bitand", "bitor", "bitxor", "shl", "shr"], 2),
    # minimum and maximum that pass NaN over, as C's fmin and fmax do
    **dict.fromkeys(["fmin", "fmax", "atan2", "copysign"], 2),
    **dict.fromkeys(["not", "invert", "neg", "abs", "sign", "isnan", "isinf"], 1),
    # ``round`` is to the nearest, ties to even
    **dict.fromkeys(["floor", "ceil", "trunc", "round", "sqrt", "exp", "log", "log1p", "expm1", "sigmoid", "erf"], 1),
    **dict.fromkeys(
        ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"], 1
    ),
    # ``cast`` as C casts (a float outside of an integer's range gives something, never a trap); ``saturate`` clips
    **dict.fromkeys(["cast", "saturate", "bits"], 1),
    "select": 3,
    "fma": 3,
}
"""The functions that ``Apply`` knows, with how many arguments each takes."""


UFUNCS: Mapping[str, str] = {
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "floor_divide": "floordiv",
    "remainder": "mod",
    "power": "pow",
    "maximum": "max",
    "minimum": "min",
    "negative": "neg",
    "absolute": "abs",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "rint": "round",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "equal": "eq",
    "not_equal": "ne",
}
"""The functions of numpy's that have another name in expressions."""


class Expr:
    """Base of scalar expressions; ``dtype`` is the name of the element type.

    >>> x[0, 1] * 2.0 + 1.0
    x[0, 1] * 2.0 + 1.0
    >>> isinstance(x[0, 1], te.Expr)
    True
    """

    __slots__ = ("_hash",)
    _hash: int
    """Worked out once: expressions are deep, and looked up often."""

    @property
    def dtype(self) -> str:
        """The element type."""
        raise NotImplementedError

    def __str__(self) -> str:
        """The formula, as scripts have it."""
        from graphopt.lowering.loops.script_print import show_expr  # which prints what is defined here

        return show_expr(self, None)

    def __repr__(self) -> str:
        return shortened(str(self))

    def __add__(self, other: ExprLike) -> Expr:
        return apply("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return apply("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return apply("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return apply("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return apply("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return apply("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return apply("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return apply("div", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return apply("floordiv", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return apply("floordiv", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return apply("mod", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return apply("mod", other, self)

    def __pow__(self, other: ExprLike) -> Expr:
        return apply("pow", self, other)

    def __neg__(self) -> Expr:
        return apply("neg", self)

    def __and__(self, other: ExprLike) -> Expr:
        return apply("and" if self.dtype == "bool" else "bitand", self, other)

    def __or__(self, other: ExprLike) -> Expr:
        return apply("or" if self.dtype == "bool" else "bitor", self, other)

    def __xor__(self, other: ExprLike) -> Expr:
        return apply("bitxor", self, other)

    def __invert__(self) -> Expr:
        return apply("not" if self.dtype == "bool" else "invert", self)

    def __lt__(self, other: ExprLike) -> Expr:
        return apply("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return apply("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return apply("gt", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return apply("ge", self, other)

    def __abs__(self) -> Expr:
        return apply("abs", self)

    def __round__(self) -> Expr:
        return apply("round", self)

    def _refuse(self) -> NoReturn:
        raise wrong("an expression has no number while the program is built: te.exp(x) and the like are of expressions")

    __int__ = __float__ = _refuse

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Expr:
        """numpy's functions of elements, as far as expressions have them."""
        fn = UFUNCS.get(ufunc.__name__, ufunc.__name__)
        if method != "__call__" or options or FUNCTIONS.get(fn) != len(operands):
            raise wrong(f"numpy's {ufunc.__name__} is of arrays: expressions have te.exp, te.max and the like")
        return apply(fn, *operands)

    def __bool__(self) -> bool:
        raise wrong("an expression has no truth value while the program is built: use te.max, te.select, & and |")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(Expr):
    """A constant. Equality is bitwise: ``-0.0`` is not ``0.0``, and NaN equals NaN."""

    value: ScalarNumber
    type: str = INDEX

    @property
    def dtype(self) -> str:
        """The element type."""
        return self.type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self.type == other.type and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        value = self.value if self.value == self.value else "nan"  # each NaN has a hash of its own
        return hash((value, self.type))


@dataclass(frozen=True, slots=True, repr=False)
class Var(Expr):
    """A loop variable, block axis or size; names are unique within a nest."""

    name: str
    type: str = INDEX

    @property
    def dtype(self) -> str:
        """The element type."""
        return self.type

    @property
    def spelled(self) -> str:
        """The name that is printed."""
        return self.name


@dataclass(frozen=True, slots=True, repr=False)
class Load(Expr):
    """A load: the element of a buffer at the indices."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> str:
        """The element type."""
        return self.buffer.dtype

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash((self.buffer, self.indices)))
            return self._hash


@dataclass(frozen=True, slots=True, repr=False)
class Apply(Expr):
    """A pure function of expressions: arithmetic, comparison, ``select``, ``cast``, mathematics (``FUNCTIONS``)."""

    fn: str
    args: tuple[Expr, ...]
    type: str

    @property
    def dtype(self) -> str:
        """The element type."""
        return self.type

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash((self.fn, self.args, self.type)))
            return self._hash


ExprLike: TypeAlias = Expr | ScalarNumber


def const(value: ScalarNumber, dtype: str) -> Const:
    """The number as a constant of the dtype."""
    if dtype == "bool":
        return Const(bool(value), dtype)
    return Const(float(value) if dtype in FLOATS else int(value), dtype)


_PACKAGE = str(Path(__file__).parents[2])


def wrong(reason: str) -> ExpressionError:
    """The error for a wrong tensor expression, with the place in the user's code where it is written."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return ExpressionError(reason, "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}: ")


def as_expr(value: ExprLike, dtype: str = INDEX) -> Expr:
    """The value itself, or the number as a constant of the dtype. ExpressionError for what is neither."""
    if isinstance(value, Expr):
        return value
    if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
        raise wrong(f"{_described(value)}, and an expression or a number is expected")
    if getattr(value, "shape", ()) != ():
        size = getattr(value, "size", "several")
        raise wrong(f"an array of {size} elements is no value: make it an input, and read an element of that")
    return const(value, dtype)


def _described(value: Any) -> str:
    """What a value is that is no expression, and what to do about it where that is known."""
    return str(getattr(value, "as_no_expression", f"{value!r} is a {type(value).__name__}"))


def apply(fn: str, *args: ExprLike, dtype: str | None = None) -> Expr:
    """An application of a function, simplified where that is trivial; some functions need a ``dtype``.

    Raises ExpressionError where dtypes do not agree or the function is not known.
    """
    if fn not in FUNCTIONS or len(args) != FUNCTIONS[fn]:
        raise wrong(f"{fn} of {len(args)} arguments is not a function of tensor programs")
    values = args[1:] if fn == "select" else args
    common = next((a.dtype for a in values if isinstance(a, Expr)), dtype or INDEX)
    exprs = [as_expr(a, common) for a in values]
    if len({e.dtype for e in exprs}) > 1 and fn not in ("shl", "shr"):
        dtypes = " and ".join(e.dtype for e in exprs)
        raise wrong(f"{fn} of {dtypes}: cast one of them, as in cast(x, {common!r})")
    if fn == "select":
        exprs.insert(0, as_expr(args[0], "bool"))
    kind = "bool" if fn in COMPARISONS or fn in LOGIC else dtype or common
    return _simplified(fn, exprs, kind)


def _simplified(fn: str, args: list[Expr], dtype: str) -> Expr:
    """The plain cases of integer and logical algebra; floats are left as they are written."""
    if fn in ("cast", "saturate") and args[0].dtype == dtype:
        return args[0]
    if fn == "select" and isinstance(args[0], Const):
        return args[1] if args[0].value else args[2]
    if fn == "select" and args[1] == args[2]:
        return args[1]
    if args[-1].dtype == "bool" and fn in ("and", "or", "not"):
        return _logic(fn, args)
    if args[0].dtype == INDEX and fn not in ("select", "cast", "saturate", "bits", "fma"):
        return _integer(fn, args, dtype)
    return Apply(fn, tuple(args), dtype)


def _logic(fn: str, args: list[Expr]) -> Expr:
    if fn == "not":
        return const(not args[0].value, "bool") if isinstance(args[0], Const) else Apply(fn, tuple(args), "bool")
    neutral = fn == "and"
    for one, other in (args, args[::-1]):
        if isinstance(one, Const):
            return other if bool(one.value) is neutral else one
    return args[0] if args[0] == args[1] else Apply(fn, tuple(args), "bool")


_FOLD: Mapping[str, Callable[[int, int], ScalarNumber]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


def _integer(fn: str, args: list[Expr], dtype: str) -> Expr:
    # Peephole simplification: constants are folded, moved behind, and merged with those of the operand (x + 1 + 2 = x +
    # 3); neutral and absorbing elements and equal operands go. Everything else is left to index arithmetic.
    expr = Apply(fn, tuple(args), dtype)
    if len(args) == 1:
        return const(-args[0].value, dtype) if fn == "neg" and isinstance(args[0], Const) else expr
    a, b = args
    if (
        isinstance(a, Const)
        and isinstance(b, Const)
        and fn in _FOLD
        and not (fn in ("floordiv", "mod") and not b.value)
    ):
        return const(_FOLD[fn](int(a.value), int(b.value)), dtype)
    if fn in ("add", "mul") and isinstance(a, Const):
        a, b = b, a  # constants stand last
        expr = Apply(fn, (a, b), dtype)
    if isinstance(b, Const):
        n = int(b.value)
        if (fn in ("add", "sub") and n == 0) or (fn in ("mul", "floordiv") and n == 1):
            return a
        if (fn == "mul" and n == 0) or (fn == "mod" and n == 1):
            return const(0, dtype)
        if fn == "sub":
            return apply("add", a, -n)
        if fn in ("add", "mul") and isinstance(a, Apply) and a.fn == fn and isinstance(a.args[1], Const):
            return apply(fn, a.args[0], _FOLD[fn](int(a.args[1].value), n))
    if a == b and fn in ("sub", "mod"):
        return const(0, dtype)
    if a == b and fn in ("min", "max"):
        return a
    if a == b and fn in COMPARISONS:
        return const(fn in ("le", "ge", "eq"), "bool")
    return expr


def select(condition: ExprLike, then: ExprLike, otherwise: ExprLike) -> Expr:
    """A choice: ``then`` where the condition holds, ``otherwise`` elsewhere. Loads in ``then`` are carried out only
    where the condition holds, so that they may lie outside of their buffer.

    >>> te.select(x[0, 1] > 0.0, x[0, 1], 0.0)
    select(x[0, 1] > 0.0, x[0, 1], 0.0)
    """
    return apply("select", condition, then, otherwise)


def cast(value: ExprLike, dtype: str) -> Expr:
    """A conversion to another dtype."""
    if not isinstance(value, Expr):
        return const(value, dtype)
    if isinstance(value, Const) and value.dtype == INDEX and dtype != "bool":
        return const(value.value, dtype)
    return apply("cast", value, dtype=dtype)


def equal(a: ExprLike, b: ExprLike) -> Expr:
    """An equality comparison.

    >>> te.equal(x[0, 1], 0.0)
    x[0, 1] == 0.0
    """
    return apply("eq", a, b)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The smaller value; NaN where either is NaN.

    >>> te.minimum(x[0, 1], 0.0)
    min(x[0, 1], 0.0)
    """
    return apply("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The larger value; NaN where either is NaN.

    >>> te.maximum(x[0, 1], 0.0)
    max(x[0, 1], 0.0)
    """
    return apply("max", a, b)


def conjunction(*conditions: Expr) -> Expr:
    """The conjunction of conditions; true for none."""
    result: Expr = Const(True, "bool")
    for condition in conditions:
        result = apply("and", result, condition)
    return result


def short_circuit(first: Expr, then: Expr) -> Expr:
    """The conjunction of two conditions; where the second may load elements that are only there where the first holds,
    it is evaluated only there."""
    loaded = {v for e in loads_in(then) for i in e.indices for v in variables(i)}
    return select(first, then, Const(False, "bool")) if loaded & variables(first) else conjunction(then, first)


def conjuncts(condition: Expr) -> Iterator[Expr]:
    """The conditions of a conjunction; none for true."""
    if isinstance(condition, Apply) and condition.fn == "and":
        for part in condition.args:
            yield from conjuncts(part)
    elif condition != Const(True, "bool"):
        yield condition


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands of an expression."""
    return expr.args if isinstance(expr, Apply) else expr.indices if isinstance(expr, Load) else ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all its parts, pre-order."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def rewrite(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """The expression with ``change`` applied to each part, post-order; None keeps a part."""
    before = children(expr)
    after = tuple([rewrite(child, change) for child in before])
    if any(a is not b for a, b in zip(before, after, strict=True)):
        if isinstance(expr, Load):
            expr = Load(expr.buffer, after)
        elif isinstance(expr, Apply):
            expr = _simplified(expr.fn, list(after), expr.type)
    changed = change(expr)
    return expr if changed is None else changed


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """Substitution of variables."""
    if values.keys().isdisjoint(variables(expr)):
        return expr
    if isinstance(expr, Var):
        return values[expr]
    before = children(expr)
    after = tuple([substitute(child, values) for child in before])
    if all(a is b for a, b in zip(before, after, strict=True)):
        return expr
    if isinstance(expr, Load):
        return Load(expr.buffer, after)
    assert isinstance(expr, Apply)
    return _simplified(expr.fn, list(after), expr.type)


@lru_cache(1 << 16)
def variables(expr: Expr) -> frozenset[Var]:
    """The free variables of an expression."""
    if isinstance(expr, Var):
        return frozenset((expr,))
    return _union(tuple([variables(child) for child in children(expr)]))


@lru_cache(1 << 16)
def loads_in(expr: Expr) -> frozenset[Load]:
    """The loads of an expression, those in indices included."""
    loads = _union(tuple([loads_in(child) for child in children(expr)]))
    return loads | {expr} if isinstance(expr, Load) else loads


def _union(sets: tuple[frozenset[E], ...]) -> frozenset[E]:
    """All elements; the set itself where there is one."""
    return sets[0] if len(sets) == 1 else frozenset().union(*sets)
