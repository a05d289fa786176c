"""Transposed operands: products that read a matrix by its columns, in place of a copy of it in that order.

Keys that a decoder keeps are read once for a token: to transpose them takes longer than to multiply by them.
"""

from __future__ import annotations

from graphopt.ir.graph import Attrs, Graph, Node, Value
from graphopt.ir.infer import infer

PRODUCT = "com.microsoft::FusedMatMul"


def with_transposed_operands(graph: Graph) -> Graph:
    """The graph with products by matrices that are transposed for them alone as products that do so themselves; the
    graph itself where there are none."""
    found = [(node, source) for node in graph.order() if (source := _transposed(graph, node)) is not None]
    if not found:
        return graph
    facts = infer(graph)
    result = graph.copy()
    for node, source in found:
        if facts[source].dtype not in ("float32", "float64"):
            continue
        turned = node.inputs[1]
        result.update(node.id, op=PRODUCT, inputs=(node.inputs[0], source), attrs=Attrs(transB=1))
        if turned is not None and not result.is_used(turned.node):
            result.remove(turned.node)
    return result


def _transposed(graph: Graph, node: Node) -> Value | None:
    """The matrices that the second operand of a product has transposed."""
    if node.op != "MatMul" or node.inputs[1] is None or graph.is_output(node.inputs[1]):
        return None
    maker = graph.producer(node.inputs[1])
    perm = maker.attrs.get("perm") if maker.op == "Transpose" else None
    if not isinstance(perm, tuple) or len(perm) < 2 or maker.inputs[0] is None:
        return None
    swapped = (*range(len(perm) - 2), len(perm) - 1, len(perm) - 2)
    if perm != swapped or graph.constant_of(maker.inputs[0]) is not None or len(graph.users(node.inputs[1])) > 1:
        return None
    return maker.inputs[0]
