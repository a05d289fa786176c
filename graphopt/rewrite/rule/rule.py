"""Rule: one frozen value that says which terms are equal, when, why, and how strongly that is true.

Rule files and Python make these same values; the directed matcher, the e-graph, the soundness check,
the documentation and the explanation of a result all read them. The whole grammar:

    Term  = Var | Literal | Call | AnyOf | Computed        patterns and what replaces them
    Expr  = Lit | Ref | Field | Item | Apply | Series | Each   guards, and attributes of what is built
    Rule  = name, reason, family, soundness, lhs terms => rhs terms, where guards

A *starred* variable (``a*``) stands for several values. As an input of a variadic op it takes all the
inputs that are left: ``Concat(a*, axis=k)``. Under a call of fixed arity it makes a family of calls,
one for each value: ``Concat(Relu(a*), axis=k)`` is a Concat whose every input is a Relu, and the root
``MatMul(x, a*)`` is *every* MatMul that reads ``x`` on the left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from functools import wraps
from typing import Any, TypeAlias, TypeVar

from graphopt.display import Scripted, shortened
from graphopt.errors import UsageError, nearest_or_some
from graphopt.frozen import dataclass

G = TypeVar("G")
R = TypeVar("R")


class Soundness(Enum):
    """How a rule's sides are equal, from strongest to weakest."""

    EXACT = "exact"
    """Bit by bit on IEEE floats: NaN, infinities and signed zeros included."""
    FINITE = "finite"
    """Bit by bit as long as no input is NaN or infinite."""
    REALS = "reals"
    """Over the reals, and finite wherever the left side is; rounding may differ."""
    APPROX = "approx"
    """The function changes a little; never on by default."""

    def allowed_by(self, policy: Soundness) -> bool:
        """Whether a policy (the weakest class that is accepted) admits rules of this class."""
        order = list(Soundness)
        return order.index(self) <= order.index(policy)


def soundness(given: str | Soundness, what: str = "policy") -> Soundness:
    """The class of this name, which a policy or a rule was given. UsageError where there is none."""
    if isinstance(given, Soundness):
        return given
    names = [kind.value for kind in Soundness]
    if given not in names:
        raise UsageError(f"no {what} is called {given!r}{nearest_or_some(given, names)}")
    return Soundness(given)


class RuleStage(Enum):
    """When a rule is tried."""

    ALWAYS = "always"
    """Directed, to a fixed point: the right side is never worse. Also holds in the e-graph."""
    EXPLORE = "explore"
    """In the e-graph: both sides live on, and cost decides."""


# -- expressions: guards, and attributes of what is built


@dataclass(frozen=True, slots=True)
class Lit:
    """A number, a string or a truth value."""

    value: int | float | str | bool | None

    def __eq__(self, other: object) -> bool:
        """Bit by bit: 1 is not 1.0, and neither is true."""
        return isinstance(other, Lit) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@dataclass(frozen=True, slots=True)
class NameRef:
    """What the pattern bound to a name (an operand, an attribute, an op), or a named set such as ``float``."""

    name: str


@dataclass(frozen=True, slots=True)
class Field:
    """A fact of an operand: ``x.dtype``, ``w.shape``, ``b.is_const``."""

    of: GuardExpr
    name: str


