"""Attributes as ONNX spells them, except tensors and graphs, which need the writer of the model."""

from __future__ import annotations

from functools import cache
from typing import Any

from onnx import AttributeProto, defs

from graphopt.ir.constants import Constant
from graphopt.ir.graph import Attr, AttrItem, AttrRef, Graph
from graphopt.ir.ops import LATEST, split

KIND = AttributeProto

PLURAL = {
    KIND.FLOAT: KIND.FLOATS, KIND.INT: KIND.INTS, KIND.STRING: KIND.STRINGS, KIND.TENSOR: KIND.TENSORS,
    KIND.GRAPH: KIND.GRAPHS, KIND.SPARSE_TENSOR: KIND.SPARSE_TENSORS, KIND.TYPE_PROTO: KIND.TYPE_PROTOS,
}  # fmt: skip


@cache
def declared(op: str, name: str, opset: int) -> KIND.AttributeType | None:
    """The attribute type that the op's schema states, or None."""
    domain, op_type, version = split(op)
    try:
        schema = (
            defs.get_schema(op_type, version or min(opset, LATEST), "")
            if not domain
            else defs.get_schema(op_type, domain)
        )
    except defs.SchemaError:
        return None
    attribute: Any = schema.attributes.get(name)
    return None if attribute is None else KIND.AttributeType.Value(attribute.type.name)


def kind_name(kind: int) -> str:
    """The name of an attribute type."""
    return KIND.AttributeType.Name(kind) if kind in KIND.AttributeType.values() else str(kind)


def kind_of(op: str, name: str, value: Attr, opset: int, like: AttributeProto | None) -> KIND.AttributeType:
    """The ONNX type to write an attribute as: the one its schema wants, the one it had, or what its value is."""
    if isinstance(value, AttrRef):
        return value.kind  # type: ignore[return-value]
    by_schema = declared(op, name, opset)
    if by_schema is not None:
        return by_schema
    if like is not None and like.type:
        return like.type
    if not isinstance(value, tuple):
        return _kind_of_item(value)
    kinds = [_kind_of_item(item) for item in value]
    if kinds and all(kind == kinds[0] for kind in kinds):
        return PLURAL[kinds[0]]
    return KIND.FLOATS if kinds else KIND.INTS


def _kind_of_item(item: AttrItem) -> KIND.AttributeType:
    match item:
        case int():
            return KIND.INT
        case float():
            return KIND.FLOAT
        case str() | bytes():
            return KIND.STRING
        case Constant():
            return KIND.TENSOR
        case Graph():
            return KIND.GRAPH
        case _:
            return KIND.TYPE_PROTO


def octets(text: object) -> bytes:
    """A string as ONNX stores it."""
    return text if isinstance(text, bytes) else str(text).encode()
