"""Reference evaluation: nodes computed by ONNX's reference evaluator while a program runs, as functions of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes
import numpy as np

from graphopt.errors import ExecutionError, GraphoptError
from graphopt.ir import evaluate
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs, Graph, Node, Value
from graphopt.ir.infer_bodies import scan_axis
from graphopt.ir.types import Size, TensorType, substitute, symbol, symbols

if TYPE_CHECKING:
    from graphopt.lowering.lower.lower import FactsByValue

ReferenceFunction: TypeAlias = Callable[..., Any]
"""From arrays (None for an input that is left out, lists for sequences) to a tuple of the outputs."""


def reference(graph: Graph, node: Node, facts: FactsByValue) -> ReferenceFunction:
    """A function that computes a node by reference; it raises ExecutionError, naming the node, where it cannot."""
    inputs = [None if v is None else facts[v] for v in node.inputs]
    compute = _by_graph(graph, node, inputs, facts) if _is_composed(graph, node) else _by_op(node)
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


def _by_graph(
    graph: Graph, node: Node, input_facts: Sequence[Fact | None], facts: FactsByValue
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The node as a graph of its own."""
    alone = Graph("node", graph.header, dict(graph.functions))
    inputs: list[Value | None] = []
    for k, fact in enumerate(input_facts):
        inputs.append(None if fact is None else alone.add_input(f"i{k}", fact.type))
    attrs = _typed(node, [facts[v] for v in node.outputs])
    alike = alone.add(node.op, tuple(inputs), attrs, node.n_outputs, captures=node.captures, origin=node.origin)
    for k, value in enumerate(alike.outputs):
        alone.add_output(f"o{k}", value)
    run = evaluate.runner(alone)
    outputs = [facts[v] for v in node.outputs]

    def compute(arrays: Sequence[Any]) -> Sequence[Any]:
        results = run({f"i{k}": a for k, (a, f) in enumerate(zip(arrays, input_facts, strict=True)) if f is not None})
        sizes = _sizes(input_facts, arrays)
        return [_shaped(a, f, sizes) for a, f in zip(results.values(), outputs, strict=True)]

    return compute


def _typed(node: Node, outputs: Sequence[Fact]) -> Attrs:
    """The node's attributes, a loop's body with the types of what it gives: no round may tell them."""
    if node.op not in ("Loop", "Scan"):
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


def _sizes(facts: Sequence[Fact | None], arrays: Sequence[Any]) -> dict[str, Size]:
    """The symbols that are sizes of these arrays."""
    pairs = [
        pair
        for fact, array in zip(facts, arrays, strict=True)
        if fact is not None and fact.shape is not None and isinstance(array, np.ndarray)
        for pair in zip(fact.shape, array.shape, strict=True)
    ]
    return {name: n for size, n in pairs for name in symbols(size) if size == symbol(name)}


def _shaped(array: Any, fact: Fact, sizes: dict[str, Size]) -> Any:
    """A result; one without elements, as of a loop of no rounds, whose evaluator knows no sizes, as inference tells."""
    if not isinstance(array, np.ndarray) or array.size or fact.shape is None or len(fact.shape) != array.ndim:
        return array
    wanted = [substitute(size, sizes) for size in fact.shape]
    shape = [n if isinstance(n, int) else m for n, m in zip(wanted, array.shape, strict=True)]
    return array.reshape(shape) if 0 in shape else array


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
