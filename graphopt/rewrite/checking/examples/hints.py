"""Hints from guards: what the guards of a rule say about which dtypes, ranks and numbers are worth trying in an
example."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from graphopt.ir import ops
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.rule.rule import (
    AnyOf,
    Apply,
    Call,
    Computed,
    Expr,
    Field,
    Lit,
    Literal,
    Ref,
    Rule,
    Series,
    Term,
    calls,
    subexpressions,
)


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

    def _guard(self, guard: Expr) -> None:
        # structural recursion over conjunctions: one case for each form of guard that names what to draw
        match guard:
            case Apply("and", parts):
                for part in parts:
                    self._guard(part)
            case Apply("not", (Field(Ref(name), "is_const"),)):
                self.variables.add(name)
            case Field(Ref(name), "is_const"):
                self.constants.add(name)
            case Apply("in", (Field(Ref(name), "dtype"), Ref(kind))):
                self.dtypes[name] = expressions.named_set(kind)
            case Apply("in", (Field(Ref(name), "dtype"), Series(items))):
                self.dtypes[name] = frozenset(str(i.value) for i in items if isinstance(i, Lit))
            case Apply("or", (Apply("in", (Field(Ref(name), "dtype"), Ref(a))), Apply("in", (Field(), Ref(b))))):
                self.dtypes[name] = expressions.named_set(a) | expressions.named_set(b)
            case Apply("==", (Field(Ref(name), "dtype"), Lit(value))):
                self.dtypes[name] = frozenset([str(value)])
            case Apply("in", (Ref(name), Ref(kind))):
                self.heads[name] = tuple(sorted(expressions.named_set(kind)))
            case Apply("in", (Ref(name), Series(items))):
                self.heads[name] = tuple(str(i.value) for i in items if isinstance(i, Lit))
            case Apply("==", (Ref(name), Lit(str(value)))):
                self.heads[name] = (value,)
            case Apply("==", (Field(Ref(name), "size"), Lit(1))):
                self.single.add(name)
            case Apply("==", (Field(Ref(name), "rank"), Lit(int(rank)))):
                self.rank_of[name] = rank
            case Apply("<", (Ref("opset"), Lit(int(limit)))):
                self.opset = limit - 1
            case Apply("<=", (Ref("opset"), Lit(int(limit)))):
                self.opset = limit

    def _mentions(self, expr: Expr) -> None:
        match expr:
            case Field(Ref(name), "value" | "scalar" | "elements"):
                self.constants.add(name)
            case Field(Ref(name), "low" | "high"):
                self.bounded.add(name)
            case Apply("==" | ">=" | ">" | "<=" | "<", (Field(_, "rank"), Lit(int(rank)))):
                self.ranks += [rank] * 3
            case Lit(str(text)):
                self.strings.append(text)
            case Lit(int() | float() as number) if not isinstance(number, bool):
                self.numbers.append(number)
            case Apply("/", (Lit(float(a)), Lit(float(b)))):
                self.numbers.append(a / b)


def _expressions(rule: Rule) -> Iterator[Expr]:
    """The expressions on the right side and in attributes of the left."""
    waiting: list[Term] = [*rule.lhs, *rule.rhs]
    while waiting:
        term = waiting.pop()
        match term:
            case Call(inputs=inputs, attrs=attrs):
                waiting.extend(inputs)
                yield from (e for _, e in attrs)
            case AnyOf(options):
                waiting.extend(options)
            case Computed(expr):
                yield expr
