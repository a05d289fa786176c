"""Guard evaluation: guards and attribute expressions over a match, with reasons for failures.

An expression is compiled to a closure once. A fact that is not known raises ``Unknown`` with the
reason; a guard on it does not hold. ``and`` and ``or`` look past what is unknown where the other
parts decide. Of a starred variable, a fact means the fact of every value: ``a.rank == 2`` is a
guard on each of them, ``each a.rank`` the sequence of all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np

from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attr, AttrRef, Attrs
from graphopt.ir.types import Dim
from graphopt.rewrite.guards import constant_queries
from graphopt.rewrite.guards.bindings import Bindings, Head
from graphopt.rewrite.guards.comparison import Unknown, at_most, equal, less, same_size
from graphopt.rewrite.guards.functions import FUNCTIONS
from graphopt.rewrite.guards.magnitudes import ConstantElements
from graphopt.rewrite.rule.notation import show_expr
from graphopt.rewrite.rule.rule import Each, FunctionCall, GuardExpr, IndexExpr, Lit, NameRef, Series
from graphopt.rewrite.rule.rule import Field as FieldOf

__all__ = ["FACTS", "LAZY", "SETS", "SMALL", "GuardOperand", "Unknown", "evaluate", "holds", "matches_literal"]

SMALL = 4096
"""Constants of more elements have no ``.value``."""

SHOWN = 8
"""So many elements of a sequence are shown."""

_FLOAT = frozenset({"float16", "bfloat16", "float32", "float64"})
_INT = frozenset({"int8", "int16", "int32", "int64"})
_UINT = frozenset({"uint8", "uint16", "uint32", "uint64"})
SETS: frozenset[str] = frozenset({"float", "int", "uint", "number", "bool", *ops.SETS})
"""Names that guards may use for sets of dtypes and of ops."""


@cache
def named_set(name: str) -> frozenset[str]:
    """The dtypes or ops that a name of ``SETS`` stands for."""
    dtypes = {"float": _FLOAT, "int": _INT, "uint": _UINT, "number": _FLOAT | _INT | _UINT, "bool": frozenset({"bool"})}
    return dtypes[name] if name in dtypes else ops.SETS[name]


class Questions(Protocol):
    """``Operands`` of any handle."""

    opset: int

    def fact(self, value: Any) -> Fact:
        """The known facts of the value."""

    def constant(self, value: Any) -> Constant | None:
        """The value's elements."""

    def uses(self, value: Any) -> int | None:
        """The number of uses of the value."""


@dataclass(frozen=True, slots=True)
class GuardOperand:
    """A value of the graph inside an expression: what facts are asked of."""

    handle: Hashable
    name: str


@dataclass(slots=True)
class GuardScope:
    """The scope of an expression's evaluation; ``positions`` has the current value of each starred variable."""

    bindings: Bindings[Any]
    operands: Questions
    positions: dict[str, int] = field(default_factory=dict)


Closure: TypeAlias = Callable[[GuardScope], Any]


def evaluate(expr: GuardExpr, bindings: Bindings[Any], operands: Questions) -> object:
    """The value of an expression: a number, a string, a size, a tuple of them, an op or an operand.

    Raises Unknown where it rests on a fact that is not known, or has no value (an index out of range).
    """
    return compiled(expr)(GuardScope(bindings, operands))


def holds(guard: GuardExpr, bindings: Bindings[Any], operands: Questions) -> str | None:
    """None where the guard holds, else the reason in words, with the actual values."""
    scope = GuardScope(bindings, operands)
    names = [n for n in _asked(guard) if type(bindings.values.get(n)) is tuple]
    if not names:
        return _reason(guard, scope)
    for index in range(_count(names, scope)):
        scope.positions = dict.fromkeys(names, index)
        reason = _reason(guard, scope)
        if reason is not None:
            return reason
    return None


def is_true(guard: GuardExpr, bindings: Bindings[Any], operands: Questions) -> bool:
    """Whether the guard holds: ``holds`` without the words."""
    scope = GuardScope(bindings, operands)
    names = [n for n in _asked(guard) if type(bindings.values.get(n)) is tuple]
    try:
        for index in range(_count(names, scope)) if names else (0,):
            scope.positions = dict.fromkeys(names, index)
            if not truth(compiled(guard)(scope)):
                return False
    except Unknown:
        return False
    return True


