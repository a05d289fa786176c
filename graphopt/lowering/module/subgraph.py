"""Subgraphs: extraction of chosen nodes as a graph, and replacement by its changed form, or by a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from graphopt.errors import UsageError
from graphopt.ir.annotations import in_region, region_of
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Origin, Value
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
    facts = infer(graph)
    nodes = [n for n in graph.order() if n.id in ids]
    given = [
        v
        for id in sorted(ids)
        for v in graph.node(id).outputs
        if graph.is_output(v) or any(user not in ids for user, _ in graph.users(v))
    ]
    part, outer_inputs = extracted(graph, facts, nodes, given, "part", lambda value: True)
    part.functions = dict(graph.functions)
    return part, outer_inputs, given


def extracted(
    graph: Graph,
    facts: Mapping[Value, Fact],
    nodes: Iterable[Node],
    outputs: Sequence[Value],
    name: str,
    is_copied: Callable[[Value], bool],
    first: Iterable[Value] = (),
) -> tuple[Graph, list[Value]]:
    """Some nodes, in topological order, as a graph of their own that gives some of their values; and the values that
    its inputs are.

    Constants that ``is_copied`` takes are copied; other values from outside become inputs, those of ``first`` first.
    """
    part = Graph(name, graph.header)
    places: dict[Value, Value] = {}
    inputs: list[Value] = []

    def place(value: Value) -> None:
        source = graph.producer(value)
        if source.op == CONSTANT and is_copied(value):
            places[value] = Value(part.add(CONSTANT, (), source.attrs, origin=source.origin).id)
        else:
            known = facts.get(value)  # of calls that were put in since, the graph says the type
            places[value] = part.add_input(f"x{len(inputs)}", graph.types.get(value) if known is None else known.type)
            inputs.append(value)

    for value in first:
        if value not in places:
            place(value)
    for node in nodes:
        for used in node.inputs:
            if used is not None and used not in places:
                place(used)
        values = tuple(None if v is None else places[v] for v in node.inputs)
        twin = part.add(node.op, values, node.attrs, node.n_outputs, captures=node.captures, origin=node.origin)
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            places[old] = new
            type = graph.types.get(old, facts[old].type)
            if type is not None:
                part.types[new] = type
    for k, value in enumerate(outputs):
        part.add_output(f"y{k}" if len(outputs) > 1 else "y", places[value])
    return part, inputs


def called(
    graph: Graph, facts: Mapping[Value, Fact], op: str, inputs: Sequence[Value], outputs: Sequence[Value]
) -> Node:
    """A call whose outputs stand in the place of some values of one node, added to the graph; the nodes that computed
    them are still there."""
    sink = graph.node(outputs[0].node)
    origin = in_region(Origin(name=sink.origin.name), region_of(sink))
    call = graph.add(op, tuple(inputs), n_outputs=len(outputs), origin=origin)
    for old, new in zip(outputs, call.outputs, strict=True):
        if (type := facts[old].type) is not None:
            graph.types[new] = type
        if (label := graph.names.pop(old, None)) is not None:
            graph.names[new] = label
        graph.replace(old, new)
    return call


def remove_with_constants(graph: Graph, node: Node) -> None:
    """Remove a node, and the constants that it alone read."""
    graph.remove(node.id)
    for id in dict.fromkeys(v.node for v in node.inputs if v is not None):
        if id in graph and graph.node(id).op == CONSTANT and not graph.is_used(id):
            graph.remove(id)


def with_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """The graph with each body of its nodes as a function changes it; the graph itself where that changes none."""
    changed = graph
    for node in graph.nodes():
        bodies = {name: made for name, body in node.bodies.items() if (made := change(body)) is not body}
        if bodies:
            changed = graph.copy() if changed is graph else changed
            changed.update(node.id, attrs=node.attrs.with_(**bodies))
    return changed


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
