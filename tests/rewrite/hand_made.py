"""Saturated e-graphs made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, Attrs, Graph
from graphopt.ir.types import TensorType
from graphopt.rewrite.egraph.egraph_snapshot import ENode, Saturated
from graphopt.rewrite.egraph.provenance import Provenance

BIG = Fact(TensorType("float32", (1, 64, 400, 400)))


def classes_of(*classes: Sequence[ENode], facts: dict[int, Fact] | None = None, roots: tuple[int, ...]) -> Saturated:
    """Hand-made classes, 0, 1, ...; e-nodes with a ``node`` are those of the graph."""
    named = dict(enumerate(map(tuple, classes)))
    known = {c: (facts or {}).get(c, BIG) for c in named}
    originals = {
        c: next(n for n in own if n.node is not None)
        for c, own in named.items()
        if any(n.node is not None for n in own)
    }
    graph = Graph()
    for own in named.values():
        for n in own:
            if n.op == CONSTANT and n.node is not None:
                graph.add(CONSTANT, (), n.attrs)
    return Saturated(
        graph, named, known, roots, {}, originals, Provenance(), {}, "saturated", 1, sum(map(len, named.values()))
    )


def e(id: int, op: str, *children: int, node: bool = False, **attrs: object) -> ENode:
    return ENode(id, op, Attrs(attrs), children, node=id if node else None)  # type: ignore[arg-type]


def constant(array: Array) -> tuple[Attrs, Fact]:
    held = Constant.of(array)
    return Attrs(value=held), Fact(TensorType(held.dtype, array.shape), True, held)
