"""Reproducer of a wrong rewrite: the smallest model at hand on which the rule alone, applied by the directed matcher,
makes a result that is wrong. It is the left side by itself, as the rewrite found it, or else all that leads there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

from graphopt.errors import GraphoptError
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Value
from graphopt.ir.infer import infer
from graphopt.ir.types import TensorType
from graphopt.rewrite.match.build import Refused, replacements
from graphopt.rewrite.match.journal import Entry
from graphopt.rewrite.match.matcher import matches
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes import PASSES
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.rule.rule import Rule
from graphopt.run.derivation import Derivation
from graphopt.run.local_checks import both_sides


def reproducer(
    graph: Graph, derivation: Derivation, entry: Entry, differ: Callable[[Graph, Graph], str]
) -> Graph | None:
    """The model for a rewrite of a graph (as read), on which results ``differ`` with the rule and without it. None
    where the rule does nothing wrong by itself, or its left side cannot be had apart."""
    sides = both_sides(graph, derivation)
    roots = tuple(dict.fromkeys(left for left, _ in sides.pairs.get(entry.id, ())))
    rules = tuple(rule for rule in derivation.rules if rule.name == entry.rule)
    passes = tuple(native for native in PASSES if native.name == entry.rule)
    for nodes in (sides.lefts.get(entry.id, frozenset()), None) if roots else ():
        with suppress(GraphoptError):
            small = part(sides.graph, nodes, roots, entry.site)
            changed = small if small is None else simplify(small, rules, passes)
            if small is not None and changed is not None and changed is not small and differ(small, changed):
                return small
    return None


def difference_at(rule: Rule, graph: Graph, node_id: int, differ: Callable[[Graph, Graph], str]) -> str | None:
    """How the sides of a rule ``differ`` at a node on which it acts, in words that are empty where they do not; None
    where it does not act there. The graph is not changed."""
    space = Workspace(graph.copy(), infer(graph))
    for found in matches(rule, space, space.graph.node(node_id)):
        first = space.graph.next_id
        with suppress(Refused):
            values = replacements(rule, found.bindings, found.roots, space)
            sides = [part(space.graph, None, roots, "") for roots in (found.roots, values)]
            if sides[0] is not None and sides[1] is not None:
                return differ(sides[0], sides[1])
        space.undo(first)
    return None


def part(graph: Graph, nodes: Collection[int] | None, roots: Sequence[Value], name: str) -> Graph | None:
    """The graph of some nodes that makes these values, of which the first is called ``name``: what the nodes read are
    inputs, if it is not constant. Without ``nodes``, all that lead there. None where a type is not known."""
    cut, facts = graph.copy(), infer(graph)
    cut.outputs, cut.output_names = [], []
    for value in dict.fromkeys(_read(graph, nodes)) if nodes is not None else ():
        if facts[value].is_const or graph.producer(value).op in (INPUT, CONSTANT):
            continue
        kind = facts[value].type
        if not isinstance(kind, TensorType) or kind.dtype is None:
            return None
        cut.replace(value, cut.add_input(cut.names.pop(value, f"in_{value.node}_{value.port}"), kind))
    for number, value in enumerate(roots):
        cut.add_output(f"out_{number}", value)
    for node in reversed(cut.order()):
        if not any(cut.n_uses(value) for value in node.outputs):
            cut.remove(node.id)
    if name and not any(other == name and value != roots[0] for value, other in cut.names.items()):
        cut.output_names[0] = name
    return cut


def _read(graph: Graph, nodes: Collection[int]) -> Iterator[Value]:
    """What these nodes read of others."""
    for id in sorted(nodes):
        yield from (v for v in graph.node(id).inputs if v is not None and v.node not in nodes)
