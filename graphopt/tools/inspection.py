"""Inspection of a model, which is not changed: ops, sizes, types, open dimensions, opsets."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from graphopt.ir.graph import CONSTANT, INPUT, Graph, Value
from graphopt.ir.types import TensorType, in_words
from graphopt.rewrite.match.describe import name_of, names_of
from graphopt.run.steps import count_ops


@dataclass(frozen=True, slots=True)
class Inspection:
    """A summary of one model file. ``constants`` maps a dtype to the number of constants and their bytes."""

    model: str
    bytes: int
    ir_version: int
    opsets: tuple[tuple[str, int], ...]
    producer: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    dimensions: tuple[str, ...]
    """Sizes that the model leaves open, each once."""
    ops: dict[str, int]
    constants: dict[str, tuple[int, int]]


def inspect(path: str | Path) -> Inspection:
    """The summary of a model file."""
    from graphopt.ir.onnx_io import load

    graph = load(path)
    header = graph.header
    open_sizes = {
        in_words(size): None
        for value in graph.inputs
        if isinstance(type := graph.types.get(value), TensorType) and isinstance(type.shape, tuple)
        for size in type.shape
        if not isinstance(size, int)
    }
    return Inspection(
        str(path),
        Path(path).stat().st_size,
        header.ir_version,
        header.opsets,
        " ".join(filter(None, (header.producer, header.producer_version))),
        tuple((graph.names[value], _type(graph, value)) for value in graph.inputs),
        tuple(zip(graph.output_names, (_type(graph, value) for value in graph.outputs), strict=True)),
        tuple(open_sizes),
        count_ops(graph),
        _constants(graph),
    )


def list_nodes(path: str | Path) -> Iterator[str]:
    """A line for each node of a model, in order: its number, its op, its name, and the values that it makes."""
    from graphopt.ir.infer import infer
    from graphopt.ir.onnx_io import load

    graph = load(path)
    facts = infer(graph)
    for node in graph.order():
        if node.op not in (INPUT, CONSTANT):
            outputs = ", ".join(f"{name_of(graph, node, v.port)}: {facts[v].type or '?'}" for v in node.outputs)
            yield f"%{node.id}  {node.op}  {node.origin.name or '-'}  ->  {outputs}"


def node_names(path: str | Path) -> set[str]:
    """The names by which nodes of a model can be called: their own, and those of the values that they make."""
    from graphopt.ir.onnx_io import load

    graph = load(path)
    return {name for n in graph.nodes() if n.op not in (INPUT, CONSTANT) for name in names_of(graph, n)}


def heirs(graph: Graph, name: str, left: Collection[str]) -> tuple[str, ...]:
    """What a node of a model became part of when it was rewritten: of the names that are left, those of the nearest
    nodes that compute with what it makes.

    Empty where the model has no node of that name, or of a value of that name.
    """
    waiting = [n for n in graph.nodes() if n.op not in (INPUT, CONSTANT) and name in names_of(graph, n)]
    seen = {node.id for node in waiting}
    while waiting:
        successors = dict.fromkeys(called for node in waiting for called in names_of(graph, node) if called in left)
        if successors:
            return tuple(successors)
        users = {user for node in waiting for value in node.outputs for user, _ in graph.users(value)} - seen
        seen |= users
        waiting = [graph.node(user) for user in sorted(users)]
    return ()


def _constants(graph: Graph) -> dict[str, tuple[int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    waiting = [graph]
    while waiting:
        graph = waiting.pop()
        for node in graph.nodes():
            constant = graph.constant_of(Value(node.id))
            if constant is not None:
                number, count = counts.get(constant.dtype, (0, 0))
                counts[constant.dtype] = (number + 1, count + constant.nbytes)
            waiting += node.bodies.values()
    return dict(sorted(counts.items(), key=lambda item: -item[1][1]))


def _type(graph: Graph, value: Value | None) -> str:
    type = graph.types.get(value) if value is not None else None
    return "?" if type is None else str(type)
