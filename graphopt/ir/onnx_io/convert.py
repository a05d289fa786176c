"""Opset conversion of a model: most ops only need another spelling, onnx's version converter does the rest. Loaded only
where it is asked for."""

from __future__ import annotations

from dataclasses import replace

from onnx import ModelProto, helper, version_converter

from graphopt.errors import UsageError
from graphopt.ir.forms import is_bound
from graphopt.ir.functions import bodies_of
from graphopt.ir.graph import Attr, Graph, Header
from graphopt.ir.ops import LATEST


def relabel(graph: Graph, version: int) -> Graph | None:
    """The graph in another opset, if each of its ops has the form of all opsets; None otherwise."""
    if any(_is_bound(inner) for inner in (graph, *(f.body for f in graph.functions.values()))):
        return None
    converted = _relabeled(graph, _header(graph.header, version))
    for key, function in graph.functions.items():
        header = _header(function.body.header, version)
        converted.functions[key] = replace(function, opsets=header.opsets, body=_relabeled(function.body, header))
    return converted


def _is_bound(graph: Graph) -> bool:
    """Whether an op stands in the form of one old opset."""
    return any(is_bound(n.op) or any(map(_is_bound, bodies_of(n))) for n in graph.nodes())


def _header(header: Header, version: int) -> Header:
    opsets = tuple((domain, version if domain == "" else v) for domain, v in header.opsets)
    imports = [helper.make_opsetid(domain, v) for domain, v in opsets]
    needed = helper.find_min_ir_version_for(imports, ignore_unknown=True)
    return replace(header, opsets=opsets, ir_version=max(header.ir_version, needed))


def _relabeled(graph: Graph, header: Header) -> Graph:
    twin = graph.copy()
    twin.header = header

    def convert(value: Attr) -> Attr:
        if isinstance(value, tuple):
            return tuple(_relabeled(v, header) if isinstance(v, Graph) else v for v in value)
        return _relabeled(value, header) if isinstance(value, Graph) else value

    for node in [node for node in twin.nodes() if any(True for _ in bodies_of(node))]:
        changed = {name: convert(value) for name, value in node.attrs.items()}
        twin.update(node.id, attrs=node.attrs.with_(**changed))
    return twin


def by_onnx(model: ModelProto, version: int) -> ModelProto:
    """The model as onnx's converter makes it. UsageError where it cannot."""
    try:
        return version_converter.convert_version(model, version)
    except (RuntimeError, ValueError) as error:
        (first, *_) = str(error).splitlines() or [""]
        raise UsageError(f"the model cannot be converted to opset {version}: {first}") from None


def check_version(version: int) -> None:
    """Raise UsageError where there is no such opset."""
    if not 1 <= version <= LATEST:
        raise UsageError(f"there is no opset {version}: onnx knows 1 to {LATEST}")
