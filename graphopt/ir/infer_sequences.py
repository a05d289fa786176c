"""Type inference of sequences and optional values, and of what is taken out of them."""

from __future__ import annotations

from graphopt.ir.call import OpCall
from graphopt.ir.dtypes import dtype_of
from graphopt.ir.infer_shapes import Inference, Types, axis_of
from graphopt.ir.types import (
    OptionalType,
    SequenceType,
    Size,
    TensorType,
    Type,
    Unranked,
    fresh_symbol,
    is_anonymous,
    is_open_size,
    unranked,
)


def join(a: Type | None, b: Type | None) -> Type | None:
    """The type of a value that has one of two types: sizes that differ are unknown."""
    if a == b or a is None or b is None:
        return a if a == b else None
    match a, b:
        case TensorType(), TensorType():
            if a.dtype != b.dtype:
                return None
            if isinstance(a.shape, Unranked) or isinstance(b.shape, Unranked):
                return TensorType(
                    a.dtype, unranked(any(isinstance(s, Unranked) and s.is_open for s in (a.shape, b.shape)))
                )
            if len(a.shape) != len(b.shape):
                return TensorType(a.dtype, unranked(is_open=True))
            return TensorType(a.dtype, tuple(map(either_size, a.shape, b.shape)))
        case SequenceType(), SequenceType():
            element = join(a.element, b.element)
            return None if element is None else SequenceType(element)
        case OptionalType(), OptionalType():
            element = join(a.element, b.element)
            return None if element is None else OptionalType(element)
    return None


def either_size(x: Size, y: Size) -> Size:
    """A size that is one of two. It is open which, unless nobody named either: then they may be the same."""
    if x == y:
        return x
    is_known = not (is_anonymous(x) and is_anonymous(y))
    return fresh_symbol(is_known or is_open_size(x) or is_open_size(y))


def renewed(type: Type | None) -> Type | None:
    """The type of one of many values of a type: sizes that are not numbers may differ from those of the others."""
    match type:
        case TensorType(dtype, shape):
            if isinstance(shape, Unranked):
                return TensorType(dtype, unranked(shape.is_open))
            return TensorType(dtype, tuple(s if isinstance(s, int) else fresh_symbol(is_open_size(s)) for s in shape))
    return type


def sequence_construct(call: OpCall) -> Types:
    """A sequence of all inputs."""
    element = call.type(0)
    for i in range(1, len(call.inputs)):
        element = join(element, call.type(i))
    return [None if element is None else SequenceType(element)]


def sequence_insert(call: OpCall) -> Types:
    """The sequence with one more element."""
    sequence = call.type(0)
    element = join(sequence.element, call.type(1)) if isinstance(sequence, SequenceType) else None
    return [None if element is None else SequenceType(element)]


def sequence_empty(call: OpCall) -> Types:
    """A sequence of tensors whose shapes nobody knows."""
    return [SequenceType(TensorType(dtype_of(call.integer("dtype", 1)) or "float32", unranked()))]


def sequence_at(call: OpCall) -> Types:
    """One element."""
    sequence = call.type(0)
    return [renewed(sequence.element) if isinstance(sequence, SequenceType) else None]


def concat_from_sequence(call: OpCall) -> Types:
    """All elements along an axis, old or new."""
    sequence = call.type(0)
    element = renewed(sequence.element) if isinstance(sequence, SequenceType) else None
    if not isinstance(element, TensorType) or isinstance(element.shape, Unranked):
        return [TensorType(element.dtype, unranked()) if isinstance(element, TensorType) else None]
    shape, new = list(element.shape), call.integer("new_axis")
    axis = axis_of(call.integer("axis"), len(shape) + new)
    shape[axis : axis + (not new)] = [fresh_symbol()]
    return [TensorType(element.dtype, tuple(shape))]


def optional(call: OpCall) -> Types:
    """The input as something that may be absent."""
    element = call.type(0) or call.attrs.get("type")
    return [OptionalType(element) if isinstance(element, TensorType | SequenceType) else None]


def optional_get(call: OpCall) -> Types:
    """What the optional holds."""
    type_ = call.type(0)
    return [type_.element if isinstance(type_, OptionalType) else type_]


def scalar_int(call: OpCall) -> Types:
    """One integer."""
    return [TensorType("int64", ())]


def scalar_bool(call: OpCall) -> Types:
    """One truth value."""
    return [TensorType("bool", ())]


SEQUENCES: dict[str, Inference] = {
    "ConcatFromSequence": concat_from_sequence,
    "Optional": optional,
    "OptionalGetElement": optional_get,
    "OptionalHasElement": scalar_bool,
    "SequenceAt": sequence_at,
    "SequenceConstruct": sequence_construct,
    "SequenceEmpty": sequence_empty,
    "SequenceInsert": sequence_insert,
    "SequenceLength": scalar_int,
}
"""How to infer the types of an op's outputs."""
