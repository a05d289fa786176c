"""Passes over graphs and lowering steps, and pipelines of them.

A pass is a function from a graph to a graph, a Mutator or a Visitor. Behind the passes stand lowering steps, which say
how the graph becomes loops: without ``fuse`` each node has a nest of its own, without ``schedule`` nests stay in the
loops that they are written in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, TypeAlias

from graphopt.errors import UsageError, nearest_or_some
from graphopt.ir.functions import calls
from graphopt.ir.graph import Graph, Node
from graphopt.ir.visitor import Mutator, Visitor
from graphopt.lowering.cpu.constant_precompute import prepared
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.cpu.loop_fission import separated
from graphopt.lowering.cpu.weight_packing import laid_out
from graphopt.lowering.fuse.groups import joins
from graphopt.lowering.link.options import Options, alone, as_they_are, as_written, whole
from graphopt.lowering.lower.unlowered import name_of
from graphopt.lowering.module.subgraph import change_part

NodeSelector: TypeAlias = "str | Iterable[str] | Callable[[Node], bool]"
"""Nodes of a graph: one name, several names, or what is asked of each node."""


@dataclass(frozen=True, slots=True)
class Done:
    """The record of a pass: numbers of nodes before and after (bodies included), and the time."""

    name: str
    before: int
    after: int
    seconds: float
    is_changed: bool

    def __str__(self) -> str:
        nodes = f"{self.before:5} -> {self.after:5} nodes" if self.is_changed else f"{self.before:5} nodes, as before"
        return f"{self.name:20} {nodes:22} {self.seconds * 1e3:9.2f} ms"


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass, with its name. It never edits its argument, and returns that very graph where it changes nothing."""

    name: str
    change: Callable[[Graph], Graph] | Mutator | Visitor[Any]
    where: NodeSelector | None = None

    def __call__(self, graph: Graph) -> Graph:
        """The changed graph. UsageError where the pass gives no graph, or edits the one that it was given."""
        before = list(graph.nodes()), list(graph.outputs)
        changed = self._changed(graph)
        if not isinstance(changed, Graph):
            raise UsageError(f"the pass {self.name} gave {type(changed).__name__}, and a graph is expected")
        after = list(graph.nodes()), list(graph.outputs)
        if len(before[0]) != len(after[0]) or any(a is not b for a, b in zip(before[0], after[0], strict=True)):
            raise UsageError(f"the pass {self.name} edits the graph that it is given: it has to work on graph.copy()")
        if before[1] != after[1]:
            raise UsageError(f"the pass {self.name} edits the outputs of the graph that it is given: copy it first")
        return changed

    def on(self, where: NodeSelector) -> Pass:
        """The pass restricted to parts of graphs: nodes of a name, of several names, or with a property.

        A Mutator or Visitor is shown these nodes only. A function is given them as a graph of their own, which must
        not lie around others: UsageError where a path between them leads outside.
        """
        return replace(self, where=where)

    def _changed(self, graph: Graph) -> Graph:
        chosen = None if self.where is None else _chosen(graph, self.where)
        if isinstance(self.change, Mutator):
            return self.change.mutate(graph, chosen)
        if isinstance(self.change, Visitor):
            self.change.visit(graph, chosen)
            return graph
        return self.change(graph) if chosen is None else change_part(graph, chosen, self.change)


@dataclass(frozen=True, slots=True)
class LoweringStep:
    """A lowering step: a function that adjusts the lowering options."""

    name: str
    ask: Callable[[Options], Options]


PassLike: TypeAlias = (
    "Pass | LoweringStep | type[Mutator] | type[Visitor[Any]] | Mutator | Visitor[Any] | Callable[[Graph], Graph]"
)
"""The parts of pipelines."""


