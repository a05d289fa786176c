"""Replay of a journal on the model that it is of: all of it, or without some of its rewrites. It is what ``revert`` and
``bisect`` run, and stands apart from how journals come about.

Every entry is looked at by the directed matcher again. One whose site is not there (because what made
it was left out) or no longer matches is left out too, so that whatever is left out, the result equals
the model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from math import inf
from typing import Protocol

from graphopt.frozen import dataclass
from graphopt.ir.graph import Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.rewrite.match.build import Refused, replacements
from graphopt.rewrite.match.evaluation import ALL_OPERATIONS, OperationBudget
from graphopt.rewrite.match.journal import FOLD_EXACTLY, Action, Entry, Respelled, ValueSpelling, sign
from graphopt.rewrite.match.matcher import matches
from graphopt.rewrite.match.multi_version_graph import Alternatives
from graphopt.rewrite.match.workspace import Workspace, facts_within
from graphopt.rewrite.passes import NativePass, fold_within
from graphopt.rewrite.passes.simplify import replace_roots
from graphopt.rewrite.rule.rule import Rule


@dataclass(frozen=True)
class Replayed:
    """What came of a replay: the graph, and the rewrites that had to be left out because others were."""

    graph: Graph
    lost: tuple[Entry, ...]


@dataclass(frozen=True)
class Step:
    """What one rewrite did to a graph, before what it left unread is dropped."""

    entry: Entry
    path: tuple[int | str, ...]
    """The graph: nodes and attributes that lead to a body, nothing for the model's."""
    before: Mapping[int, Node]
    """The nodes that are others now or gone, by id, as they were; more may be among them."""
    after: Graph
    first: int
    """Nodes from this id on are new."""
    matched: frozenset[int]
    """The nodes that its left side is, as far as the journal says."""
    replaced: Sequence[tuple[Value, Value]]
    """Values, each with the one that took its place, or was made beside it."""


class Observer(Protocol):
    """Sees what a replay does."""

    def opened(self, path: tuple[int | str, ...], graph: Graph, owner: Node | None) -> None:
        """A graph was taken up: the model's, or the body of the node ``owner``."""

    def acted(self, step: Step) -> None:
        """A rewrite was applied."""


def replay(
    graph: Graph,
    entries: Iterable[Entry],
    rules: Mapping[str, Rule],
    passes: Mapping[str, NativePass],
    without: Collection[int] = (),
    observer: Observer | None = None,
) -> Replayed:
    """The graph with the entries applied in order, but not those of the given ids, nor what cannot do without them.

    The graph itself is not changed. With nothing left out, the result is that of the run.
    """
    run = _Replay(graph, rules, passes, frozenset(without), observer)
    for entry in entries:
        run.step(entry)
    return Replayed(run.graph, tuple(run.lost))


@dataclass
class _Names:
    """What the nodes of one graph are called now, where the journal calls them something else; None: not made."""

    ids: dict[int, int | None] = field(default_factory=dict)

    def node(self, id: int) -> int:
        new = self.ids.get(id, id)
        if new is None:
            raise Refused(f"node {id} was not made")
        return new


@dataclass
class _Frame:
    """A graph that was taken up: the model's, or the body of a node."""

    path: tuple[int | str, ...]
    names: _Names
    space: Workspace | None
    """None where the node that has the body is not there."""
    owner: int = -1
    side: Alternatives | None = None

    @property
    def alternatives(self) -> Alternatives:
        assert self.space is not None
        if self.side is None:
            self.side = Alternatives(self.space)
        return self.side

    def translated(self, site: ValueSpelling) -> ValueSpelling:
        """A place in the words of this replay."""
        if isinstance(site, Value):
            return Value(self.names.node(site.node), site.port)
        value = self.translated(site.value)
        assert isinstance(value, Value)
        return Respelled(value, tuple(None if p is None else self.translated(p) for p in site.inputs))


