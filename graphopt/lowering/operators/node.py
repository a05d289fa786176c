"""Node conversion: a graph's node becomes the operation that lowering describes."""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.ir.facts import Fact
from graphopt.ir.graph import Graph, Node, Value
from graphopt.lowering.loops.compute import Tensor, placeholder
from graphopt.lowering.operators.operation import NotLowered, Operation, SizeVars, held


def tensor_of(fact: Fact, size: SizeVars, name: str = "x") -> Tensor:
    """An input of the fact's type. NotLowered where its rank or dtype is not known."""
    if fact.shape is None or fact.dtype is None:
        raise NotLowered(f"the type {fact.type} is not that of a tensor of known rank")
    return placeholder(tuple(map(size, fact.shape)), held(fact.dtype), name)


def operation_of(
    graph: Graph,
    node: Node,
    facts: Mapping[Value, Fact],
    size: SizeVars,
    tensors: Mapping[Value, Tensor] | None = None,
    is_for_host: bool = True,
    found: tuple[Tensor, ...] = (),
) -> Operation:
    """The node as an operation, on the given tensors or on placeholders. NotLowered where a type is not known."""
    input_facts = [None if v is None else facts[v] for v in node.inputs]
    inputs = []
    for k, (value, fact) in enumerate(zip(node.inputs, input_facts, strict=True)):
        given = None if tensors is None or value is None else tensors.get(value)
        inputs.append(given if given is not None or fact is None else tensor_of(fact, size, f"x{k}"))
    outputs = tuple(facts[v] for v in node.outputs)
    return Operation(
        node.op, node.attrs, tuple(inputs), tuple(input_facts), outputs, graph.opset, size, is_for_host, found
    )
