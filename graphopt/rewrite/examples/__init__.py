"""Small graphs in which the left side of a rule occurs, made from the rule alone.

Root first, every call is asked what its operands should be (``samplers``); operands that the pattern
leaves open become inputs or constants of what they should be. Guards are read for hints (dtypes,
ranks, constness, numbers), and where the finished graph fails a guard that is an equation, the
equation is solved for one of its parts and the graph is made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from graphopt.errors import GraphoptError
from graphopt.ir.graph import Graph
from graphopt.rewrite.examples.draft import Draft
from graphopt.rewrite.examples.hints import Hints
from graphopt.rewrite.examples.making import Draw, graph_of
from graphopt.rewrite.examples.sample import Misfit
from graphopt.rewrite.examples.solving import repair
from graphopt.rewrite.match import Match, matches
from graphopt.rewrite.rule import Rule
from graphopt.rewrite.workspace import Workspace

REPAIRS = 4
"""How often an attempt is changed to satisfy its guards."""


@dataclass(frozen=True)
class Example:
    """A graph in which a rule matches, with the match, and how to draw arrays for the graph's inputs."""

    graph: Graph
    match: Match
    draw: Draw


def examples(rule: Rule, random: Random, tries: int) -> Iterator[Example | str]:
    """Graphs in which the rule matches; for each try that is none, the reason."""
    hints = Hints.of(rule)
    for _ in range(tries):
        try:
            yield _example(Draft(rule, hints, random))
        except (Misfit, GraphoptError) as error:
            yield str(error)
        except (ValueError, MemoryError) as error:  # from numpy: no array has so many axes or elements
            yield f"no such arrays can be made ({error})"


def _example(draft: Draft) -> Example:
    """The example that a draft makes. Raises Misfit where it makes none."""
    reason = ""
    for _ in range(1 + REPAIRS):
        try:
            graph, draw = graph_of(draft)
        except (Misfit, GraphoptError):
            if not draft.pinned:
                raise
            draft.redraw()
            graph, draw = graph_of(draft)
        space = Workspace(graph)
        root = graph.producer(graph.outputs[0])  # type: ignore[arg-type]
        for found in matches(draft.rule, space, root):
            if list(found.roots) == graph.outputs:
                return Example(graph, found, draw)
        reason, changed = repair(draft, space)
        if not changed:
            break
    raise Misfit(reason)