def as_pass(part: PassLike, name: str = "") -> Pass | LoweringStep:
    """A pass from a function or class; its default name is theirs."""
    if isinstance(part, Pass | LoweringStep):
        return replace(part, name=name) if name else part
    if isinstance(part, type):
        return Pass(name or part.__name__, part())
    if isinstance(part, Mutator | Visitor):
        return Pass(name or type(part).__name__, part)
    if not callable(part):
        raise UsageError(f"{part!r} is no pass: it should be a function of a graph, a Mutator, or a Visitor")
    return Pass(name or getattr(part, "__name__", type(part).__name__), part)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline: passes in order, then lowering steps; ``pipeline + [my_pass]`` adds a pass after the other passes."""

    name: str
    parts: tuple[Pass | LoweringStep, ...] = ()
    tell: Callable[[Done], object] | None = None

    def __call__(self, graph: Graph, step: Callable[..., Graph] | None = None) -> Graph:
        """Runs the passes on a graph; ``step(name, pass, graph)`` runs one of them, where it is given."""
        for each in self.passes:
            begin, old = perf_counter(), graph
            graph = each(graph) if step is None else step(each.name, each, graph)
            if self.tell is not None:
                self.tell(Done(each.name, count(old), count(graph), perf_counter() - begin, graph is not old))
        return graph

    def telling(self, tell: Callable[[Done], object] = print) -> Pipeline:
        """The pipeline with a report after each pass."""
        return replace(self, tell=tell)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes over graphs, in order."""
        return tuple(p for p in self.parts if isinstance(p, Pass))

    @property
    def options(self) -> Options:
        """The lowering options."""
        options = Options(fuse=alone, parts=whole, schedule=as_written, lay=as_they_are, prepare=as_they_are)
        for part in self.parts:
            if isinstance(part, LoweringStep):
                options = part.ask(options)
        return options

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the passes and steps, in order."""
        return tuple(p.name for p in self.parts)

    def __str__(self) -> str:
        return f"{self.name}: {', '.join(self.names) or 'nothing'}"

    # -- composing

    def __add__(self, more: Pipeline | PassLike | Iterable[PassLike]) -> Pipeline:
        parts = more.parts if isinstance(more, Pipeline) else tuple(map(as_pass, _several(more)))
        cut = next((k for k, p in enumerate(self.parts) if isinstance(p, LoweringStep)), len(self.parts))
        passes = tuple(p for p in parts if isinstance(p, Pass))
        steps = tuple(p for p in parts if isinstance(p, LoweringStep))
        return replace(self, parts=(*self.parts[:cut], *passes, *self.parts[cut:], *steps))

    def without(self, *names: str) -> Pipeline:
        """The pipeline without the passes and steps of these names. UsageError for an unknown name."""
        for name in names:
            self._place(name)
        return replace(self, parts=tuple(p for p in self.parts if p.name not in names))

    def before(self, name: str, *parts: PassLike) -> Pipeline:
        """The pipeline with passes inserted before the one of the name. UsageError for an unknown name."""
        k = self._place(name)
        return replace(self, parts=(*self.parts[:k], *map(as_pass, parts), *self.parts[k:]))

    def after(self, name: str, *parts: PassLike) -> Pipeline:
        """The pipeline with passes inserted after the one of the name. UsageError for an unknown name."""
        k = self._place(name) + 1
        return replace(self, parts=(*self.parts[:k], *map(as_pass, parts), *self.parts[k:]))

    def on(self, where: NodeSelector) -> Pipeline:
        """The pipeline with all its passes restricted to parts of graphs (``Pass.on``)."""
        return replace(self, parts=tuple(p.on(where) if isinstance(p, Pass) else p for p in self.parts))

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise UsageError(f"there is no {name!r} in the pipeline {self}")
        return self.names.index(name)


FUSE = LoweringStep("fuse", lambda options: replace(options, fuse=joins))
"""Nodes share a nest where that is worth it, so that what lies between them is not stored."""
SCHEDULE = LoweringStep(
    "schedule", lambda options: replace(options, parts=separated, schedule=scheduled, lay=laid_out, prepare=prepared)
)
"""Nests are scheduled by the default rules."""


def lower_only(*ops: str) -> LoweringStep:
    """A lowering step: only nodes of these ops get loops, the others the reference evaluator."""
    return LoweringStep("lower_only", lambda options: replace(options, takes=lambda node: node.op in ops))


def count(graph: Graph) -> int:
    """The number of nodes that apply an op, bodies included."""
    return sum(1 for _ in calls(graph))


def _several(more: PassLike | Iterable[PassLike]) -> Iterator[PassLike]:
    if callable(more) or isinstance(more, Pass | LoweringStep | Mutator | Visitor):
        return iter((more,))
    return iter(more)


def _chosen(graph: Graph, where: NodeSelector) -> Callable[[Node], bool]:
    """The test that a node of the graph is meant. UsageError for a name that no node has."""
    if callable(where):
        return where
    wanted = {where} if isinstance(where, str) else set(where)
    there = {n.id: name_of(graph, n) for n in graph.nodes()}
    ids = {id for id, name in there.items() if name in wanted}
    missing = wanted - set(there.values())
    if missing:
        hint = nearest_or_some(min(missing), there.values())
        raise UsageError(f"the graph has no node {min(missing)!r}{hint}")
    return lambda node: node.id in ids
