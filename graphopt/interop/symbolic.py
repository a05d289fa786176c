"""Symbolic execution of conditions written in Python: a function runs on stand-ins along every path.

What the function asks of a stand-in (``x.shape[0] == 1``, ``has_rank(x, 2)``) is an expression of the
rule language; where Python wants the answer, both are tried, one after another, and the answers that lead
to success are the guard. A stand-in has no answer for what guards cannot ask, nor for what would leave
Python's sight (arrays, hashes of unknown numbers): then the function as a whole cannot be translated.
What is asked of a value that may be unknown is part of the guard, so that unknown means no.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, TypeVar

from graphopt.frozen import dataclass
from graphopt.ir.dtypes import CODES
from graphopt.rewrite.rule.notation import show_expr
from graphopt.rewrite.rule.rule import Field, FunctionCall, GuardExpr, IndexExpr, Lit, NameRef, Series, negative

T = TypeVar("T")

WAYS = 2_000
"""How many ways through a function are tried at most."""
RANKS = range(7)
"""The ranks and lengths that are tried where a function must know one."""
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class NotPlain(BaseException):
    """The function asks what guards cannot answer."""


@dataclass
class Trail:
    """One way through a function: the answers that were given, and what they rest on."""

    path: list[int]
    counts: list[int] = field(default_factory=list)
    conditions: list[GuardExpr] = field(default_factory=list)
    known: dict[GuardExpr, Any] = field(default_factory=dict)

    def choose(self, of: GuardExpr, options: Sequence[T], condition: Callable[[T], GuardExpr]) -> T:
        """One of the options for what an expression is, the same wherever it is asked for on this way."""
        if of not in self.known:
            position = len(self.counts)
            if position == len(self.path):
                self.path.append(0)
            self.counts.append(len(options))
            self.known[of] = chosen = options[self.path[position]]
            self.demand(condition(chosen))
        return self.known[of]  # type: ignore[no-any-return]

    def demand(self, condition: GuardExpr) -> None:
        """Note what must hold on this way."""
        if condition not in self.conditions:
            self.conditions.append(condition)

    def next(self) -> list[int] | None:
        """The answers with which the next way begins; None after the last."""
        path = self.path[: len(self.counts)]
        while path and path[-1] + 1 == self.counts[len(path) - 1]:
            path.pop()
        return [*path[:-1], path[-1] + 1] if path else None


def ways(run: Callable[[Trail], T]) -> Iterator[tuple[tuple[GuardExpr, ...], T]]:
    """What the function gives on each way through it, with what must hold for that way. Raises NotPlain."""
    path: list[int] = []
    for _ in range(WAYS):
        trail = Trail(path)
        result = run(trail)
        yield tuple(trail.conditions), result
        following = trail.next()
        if following is None:
            return
        path = following
    raise NotPlain(f"it takes more than {WAYS} ways")


class StandIn:
    """Something that is known only when a rule matches. Everything that Python could take it for is refused."""

    def __init__(self, trail: Trail, expr: GuardExpr) -> None:
        self._trail, self._expr = trail, expr

    def __repr__(self) -> str:
        return show_expr(self._expr)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __getattr__(self, name: str) -> Any:
        raise NotPlain(f"it asks for .{name} of {self!r}")

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        raise NotPlain(f"it computes with {self!r} in numpy")

    def _refuse(self, *_: Any) -> Any:
        raise NotPlain(f"it computes with {self!r} where only a number will do")

    __bool__ = __len__ = __iter__ = __index__ = __int__ = __float__ = __array__ = __contains__ = __call__ = _refuse
    __hash__ = _refuse

    def __eq__(self, other: object) -> Any:
        if self is other:
            return True
        return self._compared("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compared("!=", other)

    def _compared(self, operator: str, other: Any) -> Any:
        raise NotPlain(f"it compares {self!r} with {other!r}")


class Truth(StandIn):
    """The answer to a question."""

    def __bool__(self) -> bool:
        return self._trail.choose(
            self._expr, (True, False), lambda is_true: self._expr if is_true else _not(self._expr)
        )


class SymbolicNumber(StandIn):
    """A number: an element, a size, an attribute. ``options`` are all that it can be, where they are few."""

    def __init__(self, trail: Trail, expr: GuardExpr, options: Sequence[int] = (), is_size: bool = False) -> None:
        super().__init__(trail, expr)
        self._options, self._is_size = options, is_size

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """What ``isinstance`` believes: a size is an integer where it is known to be one."""
        if not object.__getattribute__(self, "_is_size"):
            return SymbolicNumber
        expr = FunctionCall("is_integer", (self._expr,))
        is_number = self._trail.choose(expr, (True, False), lambda is_kind: expr if is_kind else _not(expr))
        return int if is_number else SymbolicNumber

    def _compared(self, operator: str, other: Any) -> Any:
        if self._expr in self._trail.known and issubclass(type(other), int) and operator in ("==", "!="):
            return (self._trail.known[self._expr] == int(other)) is (operator == "==")
        return Truth(self._trail, FunctionCall(operator, (self._expr, as_expr(other))))

    def __lt__(self, other: Any) -> Any:
        return self._compared("<", other)

    def __le__(self, other: Any) -> Any:
        return self._compared("<=", other)

    def __gt__(self, other: Any) -> Any:
        return self._compared(">", other)

    def __ge__(self, other: Any) -> Any:
        return self._compared(">=", other)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __hash__(self) -> int:
        if not self._options:
            return self._refuse()  # type: ignore[no-any-return]
        value = self._trail.choose(self._expr, self._options, lambda v: FunctionCall("==", (self._expr, Lit(v))))
        return hash(value)

    def _with(self, operator: str, other: Any, swapped: bool = False) -> SymbolicNumber:
        parts = (as_expr(other), self._expr) if swapped else (self._expr, as_expr(other))
        return SymbolicNumber(self._trail, FunctionCall(operator, parts))

    def __add__(self, other: Any) -> SymbolicNumber:
        return self._with("+", other)

    def __radd__(self, other: Any) -> SymbolicNumber:
        return self._with("+", other, swapped=True)

    def __sub__(self, other: Any) -> SymbolicNumber:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> SymbolicNumber:
        return self._with("-", other, swapped=True)

    def __mul__(self, other: Any) -> SymbolicNumber:
        return self._with("*", other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> SymbolicNumber:
        return self._with("//", other)

    def __mod__(self, other: Any) -> SymbolicNumber:
        return self._with("%", other)

    def __neg__(self) -> SymbolicNumber:
        return SymbolicNumber(self._trail, negative(self._expr))


class SymbolicNumbers(StandIn):
    """A sequence of numbers: a shape, the elements of a constant, an attribute."""

    def __init__(self, trail: Trail, expr: GuardExpr, length: GuardExpr | None = None, is_shape: bool = False) -> None:
        super().__init__(trail, expr)
        self._length = length or FunctionCall("len", (expr,))
        self._is_shape = is_shape

    def __len__(self) -> int:
        return self._trail.choose(self._length, RANKS, lambda n: FunctionCall("==", (self._length, Lit(n))))

    def __getitem__(self, index: Any) -> SymbolicNumber:
        if isinstance(index, slice):
            raise NotPlain(f"it slices {self!r}")
        return SymbolicNumber(self._trail, IndexExpr(self._expr, as_expr(index)), is_size=self._is_shape)

    def __iter__(self) -> Iterator[SymbolicNumber]:
        return iter([self[i] for i in range(len(self))])

    def _compared(self, operator: str, other: Any) -> Any:
        return Truth(self._trail, FunctionCall(operator, (self._expr, as_expr(other))))

    # of onnx_ir's shapes

    def rank(self) -> SymbolicNumber:
        """The number of axes."""
        return SymbolicNumber(self._trail, self._length)

    @property
    def dims(self) -> SymbolicNumbers:
        """The sizes."""
        return self

    def is_static(self, axis: Any = None) -> Any:
        """Whether the size of an axis is a number."""
        return self._refuse() if axis is None else Truth(self._trail, FunctionCall("is_integer", (self[axis]._expr,)))

    def is_dynamic(self, axis: Any = None) -> Any:
        """Whether the size of an axis is open."""
        return not self.is_static(axis)


class Array(StandIn):
    """The elements of a constant, as numpy holds them. The expression is the operand."""

    @property
    def size(self) -> SymbolicNumber:
        """How many there are."""
        return SymbolicNumber(self._trail, Field(self._expr, "size"))

    @property
    def ndim(self) -> SymbolicNumber:
        """The rank."""
        return SymbolicNumber(self._trail, Field(self._expr, "rank"))

    @property
    def shape(self) -> SymbolicNumbers:
        """The sizes."""
        return SymbolicNumbers(self._trail, Field(self._expr, "shape"), Field(self._expr, "rank"))

    def item(self) -> SymbolicNumber:
        """The only element."""
        return SymbolicNumber(self._trail, Field(self._expr, "scalar"))

    def tolist(self) -> SymbolicNumbers:
        """All elements, nested."""
        return SymbolicNumbers(self._trail, Field(self._expr, "value"))

    def numpy(self) -> Array:
        """The array of a tensor."""
        return self


class SymbolicOperand(StandIn):
    """A value that a rule binds, as onnx_ir shows it."""

    @property
    def name(self) -> str:
        """A name for it."""
        return repr(self)

    @property
    def shape(self) -> SymbolicNumbers:
        """Its shape; that this is known is demanded."""
        rank = Field(self._expr, "rank")
        self._trail.demand(FunctionCall(">=", (rank, Lit(0))))
        return SymbolicNumbers(self._trail, Field(self._expr, "shape"), rank, is_shape=True)

    @property
    def dtype(self) -> SymbolicNumber:
        """ONNX's number for its dtype, which is demanded to be known."""
        return _dtype(self._trail, FunctionCall("code", (Field(self._expr, "dtype"),)))

    @property
    def const_value(self) -> Array:
        """Its elements; that it is a constant is demanded."""
        self._trail.demand(Field(self._expr, "is_const"))
        return Array(self._trail, self._expr)

    def _compared(self, operator: str, other: Any) -> Any:
        raise NotPlain(f"it compares {self!r} with another value")


