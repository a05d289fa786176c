"""Subgraphs: extraction of chosen nodes as a graph, and replacement by its changed form."""

from __future__ import annotations

from collections.abc import Callable

from graphopt.errors import UsageError
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.lowering.lower.unlowered import name_of


def change_part(graph: Graph, chosen: Callable[[Node], bool], change: Callable[[Graph], Graph]) -> Graph:
    """The graph with a function applied to the subgraph of the chosen nodes.

    Raises UsageError where a path between two of them leads through others, where one has effects, and where the
    function gives other inputs or outputs. The graph itself where the function changes nothing.
    """
    ids = {n.id for n in graph.nodes() if n.op not in (INPUT, CONSTANT) and chosen(n)}
    if not ids:
        return graph
    _check(graph, ids)
    part, outer_inputs, given = _cut(graph, ids)
    changed = change(part)
    if changed is part:
        return graph
    if [changed.names[v] for v in changed.inputs] != [part.names[v] for v in part.inputs] or (
        changed.output_names != part.output_names
    ):
        raise UsageError("what a pass makes of a part of a graph has to have the part's inputs and outputs")
    return _put_back(graph, ids, changed, outer_inputs, given)


def _check(graph: Graph, ids: set[int]) -> None:
    after: set[int] = set()
    for node in graph.order():
        sources = {v.node for v in node.inputs if v is not None}
        if node.id in ids:
            if graph.has_effects(node):
                raise UsageError(f"node {name_of(graph, node)!r} has effects, and cannot be cut out with a part")
            outside = sources & after
            if outside:
                name = name_of(graph, graph.node(min(outside)))
                raise UsageError(f"the nodes are no part of their own: a path between them leads through {name!r}")
        elif sources & (after | ids):
            after.add(node.id)


def _cut(graph: Graph, ids: set[int]) -> tuple[Graph, list[Value], list[Value]]:
    """The part, with the values of the graph that its inputs and outputs are."""
    # In topological order: constants are copied, other values from outside become inputs, and values used outside
    # outputs.
    facts = infer(graph)
    part = Graph("part", graph.header, dict(graph.functions))
    places: dict[Value, Value] = {}
    outer_inputs: list[Value] = []
    for node in (n for n in graph.order() if n.id in ids):
        for value in node.inputs:
            if value is None or value in places:
                continue
            source = graph.producer(value)
            if source.op == CONSTANT:
                places[value] = Value(part.add(CONSTANT, (), source.attrs, origin=source.origin).id)
            else:
                places[value] = part.add_input(f"i{len(outer_inputs)}", facts[value].type)
                outer_inputs.append(value)
        inputs = tuple(None if v is None else places[v] for v in node.inputs)
        twin = part.add(node.op, inputs, node.attrs, node.n_outputs, captures=node.captures, origin=node.origin)
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            places[old] = new
            if old in graph.types:
                part.types[new] = graph.types[old]
    given = [
        v
        for id in sorted(ids)
        for v in graph.node(id).outputs
        if graph.is_output(v) or any(user not in ids for user, _ in graph.users(v))
    ]
    for k, value in enumerate(given):
        part.add_output(f"o{k}", places[value])
    return part, outer_inputs, given


def _put_back(graph: Graph, ids: set[int], changed: Graph, outer_inputs: list[Value], given: list[Value]) -> Graph:
    graph = graph.copy()
    places = dict(zip(changed.inputs, outer_inputs, strict=True))
    for node in changed.order():
        if node.op == INPUT:
            continue
        inputs = tuple(None if v is None else places[v] for v in node.inputs)
        twin = graph.add(node.op, inputs, node.attrs, node.n_outputs, captures=node.captures, origin=node.origin)
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            places[old] = new
            if old in changed.types:
                graph.types[new] = changed.types[old]
    for old, result in zip(given, changed.outputs, strict=True):
        assert result is not None
        new = places[result]
        name = graph.names.pop(old, None)
        if name is not None and new not in graph.names:
            graph.names[new] = name
        graph.replace(old, new)
    for id in sorted(ids, reverse=True):
        _remove(graph, id, ids)
    return graph


def _remove(graph: Graph, id: int, ids: set[int]) -> None:
    """Remove a node of the part, after those that read it."""
    if id in graph:
        for reader in graph.readers(id):
            _remove(graph, reader, ids)
        graph.remove(id)
