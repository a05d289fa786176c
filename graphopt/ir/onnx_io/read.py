"""Model reader: an ONNX model becomes a graph.

Every constant becomes a ``Constant`` node whatever its spelling, every op its newest form, every
captured value an input of the node that owns the body. What the graph has no place for is kept in
records (``source.py``), from which ``write.py`` spells unchanged things as they were.
"""

from __future__ import annotations

from dataclasses import replace

from onnx import IR_VERSION, FunctionProto, ModelProto

from graphopt.errors import InvalidModelError, ReadError
from graphopt.ir.functions import check_calls
from graphopt.ir.graph import Attrs, Function, Graph, Header
from graphopt.ir.onnx_io.graph_reader import GraphReader, ModelContext, op_name
from graphopt.ir.onnx_io.tensors import Storage
from graphopt.ir.onnx_io.words import check_text, entries, origin_of
from graphopt.ir.ops import LATEST


def read_model(proto: ModelProto, storage: Storage, where: str) -> Graph:
    """The graph of a model. ``where`` names the file in errors."""
    if not proto.HasField("graph"):
        raise ReadError(f"{where}: not an ONNX model, or one without a graph")
    header = _read_header(proto, where)
    if header.ir_version > IR_VERSION:
        raise InvalidModelError(
            f"{where}: IR version {header.ir_version} is newer than the installed onnx package knows (up to "
            f"{IR_VERSION}); install a newer onnx"
        )
    if header.opset > LATEST:
        raise InvalidModelError(
            f"{where}: opset {header.opset} is newer than the installed onnx package knows (up to {LATEST}); "
            "install a newer onnx"
        )
    for function in proto.functions:
        check_text(where, function.domain, function.name, function.overload, *function.attribute)
    names = [(op_name(f.domain, f.name), f.overload) for f in proto.functions]
    if len(set(names)) < len(names):
        double = next(n for n in names if names.count(n) > 1)
        raise InvalidModelError(f"{where}: function {double[0]!r} is defined twice")
    functions: dict[tuple[str, str], Function] = {}
    model = ModelContext(where, storage, header, functions, frozenset(names))
    for name, function in zip(names, proto.functions, strict=True):
        functions[name] = read_function(function, model)
    graph = GraphReader(model, f"{where}: ", None).read(proto.graph)
    check_calls(graph, where)
    return graph


def _read_header(proto: ModelProto, where: str) -> Header:
    if proto.ir_version >= 3 and not proto.opset_import:
        raise InvalidModelError(f"{where}: the model names no opset (is the file complete?)")
    check_text(where, proto.producer_name, proto.producer_version, proto.domain, proto.doc_string)
    rest = ModelProto()
    for descriptor, value in proto.ListFields():
        if descriptor.name in ("graph", "functions"):
            continue
        if isinstance(value, (int, str)):
            setattr(rest, descriptor.name, value)
        else:
            getattr(rest, descriptor.name).extend(value)
    return Header(
        proto.ir_version,
        _opsets(proto, where) or (("", 1),),
        proto.producer_name,
        proto.producer_version,
        proto.domain,
        proto.model_version,
        proto.doc_string,
        entries(proto.metadata_props, where),
        rest,
    )


def _opsets(proto: ModelProto | FunctionProto, where: str) -> tuple[tuple[str, int], ...]:
    check_text(where, *(o.domain for o in proto.opset_import))
    return tuple(("" if o.domain == "ai.onnx" else o.domain, int(o.version)) for o in proto.opset_import)


def read_function(proto: FunctionProto, model: ModelContext) -> Function:
    """A function of a model."""
    inner = replace(model, header=replace(model.header, opsets=_opsets(proto, model.where)))
    op = op_name(proto.domain, proto.name)
    reader = GraphReader(inner, f"{model.where}: function {op!r}: ", None)
    defaults = {a.name: reader.read_attribute(a, "") for a in proto.attribute_proto}
    return Function(
        proto.domain,
        proto.name,
        proto.overload,
        reader.read(proto),
        tuple(proto.attribute),
        Attrs(defaults),
        inner.header.opsets,
        origin_of(proto, f"{model.where}: function {op!r}", extra=proto),
    )
