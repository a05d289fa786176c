"""Weights other than a model's own, by which verification learns what a model's outputs cannot tell.

Weights moved by an ulp show what rounding does to a model whose inputs hold whole numbers. Weights drawn anew, alike in
two models, show whether these compute the same where, with their own, an output is the same for all inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np

from graphopt.ir.constants import Array, Constant
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.ir.structure import node_hashes
from graphopt.ir.types import TensorType

_WEIGHED = {"Conv": (1, 2), "ConvTranspose": (1, 2), "Gemm": (1, 2), "MatMul": (0, 1), "Add": (0, 1), "Mul": (0, 1)}
"""Ops that work with any weights, and the inputs that are weights where they are constant."""

_FLOATS = ("float16", "float32", "float64")


def moved(graph: Graph, ulps: int, rng: np.random.Generator) -> Graph:
    """The graph with every float of its constants moved by some ulps, up or down."""
    twin = graph.copy()
    for node in graph.nodes():
        constant = node.attrs.get("value") if node.op == CONSTANT else None
        if isinstance(constant, Constant) and constant.dtype in _FLOATS and not is_whole(constant.array):
            array = nudged(constant.array, ulps, rng)
            twin.update(node.id, attrs=node.attrs.with_(value=Constant.of(array)))
    return twin


def nudged(array: Array, ulps: int, rng: np.random.Generator) -> Array:
    """Floats moved by some ulps, each up or down."""
    toward = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
    for _ in range(ulps):
        array = np.asarray(np.nextafter(array, toward))
    return array


def is_whole(array: Array) -> bool:
    """Whether all the floats are whole numbers: indices, lengths and flags that are held as floats, which are exact."""
    return bool((array == np.rint(array)).all())


@dataclass(frozen=True, slots=True)
class Redrawn:
    """Two graphs whose common weights are inputs, and arrays for these."""

    graphs: tuple[Graph, Graph]
    weights: dict[str, Array]


def redrawn(a: Graph, b: Graph, rng: np.random.Generator) -> Redrawn | None:
    """Two graphs with those weights that are in both drawn anew, alike; None where they have none in common.

    Equal weights stay equal. Where one graph holds a weight in another form, its own is in both.
    """
    hashes = node_hashes(a), node_hashes(b)
    held: tuple[dict[bytes, list[Value]], ...] = ({}, {})
    for graph, known, found in zip((a, b), hashes, held, strict=True):
        for node in graph.nodes():
            if node.op in (CONSTANT, "ConstantOfShape"):
                found.setdefault(known[node.id], []).append(Value(node.id))
    twins, weights = (a.copy(), b.copy()), dict[str, Array]()
    taken = {graph.names[value] for graph in (a, b) for value in graph.names}
    for key, values in held[0].items():
        if _uses(a, values) != _uses(b, held[1].get(key, [])) or (array := _drawn(a, values, rng)) is None:
            continue
        name = next(n for i in range(len(taken) + 1) if (n := f"weight {len(weights)}{' ' * i}") not in taken)
        weights[name] = array
        for twin, found in zip(twins, held, strict=True):
            value = twin.add_input(name, TensorType(array.dtype.name, array.shape))
            for old in found[key]:
                twin.replace(old, value)
    return Redrawn(twins, weights) if weights else None


def _uses(graph: Graph, values: list[Value]) -> int:
    """How often weights are read: where that differs in two graphs, one of them holds some in another form."""
    return sum(len(graph.users(value)) for value in values)


def _drawn(graph: Graph, values: list[Value], rng: np.random.Generator) -> Array | None:
    """Elements to put in the place of weights that are equal; None where one of their users wants its own."""
    uses = [(graph.node(user), index) for value in values for user, index in graph.users(value)]
    if any(map(graph.is_output, values)) or not uses:
        return None
    if any(index not in _WEIGHED.get(node.op, ()) for node, index in uses):
        return None
    array = _elements(graph, graph.node(values[0].node))
    if array is None or array.size < 2 or array.dtype.name not in _FLOATS:
        return None
    if array.ndim < 2:
        return np.asarray(array * rng.uniform(0.5, 1.5, array.shape)).astype(array.dtype)
    spread = sqrt(2 / max(_fan_in(*uses[0], array.shape), 1))  # by which signals keep their size through many layers
    return (spread * rng.standard_normal(array.shape, np.float32)).astype(array.dtype)


def _elements(graph: Graph, node: Node) -> Array | None:
    if node.op == CONSTANT:
        constant = node.attrs.get("value")
        return constant.array if isinstance(constant, Constant) else None
    shape, fill = graph.constant_of(node.inputs[0]), node.attrs.get("value")
    if shape is None or not isinstance(fill, Constant):
        return None
    return np.broadcast_to(fill.array.reshape(()), tuple(map(int, shape.array)))


def _fan_in(node: Node, index: int, shape: tuple[int, ...]) -> int:
    """How many products a sum of the op has."""
    match node.op:
        case "Conv":
            return int(np.prod(shape[1:]))
        case "Gemm" if node.attrs.get("transB", 0):
            return shape[1]
        case "MatMul" if index == 0:
            return shape[-1]
        case _:
            return shape[-2]


def without_inputs(graph: Graph) -> Iterator[str]:
    """The names of outputs that no element of an input has a part in: they depend on sizes at most."""
    reached: dict[int, bool] = {}
    for node in graph.order():
        is_source = node.op in ("Shape", "Size")
        reads = any(reached[value.node] for value in node.inputs if value is not None)
        reached[node.id] = node.op == INPUT or (reads and not is_source)
    for name, value in zip(graph.output_names, graph.outputs, strict=True):
        if value is None or not reached[value.node]:
            yield name
