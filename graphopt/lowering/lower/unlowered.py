"""Nodes that no kernel computes, as functions of arrays: in ONNX Runtime, several in one session, else one by one in
ONNX's reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from graphopt.errors import ExecutionError, GraphoptError, MissingDependencyError
from graphopt.ir import evaluate, onnx_io, ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.functions import bodies_of
from graphopt.ir.graph import Attrs, Graph, Node, Value
from graphopt.ir.infer_bodies import scan_axis
from graphopt.ir.types import TensorType
from graphopt.runtime.host import HostFunction, bytes_of
from graphopt.runtime.onnxruntime import Region

if TYPE_CHECKING:
    from graphopt.lowering.lower.lower import FactsByValue

ENGINE, REFERENCE = "ONNX Runtime", "ONNX's reference evaluator"
"""What computes nodes that no kernel does."""


OLDEST = 7
"""The oldest opset of which ONNX Runtime has the ops."""


class UnloweredRegion(NamedTuple):
    """Nodes that ONNX Runtime computes: the values that they read, and those that are needed of them."""

    function: Region
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


def region(
    graph: Graph, nodes: Sequence[Node], facts: FactsByValue, needed: Collection[Value] = (), threads: int = 1
) -> UnloweredRegion | None:
    """The function of some nodes in ONNX Runtime, in an order in which they can be computed; None where it refuses
    them, is not installed, or would have to hand over elements that numpy does not know. ``needed`` are values that
    are given though no other node reads them."""
    inside = {node.id for node in nodes}
    outputs = tuple(
        value
        for node in nodes
        for value in node.outputs
        if value in needed or graph.is_output(value) or not {user for user, _ in graph.users(value)} <= inside
    )
    alone, inputs = _alone(graph, nodes, facts, outputs)
    if not outputs or not all(_is_numpys(facts[value]) for value in (*inputs, *outputs)):
        return None
    opened = _opened(alone, threads)
    return None if opened is None else UnloweredRegion(opened, inputs, outputs)


class BuiltInStep(NamedTuple):
    """A node that a function computes which every program has (``runtime.host``): its constant, and what it reads."""

    function: str
    constant: Constant
    input: Value | None = None


RANDOM = {
    "RandomNormal": ("normal", "mean", "scale"),
    "RandomNormalLike": ("normal", "mean", "scale"),
    "RandomUniform": ("uniform", "low", "high"),
    "RandomUniformLike": ("uniform", "low", "high"),
    "Bernoulli": ("bernoulli", "", ""),
    "Multinomial": ("multinomial", "sample_size", ""),
}
"""Ops that draw numbers: what ``runtime.host.draw`` calls it, and the attributes that it is told."""

_NUMBERS = {"mean": 0.0, "scale": 1.0, "low": 0.0, "high": 1.0, "sample_size": 1, "": 0.0}


def built_in(graph: Graph, node: Node, facts: FactsByValue) -> BuiltInStep | None:
    """The step of a node that draws numbers, makes maps, or takes some of a list of texts; None for all others."""
    if node.op in RANDOM:
        return _drawing(node, facts)
    data = node.inputs[0] if node.inputs else None
    if data is None:
        return None
    if node.op == "ai.onnx.ml::ZipMap" and facts[data].dtype == "float32" and facts[data].rank in (1, 2):
        labels, strings = (node.attrs.get(f"classlabels_{kind}") for kind in ("int64s", "strings"))
        if isinstance(labels, tuple) and labels:
            return BuiltInStep("maps", Constant.of(np.array(labels, np.int64)), data)
        return _of_texts("maps", strings, data) if isinstance(strings, tuple) else None
    table, places = graph.constant_of(data), node.inputs[1] if len(node.inputs) > 1 else None
    if node.op == "Gather" and table is not None and table.dtype == "string" and places is not None:
        return _of_texts("words", table.array.tolist(), places) if len(table.shape) == 1 else None
    return None


def _drawing(node: Node, facts: FactsByValue) -> BuiltInStep | None:
    kind, *names = RANDOM[node.op]
    fact, seed, given = facts[node.outputs[0]], node.attrs.get("seed"), (*node.inputs, None)[0]
    sizes = () if given is not None else fact.shape
    if (
        fact.dtype in (None, "string")
        or not _is_numpys(fact)
        or sizes is None
        or not all(isinstance(n, int) for n in sizes)
    ):
        return None
    if kind == "multinomial" and (given is None or facts[given].rank != 2):
        return None
    shape = "?" if given is not None else " ".join(map(str, sizes))
    numbers = [str(node.attrs.get(name, _NUMBERS[name])) for name in names]
    texts = [kind, str(fact.dtype), *numbers, "" if seed is None else str(seed), str(node.id), shape]
    return BuiltInStep("draw", Constant.of(bytes_of(texts)), given)


def _of_texts(function: str, strings: Sequence[Any], value: Value) -> BuiltInStep | None:
    plain = [text for text in strings if isinstance(text, str) and "\0" not in text]
    is_plain = 0 < len(plain) == len(strings)
    return BuiltInStep(function, Constant.of(bytes_of(plain)), value) if is_plain else None


def _opened(alone: Graph, threads: int) -> Region | None:
    """A graph in ONNX Runtime, in its own opset, in the oldest one in which its ops have the same versions, or in that
    before, and so on, for new versions are late to get kernels; None where none is taken."""
    from graphopt.ir.onnx_io.convert import relabel  # with onnx's converter

    older: Graph | None = alone
    while older is not None:
        try:
            return Region(onnx_io.to_bytes(older), threads)
        except MissingDependencyError:
            return None
        except (GraphoptError, ValueError):  # a message of 2 GiB is too long for protobuf
            newest = max(_versions(older, older.opset), default=1)
            opset = newest if newest < older.opset else newest - 1
            older = relabel(older, opset) if opset >= OLDEST else None
    return None


def _versions(graph: Graph, opset: int) -> Iterator[int]:
    """The versions of ONNX's ops in a graph and in its bodies."""
    for node in graph.nodes():
        if schema := ops.schema(node.op, opset):
            yield schema.since
        for body in bodies_of(node):
            yield from _versions(body, opset)


