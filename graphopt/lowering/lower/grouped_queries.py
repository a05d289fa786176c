"""GroupQueryAttention (com.microsoft) that splits one input and turns queries and keys, with both as ops of their own.

Nothing is lost by that: what an op before attention gives is written where attention reads it, and turned keys are
what a cache holds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs, Graph, Node, Value
from graphopt.ir.infer import infer

GROUPED, ROTARY = "com.microsoft::GroupQueryAttention", "com.microsoft::RotaryEmbedding"
LENGTHS, COS, SIN, POSITIONS = 5, 7, 8, 9
"""Inputs: how long each sequence is, less one; the angles; and of which positions they are."""


def with_parts_apart(graph: Graph) -> Graph:
    """The graph with such attention of queries, keys and values that come apart and turned; itself without any."""
    found = [n for n in graph.order() if n.op == GROUPED and (_is_packed(n) or n.attrs.get("do_rotary"))]
    facts = infer(graph) if found else {}
    for k, node in enumerate(found):
        graph = graph.copy() if k == 0 else graph
        _apart(graph, node, facts)
    return graph


def _is_packed(node: Node) -> bool:
    return node.inputs[1] is None


def _input(node: Node, k: int) -> Value | None:
    return node.inputs[k] if k < len(node.inputs) else None


def _numbers(graph: Graph, *held: int) -> Value:
    return graph.add_constant(Constant.of(np.array(held, np.int64)))


def _apart(graph: Graph, node: Node, facts: Mapping[Value, Fact]) -> None:
    heads, groups = node.attrs.get("num_heads"), node.attrs.get("kv_num_heads")
    x = node.inputs[0]
    shape = None if x is None else facts[x].shape
    if x is None or shape is None or len(shape) != 3 or not isinstance(heads, int) or not isinstance(groups, int):
        return
    q, k, v = node.inputs[:3]
    if _is_packed(node):
        width = shape[2]
        if not isinstance(width, int) or width % (heads + 2 * groups):
            return
        size = width // (heads + 2 * groups)
        sizes = _numbers(graph, heads * size, groups * size, groups * size)
        q, k, v = graph.add("Split", (x, sizes), Attrs(axis=-1), 3).outputs
    if node.attrs.get("do_rotary"):
        angles = _input(node, COS), _input(node, SIN)
        positions = _input(node, POSITIONS)
        positions = _positions(graph, node, q) if positions is None else positions
        turned = Attrs(interleaved=node.attrs.get("rotary_interleaved", 0))
        q, k = (
            graph.add(ROTARY, (part, positions, *angles), turned.with_(num_heads=count)).outputs[0]
            for part, count in ((q, heads), (k, groups))
        )
    rest = tuple(None if k in (COS, SIN, POSITIONS) else value for k, value in enumerate(node.inputs))[3:]
    attrs = node.attrs.with_(do_rotary=None, rotary_interleaved=None)
    graph.update(node.id, inputs=(q, k, v, *rest), attrs=attrs)


def _positions(graph: Graph, node: Node, q: Value | None) -> Value:
    """The places of queries, [batch, length]: those at the end of each sequence."""
    one = graph.add_constant(Constant.of(np.array(1, np.int64)))
    length = graph.add("Shape", (q,), Attrs(start=1, end=2)).outputs[0]
    count = graph.add("Reshape", (length, _numbers(graph))).outputs[0]
    zero = graph.add_constant(Constant.of(np.array(0, np.int64)))
    steps = graph.add("Range", (zero, count, one)).outputs[0]
    last = graph.add("Cast", (_input(node, LENGTHS),), Attrs(to=7)).outputs[0]
    rows = graph.add("Reshape", (last, _numbers(graph, -1, 1))).outputs[0]
    first = graph.add("Sub", (graph.add("Add", (rows, one)).outputs[0], count)).outputs[0]
    return graph.add("Add", (first, steps)).outputs[0]
