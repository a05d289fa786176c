"""Visitor and Mutator: one method for each op, one for each kind of op, one for all others.

A node goes to ``visit_<Op>`` (``visit_MatMul``; outside ONNX's own domain ``visit_com_microsoft_Gelu``),
else to ``visit_<kind>`` (``visit_unary``, ``visit_reduce``: the keys of ``ops.KINDS``; graph inputs and
constants are of the kind ``source``), else to ``visit_other``.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Any, Final, Generic, TypeAlias, TypeVar

from graphopt.ir import ops
from graphopt.ir.graph import CONSTANT, INPUT, NO_ATTRS, Attrs, Graph, Node, Value

R = TypeVar("R")


class Delete:
    """The type of ``DELETE``."""


DELETE: Final = Delete()
"""What a mutator's method returns to delete a node that nobody reads."""

Result: TypeAlias = Node | Value | tuple[Value, ...] | Delete


@cache
def method_names(op: str) -> tuple[str, ...]:
    """The methods that an op goes to, the first that exists."""
    plain = op.replace("::", "_").replace(".", "_").replace("@", "_")
    kind = "source" if op in (INPUT, CONSTANT) else ops.kind(op)
    return (f"visit_{plain}", f"visit_{kind}", "visit_other")


class Visitor(Generic[R]):
    """Looks at every node of a graph, producers first. Subclass it and write ``visit_...`` methods.

    ``results`` holds what the methods returned for the nodes so far, by node id, and ``graph`` the
    graph; bodies are visited where a method calls ``inside``.
    """

    graph: Graph
    results: dict[int, R]

    def visit(self, graph: Graph, chosen: Callable[[Node], bool] | None = None) -> dict[int, R]:
        """What the methods return for each node, by node id; where there is a ``chosen``, for those nodes only."""
        self.graph, self.results = graph, {}
        for node in graph.order():
            if chosen is None or chosen(node):
                self.results[node.id] = _method(self, node)(node)
        return self.results

    def inside(self, body: Graph) -> dict[int, R]:
        """The same for the body of a node, visited by a copy of this visitor."""
        return copy(self).visit(body)

    def visit_other(self, node: Node) -> R:
        """A node for which there is no method: NotImplementedError, which names it."""
        names = " nor ".join(method_names(node.op)[:2])
        raise NotImplementedError(f"{type(self).__name__} has neither {names}, which node {node.id} ({node.op}) needs")


class Mutator:
    """Makes a changed copy of a graph. Subclass it and write ``visit_...`` methods.

    A method returns the node to keep it, the node with changes (``dataclasses.replace``) to put that
    in its place, a value (a tuple where the node has several outputs) that its readers read from now
    on, or ``DELETE``. New nodes are made by ``add``. Bodies of nodes are mutated before the nodes
    that own them. A node that is replaced is removed unless new nodes read it; others that lose their last
    reader stay.
    """

    graph: Graph
    """The graph: the one given until something changes, then the copy."""

    def mutate(self, graph: Graph, chosen: Callable[[Node], bool] | None = None) -> Graph:
        """The changed graph; the very one that was given where nothing changed.

        Where there is a ``chosen``, methods are called for those nodes only, and for all in their bodies.
        """
        self.graph = self._given = graph
        for id in [node.id for node in graph.order()]:
            if id in self.graph and (chosen is None or chosen(self.graph.node(id))):
                self._bodies(self.graph.node(id))
                node, mark = self.graph.node(id), self.graph.next_id
                self._apply(node, _method(self, node)(node), mark)
        return self.graph

    def add(
        self, op: str, inputs: tuple[Value | None, ...], attrs: Attrs = NO_ATTRS, n_outputs: int = 1
    ) -> tuple[Value, ...]:
        """The outputs of a new node."""
        return self._own().add(op, inputs, attrs, n_outputs).outputs

    def visit_other(self, node: Node) -> Result:
        """A node for which there is no method is kept."""
        return node

    def _own(self) -> Graph:
        if self.graph is self._given:
            self.graph = self.graph.copy()
        return self.graph

    def _bodies(self, node: Node) -> None:
        changed = {name: new for name, body in node.bodies.items() if (new := copy(self).mutate(body)) is not body}
        if changed:
            self._own().update(node.id, attrs=node.attrs.with_(**changed))

    def _apply(self, node: Node, result: Result, mark: int) -> None:
        match result:
            case Node():
                if result != node:
                    changes = {
                        name: getattr(result, name) for name in ("op", "inputs", "attrs", "n_outputs", "captures")
                    }
                    self._own().update(node.id, **changes)
            case Delete():
                self._own().remove(node.id)
            case tuple():
                self._replace(node, (result,) if isinstance(result, Value) else result, mark)
            case _:
                raise TypeError(
                    f"{_method(self, node).__qualname__} returned {result!r} for node {node.id} ({node.op}): expected "
                    "the node, a value to put in its place, or DELETE"
                )

    def _replace(self, node: Node, values: tuple[Value, ...], mark: int) -> None:
        """Let others read the values; nodes made since ``mark`` keep what they were made to read."""
        if len(values) != node.n_outputs:
            raise TypeError(f"{len(values)} values cannot replace the {node.n_outputs} outputs of node {node.id}")
        if values == node.outputs:
            return
        graph = self._own()
        added = list(graph.since(mark))
        for old, new in zip(node.outputs, values, strict=True):
            if old in graph.types:
                graph.types.setdefault(new, graph.types[old])
            graph.replace(old, new)
        for new_node in added:
            graph.update(new_node.id, inputs=new_node.inputs)
        if not graph.is_used(node.id):
            graph.remove(node.id)


def _method(visitor: Any, node: Node) -> Any:
    names = method_names(node.op)
    return next(getattr(visitor, name) for name in names if hasattr(visitor, name))
