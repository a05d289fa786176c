"""Application of axis orders: a graph rebuilt so that its values are kept in them; apart from choosing them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.frozen import dataclass
from graphopt.ir import infer
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import NO_ATTRS, Attrs, Node, Value
from graphopt.rewrite.guards.functions import moves_only_ones
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.axis_orders import AxisForm, AxisOrder, ReorderedCall, identity, moved_fact, target, turn


class OrderMisfit(Exception):  # noqa: N818 - the graph stays as it is
    """A call in another order does not give the type that it should."""


@dataclass(frozen=True, slots=True)
class ReorderedNode:
    """A node computed with its operands in an order; without a spelling, a transposition that its operand, had in that
    order, makes needless."""

    node: int
    order: AxisOrder
    spelling: ReorderedCall | None = None


@dataclass(frozen=True, slots=True)
class TransposedValue:
    """A value had in one order from what was made in another."""

    value: Value
    made: AxisOrder
    order: AxisOrder


@dataclass(frozen=True, slots=True)
class ReorderPlan:
    """How each value is made in the orders in which it is wanted, and had in those in which it is not made."""

    made: Mapping[tuple[Value, AxisOrder], ReorderedNode]
    turned: Mapping[tuple[Value, AxisOrder], TransposedValue]
    forms: Mapping[int, AxisForm]


def reorder(space: Workspace, plan: ReorderPlan) -> bool:
    """Rebuild the graph as planned; whether it changed. Raises Misfit, with new nodes left behind."""
    return _ReorderBuilder(space, plan).run()


class _ReorderBuilder:
    def __init__(self, space: Workspace, plan: ReorderPlan) -> None:
        self.space, self.graph, self.plan = space, space.graph, plan
        self.first = space.graph.next_id
        self.kept: dict[tuple[Value, AxisOrder], Value] = {}
        """What stands for a value in an order."""
        self.calls: dict[tuple[int, AxisOrder], tuple[Value, ...]] = {}
        """The outputs of nodes that were computed in an order of their operands."""

    def run(self) -> bool:
        moves: list[tuple[Value, Value]] = []
        by_node: dict[int, dict[Value, list[AxisOrder]]] = {}
        for value, order in self.plan.made:
            by_node.setdefault(value.node, {}).setdefault(value, []).append(order)
        for node in self.graph.order():
            for value, orders in by_node.get(node.id, {}).items():
                original = identity(self.rank(value))
                for order in orders:
                    self.kept[value, order] = self.make(node, value, order)
                if (value, original) in self.plan.turned or self.kept.get((value, original), value) != value:
                    moves.append((value, self.had(value, original)))
        moves = [(old, new) for old, new in moves if old != new]
        for old, new in moves:
            self.space.replace(old, new, self.first)
        return bool(moves)

    def rank(self, value: Value) -> int:
        return self.space.fact(value).rank or 0

    def make(self, node: Node, value: Value, order: AxisOrder) -> Value:
        """The value in an order, computed by its node in the order that the plan says."""
        computed = self.plan.made[value, order]
        if computed.spelling is None:
            x = node.inputs[0]
            assert x is not None
            return self.had(x, computed.order)
        if computed.order == identity(len(computed.order)):
            return value
        if (node.id, computed.order) not in self.calls:
            self.calls[node.id, computed.order] = self.call(node, computed, order)
        return self.calls[node.id, computed.order][value.port]

    def call(self, node: Node, computed: ReorderedNode, order: AxisOrder) -> tuple[Value, ...]:
        """The node's results in an order."""
        assert computed.spelling is not None
        form = self.plan.forms[node.id]
        facts = [None if v is None else self.space.fact(v) for v in node.inputs]
        orders = dict(zip(form.carried, form.orders(facts, computed.order), strict=True))
        inputs: list[Value | None] = []
        for operand in computed.spelling.operands:
            if isinstance(operand, Constant):
                inputs.append(self.space.make_constant(operand))
            else:
                source = None if operand is None else node.inputs[operand]
                wanted = None if operand is None else orders.get(operand)
                inputs.append(None if source is None else self.had(source, wanted or identity(self.rank(source))))
        wanted_facts = [moved_fact(self.space.fact(v), order) for v in node.outputs]
        return self.add(computed.spelling.op, inputs, computed.spelling.attrs, wanted_facts)

    def add(self, op: str, inputs: list[Value | None], attrs: Attrs, wanted: list[Fact]) -> tuple[Value, ...]:
        """The outputs of a new node, whose types must be those that are wanted."""
        input_facts = [None if v is None else self.space.fact(v) for v in inputs]
        try:
            facts = infer.infer_node(op, attrs, input_facts, len(wanted), self.graph.opset)
        except GraphoptError as error:
            raise OrderMisfit(str(error)) from error
        for fact, want in zip(facts, wanted, strict=True):
            if fact.type != want.type:
                raise OrderMisfit(f"{op} gives {fact.type} where {want.type} is wanted")
        return self.space.call(op, inputs, attrs, facts)

    def had(self, value: Value, order: AxisOrder) -> Value:
        """What stands for a value in an order."""
        kept = self.kept.get((value, order))
        if kept is None:
            kept = self.kept[value, order] = self.turned(value, order)
        return kept

    def turned(self, value: Value, order: AxisOrder) -> Value:
        turned = self.plan.turned.get((value, order))
        original = identity(self.rank(value))
        start = original if turned is None else turned.made
        source = self.kept.get((value, start), value)
        if start == order:
            return source
        fact = self.space.fact(source)
        new = len(order) - len(start)
        if new:
            axes = self.space.make_constant(Constant.of(np.arange(new, dtype=np.int64)))
            wide = moved_fact(fact, identity(len(order)))
            (source,) = self.add("Unsqueeze", [source, axes], NO_ATTRS, [wide])
            fact = wide
        perm = turn(start, order)
        if perm == identity(len(perm)):
            return source
        if not new and (existing := self.transposed(source, perm)) is not None:
            return existing
        after = moved_fact(fact, perm)
        shape = target(after.shape or ())
        if moves_only_ones(fact.shape or (), perm) and shape is not None:
            constant = self.space.make_constant(Constant.of(np.array(shape, dtype=np.int64)))
            return self.add("Reshape", [source, constant], NO_ATTRS, [after])[0]
        return self.add("Transpose", [source], Attrs(perm=perm), [after])[0]

    def transposed(self, source: Value, perm: AxisOrder) -> Value | None:
        """A transposition of the value by this permutation that the graph has already."""
        for user, _ in self.graph.users(source):
            node = self.graph.node(user)
            if node.op == "Transpose" and node.attrs.get("perm") == perm:
                return node.outputs[0]
        return None
