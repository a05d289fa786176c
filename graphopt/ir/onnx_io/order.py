"""Topological order of a model's nodes: not every exporter writes values before they are read. Apart, for it works on
messages before the reader sees them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from onnx import AttributeProto, GraphProto, NodeProto

from graphopt.errors import InvalidModelError


def ordered(nodes: Sequence[NodeProto], where: str) -> Sequence[NodeProto]:
    """The nodes, each after those whose values it reads; the sequence itself if it is so already."""
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needs = [{maker[name] for name in reads(node) if name in maker} for node in nodes]
    if all(index > max(needed, default=-1) for index, needed in enumerate(needs)):
        return nodes
    return [nodes[index] for index in _sort(nodes, needs, where)]


def _sort(nodes: Sequence[NodeProto], needs: list[set[int]], where: str) -> list[int]:
    readers: list[list[int]] = [[] for _ in nodes]
    for index, needed in enumerate(needs):
        for other in needed:
            readers[other].append(index)
    waiting = [len(needed) for needed in needs]
    ready = [index for index, count in enumerate(waiting) if count == 0]
    sequence: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        sequence.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if len(sequence) < len(nodes):
        stuck = next(index for index, count in enumerate(waiting) if count)
        raise InvalidModelError(f"{where}{label(nodes[stuck])} is part of a cycle, or waits for one")
    return sequence


def reads(node: NodeProto) -> Iterator[str]:
    """The names that a node reads, through its bodies too."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield from _free(attribute.g)
        for body in attribute.graphs:
            yield from _free(body)


def _free(body: GraphProto) -> set[str]:
    """The names that a body reads from outside."""
    local = {info.name for info in body.input} | {tensor.name for tensor in body.initializer}
    local |= {name for node in body.node for name in node.output}
    read = {name for node in body.node for name in reads(node)} | {info.name for info in body.output}
    return read - local


def label(node: NodeProto) -> str:
    """How errors call a node."""
    return f"node {node.name!r} ({node.op_type})" if node.name else f"an unnamed {node.op_type} node"
