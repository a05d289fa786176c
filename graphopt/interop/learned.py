"""Learned rules: the left side is a region of a model, the right side is left to the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from graphopt.errors import RuleError, UsageError
from graphopt.frozen import dataclass
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.rewrite.checking.explain_match import find_node, unknown_node
from graphopt.rewrite.match.describe import name_of
from graphopt.rewrite.match.matcher import match
from graphopt.rewrite.reading.formatting import wrapped
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.reading.region import GraphRegion, RegionGuard, TermWriter, between, guards_on, rule_name
from graphopt.rewrite.rule.notation import show_expr, show_term
from graphopt.rewrite.rule.rule import Rule, Term, VarPattern

_INDENT = " " * 4


@dataclass(frozen=True)
class Learned:
    """A left side with its guards, and what its variables stand for in the model that it was learnt from."""

    name: str
    region: GraphRegion
    terms: tuple[Term, ...]
    guards: tuple[RegionGuard, ...]
    variables: Mapping[str, tuple[Value, Fact]]
    attributes: tuple[str, ...]
    places: int
    """How many places of the model the left side matches."""
    model: str = ""

    @property
    def text(self) -> str:
        """The text of a rule file with one rule, which lacks its right side; guards have a line and a reason each."""
        return self.written("")

    def rule(self, right: str) -> Rule:
        """The rule with this right side. Raises RuleError with line and column where it makes no sense."""
        (rule,) = parse_rules(self.written(right), f"{self.name}.rules")
        return rule

    def written(self, right: str) -> str:
        """The text with a right side; empty, where there is none yet."""
        names = [*self.variables, *self.attributes]
        several = f": {len(self.terms)} terms with commas between them," if len(self.terms) > 1 else ","
        lines = [
            *self._told(),
            "",
            "# why the right side equals the left one, and what it saves",
            "# exact",
            *wrapped(f"{self.name}:  {', '.join(map(show_term, self.terms))}"),
            f"{_INDENT}=>  {right or f'?  # the right side takes the place of the ?{several} made of {_and(names)}'}",
            *self._where(),
        ]
        return "\n".join(lines) + "\n"

    def _told(self) -> list[str]:
        """What the comment at the top tells: where the rule is from, what its variables are, what is to be done."""
        ends = _and([_shown(self._called(root)) for root in self.roots])
        count = len(self.region.nodes)
        lines = [f"# {count} {'op' if count == 1 else 'ops'} of {_shown(self.model or 'a model')} that make {ends}"]
        width = max(map(len, self.variables), default=0)
        for name, (value, fact) in self.variables.items():
            kind = "a constant" if fact.is_const else "an input" if self._is_input(value) else "made outside"
            lines.append(f"#   {name:{width}}  {fact.type or 'unknown'}, {kind}: {_shown(self._called(value))}")
        lines += [
            "# A right side holds wherever the left side matches, so weaken or drop guards only where it still does.",
            "# `exact` says equal bit by bit; finite, reals and approx say less. Then: graphopt rules check FILE",
        ]
        if len(self.terms) > 1:
            lines.insert(-2, "# Several values are read elsewhere: each is a term, left and right, in the same order.")
        return lines

    @property
    def roots(self) -> tuple[Value, ...]:
        """The values that the terms are."""
        return self.region.roots

    def _where(self) -> list[str]:
        joints = ["where", *["and"] * len(self.guards)]
        written = [f"{_INDENT}{j} {show_expr(g.expr)}" for j, g in zip(joints, self.guards, strict=False)]
        width = max(map(len, written), default=0)
        return [f"{line:{width}}  # {guard.why}" for line, guard in zip(written, self.guards, strict=True)]

    def _is_input(self, value: Value) -> bool:
        return self.region.graph.producer(value).op == INPUT

    def _called(self, value: Value) -> str:
        return name_of(self.region.graph, self.region.graph.producer(value), value.port)


def learn_rule(model: Any, nodes: str, name: str = "learned") -> Learned:
    """The rule whose left side is the region of a model from A to B, written ``"A..B"``, or one node.

    A and B are nodes by their names, by the names of values that they make, or by numbers (``%7``); several stand with
    commas between them. ``model`` is a ``Graph``, or what ``graphopt.load`` takes. Raises UsageError where there are no
    such nodes (with the nearest names), where no data goes from A to B, or where the region holds what no rule can say.
    """
    from graphopt.ir.onnx_io import load

    graph = model if isinstance(model, Graph) else load(model)
    called = PurePath(str(model)).name if isinstance(model, str | Path) else graph.name
    first, last = chosen(graph, nodes)
    return learned(between(graph, first, last), name, called)


def learned(region: GraphRegion, name: str = "learned", model: str = "") -> Learned:
    """The rule whose left side is a region. Raises UsageError as ``learn_rule`` does."""
    graph = region.graph
    if not region.roots:
        raise UsageError("nothing outside of the region reads what it makes: it could be dropped, not replaced")
    facts = infer(graph)

    def variable(value: Value, constant: Constant, suggested: str) -> Term:
        return writer.variable(value, suggested)

    writer = TermWriter(region, variable)
    terms = writer.roots()
    variables = {v.name: (value, facts[value]) for value, v in writer.variables.items()}
    guards = tuple(guards_on({n: fact for n, (_, fact) in variables.items()}))
    rule = Learned(rule_name(name), region, terms, guards, variables, tuple(writer.attributes), 0, model)
    return replace(rule, places=_places(rule, facts))


def same_terms(region: GraphRegion, variables: Mapping[Value, VarPattern]) -> tuple[Term, ...]:
    """The terms of a region as a right side would spell them, over the variables of its left side."""
    return TermWriter(region, None, variables, shares=False).roots()


def _places(rule: Learned, facts: Mapping[Value, Fact]) -> int:
    """How many places of the model the left side matches; RuleError where not even its own."""
    graph = rule.region.graph
    try:
        read = rule.rule(", ".join(map(show_term, same_terms(rule.region, rule_variables(rule)))))
    except RuleError as error:
        raise UsageError(f"the region cannot be written as a rule: {error}") from None
    sites = {occurrence.roots for node in graph.nodes() for occurrence in match(read, graph, facts, node.id)}
    if rule.roots not in sites:
        raise UsageError("what the region would become does not match the region itself: its roots share no value")
    return len(sites)


def rule_variables(rule: Learned) -> dict[Value, VarPattern]:
    """The variables by the values that they stand for."""
    return {value: VarPattern(name) for name, (value, _) in rule.variables.items()}


def chosen(graph: Graph, nodes: str) -> tuple[list[Node], list[Node]]:
    """The nodes that ``A..B`` names, or ``A`` alone. Raises UsageError with the nearest names where there are none."""
    whole = find_node(graph, nodes)
    first, dots, last = ("", "", "") if whole is not None else nodes.partition("..")
    if not dots:
        region = _nodes(graph, nodes)
        return region, region
    return _nodes(graph, first), _nodes(graph, last)


def _nodes(graph: Graph, names: str) -> list[Node]:
    node = find_node(graph, names)
    if node is None and "," in names:
        return [node for name in names.split(",") for node in _nodes(graph, name)]
    if node is None:
        raise UsageError(unknown_node(graph, names))
    if node.op in (INPUT, CONSTANT):
        kind = "an input of the model" if node.op == INPUT else "a constant"
        raise UsageError(f"{names!r} is {kind}, not the result of a node: name a node that reads it")
    return [node]


def _and(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def _shown(name: str) -> str:
    """A name from a model in a comment, which ends with its line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
