"""Attributes as ONNX spells them, but for tensors and graphs, which need the writer of the model."""

from __future__ import annotations

from functools import cache

from onnx import AttributeProto, defs

from graphopt.ir.constants import Constant
from graphopt.ir.graph import Attr, AttrRef, Graph, Item
from graphopt.ir.ops import split

KIND = AttributeProto

PLURAL = {
    KIND.FLOAT: KIND.FLOATS, KIND.INT: KIND.INTS, KIND.STRING: KIND.STRINGS, KIND.TENSOR: KIND.TENSORS,
    KIND.GRAPH: KIND.GRAPHS, KIND.SPARSE_TENSOR: KIND.SPARSE_TENSORS, KIND.TYPE_PROTO: KIND.TYPE_PROTOS,
}  # fmt: skip


@cache
def declared(op: str, name: str) -> int | None:
    """The attribute type that the op's newest schema states, or None."""
    domain, op_type, _ = split(op)
    try:
        attribute = defs.get_schema(op_type, domain).attributes.get(name)
    except defs.SchemaError:
        return None
    return None if attribute is None else int(attribute.type.value)


def kind_of(op: str, name: str, value: Attr, like: AttributeProto | None) -> int:
    """The ONNX type to write an attribute as: the one it had, the one its schema wants, or what its value is."""
    if isinstance(value, AttrRef):
        return value.kind
    if like is not None and like.type:
        return int(like.type)
    known = declared(op, name)
    if known is not None:
        return known
    if not isinstance(value, tuple):
        return _kind_of_item(value)
    kinds = [_kind_of_item(item) for item in value]
    if kinds and all(kind == kinds[0] for kind in kinds):
        return PLURAL[kinds[0]]
    return KIND.FLOATS if kinds else KIND.INTS


def _kind_of_item(item: Item) -> int:
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
