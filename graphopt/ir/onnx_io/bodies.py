"""Function bodies of ops: what ONNX's schema says an op does in other ops, as a local function. Apart, for only
lowering asks for it, and late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from graphopt.errors import GraphoptError
from graphopt.ir.graph import Function, Graph, Header, Node
from graphopt.ir.onnx_io.graph_reader import ModelContext
from graphopt.ir.onnx_io.read import read_function
from graphopt.ir.onnx_io.tensors import Storage
from graphopt.ir.ops import split
from graphopt.ir.types import TensorType


def function_of(graph: Graph, node: Node, types: Sequence[TensorType | None], overload: str) -> Function | None:
    """The function that does what the node does, given the types of its inputs (None for those left out); None where
    ONNX has none for this opset. Its calls are told apart from others by the overload."""
    domain, name, old = split(node.op)
    opset = dict(graph.header.opsets).get(domain, 1)
    try:
        schema: Any = onnx.defs.get_schema(name, opset, domain)  # its stubs lack what is asked for here
    except onnx.defs.SchemaError:
        return None
    if old is not None or node.captures:
        return None
    kinds = schema.function_opset_versions, schema.context_dependent_function_opset_versions
    plain, dependent = (max((v for v in kind if v <= opset), default=None) for kind in kinds)
    if plain is not None:
        body = schema.get_function_with_opset_version(plain)
    elif dependent is not None:
        call, given = _call(graph.header, node, types)
        body = schema.get_context_dependent_function_with_opset_version(dependent, call, given)
    else:
        return None
    proto = onnx.FunctionProto()
    proto.ParseFromString(body)
    proto.domain, proto.name, proto.overload = domain, name, overload
    if not proto.node:
        return None
    where = f"the body of {node.op}"
    named = {o.domain for o in proto.opset_import}
    more = [(d, v) for d, v in graph.header.opsets if d not in named]
    proto.opset_import.extend(onnx.helper.make_opsetid(d, v) for d, v in more)
    try:
        return read_function(proto, ModelContext(where, Storage(), graph.header, {}, frozenset()))
    except GraphoptError:
        return None


def _call(header: Header, node: Node, types: Sequence[TensorType | None]) -> tuple[bytes, list[bytes]]:
    """The node as ONNX spells it, and the types of its inputs."""
    from graphopt.ir.onnx_io import to_proto

    alone = Graph(header=header)
    inputs = [None if t is None else alone.add_input(f"x{k}", t) for k, t in enumerate(types)]
    applied = alone.add(node.op, tuple(inputs), node.attrs, node.n_outputs)
    for k, value in enumerate(applied.outputs):
        alone.add_output(f"y{k}", value)
    model = to_proto(alone)
    types_by_name = {i.name: i.type for i in model.graph.input}
    (call,) = (n for n in model.graph.node if n.op_type == split(node.op)[1])
    return call.SerializeToString(), [types_by_name.get(n, onnx.TypeProto()).SerializeToString() for n in call.input]