@dataclass(frozen=True, slots=True)
class IndexExpr:
    """One element, ``of[index]``; or, where ``stop`` is given or ``slice`` is set, the elements from index to stop."""

    of: GuardExpr
    index: GuardExpr | None
    stop: GuardExpr | None = None
    slice: bool = False


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A named function (``compose(p, q)``) or an operator (``+``, ``==``, ``and``, ``in``) on expressions."""

    function: str
    arguments: tuple[GuardExpr, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """A sequence of expressions: ``(a, b)`` or ``[a, b]``."""

    items: tuple[GuardExpr, ...]


@dataclass(frozen=True, slots=True)
class Each:
    """``each body``: the body for each value of the starred variables in it, as a sequence."""

    body: GuardExpr


GuardExpr: TypeAlias = Lit | NameRef | Field | IndexExpr | FunctionCall | Series | Each


def joined(function: str, parts: tuple[GuardExpr, ...]) -> GuardExpr:
    """``and`` or ``or`` of all parts, those of the same kind spread out; of one part, that part."""
    spread: list[GuardExpr] = []
    for part in parts:
        spread.extend(part.arguments if isinstance(part, FunctionCall) and part.function == function else (part,))
    return spread[0] if len(spread) == 1 else FunctionCall(function, tuple(spread))


def negative(expr: GuardExpr) -> GuardExpr:
    """Minus an expression; of a number, that number."""
    if isinstance(expr, Lit) and isinstance(expr.value, int | float) and not isinstance(expr.value, bool):
        return Lit(-expr.value)
    return FunctionCall("neg", (expr,))


# -- terms: patterns, and what replaces them


@dataclass(frozen=True, slots=True)
class VarPattern:
    """Any value. The same name twice is the same value. ``optional``: an input that may be left out (``b?``).

    The name ``_`` is no variable: it stands for an input that is absent (``Resize(x, _, scales)``).
    """

    name: str
    optional: bool = False
    starred: bool = False


@dataclass(frozen=True, slots=True)
class Literal:
    """As a pattern: a constant of one element, of any rank, equal to the number. As a replacement: that constant of
    rank 0 (a sequence: of rank 1), with the dtype that its neighbours give it by the op's schema."""

    value: int | float | bool | tuple[int, ...] | tuple[float, ...]

    def __eq__(self, other: object) -> bool:
        """Bit by bit: 1 is not 1.0, 0.0 is not -0.0."""
        return isinstance(other, Literal) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@dataclass(frozen=True, slots=True)
class CallPattern:
    """An op applied to terms.

    ``op`` is ONNX's name, or a lower-case name: a variable that stands for an op with all its
    attributes (guarded by ``f in unary`` and the like). In a pattern an attribute that is not
    mentioned has its default; ``attrs`` maps names to a ``NameRef`` that binds the attribute, or to an
    expression that it must equal. ``rest`` names a variable for all attributes not mentioned
    (``**a``). Inputs left out at the end are absent. ``output`` picks one output of several, and
    ``name`` gives the term's value a name for guards (``MatMul(x, w) as m``).
    """

    op: str
    inputs: tuple[Term, ...]
    attrs: tuple[tuple[str, GuardExpr], ...] = ()
    rest: str | None = None
    output: int = 0
    name: str | None = None

    @property
    def is_variable(self) -> bool:
        """Whether the op is a variable."""
        return self.op[0].islower() and "::" not in self.op


@dataclass(frozen=True, slots=True)
class AnyOf:
    """In a pattern: any one of these, tried in order. All bind the same variables."""

    options: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Computed:
    """In a replacement: a constant whose elements an expression gives, written ``{expr}``.

    Integers make int64, a sequence makes rank 1; a float takes the dtype of its neighbours. With
    ``like``, the dtype is that of the operand named.
    """

    expr: GuardExpr
    like: str | None = None


Term: TypeAlias = VarPattern | Literal | CallPattern | AnyOf | Computed

ABSENT = VarPattern("_")
"""An input that is not there, where others follow it."""


