"""Drawing of a graph: its nodes in layers, with their inferred types, as plain values that become JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.name_scopes import grouped, name_scopes, own_name
from graphopt.ir.types import in_words
from graphopt.web.layered import lay_out

LONGEST = 240
"""How many characters of an attribute are shown."""


@dataclass(frozen=True, slots=True)
class DrawnOperand:
    """A value that a node reads or makes: its name and type; ``box`` is the node that makes it, where that is drawn."""

    name: str
    type: str
    box: int | None = None


@dataclass(frozen=True, slots=True)
class Box:
    """A node as it is drawn, its middle at ``x`` and ``y``."""

    id: int
    op: str
    name: str
    x: int
    y: int
    attrs: str
    reads: tuple[DrawnOperand | None, ...]
    makes: tuple[DrawnOperand, ...]
    is_output: bool
    scope: int | None = None
    """The scope that it comes from, by its number in the drawing."""
    seconds: float | None = None
    """What it costs by itself, as modelled; None where nothing prices it."""


@dataclass(frozen=True, slots=True)
class DrawnScope:
    """A module that nodes come from: its name within the one around it, which is that of the number ``within``."""

    name: str
    within: int | None


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph as it is drawn. ``wires`` are edges: the number of a box, that of another, and the bends on the way."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    wires: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...]
    scopes: tuple[DrawnScope, ...] = ()
    """The modules that the nodes come from, each behind the one around it."""


Price: TypeAlias = Callable[[Node, Mapping[Value, Fact]], float]
"""The modelled seconds of a node by itself, given what is known of the values of its graph."""


def draw(graph: Graph, facts: Mapping[Value, Fact] | None = None, price: Price | None = None) -> Drawing:
    """The picture of a graph, bodies of its nodes apart; constants stand with who reads them. ``facts`` are what is
    known of its values, inferred where nothing is given. MissingDependencyError where nothing lays it out."""
    inferred = infer(graph) if facts is None else facts
    nodes = [n for n in graph.order() if n.op != CONSTANT]
    numbers = {node.id: k for k, node in enumerate(nodes)}
    ends = dict.fromkeys(
        (numbers[v.node], numbers[node.id])
        for node in nodes
        for v in node.inputs
        if v is not None and v.node in numbers
    )
    layout = lay_out(len(nodes), list(ends))
    returned = {v.node for v in graph.outputs if v is not None}
    of_nodes = [() if node.op == INPUT else name_scopes(node) for node in nodes]
    scopes = {path: number for number, (path, _) in enumerate((p, m) for p, m in grouped(of_nodes) if p)}
    boxes = tuple(
        replace(
            _box(graph, inferred, node, numbers, position, node.id in returned),
            scope=scopes.get(scope),
            seconds=None if price is None or node.op == INPUT else price(node, inferred),
        )
        for node, position, scope in zip(nodes, layout.places, of_nodes, strict=True)
    )
    wires = tuple((a, b, bends) for (a, b), bends in zip(ends, layout.bends, strict=True))
    drawn = tuple(DrawnScope(own_name(path), scopes.get(path[:-1])) for path in scopes)
    return Drawing(layout.width, layout.height, boxes, wires, drawn)


def _box(
    graph: Graph,
    facts: Mapping[Value, Fact],
    node: Node,
    numbers: Mapping[int, int],
    position: tuple[int, int],
    is_output: bool,
) -> Box:
    def operand(value: Value) -> DrawnOperand:
        constant = graph.constant_of(value)
        if constant is not None and not graph.names.get(value):
            name = _plain(constant)
        else:
            name = graph.names.get(value) or f"%{value.node}" + (f".{value.port}" if value.port else "")
        return DrawnOperand(name, shown(facts.get(value)), numbers.get(value.node))

    return Box(
        node.id,
        node.op,
        node.origin.name or graph.names.get(Value(node.id), ""),
        *position,
        attributes(node),
        tuple(None if v is None else operand(v) for v in node.inputs),
        tuple(map(operand, node.outputs)),
        is_output,
    )


def attributes(node: Node) -> str:
    """The attributes of a node that are not the op's own, as people write them."""
    if node.op == INPUT:
        return ""
    return ", ".join(f"{name}={_brief(value)}" for name, value in ops.canonical(node.op, node.attrs).items())


def shown(fact: Fact | None) -> str:
    """What is known of a value's type: ``float32[1, n, ?]``."""
    if fact is None or fact.dtype is None:
        return "?"
    if fact.shape is None:
        return f"{fact.dtype}[…]"
    return f"{fact.dtype}[{', '.join(map(in_words, fact.shape))}]"


def _brief(value: object) -> str:
    if isinstance(value, Graph):
        return "{…}"
    text = _plain(value) if isinstance(value, Constant) else str(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _plain(constant: Constant) -> str:
    """A constant without a name: its elements where they are few."""
    if constant.size <= 8:
        return str(constant.array.tolist())
    return f"{constant.dtype}{list(constant.shape)}"
