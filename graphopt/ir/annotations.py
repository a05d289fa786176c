"""Annotations of graphs and nodes: primitive functions and dataflow regions.

They stand in the metadata, so that models save them, and rewriting passes those of nodes on to the nodes that it makes.
"""

from __future__ import annotations

from dataclasses import replace

from graphopt.ir.graph import Graph, Node, Origin

PRIMITIVE = ("primitive", "true")
"""What the metadata of a graph function say that is to become one tensor program."""
DATAFLOW = "dataflow"
"""The key of a node's dataflow region in its metadata."""


def is_primitive(graph: Graph) -> bool:
    """Whether a graph function is to become one tensor program (``FuseOps``)."""
    return PRIMITIVE in graph.origin.metadata


def primitive(graph: Graph) -> Graph:
    """The graph as a function that is to become one tensor program."""
    if is_primitive(graph):
        return graph
    graph = graph.copy()
    graph.origin = replace(graph.origin, metadata=(*graph.origin.metadata, PRIMITIVE))
    return graph


def region_of(node: Node) -> str:
    """The number of the dataflow region that a node is in; empty where it is in none."""
    return next((text for key, text in node.origin.metadata if key == DATAFLOW), "")


def in_region(origin: Origin, region: str) -> Origin:
    """The origin of a node in a dataflow region; as it is where there is none."""
    if not region:
        return origin
    others = tuple(pair for pair in origin.metadata if pair[0] != DATAFLOW)
    return replace(origin, metadata=(*others, (DATAFLOW, region)))


def free_region(graph: Graph) -> str:
    """A number that no dataflow region of the graph has."""
    taken = {region_of(node) for node in graph.nodes()}
    return next(number for k in range(len(taken) + 1) if (number := str(k)) not in taken)