def _reason(guard: GuardExpr, scope: GuardScope) -> str | None:
    try:
        if truth(compiled(guard)(scope)):
            return None
    except Unknown:
        pass
    from graphopt.rewrite.guards.reasons import reason

    return reason(guard, scope)


def truth(value: object) -> bool:
    """Whether a value counts as true. Raises Unknown of a size that may be 0."""
    if isinstance(value, Dim):
        return not same_size(value, 0)
    return bool(value)


def matches_literal(constant: Constant, value: float | bool | tuple[int, ...] | tuple[float, ...]) -> bool:
    """Whether a constant is the literal of a pattern.

    A number matches a constant of one element, whatever its rank, a sequence one of rank 1. The
    literal is rounded to the constant's dtype first, so that 0.16666667 is a float32 1/6. Zeros
    have signs: ``0.0`` and ``0`` match +0.0 only.
    """
    if isinstance(value, tuple):
        return len(constant.shape) == 1 and constant.size == len(value) and _matches(constant, value, repr(value))
    return constant.size == 1 and _matches(constant, (value,), repr(value))


@lru_cache(4096)
def _matches(constant: Constant, values: tuple[float, ...], spelled: str) -> bool:
    """Whether the elements are these numbers; ``spelled`` tells 0 from 0.0 and -0.0, which Python takes for equal."""
    kind = "bool" if constant.dtype == "bool" else "int" if "int" in constant.dtype else "float"
    if constant.dtype == "string" or "complex" in constant.dtype:
        return False
    if kind != "float":
        wanted = bool if kind == "bool" else int
        elements = constant.array.reshape(-1).astype(object).tolist()
        return all(
            isinstance(v, bool) == (kind == "bool") and wanted(e) == v for e, v in zip(elements, values, strict=True)
        )
    if any(isinstance(v, bool) for v in values):
        return False
    with np.errstate(over="ignore"):
        rounded = np.asarray(values, np.float64).astype(constant.array.dtype).astype(np.float64)
    actual = constant.array.reshape(-1).astype(np.float64)
    overflowed = np.isinf(rounded) & np.isfinite(np.asarray(values, np.float64))
    return bool(np.all((actual == rounded) & (np.signbit(actual) == np.signbit(rounded)) & ~overflowed))


# -- facts of operands


def _type_of(fact: Fact, operand: GuardOperand, operands: Questions) -> object:
    return fact.dtype


def _elements(fact: Fact, operand: GuardOperand, operands: Questions) -> object:
    if fact.elements is not None or fact.rank is None or fact.rank > 1 or "int" not in (fact.dtype or ""):
        return fact.elements
    constant = operands.constant(operand.handle) if fact.is_const else None
    return None if constant is None or constant.size > SMALL else tuple(map(int, constant.array.reshape(-1).tolist()))


def _small(fact: Fact, operand: GuardOperand, operands: Questions) -> Constant | None:
    if not fact.is_const:
        raise Unknown(f"`{operand.name}` is not a constant")
    constant = operands.constant(operand.handle)
    if constant is not None and constant.size > SMALL:
        raise Unknown(f"`{operand.name}` has {constant.size} elements, too many for its value to be looked at")
    return constant


def _value(fact: Fact, operand: GuardOperand, operands: Questions) -> object:
    constant = _small(fact, operand, operands)
    return None if constant is None else _tuples(constant)


@lru_cache(64)
def _tuples(constant: Constant) -> object:
    """The elements of a constant, in tuples. A guard may ask for them in each of its parts."""
    return _nested(_python(constant).tolist())


def _scalar(fact: Fact, operand: GuardOperand, operands: Questions) -> object:
    constant = _small(fact, operand, operands)
    if constant is not None and constant.size != 1:
        raise Unknown(f"`{operand.name}` has {constant.size} elements, not one")
    return None if constant is None else _python(constant).reshape(-1).tolist()[0]


def _content(question: Callable[[Constant], object]) -> Callable[[Fact, GuardOperand, Questions], object]:
    """A question about the elements of a constant, however many there are."""

    def answer(fact: Fact, operand: GuardOperand, operands: Questions) -> object:
        if not fact.is_const:
            raise Unknown(f"`{operand.name}` is not a constant")
        constant = operands.constant(operand.handle)
        return None if constant is None else question(constant)

    return answer


