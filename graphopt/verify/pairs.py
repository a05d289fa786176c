"""Value pairing: which values of two graphs should be equal, by the ops that make them, their names and their readers.

Apart from ``local`` for length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from graphopt.errors import GraphoptError
from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.facts import Fact
from graphopt.ir.functions import own_calls
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.structure import structural_hash


@dataclass(slots=True)
class Pairs:
    """For values of the second graph those of the first that they should be equal to."""

    of: dict[Value, Value] = field(default_factory=dict)
    same: set[Value] = field(default_factory=set)
    """Those that the same op makes of paired values."""
    required: list[tuple[Value, Value]] = field(default_factory=list)
    """Outputs of both, first and second."""


def paired(a: Graph, b: Graph) -> Pairs:
    """The pairs of two graphs with the same inputs and outputs."""
    pairs, known, same_as = Pairs(), dict[object, Node](), dict[Value, Value]()
    facts = facts_of(a), facts_of(b)
    for node in a.order():
        if node.op in (INPUT, CONSTANT):
            continue
        if (handed := _handed_on(a, node, facts[0])) is not None:
            same_as[node.outputs[0]] = same_as.get(handed, handed)
            continue
        key = _key(a, node, lambda v: same_as.get(v, v))
        twin = known.setdefault(key, node) if key is not None and ops.is_pure(node.op, node.attrs) else node
        same_as.update(zip(node.outputs, twin.outputs, strict=True))
        known.setdefault(key, node)
    named = {name: value for value, name in a.names.items() if a.producer(value).op != CONSTANT}
    for value in b.inputs:
        if (other := named.get(b.names[value])) is not None and a.producer(other).op == INPUT:
            pairs.of[value] = other
            pairs.same.add(value)
    outputs = [(v, w) for v, w in zip(a.outputs, b.outputs, strict=True) if v is not None and w is not None]
    pairs.required = [(same_as.get(v, v), w) for v, w in outputs]
    order = own_calls(b)

    def fits(v: Value, w: Value) -> bool:
        return v not in facts[0] or w not in facts[1] or _may_be_one(facts[0][v], facts[1][w])

    for is_first in (True, False):
        for node in order:
            if node.outputs and node.outputs[0] in pairs.same:
                continue
            key = _key(b, node, pairs.of.get)
            if key is not None and (met := known.get(key)) is not None:
                pairs.of.update(zip(node.outputs, (same_as.get(v, v) for v in met.outputs), strict=True))
                pairs.same.update(node.outputs)
                continue
            for value in node.outputs if is_first else ():
                other = named.get(b.names.get(value, ""))
                if other is not None and a.producer(other).op != INPUT and fits(other, value):
                    pairs.of[value] = same_as.get(other, other)
        if is_first:
            _backward(a, b, pairs, fits)
    return pairs


def _handed_on(graph: Graph, node: Node, facts: Mapping[Value, Fact]) -> Value | None:
    """What an op hands on as it is, unless it is a constant."""
    value = node.inputs[0] if node.op in ("Identity", "Cast") else None
    if value is None or graph.constant_of(value) is not None:
        return None
    dtypes = [facts[v].dtype for v in (value, node.outputs[0]) if v in facts and facts[v].dtype is not None]
    return value if node.op == "Identity" or (len(dtypes) == 2 and dtypes[0] == dtypes[1]) else None


def facts_of(graph: Graph) -> Mapping[Value, Fact]:
    """What is known of a graph's values; nothing where inference refuses what an engine may run."""
    try:
        return infer(graph)
    except GraphoptError:
        return {}


def _key(graph: Graph, node: Node, meaning: Callable[[Value], Value | None]) -> object:
    """What two nodes have in common that make the same of paired values; None where an operand is in no pair."""
    operands: list[object] = []
    for value in node.inputs:
        constant = graph.constant_of(value)
        if value is None:
            operands.append(None)
        elif constant is not None:
            operands.append(("constant", constant.digest))
        elif (met := meaning(value)) is not None:
            operands.append(met)
        else:
            return None
    if ops.is_commutative(node.op):
        operands.sort(key=repr)
    return (*head(node), tuple(operands))


def head(node: Node) -> tuple[object, ...]:
    """What makes two ops the same but for the values that they read."""
    attrs = tuple((name, structural_hash(a) if isinstance(a, Graph) else a) for name, a in node.attrs.items())
    return node.op, node.origin.overload, repr(attrs), node.n_outputs, tuple(v is None for v in node.inputs)


def _may_be_one(x: Fact, y: Fact) -> bool:
    """Whether two values may be of one type."""
    if x.dtype is not None is not y.dtype and x.dtype != y.dtype:
        return False
    if x.shape is None or y.shape is None:
        return True
    sizes = zip(x.shape, y.shape, strict=False)
    return len(x.shape) == len(y.shape) and all(n == m for n, m in sizes if isinstance(n, int) and isinstance(m, int))


def _backward(a: Graph, b: Graph, pairs: Pairs, fits: Callable[[Value, Value], bool]) -> None:
    """Pair what the same op makes outputs of, and so on as far as ops are the same."""
    waiting = list(pairs.required)
    seen: set[Value] = set()
    while waiting:
        v, w = waiting.pop()
        m, n = a.producer(v), b.producer(w)
        if w in pairs.same or w in seen or v.port != w.port or m.op != n.op or m.op in (INPUT, CONSTANT):
            continue
        seen.add(w)
        for x, y in zip(m.inputs, n.inputs, strict=False):
            if x is None or y is None or CONSTANT in (a.producer(x).op, b.producer(y).op):
                continue
            if y not in pairs.of and a.producer(x).op != INPUT and b.producer(y).op != INPUT and fits(x, y):
                pairs.of[y] = x
            if pairs.of.get(y) == x:
                waiting.append((x, y))
