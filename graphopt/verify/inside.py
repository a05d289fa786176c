"""Intermediate values of two models: which of both go together, and which conditions decide.

Apart from ``compare``, its only user, for length.

An output that is the same for all inputs tells nothing of how it came about, while what it is made of may: where both
models end in the same op, they are equal if what that op reads is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.facts import Fact
from graphopt.ir.graph import INPUT, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.structure import node_hashes
from graphopt.ir.types import TensorType, Type

Pair: TypeAlias = "tuple[Value, Value]"
"""A value of one graph, and the one of another that should be equal to it."""

MOST = 12
"""How many pairs of values are looked at."""


@dataclass(frozen=True, slots=True)
class MatchedValues:
    """Values of two graphs that go together, since both graphs do the same with them on the way to their outputs."""

    made_of: dict[Pair, tuple[Pair, ...]]
    """For each pair that is to be compared, from what the same op makes both; empty where the ops are not the same."""
    same: set[Pair] = field(default_factory=set)
    """Those that are made by the same ops of the same inputs."""

    def told(self, pair: Pair, is_told: Callable[[Pair], bool]) -> set[Pair] | None:
        """The pairs by which one is known to be equal, given which tell so themselves; None where it is not."""
        if pair in self.same:
            return set()
        if pair not in self.made_of:
            return None
        if is_told(pair):
            return {pair}
        answers = [self.told(below, is_told) for below in self.made_of[pair]]
        if not answers or None in answers:
            return None
        return set[Pair]().union(*(some for some in answers if some is not None))


def pairs(a: Graph, b: Graph, outputs: Iterable[Pair]) -> MatchedValues:
    """The pairs that outputs of two graphs are made of, the nearest first, ``MOST`` of them at most."""
    hashes, others = node_hashes(a), node_hashes(b)
    twins = MatchedValues({})
    waiting = list(outputs)
    for v, w in waiting:
        if (hashes[v.node], v.port) == (others[w.node], w.port):
            twins.same.add((v, w))
        if (v, w) in twins.same or (v, w) in twins.made_of or len(twins.made_of) == MOST:
            continue
        node, other = a.producer(v), b.producer(w)
        below = tuple((x, y) for x, y in zip(node.inputs, other.inputs, strict=False) if x is not None is not y)
        is_alike = v.port == w.port and _head(node) == _head(other) and ops.is_pure(node.op, node.attrs)
        twins.made_of[v, w] = below if is_alike else ()
        waiting += twins.made_of[v, w]
    return twins


def _head(node: Node) -> tuple[object, ...]:
    """What makes two ops the same but for the values that they read."""
    return node.op, node.origin.overload, node.attrs, tuple(value is None for value in node.inputs)


def excerpt(graph: Graph, values: Iterable[Value]) -> Graph:
    """The part of a graph that makes some values, which are its outputs; the inputs stay."""
    twin = graph.copy()
    twin.outputs, twin.output_names = [], []
    for number, value in enumerate(values):
        twin.add_output(f"{number}", value)
    for node in reversed(twin.order()):
        if node.op != INPUT and not twin.is_used(node.id):
            twin.remove(node.id)
    return twin


def reached(graph: Graph) -> set[int]:
    """The nodes that elements of an input have a part in; others depend on sizes at most."""
    nodes: set[int] = set()
    for node in graph.order():
        reads = any(value.node in nodes for value in node.inputs if value is not None)
        if node.op == INPUT or (reads and node.op not in ("Shape", "Size")):
            nodes.add(node.id)
    return nodes


def without_inputs(graph: Graph) -> Iterator[str]:
    """The names of outputs that no element of an input has a part in."""
    nodes = reached(graph)
    for name, value in zip(graph.output_names, graph.outputs, strict=True):
        if value is None or value.node not in nodes:
            yield name


def conditions(a: Graph, b: Graph) -> dict[Value, list[int]]:
    """The conditions in a graph that elements of its inputs decide, each for a whole call: which of two branches an If
    takes, or a Where all elements from; and these nodes. Calls that are in the other graph as they are do not count."""
    found: dict[Value, list[int]] = {}
    asking = [node for node in a.nodes() if node.op in ("If", "Where") and node.inputs[0] is not None]
    if not asking:
        return found
    nodes, hashes, others = reached(a), node_hashes(a), set(node_hashes(b).values())
    facts: Mapping[Value, Fact] = {}
    for node in asking:
        condition = node.inputs[0]
        if condition is None or condition.node not in nodes or hashes[node.id] in others:
            continue
        if node.op == "Where":
            facts = facts or infer(a)
            if not _is_single(facts[condition].type):
                continue
        found.setdefault(condition, []).append(node.id)
    return found


def _is_single(type: Type | None) -> bool:
    """Whether what has the type is known to be of one element."""
    return isinstance(type, TensorType) and isinstance(type.shape, tuple) and all(size == 1 for size in type.shape)
