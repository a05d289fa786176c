"""E-graph of a model as people can read it: classes of equal terms, what each member costs, and what another choice of
one would change.

Of a class with several members the e-graph offers a choice. What the model costs with another than the chosen one is
that of the model in which that member computes the class and all else stays as it is, with the cheapest of what it
reads beyond that; fusions and layouts of the target are included. That is done for a number of members and no more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.display import counted, duration, shortened
from graphopt.frozen import dataclass
from graphopt.ir import onnx_io
from graphopt.ir.graph import INPUT, Graph
from graphopt.optimize import optimize_graph
from graphopt.rewrite.egraph.egraph_snapshot import PROJECTION, ENode, Saturated
from graphopt.rewrite.egraph.saturate import SaturationBudget
from graphopt.rewrite.extract.choose import Extraction, Forced, forced
from graphopt.rewrite.extract.terms import Terms
from graphopt.rewrite.match.describe import name_of
from graphopt.rewrite.rule.rule import soundness
from graphopt.rewrite.ruleset import Ruleset
from graphopt.run.observer import Watch
from graphopt.run.steps import OwnStep
from graphopt.target import PORTABLE, Target

if TYPE_CHECKING:
    from graphopt.run.report import Report

CLASSES = 1000
"""So many classes of an e-graph are told at most: those whose members differ most in price."""
MEMBERS = 32
"""And so many members of each: the chosen one, and the cheapest."""
SEARCHED = 12_000
"""For so many classes in all another choice is searched for: each search goes over all classes of the e-graph."""
CHANGES = 24
"""So many nodes of another choice are told."""
LENGTH = 160
"""Letters of a term."""


@dataclass(frozen=True, slots=True)
class Instead:
    """What the model is if another member of a class is chosen: its modelled seconds and the bytes of its constants
    beyond those of the chosen model, and the nodes that it lacks and has."""

    seconds: float
    bytes: int
    gone: tuple[str, ...]
    added: tuple[str, ...]
    more: int = 0
    """How many nodes beyond these differ."""


@dataclass(frozen=True, slots=True)
class Member:
    """A term of a class: an op, on classes. ``rule`` is what made it, and empty where the model has it."""

    id: int
    op: str
    text: str
    rule: str
    seconds: float
    """What it costs by itself, as modelled."""
    reads: tuple[int | None, ...]
    """Classes, by number."""
    instead: Instead | None = None
    """None for the chosen member, and where it was not looked for or would be circular."""


@dataclass(frozen=True, slots=True)
class EqualTerms:
    """A class of equal terms, the cheapest by itself first. ``chosen`` is a position among them."""

    number: int
    name: str
    type: str
    members: tuple[Member, ...]
    chosen: int | None
    """None where nothing that was chosen needs the class."""
    why: str
    omitted: int = 0
    """How many more members there are."""

    @property
    def margin(self) -> float:
        """How much more the model takes with the second best, in seconds; infinite where no other goes."""
        return min((m.instead.seconds for m in self.members if m.instead is not None), default=inf)


@dataclass(frozen=True, slots=True)
class ExploredGraph:
    """An e-graph and what was chosen: of the whole graph, of a body, or of a block that it repeats.

    ``names`` has those of the other classes that members read.
    """

    classes: tuple[EqualTerms, ...]
    names: Mapping[int, str] = field(default_factory=dict)
    total: int = 0
    """How many classes there are, with those of one member,"""
    nodes: int = 0
    """and how many e-nodes."""
    choices: int = 0
    """How many classes have several members; no more than these are told."""
    stop: str = ""
    seconds: float = 0.0
    """What was chosen costs, as modelled,"""
    original: float = 0.0
    """and what the graph did that was explored."""


def egraphs(
    model: str | Path | Graph,
    rules: Ruleset | None = None,
    target: Target = PORTABLE,
    policy: str = "reals",
    budget: SaturationBudget | None = None,
) -> tuple[ExploredGraph, ...]:
    """The e-graphs of a model in which there was a choice, in the order in which they were explored."""
    graph = model if isinstance(model, Graph) else onnx_io.load(model)
    watch = Watch()
    optimize_graph(graph, rules, target, soundness(policy), budget, watch)
    told = (explored(seen.saturated, seen.extraction) for seen in watch.seen)
    return tuple(t for t in told if t.classes)


class Kept:
    """What a run explored and chose by the prices of targets, kept by a step that takes the place of ``choose``.

    ``targets`` are those that the run chooses for, by name (``graphopt.optimize.candidates``).
    """

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self.targets = targets
        self.seen: list[tuple[Saturated, Extraction]] = []

    def steps(self, others: Mapping[str, OwnStep] | None = None) -> dict[str, OwnStep]:
        """The user's own steps, ``others`` among them: a step of that name is called, too."""
        inner = (others or {}).get("choose")

        def choose(step: Callable[[Any], Any], saturated: Any) -> Any:
            extraction = step(saturated) if inner is None else inner(step, saturated)
            self.seen.append((saturated, extraction))
            return extraction

        return {**(others or {}), "choose": choose}

    def told(self, report: Report) -> tuple[ExploredGraph, ...]:
        """The e-graphs in which there was a choice, of the candidate that is kept by the report of the run; where that
        is the original, of the first."""
        kept = None if report.measured is None else self.targets.get(report.measured.kept)
        target = kept or next(iter(self.targets.values()))
        told = (explored(s, e) for s, e in self.seen if e.cost_model.target == target)
        return tuple(t for t in told if t.classes)


