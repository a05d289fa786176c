"""What a model holds, without changing it: ops, sizes, types, open dimensions, opsets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from graphopt.ir.graph import Graph, Value
from graphopt.ir.types import TensorType, is_anonymous
from graphopt.steps import count_ops


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
        "?" if is_anonymous(size) else str(size): None
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


def _constants(graph: Graph) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    waiting = [graph]
    while waiting:
        graph = waiting.pop()
        for node in graph.nodes():
            constant = graph.constant_of(Value(node.id))
            if constant is not None:
                number, count = found.get(constant.dtype, (0, 0))
                found[constant.dtype] = (number + 1, count + constant.nbytes)
            waiting += node.bodies.values()
    return dict(sorted(found.items(), key=lambda item: -item[1][1]))


def _type(graph: Graph, value: Value | None) -> str:
    type = graph.types.get(value) if value is not None else None
    if isinstance(type, TensorType) and isinstance(type.shape, tuple):
        return f"{type.dtype}[{', '.join('?' if is_anonymous(size) else str(size) for size in type.shape)}]"
    return "?" if type is None else str(type)
