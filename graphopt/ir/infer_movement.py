"""The types that ops give their outputs, on sizes that may be symbols: movement, indexing, reductions, sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.ir import ops
from graphopt.ir.call import Call
from graphopt.ir.constants import Constant
from graphopt.ir.dtypes import dtype_of
from graphopt.ir.infer_shapes import Inference, Types, agree, axis_of, broadcast_shapes, product, spell
from graphopt.ir.types import (
    OptionalType,
    SequenceType,
    Shape,
    Size,
    TensorType,
    Type,
    Unranked,
    fresh_symbol,
    is_size,
    minimum,
    unranked,
)

HUGE = 10**9
"""Ends of slices from here on mean "to the end": no axis is as long."""


def _given_axes(call: Call, index: int, rank: int) -> tuple[int, ...] | None:
    """The axes that an input names, from 0; None where they are not known."""
    found = call.elements(index)
    if found is None or not all(isinstance(a, int) for a in found):
        return None
    return tuple(axis_of(a, rank) for a in found if isinstance(a, int))


# -- views


def reshape(call: Call) -> Types:
    """Sizes as the second input says: 0 copies (unless ``allowzero``), one -1 takes what is left.

    A symbolic size in the second input is taken to mean itself, that is, not to be 0.
    """
    x, target = call.shape(0), call.elements(1)
    if target is None:
        length = call.shape(1)
        if length is None or not isinstance(length[0], int):
            return [call.tensor(call.shape_of_its_own("reshape", values=(1,)))]
        return [call.tensor(tuple(call.size_of_its_own("reshape", i, values=(1,)) for i in range(length[0])))]
    sizes: list[Size | None] = []
    for i, size in enumerate(target):
        if size == 0 and not call.integer("allowzero"):
            if x is not None and i >= len(x):
                raise ValueError(f"size {i} is to be copied from {spell(x)}, which has none")
            sizes.append(x[i] if x is not None else call.size_of_its_own("reshape", i, values=(1,)))
        elif isinstance(size, int) and size < -1:
            raise ValueError(f"a size of {size} makes no sense")
        else:
            sizes.append(size if is_size(size) else None)
    open_sizes = [i for i, size in enumerate(sizes) if size is None]
    known = product([s for s in sizes if s is not None])
    total = product(x) if x is not None else None
    if isinstance(known, int) and isinstance(total, int):
        fits = known == total if not open_sizes else len(open_sizes) > 1 or known == 0 or total % known == 0
        if not fits:
            raise ValueError(f"{spell(x)} does not have as many elements as {list(target)}")
    if len(open_sizes) == 1 and total is not None and known != 0:
        sizes[open_sizes[0]] = total // known
    return [
        call.tensor(
            tuple(call.size_of_its_own("reshape", i, values=(1,)) if s is None else s for i, s in enumerate(sizes))
        )
    ]


def flatten(call: Call) -> Types:
    """Two axes: the product before the axis and after it."""
    x = call.shape(0)
    if x is None:
        return [call.tensor((call.size_of_its_own(0), call.size_of_its_own(1)))]
    axis = call.integer("axis", 1)
    axis = axis + len(x) if axis < 0 else axis
    return [call.tensor((product(x[:axis]), product(x[axis:])))]


def squeeze(call: Call) -> Types:
    """Axes of size 1 removed: those given, or all."""
    x = call.shape(0)
    if x is None:
        return [call.tensor(call.shape_of_its_own("squeeze", values=(1,) if call.has(1) else ()))]
    if not call.has(1):
        if all(isinstance(s, int) for s in x):
            return [call.tensor(tuple(s for s in x if s != 1))]
        return [call.tensor(call.shape_of_its_own("squeeze"))]
    axes = _given_axes(call, 1, len(x))
    if axes is None:
        return [call.tensor(call.shape_of_its_own("squeeze", values=(1,)))]
    for axis in axes:
        agree(x[axis], 1, f"the size of axis {axis} and 1")
    return [call.tensor(tuple(s for i, s in enumerate(x) if i not in axes))]


def unsqueeze(call: Call) -> Types:
    """Axes of size 1 put in."""
    x, given = call.shape(0), call.elements(1)
    if x is None or given is None:
        return [call.tensor(call.shape_of_its_own("unsqueeze", values=(1,)))]
    axes = _given_axes(call, 1, len(x) + len(given))
    if axes is None:
        return [call.tensor(call.shape_of_its_own("unsqueeze", values=(1,)))]
    if len(set(axes)) != len(axes):
        raise ValueError(f"axes {list(given)} are not all different")
    rest = iter(x)
    return [call.tensor(tuple(1 if i in axes else next(rest) for i in range(len(x) + len(axes))))]


def transpose(call: Call) -> Types:
    """Axes in another order."""
    x, perm = call.shape(0), call.integers("perm")
    if x is None:
        if perm is None:
            return [call.tensor(call.shape_of_its_own("transpose"))]
        return [call.tensor(tuple(call.size_of_its_own("transpose", i) for i in perm))]
    perm = perm or tuple(reversed(range(len(x))))
    if sorted(perm) != list(range(len(x))):
        raise ValueError(f"perm {list(perm)} does not fit {spell(x)}")
    return [call.tensor(tuple(x[i] for i in perm))]


def expand(call: Call) -> Types:
    """The broadcast of the input and the shape that the second input says."""
    x, target = call.shape(0), call.elements(1)
    if x is not None and target is not None:
        return [call.tensor(broadcast_shapes([x, target]))]
    length = call.shape(1)
    if x is None or length is None or not isinstance(length[0], int):
        return [call.tensor(call.shape_of_its_own("expand", values=(1,)))]
    rank = max(len(x), length[0])
    return [call.tensor(tuple(call.size_of_its_own("expand", i, values=(1,)) for i in range(rank)))]


def tile(call: Call) -> Types:
    """Every axis repeated."""
    x, repeats = call.shape(0), call.elements(1)
    if x is None:
        return [call.tensor(call.shape_of_its_own("tile", values=(1,)))]
    if repeats is None:
        return [call.tensor(tuple(call.size_of_its_own("tile", i, values=(1,)) for i in range(len(x))))]
    if len(repeats) != len(x):
        raise ValueError(f"{len(repeats)} repeats do not fit {spell(x)}")
    return [call.tensor(tuple(s * r for s, r in zip(x, repeats, strict=True)))]


def pad(call: Call) -> Types:
    """Sizes grown by the pads before and behind."""
    x, pads = call.shape(0), call.elements(1)
    if x is None:
        return [call.tensor(call.shape_of_its_own("pad", values=(1,)))]
    axes = _given_axes(call, 3, len(x)) if call.has(3) else tuple(range(len(x)))
    if pads is None or axes is None:
        values = (1, 3) if call.has(3) else (1,)
        return [call.tensor(tuple(call.size_of_its_own("pad", i, values=values) for i in range(len(x))))]
    if len(pads) != 2 * len(axes):
        raise ValueError(f"{len(pads)} pads do not fit {len(axes)} axes")
    shape = list(x)
    for i, axis in enumerate(axes):
        shape[axis] = x[axis] + pads[i] + pads[i + len(axes)]
    return [call.tensor(tuple(shape))]


def slice_length(n: Size, start: Size, end: Size, step: int) -> Size | None:
    """How many elements ``[start:end:step]`` takes of n; None where that cannot be said."""
    if isinstance(n, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(*slice(start, end, step).indices(n)))
    if step < 0:
        whole = (start == -1 or is_size(start - HUGE)) and is_size(-HUGE - end)
        return (n + (-step - 1)) // -step if whole else None
    first, last = _clamped(n, start), _clamped(n, end)
    if first is None or last is None:
        return None
    same_side = is_size(start) == is_size(end)
    if first == 0 or last == n or (same_side and is_size(end - start)):
        return (last - first + (step - 1)) // step
    return 0 if is_size(first - last) else None


def _clamped(n: Size, position: Size) -> Size | None:
    """Where a slice's bound falls among 0..n, where that can be said."""
    if position == n or (isinstance(position, int) and position >= HUGE):
        return n
    if is_size(position):
        return minimum(n, position)
    return n - minimum(n, -position) if is_size(-position) else None  # counted from the end