def _numbers(fact: Fact, operand: GuardOperand, operands: Questions) -> object:
    return ConstantElements(operands.constant(operand.handle) if fact.is_const else None)


def _python(constant: Constant) -> Any:
    """The elements in a dtype whose ``tolist`` gives Python numbers."""
    array = constant.array
    if array.dtype.kind in "biufcO":
        return array
    return array.astype(np.int64 if "int" in constant.dtype else np.float64)


def _nested(value: Any) -> object:
    if not isinstance(value, list):
        return value
    return tuple(map(_nested, value)) if value and isinstance(value[0], list) else tuple(value)


FACTS: Mapping[str, Callable[[Fact, GuardOperand, Questions], object]] = {
    "dtype": _type_of,
    "shape": lambda fact, operand, operands: fact.shape,
    "rank": lambda fact, operand, operands: fact.rank,
    "size": lambda fact, operand, operands: fact.size,
    "is_const": lambda fact, operand, operands: fact.is_const,
    "value": _value,
    "scalar": _scalar,
    "elements": _elements,
    "low": lambda fact, operand, operands: fact.low,
    "high": lambda fact, operand, operands: fact.high,
    "uses": lambda fact, operand, operands: operands.uses(operand.handle),
    "numbers": _numbers,
    "period": _content(constant_queries.period),
    "row_high": _content(constant_queries.row_high),
    "causal": _content(constant_queries.causal),
}
"""The facts that expressions may ask of an operand."""


def fact_of(operand: GuardOperand, name: str, operands: Questions) -> object:
    """A fact of an operand; Unknown where it is not known."""
    fact = FACTS[name](operands.fact(operand.handle), operand, operands)
    if fact is None:
        raise Unknown(f"`{operand.name}` has no known {name}")
    return fact


# -- compiling

_compiled: dict[int, tuple[GuardExpr, Closure, tuple[str, ...]]] = {}


def compiled(expr: GuardExpr) -> Closure:
    """The closure of an expression, made once; kept by identity, since hashing a tree costs more than evaluating it."""
    return _entry(expr)[1]


def _asked(expr: GuardExpr) -> tuple[str, ...]:
    return _entry(expr)[2]


def _entry(expr: GuardExpr) -> tuple[GuardExpr, Closure, tuple[str, ...]]:
    entry = _compiled.get(id(expr))
    if entry is None:
        entry = _compiled[id(expr)] = (expr, _compile(expr), _starred_facts(expr))
    return entry


def _compile(expr: GuardExpr) -> Closure:
    match expr:
        case Lit(value):
            return lambda scope: value
        case NameRef(name):
            return _compile_reference(name)
        case FieldOf(of, name):
            return _compile_field(of, name)
        case IndexExpr():
            return _compile_item(expr)
        case Series(items):
            return _compile_series(items)
        case Each(body):
            return _compile_each(body)
        case FunctionCall(function, arguments):
            parts = tuple(map(compiled, arguments))
            return LAZY[function](parts) if function in LAZY else _compile_call(expr, FUNCTIONS[function], parts)


def _compile_reference(name: str) -> Closure:
    def refer(scope: GuardScope) -> Any:
        bindings = scope.bindings
        if name in bindings.values:
            return _operand(bindings.values[name], name)
        if name in bindings.attrs:
            return _plain(bindings.attrs[name], name)
        if name in bindings.heads:
            return bindings.heads[name]
        if name == "opset":
            return scope.operands.opset
        if name in SETS:
            return named_set(name)
        raise Unknown(f"`{name}` is not bound")

    return refer


def _operand(value: Any, name: str) -> GuardOperand | tuple[GuardOperand, ...] | None:
    # a handle may itself be a named tuple: only a plain one is several
    if type(value) is tuple:
        return tuple(GuardOperand(v, f"{name}[{i}]") for i, v in enumerate(value))
    return None if value is None else GuardOperand(value, name)


def _plain(attr: Attr | Attrs | None, name: str) -> object:
    if isinstance(attr, AttrRef):
        raise Unknown(f"`{name}` is an attribute that the callers of a local function set")
    return attr


