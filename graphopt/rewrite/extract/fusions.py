"""Fusion groups: terms that a runtime fuses into one op by itself, found among the classes of an e-graph.

A target lists them as rules, in the order in which the runtime applies them: each takes up what those before it made.
What such a rule builds is never put into the graph: it only says what the group costs, so that a rewrite which does
what the runtime would have done anyway earns nothing, and one which hides the group from the runtime pays for that. A
variable in the place of the first op is the activation of what is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from graphopt.errors import ReadError, RuleError
from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attr, Attrs
from graphopt.rewrite.egraph.egraph_snapshot import ENode
from graphopt.rewrite.guards import op_match
from graphopt.rewrite.guards.bindings import Bindings
from graphopt.rewrite.guards.expressions import Unknown, evaluate, holds, matches_literal
from graphopt.rewrite.match.matcher import root_ops
from graphopt.rewrite.reading.parsed import parsed
from graphopt.rewrite.rule.rule import AnyOf, CallPattern, Literal, Rule, Term, VarPattern, calls
from graphopt.target import Target

Parts = tuple[tuple[int, ENode], ...]


@dataclass(frozen=True, slots=True)
class FusionGroup:
    """An op that the runtime makes of several e-nodes: that of the class itself first, then of those inside."""

    node: ENode
    parts: Parts


def fusions(
    target: Target,
    classes: Mapping[int, Sequence[ENode]],
    facts: Mapping[int, Fact],
    opset: int,
    readers: Mapping[int, int] | None = None,
) -> dict[int, list[FusionGroup]]:
    """The groups of each class. ``classes`` are those that are computed when the model runs; ``readers`` says how many
    nodes of the graph that was explored read a class, which is one where it does not say."""
    groups: dict[int, list[FusionGroup]] = {}
    matcher = _Matcher(classes, groups, facts, opset, readers or {})
    count = 0
    by_op: dict[str, dict[int, None]] = {}
    for c, nodes in classes.items():
        for node in nodes:
            by_op.setdefault(node.op, {})[c] = None
    for rule in rules_of(target):
        root = rule.lhs[0]
        assert isinstance(root, CallPattern)
        if not all(call.op in by_op for call in calls(root) if not call.is_variable):
            continue
        places = dict.fromkeys(c for op in sorted(root_ops(rule) or by_op) for c in by_op.get(op, ()))
        made: list[tuple[int, FusionGroup]] = []
        for c in places:
            for bindings, parts in matcher.term(root, c, Bindings()):
                count += 1
                fused = matcher.build(rule, bindings, -count)
                if fused is not None:
                    made.append((c, FusionGroup(fused, parts)))
        for c, group in made:
            groups.setdefault(c, []).append(group)
            by_op.setdefault(group.node.op, {})[c] = None
    return groups


def rules_of(target: Target) -> tuple[Rule, ...]:
    """The fusions of a target. ReadError where they are no rules."""
    return _rules(target.fusions, target.name)


@cache
def _rules(text: str, target: str) -> tuple[Rule, ...]:
    if not text.strip():
        return ()
    name = f"{target}.toml: fusions.rules"
    try:
        return tuple(parsed(text, name, lambda: _read(text, name)))
    except RuleError as error:
        raise ReadError(str(error)) from None


def _read(text: str, name: str) -> list[Rule]:
    from graphopt.rewrite.reading.parse import parse_rules  # loads a grammar: only where they were not read before

    return parse_rules(text, name)


class _Matcher:
    """Patterns against classes. It is what guards ask for facts, too."""

    def __init__(
        self,
        classes: Mapping[int, Sequence[ENode]],
        groups: Mapping[int, Sequence[FusionGroup]],
        facts: Mapping[int, Fact],
        opset: int,
        readers: Mapping[int, int],
    ) -> None:
        self.readers = readers
        self.groups = groups
        self.classes = classes
        self.facts = facts
        self.opset = opset

    def fact(self, value: int) -> Fact:
        return self.facts[value]

    def constant(self, value: int) -> Constant | None:
        return self.facts[value].constant

    def uses(self, value: int) -> int | None:
        return self.readers.get(value, 1)

    def term(self, term: Term, c: int | None, bindings: Bindings[int]) -> Iterator[tuple[Bindings[int], Parts]]:
        """Every way in which a class is the term, with what that binds and the e-nodes that it passes."""
        match term:
            case VarPattern(name, optional):
                bound = self._bind(name, optional, c, bindings)
                if bound is not None:
                    yield bound, ()
            case Literal(value):
                constant = None if c is None else self.constant(c)
                if constant is not None and matches_literal(constant, value):
                    yield bindings, ()
            case AnyOf(options):
                for option in options:
                    yield from self.term(option, c, bindings)
            case CallPattern() if c is not None:
                for node in self.classes.get(c, ()):
                    if c in node.children:  # x + 0 computes x from x: a choice that has it is circular
                        continue
                    if (term.is_variable or node.op == term.op) and node.n_outputs == 1:
                        yield from self._call(term, node, ((c, node),), bindings)
                for group in self.groups.get(c, ()):
                    if group.node.op == term.op:
                        yield from self._call(term, group.node, group.parts, bindings)

    def _bind(self, name: str, optional: bool, c: int | None, bindings: Bindings[int]) -> Bindings[int] | None:
        if name == "_":
            return bindings if c is None else None
        if name in bindings.values:
            return bindings if bindings.values[name] == c else None
        if c is None and not optional:
            return None
        bound = bindings.copy()
        bound.values[name] = c
        return bound

    def _call(
        self, call: CallPattern, node: ENode, made: Parts, bindings: Bindings[int]
    ) -> Iterator[tuple[Bindings[int], Parts]]:
        """Every way in which a node that is made of ``made`` is the call."""
        bound = bindings if call.name is None else self._bind(call.name, False, made[0][0], bindings)
        if bound is None or len(node.children) > len(call.inputs):
            return
        bound = bound.copy()
        first = node.children[0] if node.children else None
        rank = None if first is None else self.facts[first].rank
        attrs = ops.canonical(node.op, node.attrs)
        if op_match.bind(call, node.op, attrs, rank, bound) is not None:
            return
        children = [*node.children, *[None] * (len(call.inputs) - len(node.children))]
        orders = [children]
        if ops.is_commutative(node.op) and len(children) == 2 and children[0] != children[1]:
            orders.append(children[::-1])
        for order in orders:
            for inner, parts in self._sequence(call.inputs, order, bound):
                if op_match.check(call, node.op, attrs, rank, inner, self) is None:
                    yield inner, made + tuple(p for p in parts if p not in made)

    def _sequence(
        self, terms: Sequence[Term], children: Sequence[int | None], bindings: Bindings[int]
    ) -> Iterator[tuple[Bindings[int], Parts]]:
        if not terms:
            yield bindings, ()
            return
        for bound, parts in self.term(terms[0], children[0], bindings):
            for rest, more in self._sequence(terms[1:], children[1:], bound):
                yield rest, parts + tuple(p for p in more if p not in parts)

    def build(self, rule: Rule, bindings: Bindings[int], id: int) -> ENode | None:
        """The op that the rule makes of a match; None where its guards do not hold."""
        root, right = rule.lhs[0], rule.rhs[0]
        assert isinstance(root, CallPattern)
        assert isinstance(right, CallPattern)
        if any(holds(guard, bindings, self) is not None for guard in rule.where):
            return None
        children: list[int | None] = []
        for term in right.inputs:
            assert isinstance(term, VarPattern)
            value: Any = bindings.values.get(term.name)
            children.append(value)
        try:
            attrs: dict[str, Any] = {name: evaluate(expr, bindings, self) for name, expr in right.attrs}
        except Unknown:
            return None
        if root.is_variable:
            attrs["activation"] = bindings.heads[root.op].op
        rest = bindings.attrs.get(right.rest) if right.rest is not None else None
        given: dict[str, Attr] = {**rest} if isinstance(rest, Attrs) else {}
        given |= {name: value for name, value in attrs.items() if value is not None}
        return ENode(id, right.op, Attrs(given), tuple(children))
