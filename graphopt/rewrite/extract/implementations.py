"""Implementations of terms on a target: one *way* for each op, group of ops, and layout. Apart from the choice among
them, which knows only their costs.

A class may be had in the plain layout, and where the target has a blocked layout of its own, in that.
What makes a value is one thing, having it is another: a value that was made in one layout is had in
the other after a reorder. Every such *state* of a class is a class of the problem that extraction
solves, which thereby chooses ops, fusions and layouts at once and knows nothing of any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from graphopt.ir.graph import INPUT
from graphopt.rewrite.egraph.egraph_snapshot import PROJECTION, ENode
from graphopt.rewrite.extract.cost import Breakdown, Cost
from graphopt.rewrite.extract.dag import Option, Problem
from graphopt.rewrite.extract.fusions import Parts
from graphopt.rewrite.extract.layout import (
    CONVOLUTIONS,
    Anchor,
    Implementation,
    ImplementationStep,
    LayoutPolicy,
    LayoutState,
)
from graphopt.rewrite.extract.terms import Terms

REORDER = "Reorder"
"""What a change of layout is called in breakdowns."""

MOST = 6
"""Anchors of one class that are kept: the cheapest."""

TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Transpositions that a reorder does on its way: channels last, and channels first again."""


def problem(terms: Terms, byte: float) -> Problem:
    """The problem of extraction, when a byte of constants costs ``byte`` seconds. An option means an
    ``ImplementationStep``, or nothing; its class is ``key`` of a class and a state."""
    ways = _Ways(terms)
    options: dict[int, tuple[Option, ...]] = {}
    for c in terms.working:
        for state, alternatives in ways.options(c, byte).items():
            options[key(c, state)] = alternatives
    missing = dict.fromkeys(
        n for alternatives in options.values() for o in alternatives for n in o.needs if n not in options
    )
    for name in missing:
        if name % STATES == LayoutState.BLOCKED:  # made plain, and somebody reads it blocked
            options[name] = ways.entered(name // STATES)
    return Problem(options, tuple(key(c, LayoutState.PLAIN) for c in terms.roots() if c in terms.working))


STATES = len(LayoutState)


def key(c: int, state: LayoutState) -> int:
    """The name of a state of a class."""
    return c * STATES + state


def decode(choice: Mapping[int, Option]) -> dict[int, ENode]:
    """The e-node of each class that a choice computes; what is computed for its own sake before what is folded."""
    whole: dict[int, ENode] = {}
    folded: dict[int, ENode] = {}
    for option in choice.values():
        if isinstance(option.meaning, ImplementationStep) and option.meaning.parts:
            (c, node), *inner = option.meaning.parts
            whole.setdefault(c, node)
            folded.update(inner)
    return folded | whole


def breakdown(choice: Mapping[int, Option]) -> Breakdown:
    """What a choice costs, by what the target does."""
    steps = [o.meaning for o in choice.values() if isinstance(o.meaning, ImplementationStep)]
    parts = [(s.label, s.cost) for s in steps if s.label not in (INPUT, PROJECTION)]
    return Breakdown.of(parts, sum(s.label == REORDER for s in steps))


class _Ways:
    """All ways of all classes of some terms."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.cost_model = terms.cost_model
        layout = terms.cost_model.target.layout
        ops = {node.op for nodes in terms.working.values() for node in nodes}
        self.policy = (
            None if layout is None or ops.isdisjoint({*CONVOLUTIONS, *layout.pools}) else LayoutPolicy(layout, terms)
        )
        self.layouts: dict[int, set[LayoutState]] = {}
        self.anchors: dict[int, list[Anchor]] = {}
        self.nodes = {c: self._nodes(c) for c in terms.working}
        if self.policy is not None:
            self._find_layouts(self.policy)

    @cached_property
    def users(self) -> dict[int, set[int]]:
        """The classes that read each class."""
        users: dict[int, set[int]] = {}
        for c, nodes in self.terms.working.items():
            for node in nodes:
                for n in node.children:
                    if n is not None:
                        users.setdefault(n, set()).add(c)
        return users

    def _nodes(self, c: int) -> list[tuple[ENode, Parts]]:
        """What computes a class: its e-nodes, and what the target makes of several, with the e-nodes that it is."""
        nodes: list[tuple[ENode, Parts]] = [(node, ((c, node),)) for node in self.terms.working[c]]
        for fused in self.terms.fused.get(c, ()):
            inside = {p for p, _ in fused.parts}
            if all(self._alone(p, inside) for p in inside - {c}):
                nodes.append((fused.node, fused.parts))
        return nodes

    def _find_layouts(self, policy: LayoutPolicy) -> None:
        """In which layouts each class may be made, and convolutions with what is folded into them, until nothing
        more is found."""
        self.layouts = {c: set() for c in self.terms.working}
        waiting = sorted(self.layouts, reverse=True)
        queued = set(waiting)
        while waiting:
            c = waiting.pop()
            queued.discard(c)
            makes = set().union(*(self._makes(policy, c, node) for node, _ in self.nodes[c]))
            anchors = [a for node, parts in self.nodes[c] for a in self._anchors(policy, c, node, parts)]
            anchors = sorted(anchors, key=lambda a: a.way.step.cost.seconds)[:MOST]
            makes.update(a.way.makes for a in anchors)
            if makes != self.layouts[c] or anchors != self.anchors.get(c, []):
                self.layouts[c], self.anchors[c] = makes, anchors
                for user in sorted(self.users.get(c, ()), reverse=True):
                    if user in self.layouts and user not in queued:
                        queued.add(user)
                        waiting.append(user)

    def _makes(self, policy: LayoutPolicy, c: int, node: ENode) -> set[LayoutState]:
        enters, stays = policy.rules(c, node)
        if enters is not None:
            return {LayoutState.MADE_BLOCKED}
        if stays is None:
            return {LayoutState.MADE_PLAIN}
        states: set[LayoutState] = set()
        if all(LayoutState.MADE_BLOCKED in self.layouts[n] for n in stays):
            states.add(LayoutState.MADE_BLOCKED)
        if any(LayoutState.MADE_PLAIN in self.layouts[n] for n in stays):
            states.add(LayoutState.MADE_PLAIN)
        return states

    def _anchors(self, policy: LayoutPolicy, c: int, node: ENode, parts: Parts) -> Iterator[Anchor]:
        if node.op == "Conv":
            for way in self._ways_of(c, node, parts):
                yield Anchor(way, folds=True, sums=True, activates=True)
        elif node.op != "Add" and policy.scales(c, node) is not None:
            for way in self._ways_of(c, node, parts):
                if way.makes == LayoutState.MADE_BLOCKED:
                    yield Anchor(way, folds=False, sums=True, activates=True)
        for x in dict.fromkeys(node.children):
            for anchor in self.anchors.get(-1 if x is None else x, ()):
                inside = {p for p, _ in (*parts, *anchor.way.step.parts)}
                if x is not None and self._alone(x, inside):
                    extended = policy.extend(anchor, x, c, node, parts)
                    if extended is not None:
                        yield extended

    def _alone(self, x: int, inside: set[int]) -> bool:
        """Whether only these classes read a class. Where there are several e-nodes to choose from, that is the
        choice's affair."""
        return self.terms.is_open or (x not in self.terms.roots() and self.users[x] <= inside)

    def options(self, c: int, byte: float) -> dict[LayoutState, tuple[Option, ...]]:
        """For each state of a class: how it comes about."""
        ways = [w for node, parts in self.nodes[c] for w in self._ways_of(c, node, parts)]
        ways += [anchor.way for anchor in self.anchors.get(c, ()) if anchor.grown]
        if self.policy is None or self.layouts[c] == {LayoutState.MADE_PLAIN}:
            return {LayoutState.PLAIN: tuple(self._option(w, byte) for w in ways)}
        by_state = {s: tuple(self._option(w, byte) for w in ways if w.makes == s) for s in sorted(self.layouts[c])}
        left = self._reorder(c, (c, LayoutState.MADE_BLOCKED))
        if LayoutState.MADE_PLAIN not in by_state:
            return {LayoutState.PLAIN: (left,), **by_state}
        stayed = Option(0.0, (key(c, LayoutState.MADE_PLAIN),)), Option(0.0, (key(c, LayoutState.MADE_BLOCKED),))
        entered = self._reorder(c, (c, LayoutState.MADE_PLAIN))
        return {
            LayoutState.PLAIN: (stayed[0], left),
            LayoutState.BLOCKED: (stayed[1], entered, *self._turned(c)),
            **by_state,
        }

    def entered(self, c: int) -> tuple[Option, ...]:
        """How the blocked form comes about of a class that is only made plain."""
        return (self._reorder(c, (c, LayoutState.PLAIN)), *self._turned(c))

    def _turned(self, c: int) -> tuple[Option, ...]:
        """The blocked form from a value with its channels last."""
        return tuple(
            self._reorder(c, (node.children[0], LayoutState.PLAIN), ((c, node),))
            for node in self.terms.working[c]
            if node.op == "Transpose" and node.attrs.get("perm") == TO_FIRST and node.children[0] is not None
        )

    def _key(self, c: int, state: LayoutState) -> int:
        """The name of a state, where states that are always one have one name."""
        if self.policy is not None and state == LayoutState.BLOCKED and self.layouts[c] == {LayoutState.MADE_BLOCKED}:
            state = LayoutState.MADE_BLOCKED
        return key(c, state)

    def _option(self, way: Implementation, byte: float) -> Option:
        free = self.terms.constant_bytes
        needs = tuple(dict.fromkeys(self._key(c, state) for c, state in way.needs if c not in free))
        stored = sum(self.terms.stored(node) for _, node in way.step.parts) if byte else 0
        return Option(way.step.cost.seconds + byte * stored, needs, way.step)

    def _reorder(self, c: int, source: tuple[int, LayoutState], parts: tuple[tuple[int, ENode], ...] = ()) -> Option:
        cost = self._reordering(c)
        return Option(cost.seconds, (key(*source),), ImplementationStep(REORDER, cost, parts))

    def _reordering(self, c: int) -> Cost:
        layout, moved = self.cost_model.target.layout, self.cost_model.nbytes(self.terms.saturated.facts[c])
        assert layout is not None
        channels = max(self.cost_model.shape(self.terms.saturated.facts[c])[1], 1)
        moved *= 1 + -(-channels // layout.block) * layout.block / channels  # blocks are filled up with zeros
        return Cost(self.cost_model.target.prices.node + layout.reorder * self.cost_model.moving(moved), 0.0, moved)

    def _ways_of(self, c: int, node: ENode, parts: Parts) -> list[Implementation]:
        """The ways to execute an op by itself."""
        blocked: tuple[tuple[int, LayoutState], ...] | None = None
        plain = True
        if self.policy is not None:
            blocked, stays = self.policy.rules(c, node)
            plain = blocked is None
            if stays is not None:
                if all(LayoutState.MADE_BLOCKED in self.layouts[n] for n in stays):
                    blocked = tuple((n, LayoutState.MADE_BLOCKED) for n in stays)
                plain = any(LayoutState.MADE_PLAIN in self.layouts[n] for n in stays)
        ways: list[Implementation] = []
        if plain:
            ways.append(self._plain(c, node, parts))
        if blocked is not None:
            ways.append(Implementation(LayoutState.MADE_BLOCKED, blocked, self._step(c, node, parts, blocked=True)))
        return ways

    def _plain(self, c: int, node: ENode, parts: Parts) -> Implementation:
        inputs = [n for n in dict.fromkeys(node.children) if n is not None and n not in self.terms.constant_bytes]
        if node.op == "Transpose" and node.attrs.get("perm") == TO_LAST and self.policy is not None:
            layouts = self.layouts[inputs[0]]
            if layouts == {LayoutState.MADE_BLOCKED} and self.policy.channels(inputs[0]) is not None:
                only = ((inputs[0], LayoutState.MADE_BLOCKED),)
                return Implementation(
                    LayoutState.MADE_PLAIN, only, ImplementationStep(REORDER, self._reordering(c), parts)
                )
        return Implementation(
            LayoutState.MADE_PLAIN, tuple((n, LayoutState.PLAIN) for n in inputs), self._step(c, node, parts)
        )

    def _step(self, c: int, node: ENode, parts: Parts, blocked: bool = False) -> ImplementationStep:
        """Executing an op by itself. A group that runtimes only sometimes recognize is a little dearer than its op."""
        cost = self.terms.cost(c, node, blocked)
        if len(parts) > 1:
            cost += Cost((len(parts) - 1) * self.cost_model.target.prices.node / 10)
        return ImplementationStep(node.op, cost, parts)
