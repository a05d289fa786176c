"""Visitor: one method for each op, one for each kind of op, one for all others.

A node goes to ``visit_<Op>`` (``visit_MatMul``; outside ONNX's own domain ``visit_com_microsoft_Gelu``),
else to ``visit_<kind>`` (``visit_unary``, ``visit_reduce``: the keys of ``ops.KINDS``; graph inputs and
constants are of the kind ``source``), else to ``visit_other``.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Any, Generic, TypeVar

from graphopt.errors import UsageError, nearest
from graphopt.ir import ops
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node

R = TypeVar("R")


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

    >>> class Ops(graphopt.Visitor):
    ...     def visit_Relu(self, node):
    ...         return "a relu"
    ...
    ...     def visit_other(self, node):
    ...         return node.op
    >>> list(Ops().visit(graph).values())
    ['Input', 'a relu']
    >>> list(Ops().inside(graph).values())
    ['Input', 'a relu']
    """

    graph: Graph
    results: dict[int, R]

    def visit(self, graph: Graph, chosen: Callable[[Node], bool] | None = None) -> dict[int, R]:
        """What the methods return for each node, by node id; where there is a ``chosen``, for those nodes only.
        UsageError for a method that no op goes to, though its name is like one of theirs."""
        check_methods(type(self), graph)
        self.graph, self.results = graph, {}
        for node in graph.order():
            if chosen is None or chosen(node):
                self.results[node.id] = method(self, node)(node)
        return self.results

    def inside(self, body: Graph) -> dict[int, R]:
        """The same for the body of a node, visited by a copy of this visitor."""
        return copy(self).visit(body)

    def visit_other(self, node: Node) -> R:
        """A node for which there is no method: NotImplementedError, which names it."""
        names = " nor ".join(method_names(node.op)[:2])
        raise NotImplementedError(f"{type(self).__name__} has neither {names}, which node {node.id} ({node.op}) needs")


def method(visitor: Any, node: Node) -> Any:
    """The method of a visitor or mutator that a node goes to."""
    names = method_names(node.op)
    return next(getattr(visitor, name) for name in names if hasattr(visitor, name))


def check_methods(visitor: type, graph: Graph) -> None:
    """UsageError where a method of a visitor or mutator has a name like those that ops go to, and is none of them: it
    would never be called."""
    if doubtful := _doubtful_methods(visitor):
        there = {name for node in graph.nodes() for name in method_names(node.op)}
        for name, hint in doubtful.items():
            if name not in there:
                raise UsageError(f"no op goes to {visitor.__name__}.{name}{hint}")


@cache
def _doubtful_methods(visitor: type) -> dict[str, str]:
    """The methods of no op of ONNX's own domain and no kind of ops, and what may be meant, where some name is near;
    those with a domain in their name may be anybody's."""
    known = {name for op in (INPUT, *ops.names()) for name in method_names(op)} | {f"visit_{k}" for k in ops.KINDS}
    own = (name for name in dir(visitor) if name.startswith("visit_") and name.count("_") == 1 and name not in known)
    return {name: hint for name in own if (hint := nearest(name, known))}