def _compile_field(of: GuardExpr, name: str) -> Closure:
    owner = compiled(of)
    variable = of.name if isinstance(of, NameRef) else ""
    text = show_expr(of)

    def look(scope: GuardScope) -> Any:
        if variable in scope.positions and type(several := scope.bindings.values.get(variable)) is tuple:
            index = scope.positions[variable]  # one operand is made, not those of all the others, too
            value: Any = GuardOperand(several[index], f"{variable}[{index}]")
        else:
            value = owner(scope)
        match value:
            case GuardOperand():
                return fact_of(value, name, scope.operands)
            case None:
                raise Unknown(f"`{text}` is absent")
            case Head(op, attrs):
                return _plain(ops.attribute(op, attrs, name), name)
            case Attrs():
                return _plain(value.get(name), name)
        if type(value) is tuple and value and isinstance(value[0], GuardOperand):
            raise Unknown(f"`{text}` stands for several values: write `each` before what asks for their .{name}")
        raise Unknown(f"`{text}` is no operand: only operands have .{name}")

    return look


def _compile_item(expr: IndexExpr) -> Closure:
    of = compiled(expr.of)
    index, stop = (compiled(e) if e is not None else None for e in (expr.index, expr.stop))

    def take(scope: GuardScope) -> Any:
        value, start = of(scope), index(scope) if index else None
        if not isinstance(value, tuple | list):
            raise Unknown(f"`{show_expr(expr.of)}` is {value}, which has no elements")
        try:
            return tuple(value[start : stop(scope) if stop else None]) if expr.slice else value[start]  # type: ignore[index]
        except IndexError:
            raise Unknown(f"`{show_expr(expr.of)}` has {len(value)} elements, none at {start}") from None
        except TypeError:
            raise Unknown(f"{start} is no index into `{show_expr(expr.of)}`") from None

    return take


def _compile_series(items: tuple[GuardExpr, ...]) -> Closure:
    parts = tuple((isinstance(i, Each), compiled(i)) for i in items)

    def make(scope: GuardScope) -> Any:
        values: list[Any] = []
        for several, part in parts:
            values.extend(part(scope)) if several else values.append(part(scope))
        return tuple(values)

    return make


def _compile_each(body: GuardExpr) -> Closure:
    inner = compiled(body)
    facts = _starred_facts(body)

    def every(scope: GuardScope) -> Any:
        names = [n for n in facts if type(scope.bindings.values.get(n)) is tuple]
        here = (
            GuardScope(scope.bindings, scope.operands, dict.fromkeys(names, i)) for i in range(_count(names, scope))
        )
        return tuple(map(inner, here))

    match body:
        case IndexExpr(FieldOf(NameRef(name), "shape"), index, None) if index is not None and not body.slice:
            return _compile_sizes(name, compiled(index), every)
    return every


def _compile_sizes(name: str, axis_of: Closure, every: Closure) -> Closure:
    """The size of each value at one place. Rules ask this of all inputs before each input of a concatenation, where
    there may be hundreds; whatever is not plain is said by ``every``."""

    def sizes(scope: GuardScope) -> Any:
        values = scope.bindings.values.get(name)
        if type(values) is not tuple or not values or name in scope.positions:
            return every(scope)
        axis, shapes = axis_of(scope), [scope.operands.fact(value).shape for value in values]
        try:
            extents = [shape[axis] for shape in shapes if shape is not None]
        except (TypeError, IndexError):
            return every(scope)
        return tuple(extents) if len(extents) == len(values) else every(scope)

    return sizes


def _count(names: list[str], scope: GuardScope) -> int:
    lengths = {len(scope.bindings.values[n]) for n in names}  # type: ignore[arg-type]
    if len(lengths) > 1:
        raise Unknown(f"{' and '.join(f'`{n}`' for n in names)} stand for different numbers of values")
    return lengths.pop() if lengths else 0


def _starred_facts(expr: GuardExpr) -> tuple[str, ...]:
    """The variables of which the expression asks facts, outside of any ``each`` in it."""
    match expr:
        case FieldOf(NameRef(name)):
            return (name,)
        case FieldOf(of):
            return _starred_facts(of)
        case IndexExpr(of, index, stop):
            parts: tuple[GuardExpr, ...] = tuple(e for e in (of, index, stop) if e is not None)
        case FunctionCall(arguments=items) | Series(items):
            parts = items
        case _:
            return ()
    return tuple(dict.fromkeys(name for part in parts for name in _starred_facts(part)))