def slice_parts(call: Call, rank: int) -> list[tuple[int, Size, Size, int]] | None:
    """(axis, start, end, step) of a Slice, where all are known."""
    starts, ends = call.elements(1), call.elements(2)
    if starts is None or ends is None:
        return None
    axes = _given_axes(call, 3, rank) if call.has(3) else tuple(range(len(starts)))
    steps = call.elements(4) if call.has(4) else (1,) * len(starts)
    if axes is None or steps is None:
        return None
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ValueError("starts, ends, axes and steps are not equally long")
    found = []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if not isinstance(step, int):
            return None
        if step == 0:
            raise ValueError("a step of 0 makes no sense")
        found.append((axis, start, end, step))
    return found


def slice_(call: Call) -> Types:
    """Parts of some axes."""
    x = call.shape(0)
    values = tuple(i for i in range(1, 5) if call.has(i))
    if x is None:
        return [call.tensor(call.shape_of_its_own("slice", values=values))]
    parts = slice_parts(call, len(x))
    if parts is None:
        axes = _given_axes(call, 3, len(x)) if call.has(3) else None
        touched = range(len(x)) if axes is None else axes
        return [
            call.tensor(
                tuple(call.size_of_its_own("slice", i, values=values) if i in touched else s for i, s in enumerate(x))
            )
        ]
    shape = list(x)
    for axis, start, end, step in parts:
        if axis >= len(x):
            raise ValueError(f"axis {axis} is out of range for rank {len(x)}")
        length = slice_length(x[axis], start, end, step)
        shape[axis] = call.size_of_its_own("slice", axis, values=values) if length is None else length
    return [call.tensor(tuple(shape))]


