"""Orders of a graph's nodes: effects in the order of creation, and dataflow regions together."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise

from graphopt.errors import InvalidModelError
from graphopt.ir.annotations import region_of
from graphopt.ir.graph import Graph, Node


def in_order(graph: Graph) -> Sequence[Node]:
    """The nodes in topological order; those with effects in the order of creation.

    InvalidModelError where one reads what a later one gives.
    """
    order = graph.order()
    acting = [n.id for n in order if graph.has_effects(n)]
    if acting == sorted(acting):
        return order
    placed = _sorted({n.id: n.id for n in order}, _before(order, sorted(acting)))
    if len(placed) < len(order):
        stuck = min(set(acting) - set(placed))
        raise InvalidModelError(f"node {stuck} ({graph.node(stuck).op}) has effects, and reads what comes after it")
    return [graph.node(id) for id in placed]


def by_region(graph: Graph) -> Iterator[tuple[str, list[Node]]]:
    """The nodes in topological order, as runs of a dataflow region each (``""``: of none); those with effects in the
    order of creation. A region is one run unless a path between two of its nodes leads through others."""
    try:
        order = in_order(graph)
    except InvalidModelError:  # it is shown all the same
        order = graph.order()
    together = {n.id: region for n in order if (region := region_of(n))}
    before = _before(order, [n.id for n in order if graph.has_effects(n)])
    while together:
        groups = {n.id: together.get(n.id, n.id) for n in order}
        placed = _sorted(groups, before)
        if len(placed) == len(order):
            order = [graph.node(id) for id in placed]
            break
        torn = next(region for id, region in together.items() if id not in placed)
        together = {id: region for id, region in together.items() if region != torn}
    for region, nodes in groupby(order, region_of):
        yield region, list(nodes)


def _before(order: Sequence[Node], acting: Sequence[int]) -> dict[int, set[int]]:
    """The nodes that come before each: those that it reads, and of those that act the one before it."""
    before = {n.id: {v.node for v in n.inputs if v is not None} for n in order}
    for one, following in pairwise(acting):
        before[following].add(one)
    return before


def _sorted(groups: Mapping[int, str | int], before: Mapping[int, set[int]]) -> list[int]:
    """The nodes in topological order, groups of them together, as near to the given order as can be. Groups on a cycle,
    and what comes after them, are left out."""
    members: dict[str | int, list[int]] = {}
    for id, group in groups.items():
        members.setdefault(group, []).append(id)
    wanted = {group: {groups[k] for id in ids for k in before[id]} - {group} for group, ids in members.items()}
    after: dict[str | int, list[str | int]] = {group: [] for group in members}
    for group, sources in wanted.items():
        for source in sources:
            after[source].append(group)
    position = {group: k for k, group in enumerate(members)}  # that of the first member
    waiting = {group: len(sources) for group, sources in wanted.items()}
    ready = [(position[group], group) for group, n in waiting.items() if n == 0]
    heapq.heapify(ready)
    placed: list[int] = []
    while ready:
        _, group = heapq.heappop(ready)
        placed += members[group]
        for follower in after[group]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, (position[follower], follower))
    return placed
