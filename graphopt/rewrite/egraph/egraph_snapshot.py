"""Snapshot of a saturated e-graph: classes of equal terms, from which extraction chooses one graph.

A *class* is a set of terms that compute the same value; an *e-node* is an op applied to classes. A
node of the graph with several outputs is one e-node whose class stands for all its outputs together;
each output is a class of its own, reached by a *projection*, an e-node that costs nothing. Classes
and e-nodes are named by integers of our own, given in the order in which terms were made (those of
the graph first, in topological order), so that all of this is the same in every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import NamedTuple

from graphopt.frozen import dataclass
from graphopt.ir.facts import Fact
from graphopt.ir.graph import NO_ATTRS, Attrs, Graph, Value
from graphopt.rewrite.egraph.provenance import Provenance
from graphopt.rewrite.match.statistics import RuleStatistics

PROJECTION = "<output>"
"""The op of an e-node that is one output (attribute ``index``) of the class that is its only child."""


@dataclass(frozen=True, slots=True)
class ENode:
    """An op applied to classes. ``id`` is unique among all e-nodes, and smaller for those made earlier."""

    id: int
    op: str
    attrs: Attrs = NO_ATTRS
    children: tuple[int | None, ...] = ()
    """The classes that are read, in the order of the op's inputs; None is an absent optional input."""
    n_outputs: int = 1
    """More than one: the class of this e-node is that of all outputs together, read only by projections."""
    node: int | None = None
    """The node of the graph that this was read from (the first, where several were equal); None: made by a rule."""

    @property
    def projection(self) -> int | None:
        """Which output of its child this is, if it is a projection."""
        index = self.attrs["index"] if self.op == PROJECTION else None
        return index if isinstance(index, int) else None


class SaturationRound(NamedTuple):
    """How much there was after a round of saturation."""

    nodes: int
    """Distinct e-nodes."""
    classes: int
    """Classes of equal terms."""
    applied: int
    """Matches applied so far."""


@dataclass(frozen=True, slots=True)
class Call:
    """An op on operands of which these facts are known; what it costs goes by nothing else."""

    op: str
    attrs: Attrs
    inputs: tuple[Fact | None, ...]
    outputs: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a rule: where the left side of a rule is, and what comes of the rule there."""

    rule: str
    roots: tuple[int, ...]
    """The classes of the roots."""
    left: str
    """The left side, as the rule spells it."""
    why: str = ""
    """The first thing that is in the way; empty where the rule applies."""
    opset: int | None = None
    """The lowest opset at which it would apply, where the model's is all that is in the way."""
    before: tuple[Call, ...] = ()
    after: tuple[Call, ...] = ()
    """What the two sides compute when the model runs, where the rule applies or would at that opset."""
    inner: tuple[int, ...] = ()
    """The classes between the roots and the operands of the left side."""
    right: tuple[int, ...] = ()
    """Where the rule applied: the e-nodes that the roots are on its right side, by ``id``."""

    held: int = 0
    """How many of the guards hold, up to the first that does not."""

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """Of several places at one root that with the highest is told of: where the rule applies, or does but for the
        opset, or got furthest."""
        return not self.why, self.opset is not None, self.held


@dataclass(frozen=True)
class Saturated:
    """Equal graphs, side by side. All mappings are in ascending order of their keys."""

    graph: Graph
    """The graph that was explored; never changed."""
    classes: Mapping[int, tuple[ENode, ...]]
    """The e-nodes of each class that the outputs can reach, in order of ``id``."""
    facts: Mapping[int, Fact]
    """What is known of each class; nothing but ``is_const`` for the classes of nodes with several outputs."""
    roots: tuple[int | None, ...]
    """The class of each graph output, in order (None: an output that a function body leaves out)."""
    values: Mapping[Value, int]
    """The class of each value of the graph."""
    originals: Mapping[int, ENode]
    """For each class that the graph already had: its first e-node from the graph. Choosing these gives the input back,
    with equal terms shared; it is acyclic."""
    provenance: Provenance
    """Why terms are equal."""
    statistics: Mapping[str, RuleStatistics]
    """By rule name, in order of the rules."""
    stop: str
    """Why it stopped: ``saturated``, ``put off`` (saturated but for that), ``nodes``, ``iterations`` or ``seconds``."""
    iterations: int
    """Rounds of matching and applying."""
    nodes: int
    """Distinct e-nodes at the end."""
    seconds: float = 0.0
    terms: Mapping[Value, int] = field(default_factory=dict)
    """The term of each value of the graph: a number of ``provenance``, and the ``id`` of an e-node."""
    contradictions: tuple[str, ...] = ()
    """What followed from the rules and cannot be (one value of two types): some rule is wrong."""
    rounds: tuple[SaturationRound, ...] = ()
    """How it grew: what there was before the first round, and after each."""
    put_off: Mapping[str, int] = field(default_factory=dict)
    """The rules of which something was put off, with how many matches were because their class had enough of the rule;
    0 where it would have taken too long to find all of its matches."""
    waiting: tuple[Place, ...] = ()
    """Where nothing but the opset of the model is in the way of a rule."""
    places: tuple[Place, ...] = ()
    """All places of the rule that was asked about."""

    @property
    def reproducible(self) -> bool:
        """Whether another run must give the same; false where the clock ended this one."""
        return self.stop != "seconds"

    def outputs(self, node: ENode, of: int) -> tuple[Fact | None, ...]:
        """The facts of the outputs of an e-node of class ``of``; None for one of several outputs that nobody reads."""
        if node.n_outputs == 1:
            return (self.facts[of],)
        facts: list[Fact | None] = [None] * node.n_outputs
        for index, projected in self.projections.get(of, {}).items():
            if index < node.n_outputs:
                facts[index] = self.facts[projected]
        return tuple(facts)

    def chosen(self, choice: Mapping[int, ENode]) -> list[int]:
        """The classes that the roots need under a choice, each after those that it reads. ValueError on a cycle."""
        order: dict[int, None] = {}
        entered: set[int] = set()
        waiting = [r for r in reversed(self.roots) if r is not None]
        while waiting:
            name = waiting[-1]
            missing = [c for c in choice[name].children if c is not None and c not in order]
            if name in order or not missing:
                order[name] = None
                waiting.pop()
            elif name in entered:
                raise ValueError(f"the choice has a cycle through class {name} ({choice[name].op})")
            else:
                entered.add(name)
                waiting += reversed(missing)
        return list(order)

    @cached_property
    def first_values(self) -> Mapping[int, Value]:
        """For each class that values of the graph are in: the first of them."""
        return {name: value for value, name in reversed(list(self.values.items()))}

    @cached_property
    def projections(self) -> Mapping[int, Mapping[int, int]]:
        """For each class of several outputs: the class of each output that is read, by its index."""
        projections: dict[int, dict[int, int]] = {}
        for name, nodes in self.classes.items():
            for node in nodes:
                index, child = node.projection, node.children[0] if node.children else None
                if index is not None and child is not None:
                    projections.setdefault(child, {}).setdefault(index, name)
        return projections
