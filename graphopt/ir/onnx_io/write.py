"""Writing: a graph becomes an ONNX model.

What is as it was read is copied from the record that the reader kept; all else is spelled anew, in the
form of the model's opset. Nothing depends on ids or on the order of sets: same graph, same bytes.
"""

from __future__ import annotations

from onnx import FunctionProto, ModelProto

from graphopt.ir.graph import Function, Graph, Header
from graphopt.ir.onnx_io.graph_writer import GraphWriter, write_entries
from graphopt.ir.onnx_io.names import Names
from graphopt.ir.onnx_io.store import Store


def write_model(graph: Graph, store: Store) -> ModelProto:
    """The model as a message; ``store`` takes the bytes of its tensors."""
    proto = ModelProto()
    _write_header(graph.header, proto)
    GraphWriter(store, graph, Names(graph)).write_graph(proto.graph)
    for function in graph.functions.values():
        _write_function(function, store, proto.functions.add())
    return proto


def _write_function(function: Function, store: Store, proto: FunctionProto) -> None:
    source = function.origin.extra
    if isinstance(source, FunctionProto):
        proto.CopyFrom(source)
        for filled in (proto.node, proto.input, proto.output, proto.attribute, proto.attribute_proto):
            del filled[:]
        del proto.value_info[:]
    else:
        proto.name, proto.domain = function.name, function.domain
        if function.overload:
            proto.overload = function.overload
        for domain, version in function.opsets:
            proto.opset_import.add(domain=domain, version=version)
        if function.origin.doc:
            proto.doc_string = function.origin.doc
        write_entries(function.origin.metadata, proto.metadata_props)
    proto.attribute.extend(function.attributes)
    likes = {a.name: a for a in source.attribute_proto} if isinstance(source, FunctionProto) else {}
    names = Names(function.body)
    writer = GraphWriter(store, function.body, names)
    order = [name for name in likes if name in function.defaults]
    order += [name for name in function.defaults if name not in likes]
    for name in order:
        writer.write_attribute(proto.attribute_proto.add(), "", name, function.defaults[name], likes.get(name))
    writer.write_function(proto)


def _write_header(header: Header, proto: ModelProto) -> None:
    if isinstance(header.extra, ModelProto):
        proto.CopyFrom(header.extra)
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
    written = tuple(("" if o.domain == "ai.onnx" else o.domain, o.version) for o in proto.opset_import)
    if (written or (("", 1),)) != header.opsets:
        del proto.opset_import[:]
        for domain, version in header.opsets:
            proto.opset_import.add(domain=domain, version=version)
    if tuple((p.key, p.value) for p in proto.metadata_props) != header.metadata:
        del proto.metadata_props[:]
        write_entries(header.metadata, proto.metadata_props)