@dataclass(frozen=True, slots=True, repr=False)
class Rule(Scripted):
    """Terms that are equal wherever the left side is valid and the guards hold.

    ``lhs`` and ``rhs`` have one term for each root. ``targets`` names the targets the rule is for
    (empty: all). ``source`` says where the rule was written, as ``file:line``; rules written in two places are equal.
    ``pays`` holds those of the guards that say where the rule pays, and without which it would be as true.
    """

    name: str
    lhs: tuple[Term, ...]
    rhs: tuple[Term, ...]
    where: tuple[GuardExpr, ...] = ()
    reason: str = ""
    family: str = ""
    soundness: Soundness = Soundness.EXACT
    stage: RuleStage = RuleStage.EXPLORE
    targets: frozenset[str] = frozenset()
    source: str = field(default="", compare=False)
    pays: tuple[GuardExpr, ...] = ()

    def __repr__(self) -> str:
        from graphopt.rewrite.rule.notation import show_term

        sides = " => ".join(", ".join(map(show_term, side)) for side in (self.lhs, self.rhs))
        return f"<Rule {self.name}: {shortened(sides)}>"

    def script(self) -> str:
        """The rule as it stands in a file of rules."""
        from graphopt.rewrite.rule.notation import show_rule  # which prints what is defined here

        return show_rule(self)


def conjuncts(guard: GuardExpr | None) -> tuple[tuple[GuardExpr, ...], tuple[GuardExpr, ...]]:
    """The guards that one expression joins by ``and``; and those of them that stand in ``pays(...)``."""
    is_joined = isinstance(guard, FunctionCall) and guard.function == "and"
    parts = () if guard is None else guard.arguments if is_joined else (guard,)  # type: ignore[union-attr]
    where: list[GuardExpr] = []
    pays: list[GuardExpr] = []
    for part in parts:
        match part:
            case FunctionCall("pays", (inner,)):
                where.append(inner)
                pays.append(inner)
            case _:
                where.append(part)
    return tuple(where), tuple(pays)


def by_identity(function: Callable[[G], R]) -> Callable[[G], R]:
    """A function of terms, or of tuples of them, that is called once for each object: to hash a term takes as long as
    to walk through it, and those of rules live on."""
    found: dict[int, tuple[G, R]] = {}

    @wraps(function)
    def asked(given: G) -> R:
        entry = found.get(id(given))
        if entry is None:
            if len(found) == MOST_OBJECTS:
                found.clear()
            entry = found[id(given)] = given, function(given)  # which is kept, so that no other has its identity
        return entry[1]

    return asked


MOST_OBJECTS = 20_000
"""Of so many objects at most a function is known that was called ``by_identity``."""


@by_identity
def calls(term: Term) -> tuple[CallPattern, ...]:
    """All calls in a term, the outermost first."""
    found: list[CallPattern] = []
    waiting = [term]
    while waiting:
        part = waiting.pop()
        if isinstance(part, CallPattern):
            found.append(part)
            waiting += part.inputs[::-1]
        elif isinstance(part, AnyOf):
            waiting += part.options[::-1]
    return tuple(found)


@by_identity
def variables(term: Term) -> tuple[VarPattern, ...]:
    """All variables in a term, each name once, in order of appearance."""
    match term:
        case VarPattern("_"):
            named: tuple[VarPattern, ...] = ()
        case VarPattern():
            named = (term,)
        case CallPattern(inputs=inputs):
            named = tuple(v for t in inputs for v in variables(t))
        case AnyOf(options=options):
            named = tuple(v for t in options for v in variables(t))
        case _:
            named = ()
    return tuple({v.name: v for v in named}.values())


_PARTS: Mapping[type, Callable[[Any], Sequence[GuardExpr | None]]] = {
    Field: lambda e: (e.of,),
    IndexExpr: lambda e: (e.of, e.index, e.stop),
    FunctionCall: lambda e: e.arguments,
    Series: lambda e: e.items,
    Each: lambda e: (e.body,),
}
"""What expressions are made of, by their class."""


@by_identity
def subexpressions(expr: GuardExpr) -> tuple[GuardExpr, ...]:
    """An expression and all that it is made of, the outermost first."""
    found: list[GuardExpr] = []
    waiting = [expr]
    while waiting:
        part = waiting.pop()
        found.append(part)
        if (parts_of := _PARTS.get(type(part))) is not None:
            waiting += [inner for inner in reversed(parts_of(part)) if inner is not None]
    return tuple(found)
