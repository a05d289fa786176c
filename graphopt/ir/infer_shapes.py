"""Type inference on sizes that may be symbols: what all inferences share, elementwise ops and norms.

Each inference is a function that takes a ``OpCall`` and gives one type for each output it knows of. A
ValueError says in words why the inputs do not fit together. Sizes in the style of ``broadcast`` hold
wherever the model is valid: a symbolic size that meets an integer other than 1 is that integer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from graphopt.ir.call import OpCall
from graphopt.ir.dtypes import dtype_of
from graphopt.ir.op_table import ops_where
from graphopt.ir.types import Shape, Size, TensorType, Type, Unranked, broadcast, in_words

Types: TypeAlias = Sequence[Type | None]
Inference: TypeAlias = Callable[[OpCall], Types]


def spell(shape: Shape | None) -> str:
    """A shape as messages show it."""
    return "*" if shape is None or isinstance(shape, Unranked) else "[" + ", ".join(map(in_words, shape)) + "]"


def agree(a: Size, b: Size, what: str) -> Size:
    """The size that two sizes which must be equal both are; the more telling one of them."""
    if isinstance(a, int) and isinstance(b, int) and a != b:
        raise ValueError(f"{what} must agree, not be {a} and {b}")
    return b if isinstance(b, int) else a


def axis_of(axis: int, rank: int, extra: int = 0) -> int:
    """The axis as a number from 0; ``extra`` more axes than the rank has are allowed."""
    if not -rank - extra <= axis < rank + extra:
        raise ValueError(f"axis {axis} is out of range for rank {rank}")
    return axis + rank + extra if axis < 0 else axis


MOST_AXES = 4096
"""No tensor has more axes: runtimes and numpy stop far below."""


def rank_of(sizes: int) -> int:
    """The rank of a tensor whose shape is in a vector of so many elements."""
    if sizes > MOST_AXES:
        raise ValueError(f"its shape has {sizes} sizes, and no tensor has more than {MOST_AXES} axes")
    return sizes


def known_axes(call: OpCall, index: int, rank: int) -> tuple[int, ...] | None:
    """The axes that an input names, from 0; None where they are not known."""
    axes = call.elements(index)
    if axes is None or not all(isinstance(a, int) for a in axes):
        return None
    return tuple(axis_of(a, rank) for a in axes if isinstance(a, int))


def product(sizes: Sequence[Size]) -> Size:
    """The product of sizes."""
    total: Size = 1
    for size in sizes:
        total = total * size
    return total


# -- elementwise


def broadcast_shapes(shapes: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """The shape that numpy's broadcasting gives shapes."""
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    try:
        return tuple(broadcast(*sizes) for sizes in zip(*padded, strict=True))
    except ValueError as error:
        raise ValueError(f"shapes {' and '.join(map(spell, shapes))} do not broadcast") from error


def one_way(to: tuple[Size, ...], other: tuple[Size, ...]) -> tuple[Size, ...]:
    """``to``, where ``other`` broadcasts to it alone: a size 1 of ``to`` cannot grow."""
    result = broadcast_shapes([to, other])
    if len(result) > len(to) or any(a == 1 and isinstance(b, int) and b != 1 for a, b in zip(to, result, strict=True)):
        raise ValueError(f"{spell(other)} does not broadcast to {spell(to)}")
    return tuple(b if isinstance(b, int) and not isinstance(a, int) else a for a, b in zip(to, result, strict=True))


def broadcast_shape(call: OpCall, indices: Sequence[int]) -> Shape:
    """The broadcast of some of the inputs, be their ranks known or not."""
    shapes = [call.any_shape(i) for i in indices]
    ranked = [s for s in shapes if isinstance(s, tuple)]
    if len(ranked) == len(shapes):
        return broadcast_shapes(ranked)
    different = {s for s in shapes if s not in ((), None)}
    if None not in shapes and len(different) == 1:
        return different.pop()
    return call.shape_of_its_own("broadcast", *indices)


def same(call: OpCall) -> Types:
    """One output like the first input; with an unknown rank it is the same unknown shape."""
    shape = call.any_shape(0)
    return [None if shape is None else call.tensor(shape)]


def elementwise(call: OpCall) -> Types:
    """All inputs broadcast."""
    return [call.tensor(broadcast_shape(call, range(len(call.inputs))))]


