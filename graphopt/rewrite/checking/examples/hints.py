"""Hints from guards: what the guards of a rule say about which dtypes, ranks and numbers are worth trying in an
example."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.rule.rule import (
    AnyOf,
    CallPattern,
    Computed,
    Each,
    Field,
    FunctionCall,
    GuardExpr,
    Lit,
    Literal,
    NameRef,
    Rule,
    Series,
    Term,
    calls,
    subexpressions,
)

SHORT = 18
"""Axes of no more elements are made only because the rule speaks of a number."""


@dataclass
class Hints:
    """What the guards of a rule say about what is worth trying."""

    dtypes: dict[str, frozenset[str]] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    single: set[str] = field(default_factory=set)
    bounded: set[str] = field(default_factory=set)
    heads: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ranks: list[int] = field(default_factory=list)
    rank_of: dict[str, int] = field(default_factory=dict)
    numbers: list[float] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    opset: int = ops.LATEST

    @property
    def lengths(self) -> list[int]:
        """The numbers of which the rule speaks, one more and twice as many, that are small enough for the length of an
        axis and not drawn anyway: parts of so many elements are cut up."""
        numbers = [int(n) for n in self.numbers if n in range(4, SHORT)]
        return sorted({length for n in numbers for length in (n, n + 1, 2 * n) if length <= SHORT})

    @staticmethod
    def of(rule: Rule) -> Hints:
        """The hints of a rule."""
        hints = Hints()
        for guard in rule.where:
            hints._guard(guard)
        for expr in (*rule.where, *_expressions(rule)):
            for part in subexpressions(expr):
                hints._mentions(part)
        for call in (c for root in rule.lhs for c in calls(root)):
            for term in call.inputs:  # axes that are written out need a tensor that has them
                if isinstance(term, Literal) and isinstance(term.value, tuple) and 0 < len(term.value) <= 4:
                    hints.ranks += [int(n) + 1 for n in term.value[-1:] if n == int(n) and 1 < n < 6] * 3
        hints.constants -= hints.variables
        return hints

    def _guard(self, guard: GuardExpr) -> None:
        # structural recursion over conjunctions: one case for each form of guard that names what to draw
        match guard:
            case FunctionCall("and", parts):
                for part in parts:
                    self._guard(part)
            case FunctionCall("not", (Field(NameRef(name), "is_const"),)):
                self.variables.add(name)
            case Field(NameRef(name), "is_const"):
                self.constants.add(name)
            case FunctionCall("in", (Field(NameRef(name), "dtype"), NameRef(kind))):
                self.dtypes[name] = expressions.named_set(kind)
            case FunctionCall("in", (Field(NameRef(name), "dtype"), Series(items))):
                self.dtypes[name] = frozenset(str(i.value) for i in items if isinstance(i, Lit))
            case FunctionCall(
                "or",
                (
                    FunctionCall("in", (Field(NameRef(name), "dtype"), NameRef(a))),
                    FunctionCall("in", (Field(), NameRef(b))),
                ),
            ):
                self.dtypes[name] = expressions.named_set(a) | expressions.named_set(b)
            case FunctionCall("==", (Field(NameRef(name), "dtype"), Lit(value))):
                self.dtypes[name] = frozenset([str(value)])
            case FunctionCall("in", (NameRef(name), NameRef(kind))):
                self.heads[name] = tuple(sorted(expressions.named_set(kind)))
            case FunctionCall("in", (NameRef(name), Series(items))):
                self.heads[name] = tuple(str(i.value) for i in items if isinstance(i, Lit))
            case FunctionCall("==", (NameRef(name), Lit(str(value)))):
                self.heads[name] = (value,)
            case FunctionCall("==", (Field(NameRef(name), "size"), Lit(1))):
                self.single.add(name)
            case FunctionCall("==", (Field(NameRef(name), "rank"), Lit(int(rank)))):
                self.rank_of[name] = rank
            case FunctionCall("==", (Field(NameRef(name), "shape"), Series(items))) if not any(
                isinstance(i, Each) for i in items
            ):
                self.rank_of[name] = len(items)
            case FunctionCall("<", (NameRef("opset"), Lit(int(limit)))):
                self.opset = limit - 1
            case FunctionCall("<=", (NameRef("opset"), Lit(int(limit)))):
                self.opset = limit

    def _mentions(self, expr: GuardExpr) -> None:
        match expr:
            case Field(NameRef(name), "value" | "scalar" | "elements" | "causal" | "period"):
                self.constants.add(name)
            case Field(NameRef(name), "low" | "high"):
                self.bounded.add(name)
            case FunctionCall("==" | ">=" | ">" | "<=" | "<", (Field(_, "rank"), Lit(int(rank)))):
                self.ranks += [rank] * 3
            case Lit(str(text)):
                self.strings.append(text)
            case Lit(int() | float() as number) if not isinstance(number, bool):
                self.numbers.append(number)
            case FunctionCall("/", (Lit(float(a)), Lit(float(b)))):
                self.numbers.append(a / b)


def _expressions(rule: Rule) -> Iterator[GuardExpr]:
    """The expressions on the right side and in attributes of the left."""
    waiting: list[Term] = [*rule.lhs, *rule.rhs]
    while waiting:
        term = waiting.pop()
        match term:
            case CallPattern(inputs=inputs, attrs=attrs):
                waiting.extend(inputs)
                yield from (e for _, e in attrs)
            case AnyOf(options):
                waiting.extend(options)
            case Computed(expr):
                yield expr