def names_of_classes(saturated: Saturated) -> dict[int, str]:
    """The names of the classes that the graph has values of: that of the first of each."""
    graph = saturated.graph
    return {c: name_of(graph, graph.node(v.node), v.port) for c, v in saturated.first_values.items()}


def explored(saturated: Saturated, extraction: Extraction) -> ExploredGraph:
    """An e-graph as people can read it."""
    return _Teller(saturated, extraction).told()


class _Teller:
    """Tells of one e-graph."""

    def __init__(self, saturated: Saturated, extraction: Extraction) -> None:
        self.saturated, self.extraction = saturated, extraction
        self.terms = Terms(saturated, extraction.cost_model)
        self.choice = extraction.choice
        self.least = extraction.cost.total.seconds
        self.stored = extraction.nbytes
        self.starts = [a.first for a in saturated.provenance.applications]
        self.values = names_of_classes(saturated)
        self.left = SEARCHED

    def told(self) -> ExploredGraph:
        several = [c for c, nodes in self.terms.working.items() if len(nodes) > 1 and not self.is_port(nodes[0])]
        widest = sorted(several, key=lambda c: (c not in self.choice, -self.spread(c), c))[:CLASSES]
        classes = tuple(self.told_of(c) for c in widest)
        read = {c for told in classes for m in told.members for c in m.reads if c is not None}
        return ExploredGraph(
            tuple(sorted(classes, key=lambda told: told.number)),
            {c: self.name(c) for c in sorted(read - {told.number for told in classes})},
            len(self.saturated.classes),
            self.saturated.nodes,
            len(several),
            self.saturated.stop,
            self.least,
            self.extraction.original.total.seconds,
        )

    def is_port(self, node: ENode) -> bool:
        return node.op == PROJECTION

    def seconds(self, c: int, node: ENode) -> float:
        return self.terms.cost(c, node).seconds

    def spread(self, c: int) -> float:
        """How far the prices of members are apart."""
        prices = [self.seconds(c, node) for node in self.terms.working[c]]
        return max(prices) - min(prices)

    def told_of(self, c: int) -> EqualTerms:
        chosen = self.choice.get(c)
        nodes = sorted(self.terms.working[c], key=lambda n: (self.seconds(c, n), n.id))
        if chosen is not None:
            nodes = [chosen, *(n for n in nodes if n.id != chosen.id)]
        shown = sorted(nodes[:MEMBERS], key=lambda n: (self.seconds(c, n), n.id))
        members = tuple(self.member(c, node, chosen) for node in shown)
        at = next((i for i, node in enumerate(shown) if chosen is not None and node.id == chosen.id), None)
        type_ = str(self.saturated.facts[c].type or "")
        return EqualTerms(c, self.name(c), type_, members, at, self.why(members, at), len(nodes) - len(shown))

    def member(self, c: int, node: ENode, chosen: ENode | None) -> Member:
        others = () if chosen is None or node.id == chosen.id else self.other(c, node)
        return Member(
            node.id, node.op, self.text(node), self.rule(node), self.seconds(c, node), node.children,
            next(iter(others), None),
        )  # fmt: skip

    def other(self, c: int, node: ENode) -> Iterator[Instead]:
        """What another choice changes, where that is searched for."""
        self.left -= len(self.terms.working)
        found = forced(self.terms, {c: node}, self.choice) if self.left >= 0 else None
        if found is not None:
            yield self.instead(found)

    def instead(self, found: Forced) -> Instead:
        before, after = (
            {n.id: n for c, n in choice.items() if c not in self.terms.constants and n.op not in (INPUT, PROJECTION)}
            for choice in (self.choice, found.choice)
        )
        gone = [self.text(n) for id, n in before.items() if id not in after]
        added = [self.text(n) for id, n in after.items() if id not in before]
        more = max(len(gone) - CHANGES, 0) + max(len(added) - CHANGES, 0)
        seconds = found.cost.total.seconds - self.least
        return Instead(seconds, found.nbytes - self.stored, tuple(gone[:CHANGES]), tuple(added[:CHANGES]), more)

    def why(self, members: Sequence[Member], at: int | None) -> str:
        """Why the chosen member won."""
        if at is None:
            return "nothing that was chosen needs it"
        others = [(m.instead.seconds, m) for m in members if m.instead is not None]
        if not others:
            return "it is part of the cheapest model; no other goes with all else as it is"
        least, runner_up = min(others, key=lambda other: (other[0], other[1].id))
        if least > self.least * 1e-9:
            return f"the model takes {duration(least)} more with any other, at the least with {runner_up.text}"
        stored = 0 if runner_up.instead is None else runner_up.instead.bytes
        if least < -self.least * 1e-9:
            added = f"stores {counted(stored, 'byte')} more" if stored > 0 else "was not found by the search"
            return f"{runner_up.text} would save {duration(-least)}, but {added}"
        return f"the model takes as long with {runner_up.text}" + (", and stores less" if stored > 0 else "")

    def name(self, c: int) -> str:
        """What the graph calls a class, or else the term that was chosen for it, or its first."""
        if c in self.values:
            return self.values[c]
        nodes = self.saturated.classes.get(c, ())
        node = self.choice.get(c) or (nodes[0] if nodes else None)
        return f"class {c}" if node is None else self.text(node)

    def text(self, node: ENode) -> str:
        return shortened(self.saturated.provenance.text(node.id, 2), LENGTH)

    def rule(self, node: ENode) -> str:
        """The rule that made a term; nothing where the graph has it."""
        position = bisect_right(self.starts, node.id) - 1
        return "" if node.node is not None or position < 0 else self.saturated.provenance.applications[position].rule