class _Replay:
    def __init__(
        self,
        graph: Graph,
        rules: Mapping[str, Rule],
        passes: Mapping[str, NativePass],
        without: frozenset[int],
        observer: Observer | None = None,
    ) -> None:
        self.graph = graph
        self.observer = observer
        self.rules = rules
        self.passes = passes
        self.without = without
        self.lost: list[Entry] = []
        self.frames: list[_Frame] = []
        self.names: dict[tuple[int | str, ...], _Names] = {}

    def step(self, entry: Entry) -> None:
        """Apply one entry, or leave it out."""
        if entry.action is Action.OPEN:
            self.take_up(entry)
        elif entry.action is Action.CLOSE:
            self.put_back()
        elif entry.action is Action.FOLD:
            self.fold(entry)
        else:
            self.act(entry, self.frames[-1])

    def fold(self, entry: Entry) -> None:
        """Compute what rests on constants alone."""
        if entry.id in self.without:
            return
        before, self.graph = self.graph, fold_within(self.graph, entry.way, entry.rule == FOLD_EXACTLY)
        if self.observer is not None and self.graph is not before:
            self.observer.opened((), before, None)
            nodes = {node.id: node for node in before.nodes()}
            replaced = list(_moved_inputs(before, self.graph))
            self.observer.acted(Step(entry, (), nodes, self.graph, before.next_id, frozenset(), replaced))

    # -- graphs

    def take_up(self, entry: Entry) -> None:
        """Open the model's graph, or a body of the graph that is open."""
        self.open(entry)
        if (space := self.frames[-1].space) is not None:
            space.unroll = inf  # what was unrolled was within a limit that the journal does not tell
            space.ahead = OperationBudget(ALL_OPERATIONS)

    def open(self, entry: Entry) -> None:
        """Open it, as it is now."""
        above = self.frames[-1] if self.frames else None
        path = (*(above.path if above else ()), *(a for a in entry.at if isinstance(a, int | str)))
        names = self.names.setdefault(path, _Names())
        if above is None:
            self.frames.append(_Frame(path, names, Workspace(self.graph.copy(), infer(self.graph))))
            if self.observer is not None:
                self.observer.opened(path, self.graph, None)
            return
        owner, attribute = entry.at
        assert isinstance(owner, int)
        assert isinstance(attribute, str)
        frame = _Frame(path, names, None)
        self.frames.append(frame)
        id = above.names.ids.get(owner, owner)
        if above.space is not None and id is not None and id in above.space.graph:
            node = above.space.graph.node(id)
            body = node.bodies.get(attribute)
            if body is not None:
                facts = facts_within(node, body, above.space.facts)
                frame.space = Workspace(body.copy(), infer(body, facts), is_body=True)
                frame.owner = id
                if self.observer is not None:
                    self.observer.opened(path, body, node)

    def put_back(self) -> None:
        """Close the graph that was opened last."""
        frame = self.frames.pop()
        if frame.space is None or not frame.space.edits:
            return
        if not self.frames:
            self.graph = frame.space.graph
            return
        above = self.frames[-1].space
        assert above is not None
        attribute = frame.path[-1]
        assert isinstance(attribute, str)
        above.update(frame.owner, attrs=above.graph.node(frame.owner).attrs.with_(**{attribute: frame.space.graph}))

    # -- entries

    def act(self, entry: Entry, frame: _Frame) -> None:
        """Apply a rule or a pass in the graph that is open."""
        if entry.id in self.without:
            frame.names.ids.update(dict.fromkeys(entry.made))
            return
        if frame.space is None:
            self.leave_out(entry, frame)
            return
        first = frame.space.graph.next_id
        changed: dict[int, Node] = {}
        frame.space.graph.changed = None if self.observer is None else changed
        frame.space.replaced.clear()
        try:
            self.apply(entry, frame, frame.space)
        except Refused:
            self.leave_out(entry, frame)
            return
        created = [node.id for node in frame.space.graph.since(first)]
        if tuple(created) != entry.made:
            frame.names.ids.update(dict.fromkeys(entry.made))
            frame.names.ids.update(zip(entry.made, created, strict=False))
        if entry.is_rewrite:
            matched, places = (
                [m for n in ids if isinstance(n, int) and (m := frame.names.ids.get(n, n)) is not None]
                for ids in (entry.matched, entry.at if entry.action is Action.PASS else ())
            )
            sign(frame.space.graph, created, entry, [*matched, *places])
            if self.observer is not None:
                before = {id: changed[id] for id in sorted(changed) if id < first}
                graph, replaced = frame.space.graph, tuple(frame.space.replaced)
                self.observer.acted(Step(entry, frame.path, before, graph, first, frozenset(matched), replaced))
        if entry.action in (Action.REWRITE, Action.PASS):
            frame.space.drop_orphans()

    def leave_out(self, entry: Entry, frame: _Frame) -> None:
        """Remember that what the entry would have made is not there."""
        frame.names.ids.update(dict.fromkeys(entry.made))
        if entry.is_rewrite:
            self.lost.append(entry)

    def apply(self, entry: Entry, frame: _Frame, space: Workspace) -> None:
        """Do what an entry says. Raises Refused where that is not possible here."""
        match entry.action:
            case Action.REWRITE:
                self.rewrite(entry, frame, space)
            case Action.PASS:
                self.run_pass(entry, frame, space)
            case Action.EQUAL:
                side = frame.alternatives
                roots = [side.respell(frame.translated(p)) for p in entry.at if isinstance(p, Value | Respelled)]
                try:
                    applied = side.apply(self.rules[entry.rule], roots, entry.way)
                except Refused:
                    applied = side.apply(self.rules[entry.rule], roots)
                space.replaced.extend(zip(roots, applied.values, strict=True))
            case Action.SAME:
                a, b = (frame.names.node(n) for n in entry.at if isinstance(n, int))
                if a not in space.graph or b not in space.graph:
                    raise Refused("a node is not there")
                frame.alternatives.same(a, b)
            case Action.CHOOSE:
                self.choose(entry, frame)

    def rewrite(self, entry: Entry, frame: _Frame, space: Workspace) -> None:
        roots = [frame.translated(p) for p in entry.at if isinstance(p, Value)]
        start = roots[0]
        assert isinstance(start, Value)
        if any(r.node not in space.graph or not space.uses(r) for r in roots if isinstance(r, Value)):
            raise Refused("the site is not there")
        numbered = list(enumerate(matches(self.rules[entry.rule], space, space.graph.node(start.node))))
        for _, match in sorted(numbered, key=lambda m: m[0] != entry.way):
            first = space.graph.next_id
            try:
                values = replacements(match.rule, match.bindings, match.roots, space)
            except Refused:
                space.undo(first)
                continue
            if match.roots == tuple(roots) and any(a != b for a, b in zip(match.roots, values, strict=True)):
                replace_roots(space, match, values, first)
                return
            space.undo(first)
        raise Refused(f"{entry.rule} does not match at its site")

    def run_pass(self, entry: Entry, frame: _Frame, space: Workspace) -> None:
        native = self.passes.get(entry.rule)
        if native is None:
            raise Refused(f"the pass {entry.rule} is not there")
        if not entry.at and native.sweep is not None:
            acted = native.sweep(space)
        else:
            (id,) = (frame.names.node(n) for n in entry.at if isinstance(n, int))
            acted = id in space.graph and native.visit is not None and native.visit(space, space.graph.node(id))
        if not acted:
            raise Refused(f"{entry.rule} has nothing to do at its site")

    def choose(self, entry: Entry, frame: _Frame) -> None:
        """Keep what the entry keeps; where that is not there, what came last on the way to it."""
        side = frame.alternatives
        wanted = [
            Value(id, p.port)
            for p in entry.at
            if isinstance(p, Value) and (id := frame.names.ids.get(p.node, p.node)) is not None
        ]
        wanted = [v for v in wanted if v.node in side.graph]
        if not (self.without or self.lost):
            side.choose(wanted)
            return
        for kept in (_latest(side) + wanted, wanted, []):
            try:
                side.choose(kept)
            except ValueError:
                continue
            return


def _moved_inputs(before: Graph, after: Graph) -> Iterator[tuple[Value, Value]]:
    """What nodes and the caller read in one graph, and in the other in its place."""
    for node in before.nodes():
        if node.id in after and (now := after.node(node.id)) is not node and len(now.inputs) == len(node.inputs):
            yield from _moved(node.inputs, now.inputs)
    yield from _moved(before.outputs, after.outputs)


def _moved(before: Sequence[Value | None], after: Sequence[Value | None]) -> Iterator[tuple[Value, Value]]:
    for old, new in zip(before, after, strict=True):
        if old is not None and new is not None and old != new:
            yield old, new


def _latest(side: Alternatives) -> list[Value]:
    """Of equal values the last that was made."""
    created = [v for node in side.graph.since(side.first) for v in node.outputs]
    return [v for v in created if len(side.members(v)) > 1]
