"""Workspace of a rewrite: a private copy of the graph, the facts of its values, and the worklist of nodes to look at.

Matching, building and the native passes all work on a workspace. Every edit goes through it, so that
facts stay true downstream of what changed, and only there, and so that the nodes near an edit are
looked at again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphopt.errors import GraphoptError
from graphopt.ir import infer
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Constant
from graphopt.ir.facts import NOTHING, Fact, meet
from graphopt.ir.graph import CONSTANT, INPUT, NO_ATTRS, NOWHERE, Attrs, Graph, Node, Origin, Value
from graphopt.ir.types import Size, TensorType, Type, Unranked, is_anonymous
from graphopt.rewrite.match.evaluation import OperationBudget, evaluated

HUB = 64
"""Where more nodes than this read what was edited, those further down are not looked at again."""


UNROLL = 256
"""Nodes that a loop is unrolled to at most, unless told otherwise."""


class Workspace:
    """Edits a graph in place and keeps facts and the list of pending nodes up to date.

    It is the ``Operands`` and the ``Builder`` of the directed engine. The graph is its own: give it a copy.
    """

    def __init__(self, graph: Graph, facts: Mapping[Value, Fact] | None = None, is_body: bool = False) -> None:
        self.graph = graph
        self.is_body = is_body
        """Whether the graph is the body of a node, whose model is somebody else's business."""
        self.opset = graph.opset
        self.facts: dict[Value, Fact] = dict(facts) if facts is not None else infer.infer(graph)
        self.reach = 1
        """How many nodes below an edit are looked at again: the depth of the deepest pattern."""
        self.edits = 0
        """How many edits were made so far: equal before and after means that nothing changed."""
        self.unroll: float = UNROLL
        """How many nodes a loop is unrolled to at most; a loop of one pass always is."""
        self.ahead: OperationBudget | None = None
        """How many operations may still be done ahead; None: as many as the graph may take."""
        self.replaced: list[tuple[Value, Value]] = []
        """The values that others took the place of, each with the other, in order."""
        self._pending: deque[int] = deque()
        self._is_pending: set[int] = set()
        self._stale: deque[int] = deque()
        self._orphans: list[int] = []

    # -- asking

    def fact(self, value: Value) -> Fact:
        """What is known of the value."""
        return self.facts.get(value, NOTHING)

    def constant(self, value: Value) -> Constant | None:
        """The value's elements, where they are known or cheap to compute."""
        fact = self.fact(value)
        constant = fact.constant or self.graph.constant_of(value)
        if constant is not None or not fact.is_const:
            return constant
        return evaluated(self.graph, self.fact, self.opset, value)

    def uses(self, value: Value) -> int | None:
        """How often the value is read, graph outputs included."""
        return self.graph.n_uses(value)

    # -- building

    def make_constant(self, constant: Constant) -> Value:
        """A new constant of the graph."""
        value = self.graph.add_constant(constant)
        self.facts[value] = fact_of(constant)
        self._orphans.append(value.node)
        return value

    def call(self, op: str, inputs: Sequence[Value | None], attrs: Attrs, facts: Sequence[Fact]) -> tuple[Value, ...]:
        """The outputs of a new node."""
        node = self.graph.add(op, tuple(inputs), attrs, len(facts))
        for value, fact in zip(node.outputs, facts, strict=True):
            self.facts[value] = fact
        self._orphans.append(node.id)
        self.touch(node.id)
        return node.outputs

    def add(
        self,
        op: str,
        inputs: Sequence[Value | None],
        attrs: Attrs = NO_ATTRS,
        n_outputs: int = 1,
        captures: int = 0,
        origin: Origin = NOWHERE,
    ) -> tuple[Value, ...]:
        """The outputs of a new node whose facts are inferred here."""
        node = self.graph.add(op, tuple(inputs), attrs, n_outputs, captures=captures, origin=origin)
        self._stale.append(node.id)
        self._orphans.append(node.id)
        self.touch(node.id)
        self._refresh()
        return node.outputs

    # -- editing

    def replace(self, old: Value, new: Value, first: int | None = None) -> None:
        """Let every reader of ``old`` read ``new``, an equal value, which takes the name where it has none.

        Nodes from id ``first`` on, those that were made to compute ``new``, go on reading ``old``.
        """
        self.edits += 1
        self.replaced.append((old, new))
        readers = sorted({user for user, _ in self.graph.users(old) if first is None or user < first})
        for reader in readers:
            inputs = self.graph.node(reader).inputs
            self.graph.update(reader, inputs=tuple(new if v == old else v for v in inputs))
        self.graph.outputs = [new if v == old else v for v in self.graph.outputs]
        if old in self.graph.names and new not in self.graph.names and self.graph.node(old.node).op != INPUT:
            self.graph.names[new] = self.graph.names.pop(old)
        if old in self.graph.types and self.graph.node(new.node).op not in (CONSTANT, INPUT):
            self.graph.types.setdefault(new, self.graph.types[old])
        self._learn(new, self.fact(old))
        if self.fact(new) != self.fact(old):
            self._stale.extend(readers)
        for reader in readers:
            self._touch_below(reader)
        self.touch(new.node)
        self.touch(old.node)
        self._orphans.append(old.node)
        self._refresh()

    def update(self, id: int, **changes: object) -> Node:
        """Put a changed node in the place of an old one, and infer its facts again."""
        self.edits += 1
        old = self.graph.node(id)
        node = self.graph.update(id, **changes)
        for value in old.outputs[node.n_outputs :]:
            for table in (self.facts, self.graph.names, self.graph.types):
                table.pop(value, None)
        for source in old.inputs:
            if source is not None:
                self.touch(source.node)
                self._orphans.append(source.node)
        self._touch_below(id)
        self._stale.append(id)
        self._refresh()
        return node

    def remove(self, id: int) -> None:
        """Delete a node that nobody reads."""
        self.edits += 1
        node = self.graph.node(id)
        self.graph.remove(id)
        for value in node.outputs:
            self.facts.pop(value, None)
        for source in dict.fromkeys(node.inputs):
            if source is not None:
                self.touch(source.node)
                self._orphans.append(source.node)

    def drop_orphans(self) -> None:
        """Delete the nodes that lost their last reader since this was last asked for, and what only they read."""
        while self._orphans:
            id = self._orphans.pop()
            if id in self.graph and self.graph.node(id).op != INPUT and not self.graph.is_used(id):
                self.remove(id)

    def unread(self) -> set[int]:
        """The nodes that ``drop_orphans`` would delete."""
        unread: set[int] = set()
        waiting = list(self._orphans)
        while waiting:
            id = waiting.pop()
            if id in unread or id not in self.graph or any(r not in unread for r in self.graph.readers(id)):
                continue
            node = self.graph.node(id)
            if node.op == INPUT or self.graph.has_effects(node) or any(map(self.graph.is_output, node.outputs)):
                continue
            unread.add(id)
            waiting.extend(v.node for v in node.inputs if v is not None)
        return unread

    def undo(self, first: int) -> None:
        """Take back all nodes from id ``first`` on, which a right side was to be; their ids are free again."""
        for node in reversed(list(self.graph.since(first))):
            self.graph.remove(node.id)
            for value in node.outputs:
                self.facts.pop(value, None)
        self.graph.rewind(first)

    # -- what to look at

    def touch(self, id: int) -> None:
        """Have the node looked at (again)."""
        if id not in self._is_pending:
            self._is_pending.add(id)
            self._pending.append(id)

    def next(self) -> Node | None:
        """The next node to look at, or None where all have been."""
        while self._pending:
            id = self._pending.popleft()
            self._is_pending.discard(id)
            if id in self.graph:
                return self.graph.node(id)
        return None

    def _touch_below(self, id: int) -> None:
        """Have the node looked at, and those that patterns rooted further down would see it from."""
        level, seen = [id], {id}
        self.touch(id)
        for _ in range(self.reach):
            below: list[int] = []
            for n in level:
                for user in self.graph.readers(n):
                    if user not in seen:
                        seen.add(user)
                        below.append(user)
                        self.touch(user)
            if len(below) > HUB:  # they have little to do with what was edited
                return
            level = below

    # -- facts

    def learn(self, value: Value, fact: Fact) -> None:
        """Take in a fact, and what follows from it."""
        if self._learn(value, fact):
            self._stale.extend(self.graph.readers(value.node))
            self._refresh()

    def _learn(self, value: Value, fact: Fact) -> bool:
        """Take in a fact; whether anything was not known before."""
        old = self.fact(value)
        new = sharper(old, fact)
        if new == old:
            return False
        self.facts[value] = new
        return True

    def _refresh(self) -> None:
        """Infer again what stale nodes make, and what is made from that, as far as it changes."""
        while self._stale:
            id = self._stale.popleft()
            if id not in self.graph:
                continue
            node = self.graph.node(id)
            if node.op in (INPUT, CONSTANT):
                continue
            input_facts = [None if v is None else self.fact(v) for v in node.inputs]
            try:
                facts = infer.infer_in_graph(self.graph, node, input_facts, self.graph.functions)
            except GraphoptError:
                continue  # what was known still holds
            changed = False
            for value, fact in zip(node.outputs, facts, strict=True):
                changed |= self._learn(value, fact)
            if changed:
                self._touch_below(id)
                self._stale.extend(self.graph.readers(id))


