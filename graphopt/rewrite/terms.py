"""The classes of a saturated e-graph as extraction sees them: what each e-node costs, and which constants it stores."""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Node, Value
from graphopt.rewrite.cost import CostModel
from graphopt.rewrite.dag import Option, Problem, needed, settle
from graphopt.rewrite.saturated import PROJECTION, ENode, Saturated

CONSTANT_BYTES = 16
"""About what a constant takes that is one element repeated."""


class Terms:
    """Reads a saturated e-graph under a cost model; everything is computed once."""

    def __init__(self, saturated: Saturated, model: CostModel) -> None:
        self.saturated = saturated
        self.model = model
        self.constants = self._constants()
        self.constant_bytes = {c: self._bytes(c) for c in self.constants}
        self.seconds = {
            node.id: self._seconds(c, node)
            for c, nodes in saturated.classes.items()
            if c not in self.constant_bytes
            for node in nodes
        }

    def roots(self) -> tuple[int, ...]:
        """The classes that the outputs are, each once."""
        return tuple(dict.fromkeys(c for c in self.saturated.roots if c is not None))

    def ordered(self, c: int) -> list[ENode]:
        """The e-nodes of a class, that of the graph first."""
        original = self.saturated.originals.get(c)
        return sorted(self.saturated.classes[c], key=lambda n: (original is None or n.id != original.id, n.id))

    def stored(self, node: ENode) -> int:
        """Bytes of the constants that the e-node reads."""
        return sum(self.constant_bytes.get(c, 0) for c in set(node.children) if c is not None)

    def stored_by(self, choice: Mapping[int, ENode]) -> int:
        """Bytes of the constants that the working nodes of a choice read, each once."""
        read = {c for c in self.saturated.roots if c is not None}
        for c, node in choice.items():
            if c not in self.constant_bytes:
                read.update(n for n in node.children if n is not None)
        return sum(self.constant_bytes.get(c, 0) for c in sorted(read))

    def nodes(self, choice: Mapping[int, ENode]) -> tuple[list[Node], dict[Value, Fact]]:
        """The working nodes of a choice as nodes of a graph, and what is known of their values. A node's id is its
        class."""
        facts = self.saturated.facts
        values: dict[int, Value] = {}
        found: list[Node] = []
        known: dict[Value, Fact] = {}
        for c, node in choice.items():
            index = node.projection
            child = node.children[0] if index is not None else None
            values[c] = Value(c) if index is None or child is None else Value(child, index)
            known[values[c]] = facts[c]
            if index is None:
                inputs = tuple(None if n is None else values[n] for n in node.children)
                found.append(Node(c, node.op, inputs, node.attrs, node.n_outputs))
        return found, known

    def problem(self, byte: float) -> Problem:
        """What extraction has to solve, when a byte of constants costs ``byte`` seconds."""
        constant = self.constant_bytes
        options = {
            c: tuple(
                Option(
                    self.seconds[node.id] + byte * self.stored(node),
                    tuple(dict.fromkeys(n for n in node.children if n is not None and n not in constant)),
                    ((c, node),),
                )
                for node in self.ordered(c)
            )
            for c in self.saturated.classes
            if c not in constant
        }
        return Problem(options, tuple(c for c in self.roots() if c not in constant))

    def complete(self, choice: Mapping[int, ENode]) -> dict[int, ENode] | None:
        """The choice with its constants, as far as the outputs need it, in topological order; None where it is
        circular."""
        options = {
            c: Option(0.0, tuple(n for n in node.children if n is not None), node)
            for c, node in {**choice, **self.constants}.items()
        }
        found = needed(options, self.roots())
        return None if found is None else {c: _node(option) for c, option in found.items()}

    def _constants(self) -> dict[int, ENode]:
        """For each class that is computed from constants alone, the e-node that makes it: a constant where there is
        one, else the fewest ops, what the graph has before what rules made."""
        classes = self.saturated.classes
        constant = {c for c in classes if self.saturated.facts[c].is_const}
        options = {
            c: tuple(
                Option(float(node.op != CONSTANT), tuple(n for n in node.children if n is not None), node)
                for node in self.ordered(c)
                if constant.issuperset(n for n in node.children if n is not None)
            )
            for c in classes
            if c in constant
        }
        settled = settle(options)
        return {c: _node(settled[c]) for c in sorted(settled)}

    def _bytes(self, c: int) -> int:
        """Bytes that the class takes as a stored constant: that of its smallest form."""
        fact = self.saturated.facts[c]
        sizes = [fact.constant.nbytes] if fact.constant is not None else [int(self.model.nbytes(fact))]
        for node in self.saturated.classes[c]:
            value = node.attrs.get("value")
            if node.op == "ConstantOfShape":
                sizes.append(CONSTANT_BYTES)
            elif node.op == CONSTANT and isinstance(value, Constant):
                sizes.append(value.nbytes)
        return min(sizes)

    def _seconds(self, c: int, node: ENode) -> float:
        if node.op in (PROJECTION, INPUT):
            return 0.0
        facts = self.saturated.facts
        inputs = [None if n is None else facts[n] for n in node.children]
        return self.model.cost(node.op, node.attrs, inputs, self.saturated.outputs(node, c)).seconds


def _node(option: Option) -> ENode:
    assert isinstance(option.meaning, ENode)
    return option.meaning
