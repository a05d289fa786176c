"""Where rules with several roots apply: they root in the graph that is explored, and not in what rules make of it."""

from __future__ import annotations

from collections.abc import Iterable

from graphopt.ir.graph import Graph, Value
from graphopt.rewrite.match.build import family
from graphopt.rewrite.match.matcher import matches, root_ops
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.rule import Rule

Families = frozenset[tuple[str, tuple[Value, ...]]]
"""Names of rules, each with the roots of one match."""


def families(rules: Iterable[Rule], graph: Graph) -> Families:
    """All matches of those rules in the graph that have several roots."""
    several = [(rule, root_ops(rule)) for rule in rules if len(rule.lhs) > 1 or family(rule.lhs[0])]
    space = Workspace(graph)
    roots = (
        (rule.name, match.roots)
        for rule, ops in several
        for node in graph.nodes()
        if ops is None or node.op in ops
        for match in matches(rule, space, node)
    )
    return frozenset(roots)