def facts_within(node: Node, body: Graph, facts: Mapping[Value, Fact]) -> dict[Value, Fact]:
    """What is known inside a body of the values that its node captures, and of the states that it carries along.

    A constant outside is a value like any other inside: what is computed from it there is computed in every pass.
    """
    states = infer.infer_states(node, body, facts)
    if not node.captures:
        return states
    pairs = zip(body.inputs[-node.captures :], node.inputs[-node.captures :], strict=True)
    inner_facts = {inner: facts[outer] for inner, outer in pairs if outer is not None and outer in facts}
    known = {v: replace(f, is_const=False, constant=None) if f.is_const else f for v, f in inner_facts.items()}
    return states | known


def sharper(old: Fact, new: Fact) -> Fact:
    """Both facts hold of one value: of each axis the better known size, and whatever else either knows."""
    if old is new or old == new:
        return old
    both = meet(old, new)
    best = _sharper_type(old.type, new.type)
    return both if best == both.type else replace(both, type=best)


def _sharper_type(old: Type | None, new: Type | None) -> Type | None:
    if not (isinstance(old, TensorType) and isinstance(new, TensorType)) or old == new:
        return old or new
    if isinstance(new.shape, Unranked):
        return old
    if isinstance(old.shape, Unranked):
        return new
    if len(old.shape) != len(new.shape):
        return old
    return TensorType(old.dtype, tuple(map(_sharper_size, old.shape, new.shape)))


def _sharper_size(old: Size, new: Size) -> Size:
    if isinstance(old, int) or old == new:
        return old
    return new if isinstance(new, int) or (is_anonymous(old) and not is_anonymous(new)) else old
