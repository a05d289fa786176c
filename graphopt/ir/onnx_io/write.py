"""Model writer: a graph becomes an ONNX model. Loaded only where a model is written.

What is as it was read is copied from the record that the reader kept; all else is spelled anew, in the
form of the model's opset. Nothing depends on ids or on the order of sets: same graph, same bytes.
"""

from __future__ import annotations

from typing import TypeAlias

from onnx import FunctionProto, ModelProto

from graphopt.ir.graph import Function, Graph, Header
from graphopt.ir.onnx_io.graph_writer import GraphWriter, in_order_of
from graphopt.ir.onnx_io.names import ValueNames
from graphopt.ir.onnx_io.store import TensorStore
from graphopt.ir.onnx_io.words import write_entries

Opsets: TypeAlias = tuple[tuple[str, int], ...]


def write_model(graph: Graph, store: TensorStore) -> ModelProto:
    """The model as a message; ``store`` takes the bytes of its tensors."""
    proto = ModelProto()
    writer = GraphWriter(store, graph, ValueNames(graph))
    writer.write_graph(proto.graph)
    _write_header(graph.header, proto)
    _write_opsets(_with_domains(graph.header.opsets, writer), proto)
    for function in graph.functions.values():
        _write_function(function, store, proto.functions.add())
    return proto


def _write_header(header: Header, proto: ModelProto) -> None:
    if isinstance(header.extra, ModelProto):
        proto.MergeFrom(header.extra)
    for name, value in (
        ("ir_version", header.ir_version),
        ("producer_name", header.producer),
        ("producer_version", header.producer_version),
        ("domain", header.domain),
        ("model_version", header.model_version),
        ("doc_string", header.doc),
    ):
        if getattr(proto, name) != value:
            setattr(proto, name, value)
    write_entries(header.metadata, proto.metadata_props)


def _with_domains(opsets: Opsets, writer: GraphWriter) -> Opsets:
    """The opsets, with those of new nodes whose domain the model did not use before."""
    return opsets + tuple((domain, 1) for domain in sorted(writer.domains - dict(opsets).keys()))


def _write_opsets(opsets: Opsets, proto: ModelProto | FunctionProto) -> None:
    written = tuple(("" if o.domain == "ai.onnx" else o.domain, o.version) for o in proto.opset_import)
    if (written or (("", 1),)) != opsets:
        del proto.opset_import[:]
        for domain, version in opsets:
            proto.opset_import.add(domain=domain, version=version)


def _write_function(function: Function, store: TensorStore, proto: FunctionProto) -> None:
    source = function.origin.extra if isinstance(function.origin.extra, FunctionProto) else FunctionProto()
    for name, value in (
        ("name", function.name),
        ("domain", function.domain),
        ("overload", function.overload),
        ("doc_string", function.origin.doc),
    ):
        if value or source.HasField(name):
            setattr(proto, name, value)
    proto.opset_import.extend(source.opset_import)
    proto.attribute.extend(function.attributes)
    write_entries(function.origin.metadata, proto.metadata_props)
    writer = GraphWriter(store, function.body, ValueNames(function.body))
    likes = {attribute.name: attribute for attribute in source.attribute_proto}
    for name in in_order_of(likes, function.defaults):
        writer.write_attribute(proto.attribute_proto.add(), "", name, function.defaults[name], likes.get(name))
    writer.write_function(proto)
    _write_opsets(_with_domains(function.opsets, writer), proto)
