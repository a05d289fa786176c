"""Type messages of ONNX as types and back.

A dimension has the name that the model gives it, whatever its spelling. One that is no positive number and has no
name of its own stands for a fresh symbol: exporters
write ``0``, ``-1``, ``?`` or nothing where they do not know. Only of a model's input it is called by the axis
(``axis_name``), and that name is not written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import TypeGuard

from onnx import TensorShapeProto, TypeProto, ValueInfoProto

from graphopt.ir.dtypes import CODES, DTYPES
from graphopt.ir.types import (
    OpaqueType,
    OptionalType,
    SequenceType,
    Shape,
    Size,
    SparseTensorType,
    TensorType,
    Type,
    Unranked,
    axis_name,
    fresh_symbol,
    is_anonymous,
    symbol,
    symbols,
    unranked,
)


def read_inputs(infos: Sequence[ValueInfoProto]) -> Iterator[tuple[str, Type | None]]:
    """The inputs of a model, with their types."""
    dims = [dim for info in infos for dim in info.type.tensor_type.shape.dim]
    named = {dim.dim_param for dim in dims if _is_name(dim.dim_param)}
    for info in infos:
        type = read_type(info.type)
        if isinstance(type, TensorType) and isinstance(type.shape, tuple):
            names = (axis_name(info.name, axis) for axis in range(len(type.shape)))
            pairs = zip(type.shape, names, strict=True)
            shape = tuple(symbol(n) if is_anonymous(size) and n not in named else size for size, n in pairs)
            type = TensorType(type.dtype, shape)
        yield info.name, type


def read_type(proto: TypeProto) -> Type | None:
    """The type, or None where the message says nothing of it."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            dtype = DTYPES.get(proto.tensor_type.elem_type)
            return None if dtype is None else TensorType(dtype, _read_shape(proto.tensor_type))
        case "sparse_tensor_type":
            dtype = DTYPES.get(proto.sparse_tensor_type.elem_type)
            return None if dtype is None else SparseTensorType(dtype, _read_shape(proto.sparse_tensor_type))
        case "sequence_type":
            element = read_type(proto.sequence_type.elem_type)
            return None if element is None else SequenceType(element)
        case "optional_type":
            element = read_type(proto.optional_type.elem_type)
            return None if element is None else OptionalType(element)
        case None:
            return None
        case _:
            return OpaqueType(proto.SerializeToString(deterministic=True))


def _read_shape(proto: TypeProto.Tensor | TypeProto.SparseTensor) -> Shape:
    if not proto.HasField("shape"):
        return unranked()
    return tuple(_read_dim(dim) for dim in proto.shape.dim)


def _read_dim(dim: TensorShapeProto.Dimension) -> Size:
    if dim.dim_value > 0:
        return int(dim.dim_value)
    name = dim.dim_param
    return symbol(name) if _is_name(name) else fresh_symbol()


def _is_name(name: str | bytes) -> TypeGuard[str]:
    """Whether exporters mean a size by it, and not that they know none: then it is blank, a number or ``?``, or bytes
    that are no text."""
    return isinstance(name, str) and not (
        not name.strip() or name.startswith("?") or name.strip().lstrip("+-").isdigit()
    )


def write_type(type: Type, into: TypeProto, unwritten: Set[str] = frozenset()) -> None:
    """Put a type into an empty message; dimensions in which there is one of the ``unwritten`` names stay open."""
    match type:
        case TensorType(dtype, shape):
            into.tensor_type.elem_type = CODES[dtype]
            _write_shape(shape, into.tensor_type, unwritten)
        case SparseTensorType(dtype, shape):
            into.sparse_tensor_type.elem_type = CODES[dtype]
            _write_shape(shape, into.sparse_tensor_type, unwritten)
        case SequenceType(element):
            write_type(element, into.sequence_type.elem_type, unwritten)
        case OptionalType(element):
            write_type(element, into.optional_type.elem_type, unwritten)
        case OpaqueType(proto):
            into.ParseFromString(proto)


def _write_shape(shape: Shape, into: TypeProto.Tensor | TypeProto.SparseTensor, unwritten: Set[str]) -> None:
    if isinstance(shape, Unranked):
        return
    into.shape.SetInParent()
    for size in shape:
        dim = into.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif not is_anonymous(size) and unwritten.isdisjoint(symbols(size)):
            dim.dim_param = str(size)