def _compile_call(expr: FunctionCall, function: Callable[..., Any], parts: tuple[Closure, ...]) -> Closure:
    def call(scope: GuardScope) -> Any:
        arguments = [part(scope) for part in parts]
        try:
            return function(*arguments)
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise Unknown(f"`{show_expr(expr)}` has no value: {error}") from None

    return call


def _compile_and(parts: tuple[Closure, ...]) -> Closure:
    return lambda scope: _decide(parts, scope, False)


def _compile_or(parts: tuple[Closure, ...]) -> Closure:
    return lambda scope: _decide(parts, scope, True)


def _decide(parts: tuple[Closure, ...], scope: GuardScope, decisive: bool) -> bool:
    """The decisive answer where any part gives it; Unknown where none does and one might."""
    doubt: Unknown | None = None
    for part in parts:
        try:
            if truth(part(scope)) is decisive:
                return decisive
        except Unknown as error:
            doubt = doubt or error
    if doubt:
        raise doubt
    return not decisive


def _compile_not(parts: tuple[Closure, ...]) -> Closure:
    return lambda scope: not truth(parts[0](scope))


def _compile_if(parts: tuple[Closure, ...]) -> Closure:
    condition, yes, no = parts
    return lambda scope: yes(scope) if truth(condition(scope)) else no(scope)


def _compare(test: Callable[[Any, Any], bool]) -> Callable[[tuple[Closure, ...]], Closure]:
    def compile(parts: tuple[Closure, ...]) -> Closure:
        left, right = parts

        def compare(scope: GuardScope) -> bool:
            a, b = left(scope), right(scope)
            try:
                return test(a, b)
            except TypeError:
                raise Unknown(f"{show_value(a)} and {show_value(b)} cannot be compared") from None

        return compare

    return compile


def is_equal(a: object, b: object) -> bool:
    """``==`` of expressions. Two operands are equal where they are the same value, else that is not known."""
    if isinstance(a, Head) or isinstance(b, Head):
        left, right = (
            v.op if isinstance(v, Head) and not (isinstance(a, Head) and isinstance(b, Head)) else v for v in (a, b)
        )
        return left == right
    if isinstance(a, GuardOperand) and isinstance(b, GuardOperand):
        if a.handle == b.handle:
            return True
        raise Unknown(f"`{a.name}` and `{b.name}` are not known to be the same value")
    return equal(a, b)


def is_in(item: object, container: Any) -> bool:
    """``in`` of expressions: in a named set, or equal to an element."""
    if isinstance(container, frozenset):
        return (item.op if isinstance(item, Head) else item) in container
    if isinstance(container, str):
        return isinstance(item, str) and item in container
    doubt: Unknown | None = None
    for element in container:
        try:
            if is_equal(item, element):
                return True
        except Unknown as error:
            doubt = doubt or error
    if doubt:
        raise doubt
    return False


def show_value(value: object) -> str:
    """A value as messages show it."""
    match value:
        case None | bool():
            return str(value).lower()
        case GuardOperand(name=name):
            return f"`{name}`"
        case Head(op):
            return op
        case tuple() | list():
            inside = ", ".join(map(show_value, value[:SHOWN]))
            if len(value) > SHOWN:
                return f"({inside}, ... {len(value)} in all)"
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        case frozenset():
            return next((name for name in sorted(SETS) if named_set(name) == value), "a set")
    return str(value)


LAZY: dict[str, Callable[[tuple[Closure, ...]], Closure]] = {
    "and": _compile_and,
    "or": _compile_or,
    "not": _compile_not,
    "if": _compile_if,
    "==": _compare(is_equal),
    "!=": _compare(lambda a, b: not is_equal(a, b)),
    "<": _compare(less),
    "<=": _compare(at_most),
    ">": _compare(lambda a, b: less(b, a)),
    ">=": _compare(lambda a, b: at_most(b, a)),
    "in": _compare(is_in),
}
"""Operators that do not simply take the values of their arguments."""
