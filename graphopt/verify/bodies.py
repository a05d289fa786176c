"""Bodies of control flow as graphs of their own: what they capture becomes an input, or is computed inside.

Apart from ``local`` for length.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.ir.graph import INPUT, Graph, Node, Value
from graphopt.ir.infer_bodies import loop_head
from graphopt.ir.types import TensorType
from graphopt.verify.arrays import dtype_name
from graphopt.verify.double import within
from graphopt.verify.pairs import Pairs
from graphopt.verify.runtimes import Feeds


def paired_bodies(a: Graph, b: Graph, pairs: Pairs) -> list[tuple[Node, Node]]:
    """The nodes of two graphs that are to make the same, by bodies of the same names that are not the same."""
    both: dict[int, tuple[Node, Node]] = {}
    for w, v in {**pairs.of, **{w: v for v, w in pairs.required}}.items():
        m, n = a.producer(v), b.producer(w)
        if w not in pairs.same and m.op == n.op and n.bodies and m.bodies.keys() == n.bodies.keys():
            both.setdefault(n.id, (m, n))
    return list(both.values())


def closed(graph: Graph, node: Node, body: Graph, meanings: Mapping[Value, Value]) -> tuple[Graph, set[Value]]:
    """A body of a node as a graph of its own, and the values that it reads, of those that have a meaning: what else it
    captures is computed inside. Inputs are named for what they mean, or for their place."""
    twin = body.copy()
    twin.functions = graph.functions
    captured = node.inputs[len(node.inputs) - node.captures :] if node.captures else ()
    n_own = len(body.inputs) - len(captured)
    for number, value in enumerate(body.inputs[:n_own]):
        twin.names[value] = own_name(number)
    given: dict[Value, Value] = {}
    read: set[Value] = set()
    for inside, outside in zip(body.inputs[n_own:], captured, strict=True):
        if outside is None:
            continue
        for below in within(graph, meanings, [outside]) if outside not in meanings else ():
            inputs = tuple(
                v if v is None else given.get(v) or _read(twin, given, read, v, meanings) for v in below.inputs
            )
            if below.op == INPUT or below.outputs[0] in given:
                given.setdefault(below.outputs[0], _read(twin, given, read, below.outputs[0], meanings))
                continue
            made = twin.add(
                below.op, inputs, below.attrs, below.n_outputs, captures=below.captures, origin=below.origin
            )
            given.update(zip(below.outputs, made.outputs, strict=True))
        new = given.get(outside) or _read(twin, given, read, outside, meanings)
        twin.replace(inside, new)
        twin.remove(inside.node)
    return twin, read


def _read(
    twin: Graph, given: dict[Value, Value], read: set[Value], value: Value, meanings: Mapping[Value, Value]
) -> Value:
    """The input of a body that stands for a value outside."""
    if value not in given:
        met = meanings.get(value, value)
        read.add(met)
        given[value] = twin.add_input(outer_name(met))
    return given[value]


def outer_name(value: Value) -> str:
    """The input of a body that stands for a value outside of it."""
    return f"graphopt:outside:{value.node}:{value.port}"


OWN = "graphopt:own:"


def own_name(number: int) -> str:
    """An input of the body's own, by its place."""
    return f"{OWN}{number}"


def typed(body: Graph, feeds: Feeds) -> Graph:
    """A body whose inputs have the types of what it is given."""
    twin = body.copy()
    twin.types = {}
    for value in twin.inputs:
        array = feeds[twin.names[value]]
        twin.types[value] = TensorType(dtype_name(array), array.shape)
    return twin


def slice_position(m: Node, k: int, turn: int) -> int:
    """The position of a Scan's slice in a round."""
    ways = m.attrs.get("scan_input_directions")
    return -1 - turn if isinstance(ways, tuple) and ways[k] else turn


def head_shape(body: Graph, index: int) -> tuple[int, ...]:
    """The shape of a Loop's number of the round, or condition, in its body."""
    shape = loop_head(body)[index].shape
    return tuple(size for size in shape if isinstance(size, int)) if isinstance(shape, tuple) else ()
