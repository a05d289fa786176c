"""From a choice of e-nodes back to a graph: what was chosen as it was stays as it was, ids and names included."""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, Graph, Value
from graphopt.rewrite.saturated import ENode, Saturated


def to_graph(saturated: Saturated, choice: Mapping[int, ENode]) -> Graph:
    """The graph that computes the roots with the chosen e-node for each class; the explored graph where that is it.

    Inputs and outputs keep their order and names. A value that is computed anew takes the name of
    the first value of its class that is gone. Raises ValueError where the choice has a cycle.
    """
    rebuilt = _Rebuilder(saturated, choice)
    return rebuilt.graph if rebuilt.changed else saturated.graph


class _Rebuilder:
    def __init__(self, saturated: Saturated, choice: Mapping[int, ENode]) -> None:
        self.saturated = saturated
        self.choice = choice
        self.graph = saturated.graph.copy()
        self.changed = False
        self.made: dict[int, tuple[Value, ...]] = {}
        """The values that stand for each class: all outputs of a node that has several."""
        for name in saturated.chosen(choice):
            self.made[name] = self.make(name, choice[name])
        outputs = [None if r is None else self.made[r][0] for r in saturated.roots]
        self.changed |= outputs != self.graph.outputs
        self.graph.outputs = outputs
        self.drop_unread()
        self.hand_on_names()

    def make(self, name: int, chosen: ENode) -> tuple[Value, ...]:
        if chosen.projection is not None:
            child = chosen.children[0]
            assert child is not None
            return (self.made[child][chosen.projection],)
        inputs = tuple(None if c is None else self.made[c][0] for c in chosen.children)
        if chosen.node is not None:
            node = self.graph.node(chosen.node)
            if inputs != node.inputs:
                self.changed = True
                node = self.graph.update(node.id, inputs=inputs)
            return node.outputs
        self.changed = True
        value = chosen.attrs.get("value")
        if chosen.op == CONSTANT and isinstance(value, Constant):
            return (self.graph.add_constant(value),)
        outputs = self.graph.add(chosen.op, inputs, chosen.attrs, chosen.n_outputs).outputs
        for output, fact in zip(outputs, self.saturated.outputs(chosen, name), strict=True):
            if fact is not None and fact.type is not None:
                self.graph.types[output] = fact.type
        return outputs

    def drop_unread(self) -> None:
        """Delete the nodes that no output rests on."""
        read = {v.node for v in self.graph.outputs if v is not None} | {v.node for v in self.graph.inputs}
        for node in reversed(self.graph.order()):
            if node.id in read:
                read |= {v.node for v in node.inputs if v is not None}
            else:
                self.changed = True
                self.graph.remove(node.id)

    def hand_on_names(self) -> None:
        """New values take the names of those whose place they took."""
        names = self.graph.names
        for old, name in self.saturated.values.items():
            label = self.saturated.graph.names.get(old)
            if label and name in self.made and self.choice[name].n_outputs == 1 and old.node not in self.graph:
                names.setdefault(self.made[name][0], label)
