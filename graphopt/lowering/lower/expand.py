"""Function expansion: ops without a nest, which ONNX or we say in other ops, become calls of functions, which are
inlined, and the Scan of opset 8, which goes through batches, becomes one Scan within another.

It stands apart from ``graphopt.compile``, which holds the steps alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphopt.errors import SENSELESS
from graphopt.ir.composites import COMPOSITES, body_of
from graphopt.ir.evaluate import EvaluationError, evaluate
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Function, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.ops import KEPT, split
from graphopt.ir.types import TensorType
from graphopt.lowering.lower.fourier import SCHEMAS, fourier_body
from graphopt.lowering.operators.table import lowering

LARGE = 1 << 20
"""Dequantized weights of more elements are left to each run."""
BODIED = frozenset({"If", "Loop", "Scan"})
"""Ops that are lowered with their bodies."""


def expanded(graph: Graph) -> Graph:
    """The graph with the bodies of such ops as local functions; the graph itself where there are none."""
    from graphopt.ir.onnx_io.bodies import function_of  # only here is onnx needed to lower a graph

    graph = _nested(graph)
    wanted = [n for n in graph.nodes() if n.op in SCHEMAS or _is_unknown(graph, n)]
    if not wanted:
        return graph
    facts = infer(graph)
    functions: dict[int, Function] = {}
    for node in wanted:
        types = _types(node, facts)
        if types is None:
            continue
        try:
            function = _composed(graph, node, facts)
            if function is None and node.op not in SCHEMAS:
                function = function_of(graph, node, types, f"graphopt.{node.id}")
        except SENSELESS:  # of a call that ONNX forbids, it makes what is no function
            continue
        if function is not None:
            functions[node.id] = function
    if not functions:
        return graph
    expanded_graph = graph.copy()
    expanded_graph.functions = {**graph.functions, **{(f.op, f.overload): f for f in functions.values()}}
    for id, function in functions.items():
        expanded_graph.update(id, origin=replace(expanded_graph.node(id).origin, overload=function.overload))
    return expanded_graph


def dequantized(graph: Graph) -> Graph:
    """The graph with weights as floats that each run would dequantize, for only constants are packed and blocked. Large
    ones stay as they are: they are read faster than floats."""
    result = graph
    for node in graph.order():
        constants = [graph.constant_of(v) for v in node.inputs]
        first = constants[0] if node.op in KEPT else None
        if first is None or first.size > LARGE or any(c is None for c in constants):
            continue
        try:
            (numbers,) = evaluate(node.op, node.attrs, constants, 1, graph.opset)
        except EvaluationError:
            continue
        result = graph.copy() if result is graph else result
        result.replace(Value(node.id), result.add_constant(numbers))
    return result


def _composed(graph: Graph, node: Node, facts: Mapping[Value, Fact]) -> Function | None:
    """The function that does what a call of a composite op, or a transform, does; None where there is none."""
    describe = body_of if node.op in COMPOSITES else fourier_body if node.op in SCHEMAS else None
    if describe is None:
        return None
    body = describe(node.op, node.attrs, [None if v is None else facts[v] for v in node.inputs])
    if body is None:
        return None
    domain, name, _ = split(node.op)
    return Function(domain, name, f"graphopt.{node.id}", body, opsets=graph.header.opsets)


def _nested(graph: Graph) -> Graph:
    """The graph with a Scan over batches in the place of each Scan of opset 8; its body is the Scan of a batch."""
    result = graph
    for node in graph.nodes():
        if node.op != "Scan@8" or node.inputs[0] is not None:  # batches of different lengths are left as they are
            continue
        result = graph.copy() if result is graph else result
        directions, scans = node.attrs.get("directions"), node.attrs["num_scan_inputs"]
        attrs = Attrs(body=node.bodies["body"], num_scan_inputs=scans)
        attrs = attrs.with_(scan_input_directions=directions) if isinstance(directions, tuple) else attrs
        body = Graph("batch", graph.header)
        inner = tuple(body.add_input(f"x{k}") for k in range(len(node.inputs) - 1))
        for k, value in enumerate(body.add("Scan", inner, attrs, node.n_outputs, captures=node.captures).outputs):
            body.add_output(f"y{k}", value)
        over = Attrs(body=body, num_scan_inputs=len(inner) - node.captures)
        result.update(node.id, op="Scan", inputs=node.inputs[1:], attrs=over)
    return result


def _is_unknown(graph: Graph, node: Node) -> bool:
    lowered = node.op in (INPUT, CONSTANT, *BODIED) or lowering(node.op) is not None
    return not lowered and (node.op, node.origin.overload) not in graph.functions


def _types(node: Node, facts: Mapping[Value, Fact]) -> list[TensorType | None] | None:
    """The types of the inputs, None for those left out; None where one is no tensor."""
    types: list[TensorType | None] = []
    for value in node.inputs:
        type = None if value is None else facts[value].type
        if value is not None and not isinstance(type, TensorType):
            return None
        types.append(type if isinstance(type, TensorType) else None)
    return types
