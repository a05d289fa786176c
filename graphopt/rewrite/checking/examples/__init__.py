"""Small graphs in which the left side of a rule occurs, made from the rule alone.

Root first, every call is asked what its operands should be (``samplers``); operands that the pattern
leaves open become inputs or constants of what they should be. Guards are read for hints (dtypes,
ranks, constness, numbers), and where the finished graph fails a guard that is an equation, the
equation is solved for one of its parts and the graph is made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle, product
from random import Random

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir.constants import Array
from graphopt.ir.graph import Graph
from graphopt.rewrite.checking.examples.arrays import array
from graphopt.rewrite.checking.examples.draft import Draft
from graphopt.rewrite.checking.examples.hints import Hints
from graphopt.rewrite.checking.examples.making import graph_of
from graphopt.rewrite.checking.examples.sample import Misfit, Shape, Want
from graphopt.rewrite.checking.examples.solving import repair
from graphopt.rewrite.checking.examples.variants import variants
from graphopt.rewrite.match.matcher import Match, matches
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.rule import Rule

REPAIRS = 4
"""How often an attempt is changed to satisfy its guards."""


SMALL = tuple(shape for rank in range(4) for shape in product((1, 2, 0, 3)[: 4 if rank < 3 else 2], repeat=rank))
"""The shapes that results are asked to have one after another, beside those that are drawn."""


@dataclass(frozen=True)
class Example:
    """A graph in which a rule matches, with the match, and what the graph's inputs should be."""

    graph: Graph
    match: Match
    wants: Mapping[str, Want]

    def draw(
        self, generator: np.random.Generator, way: str, shapes: Mapping[str, Shape] | None = None
    ) -> dict[str, Array]:
        """Arrays for the inputs: ``plain``, ``positive``, ``finite`` or ``special`` ones; of other shapes if given."""
        wants = {name: replace(want, shape=(shapes or {}).get(name, want.shape)) for name, want in self.wants.items()}
        return {name: array(generator, want, way) for name, want in wants.items()}


def examples(rule: Rule, random: Random, tries: int) -> Iterator[Example | str]:
    """Graphs in which the rule matches; for each try that is none, the reason.

    Every alternative and every optional input gets its turn, present and absent, and so does every small shape.
    """
    written = [(variant, Hints.of(variant)) for variant in variants(rule)]
    small = cycle(SMALL)
    for i, (variant, hints) in zip(range(tries), cycle(written), strict=False):
        turn = i // len(written)
        shape = next(small) if turn % 2 and turn < 2 * len(SMALL) else None
        try:
            yield _example(Draft(variant, hints, random, shape), rule)
        except (Misfit, GraphoptError) as error:
            yield str(error)
        except (ValueError, MemoryError) as error:  # from numpy: no array has so many axes or elements
            yield f"no such arrays can be made ({error})"


def _example(draft: Draft, rule: Rule) -> Example:
    """The example that a draft makes. Raises Misfit where it makes none."""
    reason = ""
    for _ in range(1 + REPAIRS):
        try:
            graph, wants = graph_of(draft)
        except (Misfit, GraphoptError):
            if not draft.pinned:
                raise
            draft.redraw()
            graph, wants = graph_of(draft)
        space = Workspace(graph)
        root = graph.producer(graph.outputs[0])  # type: ignore[arg-type]
        for match in matches(rule, space, root):
            if list(match.roots) == graph.outputs:
                return Example(graph, match, wants)
        reason, changed = repair(draft, space)
        if not changed:
            break
    raise Misfit(reason)
