"""Rules written in Python: a decorated function makes the same value as a rule file.

The function's parameters are the names of the pattern: an operand where it stands as an input, an
attribute where it stands as one, an op where it is called. ``Many`` and ``Maybe`` as annotations
mark starred and optional variables, and ``**rest`` hands over all attributes not mentioned::

    from graphopt.ops import Add, Gemm, MatMul

    @rule(family="J1", reals=True)
    def bias_into_gemm(x, w, b):
        '''A bias add runs in the product's epilogue.'''
        return Add(MatMul(x, w), b).becomes(Gemm(x, w, b), when=(x.rank == 2) & (w.rank == 2))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphopt.errors import RuleError, nearest
from graphopt.rewrite.guards.expressions import SETS
from graphopt.rewrite.guards.functions import FUNCTIONS
from graphopt.rewrite.reading.wellformed import check, named_inputs, placed
from graphopt.rewrite.rule.notation import show_expr, show_term
from graphopt.rewrite.rule.rule import (
    ABSENT,
    AnyOf,
    CallPattern,
    Computed,
    Each,
    FunctionCall,
    GuardExpr,
    IndexExpr,
    Lit,
    Literal,
    NameRef,
    Rule,
    RuleStage,
    Series,
    Soundness,
    Term,
    VarPattern,
    calls,
    conjuncts,
    joined,
    negative,
)
from graphopt.rewrite.rule.rule import Field as FieldOf


class Many:
    """Annotation of a parameter: a starred variable, ``a*``."""


class Maybe:
    """Annotation of a parameter: an input that may be left out, ``b?``."""


def rule(
    *,
    family: str = "",
    exact: bool = False,
    finite: bool = False,
    reals: bool = False,
    approx: bool = False,
    always: bool = False,
    targets: Sequence[str] = (),
    name: str = "",
) -> Callable[[Callable[..., RuleSides]], Rule]:
    """A decorator that makes a rule of a function which returns ``left.becomes(right, when=guard)``.

    Exactly one soundness class must be given. The rule's name is the function's, with hyphens; its
    reason is the docstring. Raises RuleError where the rule makes no sense.
    """
    given = {
        Soundness.EXACT: exact,
        Soundness.FINITE: finite,
        Soundness.REALS: reals,
        Soundness.APPROX: approx,
    }

    def decorate(function: Callable[..., RuleSides]) -> Rule:
        called = name or function.__name__.strip("_").replace("_", "-")
        chosen = [s for s, is_given in given.items() if is_given]
        if len(chosen) != 1:
            raise RuleError(
                f"{called}: expected one soundness class: exact=True, finite=True, reals=True or approx=True"
            )
        rewrite = function(*map(_parameter, inspect.signature(function).parameters.values()))
        if not isinstance(rewrite, RuleSides):
            raise RuleError(f"{called}: expected `return left.becomes(right)`, found {type(rewrite).__name__}")
        code = function.__code__
        return check(
            Rule(
                called,
                rewrite.lhs,
                rewrite.rhs,
                rewrite.where,
                reason=" ".join((inspect.getdoc(function) or "").split()),
                family=",".join(family.replace(",", " ").split()),
                soundness=chosen[0],
                stage=RuleStage.ALWAYS if always else RuleStage.EXPLORE,
                targets=frozenset(targets),
                source=f"{Path(code.co_filename).name}:{code.co_firstlineno}",
                pays=rewrite.pays,
            )
        )

    return decorate


def _parameter(parameter: inspect.Parameter) -> Name:
    kind = parameter.annotation if isinstance(parameter.annotation, str) else parameter.annotation.__name__
    return Name(VarPattern(parameter.name, optional=kind == "Maybe", starred=kind == "Many"))


class RuleSides:
    """What a rule function returns: both sides and the guards."""

    def __init__(
        self, lhs: tuple[Term, ...], rhs: tuple[Term, ...], where: tuple[GuardExpr, ...], pays: tuple[GuardExpr, ...]
    ) -> None:
        named = {c.name for t in lhs for c in calls(t)} - {None}
        self.lhs = lhs
        self.rhs = tuple(_refer(t, named) for t in rhs)
        self.where, self.pays = where, pays


def _refer(term: Term, named: set[str | None]) -> Term:
    """A right side in which a term that the left side named stands for that value."""
    if not isinstance(term, CallPattern):
        return term
    if term.name in named:
        assert term.name is not None
        return VarPattern(term.name)
    return replace(term, inputs=tuple(_refer(t, named) for t in term.inputs))


class RootPatterns:
    """Left sides that are rewritten together: ``roots(MatMul(x, a), MatMul(x, b)).becomes(...)``."""

    def __init__(self, terms: tuple[Term, ...]) -> None:
        self.terms = terms

    def becomes(self, *right: Any, when: Any = ()) -> RuleSides:
        """The rewrite of these terms to the ones on the right, where the guard holds."""
        guard = None if isinstance(when, tuple) and not when else as_expr(when)
        return RuleSides(self.terms, tuple(map(as_term, right)), *conjuncts(guard))


def roots(*terms: Any) -> RootPatterns:
    """Several terms that are rewritten together."""
    return RootPatterns(tuple(map(as_term, terms)))


class Expression:
    """An expression of a guard or an attribute; operators make larger ones."""

    def __init__(self, expr: GuardExpr) -> None:
        self.expr = expr

    def __repr__(self) -> str:
        return show_expr(self.expr)

    def __bool__(self) -> bool:
        raise TypeError(f"`{self}` has no truth value while a rule is written: join guards with & | ~, in with .in_()")

    __hash__ = None  # type: ignore[assignment]

    @property
    def each(self) -> Expression:
        """The values of the expression for each value of the starred variables in it."""
        return Expression(Each(self.expr))

    def in_(self, container: Any) -> Expression:
        """Whether this is in a named set (``"float"``, ``"unary"``) or equal to an element of a sequence."""
        return Expression(FunctionCall("in", (self.expr, _set(container))))

    def not_in(self, container: Any) -> Expression:
        """Whether this is not in a set or sequence."""
        return ~self.in_(container)

    def __getitem__(self, index: Any) -> Expression:
        if not isinstance(index, slice):
            return Expression(IndexExpr(self.expr, as_expr(index)))
        start, stop = (None if e is None else as_expr(e) for e in (index.start, index.stop))
        return Expression(IndexExpr(self.expr, start, stop, slice=True))

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"`{self}` cannot be iterated while a rule is written")

    def _with(self, function: str, other: Any, swapped: bool = False) -> Expression:
        parts = (as_expr(other), self.expr) if swapped else (self.expr, as_expr(other))
        return Expression(FunctionCall(function, parts))

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return self._with("==", other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return self._with("!=", other)

    def __lt__(self, other: Any) -> Expression:
        return self._with("<", other)

    def __le__(self, other: Any) -> Expression:
        return self._with("<=", other)

    def __gt__(self, other: Any) -> Expression:
        return self._with(">", other)

    def __ge__(self, other: Any) -> Expression:
        return self._with(">=", other)

    def __add__(self, other: Any) -> Expression:
        return self._with("+", other)

    def __radd__(self, other: Any) -> Expression:
        return self._with("+", other, swapped=True)

    def __sub__(self, other: Any) -> Expression:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Expression:
        return self._with("-", other, swapped=True)

    def __mul__(self, other: Any) -> Expression:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Expression:
        return self._with("*", other, swapped=True)

    def __truediv__(self, other: Any) -> Expression:
        return self._with("/", other)

    def __rtruediv__(self, other: Any) -> Expression:
        return self._with("/", other, swapped=True)

    def __floordiv__(self, other: Any) -> Expression:
        return self._with("//", other)

    def __rfloordiv__(self, other: Any) -> Expression:
        return self._with("//", other, swapped=True)

    def __mod__(self, other: Any) -> Expression:
        return self._with("%", other)

    def __rmod__(self, other: Any) -> Expression:
        return self._with("%", other, swapped=True)

    def __pow__(self, other: Any) -> Expression:
        return self._with("**", other)

    def __rpow__(self, other: Any) -> Expression:
        return self._with("**", other, swapped=True)

    def __neg__(self) -> Expression:
        return Expression(negative(self.expr))

    def __invert__(self) -> Expression:
        return Expression(FunctionCall("not", (self.expr,)))

    def __and__(self, other: Any) -> Expression:
        return Expression(joined("and", (self.expr, as_expr(other))))

    def __rand__(self, other: Any) -> Expression:
        return Expression(joined("and", (as_expr(other), self.expr)))

    def __or__(self, other: Any) -> Any:
        return Expression(joined("or", (self.expr, as_expr(other))))


class FactExpression(Expression):
    """An expression that has facts of its own: ``x.shape``, ``m.dtype``."""

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(name)
        return Expression(FieldOf(self.expr, name))


class Name(FactExpression):
    """A parameter of a rule function: a variable for operands, an attribute, an op or a rest of attributes."""

    def __init__(self, var: VarPattern) -> None:
        super().__init__(NameRef(var.name))
        self.var = var

    def __call__(self, *inputs: Any, **attrs: Any) -> Op:
        """The name as an op variable, applied to terms."""
        return make_call(self.var.name, inputs, attrs)

    def keys(self) -> list[str]:
        """Lets ``**rest`` in a call hand over the name itself."""
        return [f"**{self.var.name}"]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            return self
        item = super().__getitem__(index)
        return FactExpression(item.expr) if self.var.starred else item


class Op:
    """A term: an op applied to terms."""

    def __init__(self, term: CallPattern | AnyOf) -> None:
        self.term = term

    def __repr__(self) -> str:
        return show_term(self.term)

    __iter__ = None  # indexing picks an output: without this, unpacking a term would never end

    def __getitem__(self, output: int) -> Op:
        """The output with this number."""
        return Op(replace(self._call("an output"), output=output))

    def __or__(self, other: Any) -> Op:
        return any_of(self, other)

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(name)
        call = self._call("facts")
        if not call.name:
            raise RuleError(
                f"{self}: a term must have a name to ask for its .{name}: write .named({name[0]!r}) behind it"
            )
        return Expression(FieldOf(NameRef(call.name), name))

    def named(self, name: str) -> Op:
        """The term with a name for its value, so that guards can ask for its facts and the right side can use it."""
        return Op(replace(self._call("a name"), name=name))

    def becomes(self, right: Any, when: Any = ()) -> RuleSides:
        """The rewrite of this term to the one on the right, where the guard holds."""
        return RootPatterns((self.term,)).becomes(right, when=when)

    def _call(self, what: str) -> CallPattern:
        if isinstance(self.term, AnyOf):
            raise RuleError(f"{self}: alternatives have no {what} of their own")
        return self.term


def any_of(*terms: Any) -> Op:
    """Any one of these terms."""
    options = (t.options if isinstance(t, AnyOf) else (t,) for t in map(as_term, terms))
    return Op(AnyOf(tuple(o for several in options for o in several)))


def computed(value: Any, like: Name | None = None) -> Computed:
    """A constant whose elements an expression gives, with the dtype of an operand where ``like`` is given."""
    return Computed(as_expr(value), None if like is None else like.var.name)


def choose(condition: Any, yes: Any, no: Any) -> Expression:
    """``yes if condition else no``."""
    return Expression(FunctionCall("if", (as_expr(condition), as_expr(yes), as_expr(no))))


def each(value: Any) -> Expression:
    """The values of an expression for each value of the starred variables in it."""
    return Expression(Each(as_expr(value)))


def make_call(op: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Op:
    """The term that an op makes of Python values."""
    places = named_inputs(op)
    named = {places[k]: as_term(v) for k, v in attrs.items() if k in places}
    rest = [k.removeprefix("**") for k in attrs if k.startswith("**")]
    others = tuple((k, as_expr(v)) for k, v in attrs.items() if k not in places and not k.startswith("**"))
    return Op(CallPattern(op, placed(tuple(map(as_term, inputs)), named), others, rest[0] if rest else None))


def as_term(value: Any) -> Term:
    """A Python value as a term: numbers and lists are literals, None is an absent input, expressions are computed."""
    match value:
        case None:
            return ABSENT
        case Name():
            return value.var
        case Op():
            return value.term
        case Expression():
            return Computed(value.expr)
        case VarPattern() | Literal() | CallPattern() | AnyOf() | Computed():
            return value
        case bool() | int() | float():
            return Literal(value)
        case list() | tuple() if all(isinstance(v, int | float) for v in value):
            return Literal(tuple(value))
        case list() | tuple():
            return Computed(as_expr(value))
    raise RuleError(f"expected a term, found {value!r}")


def as_expr(value: Any) -> GuardExpr:
    """A Python value as an expression."""
    match value:
        case Expression():
            return value.expr
        case Op() if isinstance(value.term, CallPattern) and value.term.name:
            return NameRef(value.term.name)
        case None | bool() | int() | float() | str():
            return Lit(value)
        case list() | tuple():
            return Series(tuple(map(as_expr, value)))
    raise RuleError(f"expected an expression, found {value!r}")


def _set(container: Any) -> GuardExpr:
    return NameRef(container) if isinstance(container, str) and container in SETS else as_expr(container)


class _Ops:
    """Ops by name: ``ops.Add(x, y)``; ``ops["com.microsoft::Gelu"](x)`` outside ONNX's own domain."""

    def __getitem__(self, op: str) -> Callable[..., Op]:
        return lambda *inputs, **attrs: make_call(op, inputs, attrs)

    def __getattr__(self, op: str) -> Callable[..., Op]:
        if not op[0].isupper():
            raise AttributeError(f"no op is called {op}")
        return self[op]


class _Functions:
    """The named functions of expressions: ``fn.compose(p, q)``."""

    def __getattr__(self, name: str) -> Callable[..., Expression]:
        if name not in FUNCTIONS and name != "pays":
            raise AttributeError(f"unknown function {name}{nearest(name, FUNCTIONS)}")
        return lambda *arguments: Expression(FunctionCall(name, tuple(map(as_expr, arguments))))


ops = _Ops()
fn = _Functions()
opset = Expression(NameRef("opset"))
"""The opset of the model."""