class Attribute(StandIn):
    """An attribute that a rule binds, as onnx_ir shows it; ``kind`` is ONNX's number for its type."""

    def __init__(self, trail: Trail, name: str, kind: int | None, is_dtype: bool) -> None:
        super().__init__(trail, NameRef(name))
        self._kind, self._is_dtype = kind, is_dtype

    def is_ref(self) -> bool:
        """Whether it is set by the callers of a function: guards on such an attribute do not hold."""
        return False

    @property
    def type(self) -> Any:
        """The type, as onnx_ir's enumeration has it."""
        return self._refuse() if self._kind is None else self._kind

    @property
    def value(self) -> SymbolicNumber | SymbolicNumbers:
        """The number or the numbers."""
        if self._kind in (1, 2):
            return self.as_int()
        if self._kind in (6, 7):
            return self.as_ints()
        raise NotPlain(f"it looks into the attribute {self!r}")

    def as_int(self) -> SymbolicNumber:
        """The number."""
        return _dtype(self._trail, self._expr) if self._is_dtype else SymbolicNumber(self._trail, self._expr)

    as_float = as_int

    def as_ints(self) -> SymbolicNumbers:
        """The numbers."""
        return SymbolicNumbers(self._trail, self._expr)

    as_floats = as_ints


def _dtype(trail: Trail, expr: GuardExpr) -> SymbolicNumber:
    return SymbolicNumber(trail, expr, sorted({int(code) for code in CODES.values()}))


def _not(expr: GuardExpr) -> GuardExpr:
    if isinstance(expr, FunctionCall) and expr.function in _OPPOSITE:
        return FunctionCall(_OPPOSITE[expr.function], expr.arguments)
    return FunctionCall("not", (expr,))


def as_expr(value: Any) -> GuardExpr:
    """What Python code compares or computes with, as an expression. Raises NotPlain for what is none."""
    kind = type(value)
    if issubclass(kind, StandIn):
        if issubclass(kind, SymbolicNumber | SymbolicNumbers | Truth | Attribute):
            return value._expr  # type: ignore[no-any-return]
        raise NotPlain(f"it computes with {value!r} as a whole")
    if isinstance(value, bool | float | str):
        return Lit(value)
    if isinstance(value, int):
        return Lit(int(value))
    if isinstance(value, list | tuple):
        return Series(tuple(map(as_expr, value)))
    raise NotPlain(f"it computes with {kind.__name__}")
