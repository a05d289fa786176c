"""Subgraph of a model as a model: the nodes between given values, with their names, types and weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphopt.errors import UsageError, names_its_model, nearest
from graphopt.ir.facts import Fact
from graphopt.ir.functions import bodies_of, calls
from graphopt.ir.graph import INPUT, Attrs, Graph, Value
from graphopt.ir.types import OpaqueType, TensorType


@names_its_model
def extract(
    model: Any, inputs: Sequence[str] = (), outputs: Sequence[str] = (), *, output: str | Path | None = None
) -> Any:
    """The part of a model that computes ``outputs`` from ``inputs``, of the kind that was given.

    Values go by name, nodes that make one value by theirs. Without ``inputs`` the model's own are kept that are needed,
    without ``outputs`` all that the inputs lead to; other inputs of the model that are needed stay. Cut values become
    inputs of their inferred types; unused weights and functions are dropped. ``model`` is a ``Graph``, bytes,
    ``ModelProto`` or ``onnx_ir.Model``, or a path, which needs ``output``, the path to write, and gives it back.

    Raises UsageError where a name is unknown (with the nearest), an input is not needed, or a value has no known dtype.
    """
    from graphopt.ir.onnx_io import load, save
    from graphopt.run.write_result import like

    if isinstance(model, str | Path) and output is None:
        raise UsageError("extracting from a file needs output=, the path to write")
    graph = model if isinstance(model, Graph) else load(model)
    cut = extract_graph(graph, inputs, outputs)
    if output is not None:
        save(cut, output)
        return output
    return cut if isinstance(model, Graph) else like(model, cut)


def extract_graph(graph: Graph, inputs: Sequence[str] = (), outputs: Sequence[str] = ()) -> Graph:
    """``extract`` of a graph, which is not changed."""
    from graphopt.ir.infer import infer

    values = named_values(graph)
    sources = {_find(graph, values, name): name for name in inputs}
    wanted = {_find(graph, values, name): name for name in outputs} or _reached(graph, sources)
    facts = infer(graph)
    cut = graph.copy()
    cut.outputs, cut.output_names = [], []
    entries = {value: _entry(cut, value, name, facts) for value, name in sources.items()}
    for value, name in wanted.items():
        cut.types[value] = _type(value, name, facts)
        cut.add_output(graph.names.get(value, name), entries.get(value, value))
    for value, entry in entries.items():
        if entry != value:
            cut.replace(value, entry)
            cut.names.pop(value, None)  # its node may stay for another output
    _prune(cut)
    unused = [name for value, name in sources.items() if entries[value].node not in cut]
    if unused:
        ends = ", ".join(map(repr, wanted.values()))
        raise UsageError(f"{', '.join(map(repr, unused))}: not needed to compute {ends}; leave it out")
    cut.inputs = [*entries.values(), *(v for v in cut.inputs if v not in entries.values())]
    return cut


def named_values(graph: Graph) -> dict[str, Value]:
    """The values of a graph by their names; nodes that make one value by theirs, where no value is called so."""
    values = dict(zip(graph.output_names, graph.outputs, strict=True))
    values |= {name: value for value, name in graph.names.items()}
    for node in graph.nodes():
        if node.n_outputs == 1 and node.origin.name:
            values.setdefault(node.origin.name, Value(node.id))
    return {name: value for name, value in values.items() if value is not None}


def _find(graph: Graph, values: Mapping[str, Value], name: str) -> Value:
    if name in values:
        return values[name]
    for node in graph.nodes():
        if name == node.origin.name:
            outputs = ", ".join(repr(graph.names.get(v, "?")) for v in node.outputs)
            raise UsageError(f"the node {name!r} makes several values: name one of {outputs}")
        for body in bodies_of(node):
            if name in body.names.values() or any(name == n.origin.name for n in calls(body)):
                called = node.origin.name or graph.names.get(Value(node.id), node.op)
                raise UsageError(
                    f"{name!r} is in a body of {called!r} ({node.op}); only the graph around it can be cut"
                )
    hint = nearest(name, values) or "; `graphopt inspect MODEL --nodes` lists them"
    raise UsageError(f"the model has no value {name!r}{hint}")


def _reached(graph: Graph, sources: Iterable[Value]) -> dict[Value, str]:
    """The outputs of the graph that the sources lead to; all where there are no sources."""
    waiting = [value.node for value in sources]
    seen = set(waiting)
    while waiting:
        new = [user for user in graph.readers(waiting.pop()) if user not in seen]
        seen.update(new)
        waiting += new
    ends = [(v, n) for v, n in zip(graph.outputs, graph.output_names, strict=True) if v is not None]
    return {v: n for v, n in ends if not seen or v.node in seen}


def _entry(cut: Graph, value: Value, name: str, facts: Mapping[Value, Fact]) -> Value:
    """The input that takes the place of a value; an input of the model is its own."""
    node = cut.producer(value)
    if node.op == INPUT:
        cut.update(node.id, attrs=Attrs())  # a default value is a weight, which the caller gives now
        return value
    return cut.add_input(cut.names.get(value, name), _type(value, name, facts))


def _type(value: Value, name: str, facts: Mapping[Value, Fact]) -> Any:
    type = facts[value].type
    if type is None or isinstance(type, OpaqueType) or (isinstance(type, TensorType) and type.dtype is None):
        raise UsageError(f"the dtype of {name!r} is not known: cut at another value")
    return type


def _prune(graph: Graph) -> None:
    """Take out what no output needs: nodes, inputs, constants, functions that nobody calls."""
    needed = {value.node for value in graph.outputs if value is not None}
    waiting = list(needed)
    while waiting:
        new = [v.node for v in graph.node(waiting.pop()).inputs if v is not None and v.node not in needed]
        needed.update(new)
        waiting += new
    for node in reversed(graph.order()):
        if node.id not in needed:
            graph.remove(node.id)
    called = [graph]
    kept: dict[tuple[str, str], None] = {}
    while called:
        for node in calls(called.pop()):
            key = node.op, node.origin.overload
            if key in graph.functions and key not in kept:
                kept[key] = None
                called.append(graph.functions[key].body)
    graph.functions = {key: f for key, f in graph.functions.items() if key in kept}