def concat(call: Call) -> Types:
    """The sum of the sizes along one axis."""
    shapes = [call.shape(i) for i in range(len(call.inputs))]
    known = [s for s in shapes if s is not None]
    if not known:
        return [call.tensor(call.shape_of_its_own("concat"))]
    rank = len(known[0])
    if any(len(s) != rank for s in known):
        raise ValueError(f"shapes {', '.join(map(spell, known))} have different ranks")
    axis = axis_of(call.integer("axis"), rank)
    shape = list(known[0])
    for other in known[1:]:
        for i in range(rank):
            if i != axis:
                shape[i] = agree(shape[i], other[i], f"the sizes of axis {i}")
    total: Size = 0
    for s in known:
        total = total + s[axis]
    shape[axis] = total if len(known) == len(shapes) else call.size_of_its_own("concat")
    return [call.tensor(tuple(shape))]


def split(call: Call) -> Types:
    """Parts along one axis: as the second input says, or equal ones of which the last may be smaller."""
    x = call.shape(0)
    if x is None:
        return [call.tensor(call.shape_of_its_own("split", i), i) for i in range(call.n_outputs)]
    axis = axis_of(call.integer("axis"), len(x))
    n, count = x[axis], call.integer("num_outputs") or call.n_outputs
    given = call.elements(1)
    if given is not None:
        sizes: Sequence[Size] = given
        if len(sizes) != call.n_outputs:
            raise ValueError(f"{len(sizes)} sizes do not fit {call.n_outputs} outputs")
        total = sum(s for s in sizes if isinstance(s, int))
        if isinstance(n, int) and all(isinstance(s, int) for s in sizes) and total != n:
            raise ValueError(f"sizes {list(sizes)} do not add up to {n}")
    elif call.has(1):
        sizes = [call.size_of_its_own("split", i, values=(1,)) for i in range(call.n_outputs)]
    elif isinstance(n, int) or call.opset >= 18:
        part = (n + (count - 1)) // count
        sizes = [*[part] * (count - 1), n - part * (count - 1)]
        if isinstance(sizes[-1], int) and sizes[-1] < 0:
            sizes = [max(0, min(part, n - part * i)) for i in range(count)]
    else:
        sizes = [n // count] * count
    return [call.tensor((*x[:axis], size, *x[axis + 1 :]), i) for i, size in enumerate(sizes)]


# -- indexing


def gather(call: Call) -> Types:
    """The axis replaced by the shape of the indices."""
    x, indices = call.shape(0), call.shape(1)
    if x is None or indices is None:
        return [call.tensor(call.shape_of_its_own("gather"))]
    axis = axis_of(call.integer("axis"), len(x))
    return [call.tensor((*x[:axis], *indices, *x[axis + 1 :]))]


def gather_elements(call: Call) -> Types:
    """The shape of the indices."""
    shape = call.any_shape(1)
    return [None if shape is None else call.tensor(shape)]


def gather_nd(call: Call) -> Types:
    """The shape of the indices, its last axis replaced by what is left of the data."""
    x, indices = call.shape(0), call.shape(1)
    if x is None or not indices or not isinstance(indices[-1], int):
        return [call.tensor(call.shape_of_its_own("gather"))]
    return [call.tensor((*indices[:-1], *x[call.integer("batch_dims") + indices[-1] :]))]


def one_hot(call: Call) -> Types:
    """One more axis, of the depth."""
    indices, depth = call.shape(0), call.element(1)
    constant = call.constant(1)
    if depth is None and constant is not None and constant.size == 1:
        depth = int(constant.array.reshape(()))
    if depth is None:
        depth = call.size_of_its_own("depth", values=(1,))
    if indices is None:
        return [call.tensor(call.shape_of_its_own("onehot", values=(1,)))]
    axis = axis_of(call.integer("axis", -1), len(indices) + 1)
    return [call.tensor((*indices[:axis], depth, *indices[axis:]))]


def top_k(call: Call) -> Types:
    """K values along an axis, and their indices."""
    x, k = call.shape(0), call.element(1)
    if x is None:
        shape: Shape = call.shape_of_its_own("topk", values=(1,))
    else:
        axis = axis_of(call.integer("axis", -1), len(x))
        size = call.size_of_its_own("topk", values=(1,)) if k is None else k
        shape = (*x[:axis], size, *x[axis + 1 :])
    return [call.tensor(shape), TensorType("int64", shape)]


def non_zero(call: Call) -> Types:
    """Indices of the elements that are not zero: how many, nobody knows."""
    x = call.shape(0)
    return [TensorType("int64", (fresh_symbol() if x is None else max(len(x), 1), fresh_symbol()))]


def non_max_suppression(call: Call) -> Types:
    """Triples of indices: how many, nobody knows."""
    return [TensorType("int64", (fresh_symbol(), 3))]


def grid_sample(call: Call) -> Types:
    """Batch and channels of the input, spatial sizes of the grid."""
    x, grid = call.shape(0), call.shape(1)
    if x is None or grid is None:
        return [call.tensor(call.shape_of_its_own("grid"))]
    return [call.tensor((*x[:2], *grid[1:-1]))]


# -- reductions


def reduce(call: Call) -> Types:
    """Axes of the second input (all where it is empty or absent, unless told otherwise) removed or made 1."""
    x, keep = call.shape(0), call.integer("keepdims", 1)
    if x is None:
        return [call.tensor(call.shape_of_its_own("reduce", values=(1,) if call.has(1) else ()))]
    axes = _given_axes(call, 1, len(x)) if call.has(1) else ()
    if axes is None:
        if keep:
            return [call.tensor(tuple(call.size_of_its_own("reduce", i, values=(1,)) for i in range(len(x))))]
        return [call.tensor(call.shape_of_its_own("reduce", values=(1,)))]
    if not axes:
        if call.integer("noop_with_empty_axes"):
            return [call.tensor(x)]
        axes = tuple(range(len(x)))
    return [call.tensor(_reduced(x, axes, keep))]


def _reduced(x: tuple[Size, ...], axes: tuple[int, ...], keep: int) -> tuple[Size, ...]:
    if keep:
        return tuple(1 if i in axes else s for i, s in enumerate(x))
    return tuple(s for i, s in enumerate(x) if i not in axes)


def arg_reduce(call: Call) -> Types:
    """One axis removed or made 1."""
    x = call.shape(0)
    if x is None:
        return [TensorType("int64", call.shape_of_its_own("reduce"))]
    return [TensorType("int64", _reduced(x, (axis_of(call.integer("axis"), len(x)),), call.integer("keepdims", 1)))]


# -- made from nothing but sizes


def shape_of(call: Call) -> Types:
    """As many elements as axes are asked for."""
    x = call.shape(0)
    if x is None:
        return [TensorType("int64", (call.size_of_its_own("rank"),))]
    return [TensorType("int64", (len(x[shape_range(call)]),))]


def shape_range(call: Call) -> slice:
    """The axes that a Shape asks for."""
    end = call.attr("end")
    return slice(call.integer("start"), end if isinstance(end, int) else None)


def size_of(call: Call) -> Types:
    """One number."""
    return [TensorType("int64", ())]


def constant_of_shape(call: Call) -> Types:
    """The shape that the input says, the dtype of the attribute."""
    value = call.attrs.get("value")
    dtype = value.dtype if isinstance(value, Constant) else "float32"
    found, length = call.elements(0), call.shape(0)
    if found is not None:
        if any(isinstance(s, int) and s < 0 for s in found):
            raise ValueError(f"a size in {list(found)} is negative")
        return [TensorType(dtype, found)]
    if length is None or not isinstance(length[0], int):
        return [TensorType(dtype, call.shape_of_its_own(values=(0,)))]
    return [TensorType(dtype, tuple(call.size_of_its_own(i, values=(0,)) for i in range(length[0])))]


def constant(call: Call) -> Types:
    """What the attribute holds."""
    value = call.attrs.get("value")
    return [TensorType(value.dtype, value.shape)] if isinstance(value, Constant) else [None]


def range_(call: Call) -> Types:
    """From start up to the limit in steps of delta."""
    start, limit, delta = (call.element(i) for i in range(3))
    count: Size | None = None
    if start is not None and limit is not None and isinstance(delta, int) and delta:
        way = (limit - start) if delta > 0 else (start - limit)
        step = abs(delta)
        count = (way + (step - 1)) // step if is_size(way) else 0 if is_size(-way) else None
    else:
        ends = [c.array.reshape(()) for i in range(3) if (c := call.constant(i)) is not None and c.size == 1]
        if len(ends) == 3 and ends[2] != 0:
            count = max(0, int(np.ceil((ends[1] - ends[0]) / ends[2])))
    return [call.tensor((call.size_of_its_own("range", values=(0, 1, 2)) if count is None else count,))]


def random(call: Call) -> Types:
    """The shape that an attribute says, or that of the input."""
    given = dtype_of(call.integer("dtype")) if call.integer("dtype") else None
    if call.op.endswith("Like") or call.op == "Bernoulli":
        shape, dtype = call.any_shape(0), given or call.dtype(0)
        return [None if shape is None or dtype is None else TensorType(dtype, shape)]
    sizes = call.integers("shape")
    return [None if sizes is None else TensorType(given or "float32", sizes)]


# -- sequences and optionals


def join(a: Type | None, b: Type | None) -> Type | None:
    """The type of a value that has one of two types: sizes that differ are unknown."""
    if a == b or a is None or b is None:
        return a if a == b else None
    match a, b:
        case TensorType(), TensorType():
            if a.dtype != b.dtype:
                return None
            if isinstance(a.shape, Unranked) or isinstance(b.shape, Unranked) or len(a.shape) != len(b.shape):
                return TensorType(a.dtype, unranked())
            sizes = zip(a.shape, b.shape, strict=True)
            return TensorType(a.dtype, tuple(x if x == y else fresh_symbol() for x, y in sizes))
        case SequenceType(), SequenceType():
            element = join(a.element, b.element)
            return None if element is None else SequenceType(element)
        case OptionalType(), OptionalType():
            element = join(a.element, b.element)
            return None if element is None else OptionalType(element)
    return None


def renewed(type: Type | None) -> Type | None:
    """The type of one of many values of a type: sizes that are not numbers may differ from those of the others."""
    match type:
        case TensorType(dtype, shape):
            if isinstance(shape, Unranked):
                return TensorType(dtype, unranked())
            return TensorType(dtype, tuple(s if isinstance(s, int) else fresh_symbol() for s in shape))
    return type


def sequence_construct(call: Call) -> Types:
    """A sequence of all inputs."""
    element = call.type(0)
    for i in range(1, len(call.inputs)):
        element = join(element, call.type(i))
    return [None if element is None else SequenceType(element)]


def sequence_insert(call: Call) -> Types:
    """The sequence with one more element."""
    sequence = call.type(0)
    element = join(sequence.element, call.type(1)) if isinstance(sequence, SequenceType) else None
    return [None if element is None else SequenceType(element)]


def sequence_empty(call: Call) -> Types:
    """A sequence of tensors whose shapes nobody knows."""
    return [SequenceType(TensorType(dtype_of(call.integer("dtype", 1)) or "float32", unranked()))]


def sequence_at(call: Call) -> Types:
    """One element."""
    sequence = call.type(0)
    return [renewed(sequence.element) if isinstance(sequence, SequenceType) else None]


def concat_from_sequence(call: Call) -> Types:
    """All elements along an axis, old or new."""
    sequence = call.type(0)
    element = renewed(sequence.element) if isinstance(sequence, SequenceType) else None
    if not isinstance(element, TensorType) or isinstance(element.shape, Unranked):
        return [TensorType(element.dtype, unranked()) if isinstance(element, TensorType) else None]
    shape, new = list(element.shape), call.integer("new_axis")
    axis = axis_of(call.integer("axis"), len(shape) + new)
    shape[axis : axis + (not new)] = [fresh_symbol()]
    return [TensorType(element.dtype, tuple(shape))]


def optional(call: Call) -> Types:
    """The input as something that may be absent."""
    element = call.type(0) or call.attrs.get("type")
    return [OptionalType(element) if isinstance(element, TensorType | SequenceType) else None]


def optional_get(call: Call) -> Types:
    """What the optional holds."""
    found = call.type(0)
    return [found.element if isinstance(found, OptionalType) else found]


def scalar_int(call: Call) -> Types:
    """One integer."""
    return [TensorType("int64", ())]


def scalar_bool(call: Call) -> Types:
    """One truth value."""
    return [TensorType("bool", ())]


MOVING: dict[str, Inference] = {
    **dict.fromkeys(ops.KINDS["reduce"], reduce),
    "ArgMax": arg_reduce,
    "ArgMin": arg_reduce,
    "Bernoulli": random,
    "Concat": concat,
    "ConcatFromSequence": concat_from_sequence,
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "Expand": expand,
    "EyeLike": random,
    "Flatten": flatten,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "GridSample": grid_sample,
    "NonMaxSuppression": non_max_suppression,
    "NonZero": non_zero,
    "OneHot": one_hot,
    "Optional": optional,
    "OptionalGetElement": optional_get,
    "OptionalHasElement": scalar_bool,
    "Pad": pad,
    "RandomNormal": random,
    "RandomNormalLike": random,
    "RandomUniform": random,
    "RandomUniformLike": random,
    "Range": range_,
    "Reshape": reshape,
    "SequenceAt": sequence_at,
    "SequenceConstruct": sequence_construct,
    "SequenceEmpty": sequence_empty,
    "SequenceInsert": sequence_insert,
    "SequenceLength": scalar_int,
    "Shape": shape_of,
    "Size": size_of,
    "Slice": slice_,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "TopK": top_k,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