def cast(call: OpCall) -> Types:
    """The first input's shape with another dtype."""
    shape = call.any_shape(0)
    dtype = dtype_of(call.integer("to")) if call.op == "Cast" else call.dtype(1)
    return [None if shape is None or dtype is None else TensorType(dtype, shape)]


def dropout(call: OpCall) -> Types:
    """The input, and a mask, which was no truth value before opset 10."""
    shape, dtype = call.any_shape(0), call.dtype(0) if call.opset < 10 else "bool"
    return [None, None] if shape is None or dtype is None else [call.tensor(shape), TensorType(dtype, shape)]


def identity(call: OpCall) -> Types:
    """The input, whatever it is."""
    return [call.type(0)]


def quantize(call: OpCall) -> Types:
    """The first input's shape, with the dtype of the zero point or the one that an attribute says."""
    shape = call.any_shape(0)
    dtype = dtype_of(call.integer("output_dtype")) if call.integer("output_dtype") else None
    if call.op == "QuantizeLinear":
        dtype = call.dtype(2) or dtype or ("uint8" if not call.has(2) else None)
    else:
        dtype = dtype or call.dtype(1)
    return [None if shape is None or dtype is None else TensorType(dtype, shape)]


def dynamic_quantize(call: OpCall) -> Types:
    """The quantized input, its scale and its zero point."""
    shape = call.any_shape(0)
    first = None if shape is None else TensorType("uint8", shape)
    return [first, TensorType("float32", ()), TensorType("uint8", ())]


# -- normalization


def along(call: OpCall) -> Types:
    """The input, of which an attribute names an axis."""
    x = call.shape(0)
    if x is not None:
        axis_of(call.integer("axis", -1), len(x))
    return same(call)


def channel_norm(call: OpCall) -> Types:
    """The input; scale and offset have an element for each of its channels."""
    _each_channel(call, 1, 2)
    return same(call)


def _each_channel(call: OpCall, *inputs: int) -> None:
    """Raise ValueError where an input has another number of elements than the first has channels."""
    x = call.shape(0)
    if x is None or len(x) < 2:
        return
    for shape in map(call.shape, inputs):
        if shape is not None and len(shape) == 1:
            agree(x[1], shape[0], "channels and what there is for each of them")


def batch_norm(call: OpCall) -> Types:
    """The input; in training also the running statistics."""
    _each_channel(call, 1, 2, 3, 4)
    shape = call.any_shape(0)
    statistics = [call.type(3), call.type(4)]
    return [None if shape is None else call.tensor(shape), *statistics]


def layer_norm(call: OpCall) -> Types:
    """The input, and statistics whose normalized axes are 1."""
    x, dtype = call.shape(0), dtype_of(call.integer("stash_type", 1)) or "float32"
    if x is None:
        return [*same(call), None, None]
    axis = len(x) - 1
    if not call.op.startswith("com.microsoft"):
        axis = axis_of(call.integer("axis", -1), len(x))
        for shape in (call.shape(1), call.shape(2)):
            one_way(x, shape or ())
    statistics = TensorType(dtype, (*x[:axis], *(1,) * (len(x) - axis)))
    first = call.tensor(x)
    return [first, statistics, statistics, first]


def rms_norm(call: OpCall) -> Types:
    """The input."""
    return layer_norm(call)[:1]


def simplified_layer_norm(call: OpCall) -> Types:
    """The input, and one statistic."""
    types = layer_norm(call)
    return [types[0], types[1]]


ELEMENTWISE: dict[str, Inference] = {
    **dict.fromkeys(ops_where(output_shape="same"), same),
    **dict.fromkeys(ops_where(output_shape="broadcast"), elementwise),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), along),
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization"), channel_norm),
    "BatchNormalization": batch_norm,
    "Cast": cast,
    "CastLike": cast,
    "DequantizeLinear": quantize,
    "Dropout": dropout,
    "DynamicQuantizeLinear": dynamic_quantize,
    "Identity": identity,
    "LayerNormalization": layer_norm,
    "QuantizeLinear": quantize,
    "RMSNormalization": rms_norm,
    "SimplifiedLayerNormalization": simplified_layer_norm,
    "com.microsoft::SkipLayerNormalization": layer_norm,
    "com.microsoft::SkipSimplifiedLayerNormalization": layer_norm,
}