def _alone(
    graph: Graph, nodes: Sequence[Node], facts: FactsByValue, outputs: Sequence[Value]
) -> tuple[Graph, tuple[Value, ...]]:
    """Some nodes as a graph of their own with outputs ``o0``, ``o1``, ..., and the values that are its inputs ``i0``,
    ``i1``, ...: those that no node of them makes, and that are no constants."""
    alone = Graph("region", graph.header, dict(graph.functions))
    made: dict[Value, Value] = {}
    inputs: list[Value] = []
    for node in nodes:
        for value in node.inputs:
            if value is None or value in made:
                continue
            if (constant := graph.constant_of(value) or facts[value].constant) is not None:
                made[value] = alone.add_constant(constant)
            else:
                made[value] = alone.add_input(f"i{len(inputs)}", facts[value].type)
                inputs.append(value)
        given = tuple(None if value is None else made[value] for value in node.inputs)
        attrs = _typed(node, [facts[v] for v in node.outputs])
        alike = alone.add(node.op, given, attrs, node.n_outputs, captures=node.captures, origin=node.origin)
        made |= dict(zip(node.outputs, alike.outputs, strict=True))
    for k, value in enumerate(outputs):
        alone.add_output(f"o{k}", made[value])
    return alone, tuple(inputs)


def _is_numpys(fact: Fact) -> bool:
    """Whether numpy itself has a type for the elements of a value, if it is a tensor."""
    return fact.dtype is None or fact.dtype == "string" or not hasattr(ml_dtypes, fact.dtype)


def reference(graph: Graph, node: Node, facts: FactsByValue) -> HostFunction:
    """A function that computes a node by reference; it raises ExecutionError, naming the node, where it cannot."""
    inputs = [None if v is None else facts[v] for v in node.inputs]
    compute = _by_graph(graph, node, facts) if _is_composed(graph, node) else _by_op(node)
    label = name_of(graph, node)

    def run(*given: Any) -> tuple[Any, ...]:
        arrays = [seen(a, f) for a, f in zip(given, inputs, strict=True)]
        try:
            return tuple(_stored(a) for a in compute(arrays))
        except GraphoptError as error:
            raise ExecutionError(f"node {label!r}: {error}") from error
        except Exception as error:  # whatever the Python of an op raises on these inputs
            raise ExecutionError(f"node {label!r} ({node.op}): {str(error) or type(error).__name__}") from error

    return run


def name_of(graph: Graph, node: Node) -> str:
    """The name of a node in messages and profiles: its own, else its first output's."""
    return node.origin.name or next((graph.names[v] for v in node.outputs if v in graph.names), f"{node.op}_{node.id}")


def _is_composed(graph: Graph, node: Node) -> bool:
    return bool(node.bodies) or (node.op, node.origin.overload) in graph.functions


def _by_op(node: Node) -> Callable[[Sequence[Any]], Sequence[Any]]:
    return lambda arrays: evaluate.compute(node.op, node.attrs, arrays, node.n_outputs)


def _by_graph(graph: Graph, node: Node, facts: FactsByValue) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The node as a graph of its own, prepared when it first runs: what is wrong with it is an error of the run."""
    alone, inputs = _alone(graph, [node], facts, node.outputs)
    runner = cache(lambda: evaluate.runner(alone))

    def compute(arrays: Sequence[Any]) -> Sequence[Any]:
        given = dict(zip(node.inputs, arrays, strict=True))
        return list(runner()({f"i{k}": given[value] for k, value in enumerate(inputs)}).values())

    return compute


def _typed(node: Node, outputs: Sequence[Fact]) -> Attrs:
    """The node's attributes, a loop's body with the types of what it gives: no round may tell them."""
    if node.op not in ("Loop", "Scan") or "body" not in node.bodies:
        return node.attrs
    body = node.bodies["body"].copy()
    results = body.outputs[1:] if node.op == "Loop" else body.outputs
    n_states = len(body.inputs) - node.captures - (2 if node.op == "Loop" else int(str(node.attrs["num_scan_inputs"])))
    for k, (value, fact) in enumerate(zip(results, outputs, strict=True)):
        if value is None or fact.dtype is None or fact.shape is None or k < n_states:
            continue
        axis = 0 if node.op == "Loop" else scan_axis(node, "scan_output_axes", k - n_states, len(fact.shape) - 1)
        body.types[value] = TensorType(fact.dtype, (*fact.shape[:axis], *fact.shape[axis + 1 :]))
    return node.attrs.with_(body=body)


def seen(array: Any, fact: Fact | None) -> Any:
    """A program's array as the evaluator takes it: dtypes that numpy lacks are those of ml_dtypes."""
    if not isinstance(array, np.ndarray) or fact is None or fact.dtype is None or fact.dtype == "string":
        return array
    dtype = np.dtype(getattr(ml_dtypes, fact.dtype, fact.dtype))
    return array if array.dtype == dtype else array.view(dtype)


def _stored(array: Any) -> Any:
    """The evaluator's result as a program holds it: arrays, with strings in arrays of objects."""
    array = np.asarray(array) if isinstance(array, np.generic) else array
    return array.astype(object) if isinstance(array, np.ndarray) and array.dtype.kind in "US" else array
