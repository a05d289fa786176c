"""Type inference of ops that index, reduce along axes, or make tensors from sizes alone."""

from __future__ import annotations

import numpy as np

from graphopt.ir import ops
from graphopt.ir.call import OpCall
from graphopt.ir.constants import Constant
from graphopt.ir.dtypes import dtype_of
from graphopt.ir.infer_shapes import Inference, Types, axis_of, known_axes, product, rank_of, same
from graphopt.ir.types import Shape, Size, TensorType, fresh_symbol, is_size, maximum, real, unranked


def gather(call: OpCall) -> Types:
    """The axis replaced by the shape of the indices."""
    x, indices = call.shape(0), call.shape(1)
    if x is None or indices is None:
        return [call.tensor(call.shape_of_its_own("gather"))]
    axis = axis_of(call.integer("axis"), len(x))
    return [call.tensor((*x[:axis], *indices, *x[axis + 1 :]))]


def gather_elements(call: OpCall) -> Types:
    """The shape of the indices."""
    shape = call.any_shape(1)
    return [None if shape is None else call.tensor(shape)]


def gather_nd(call: OpCall) -> Types:
    """The shape of the indices, its last axis replaced by what is left of the data."""
    x, indices = call.shape(0), call.shape(1)
    if x is None or not indices or not isinstance(indices[-1], int):
        return [call.tensor(call.shape_of_its_own("gather"))]
    return [call.tensor((*indices[:-1], *x[call.integer("batch_dims") + indices[-1] :]))]


def scatter_nd(call: OpCall) -> Types:
    """The shape of the data. Updates have the axes of the indices but the last, and what these leave of the data."""
    x, indices, updates = (call.shape(k) for k in range(3))
    if x is not None and updates is not None and indices and isinstance(indices[-1], int):
        rank = len(indices) - 1 + len(x) - indices[-1]
        if len(updates) != rank:
            raise ValueError(f"the updates have {len(updates)} axes, and not {rank}")
    return same(call)


def one_hot(call: OpCall) -> Types:
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


def top_k(call: OpCall) -> Types:
    """K values along an axis, and their indices."""
    x, k = call.shape(0), call.element(1)
    if x is None:
        shape: Shape = call.shape_of_its_own("topk", values=(1,))
    else:
        axis = axis_of(call.integer("axis", -1), len(x))
        if isinstance(k, int) and (k < 0 or (isinstance(x[axis], int) and k > x[axis])):  # type: ignore[operator]
            raise ValueError(f"{k} elements are asked for, and axis {axis} has {x[axis]}")
        size = call.size_of_its_own("topk", values=(1,)) if k is None else k
        shape = (*x[:axis], size, *x[axis + 1 :])
    return [call.tensor(shape), TensorType("int64", shape)]


def non_zero(call: OpCall) -> Types:
    """Indices of the elements that are not zero: how many, nobody knows but where none is."""
    x, fact = call.shape(0), call.fact(0)
    count = product(x) if x is not None and (fact.low > 0 or fact.high < 0) else fresh_symbol()
    return [TensorType("int64", (fresh_symbol() if x is None else max(len(x), 1), count))]


def non_max_suppression(call: OpCall) -> Types:
    """Triples of indices: how many, nobody knows."""
    return [TensorType("int64", (fresh_symbol(), 3))]


def compress(call: OpCall) -> Types:
    """As much of the axis, or of all elements, as the condition holds for: how much, nobody knows."""
    x, axis = call.shape(0), call.attr("axis")
    if not isinstance(axis, int):
        return [call.tensor((fresh_symbol(),))]
    if x is None:
        return [call.tensor(unranked())]
    axis = axis_of(axis, len(x))
    return [call.tensor((*x[:axis], fresh_symbol(), *x[axis + 1 :]))]


def unique(call: OpCall) -> Types:
    """The different elements, or slices along an axis: how many, nobody knows."""
    x, axis, count = call.shape(0), call.attr("axis"), fresh_symbol()
    each = TensorType("int64", (count,))
    if x is None:
        shape: Shape = unranked() if isinstance(axis, int) else (count,)
        return [call.tensor(shape), each, TensorType("int64", (fresh_symbol(),)), each]
    if not isinstance(axis, int):
        return [call.tensor((count,)), each, TensorType("int64", (product(x),)), each]
    axis = axis_of(axis, len(x))
    return [call.tensor((*x[:axis], count, *x[axis + 1 :])), each, TensorType("int64", (x[axis],)), each]


def grid_sample(call: OpCall) -> Types:
    """Batch and channels of the input, spatial sizes of the grid."""
    x, grid = call.shape(0), call.shape(1)
    if x is None or grid is None:
        return [call.tensor(call.shape_of_its_own("grid"))]
    return [call.tensor((*x[:2], *grid[1:-1]))]


# -- reductions


def reduce(call: OpCall) -> Types:
    """Axes of the second input (all where it is empty or absent, unless told otherwise) removed or made 1."""
    x, keep = call.shape(0), call.integer("keepdims", 1)
    if x is None:
        return [call.tensor(call.shape_of_its_own("reduce", values=(1,) if call.has(1) else ()))]
    axes = known_axes(call, 1, len(x)) if call.has(1) else ()
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


def arg_reduce(call: OpCall) -> Types:
    """One axis removed or made 1."""
    x = call.shape(0)
    if x is None:
        return [TensorType("int64", call.shape_of_its_own("reduce"))]
    return [TensorType("int64", _reduced(x, (axis_of(call.integer("axis"), len(x)),), call.integer("keepdims", 1)))]


# -- made from nothing but sizes


def shape_of(call: OpCall) -> Types:
    """As many elements as axes are asked for."""
    x = call.shape(0)
    if x is None:
        return [TensorType("int64", (call.size_of_its_own("rank"),))]
    return [TensorType("int64", (len(x[shape_range(call)]),))]


def shape_range(call: OpCall) -> slice:
    """The axes that a Shape asks for."""
    end = call.attr("end")
    return slice(call.integer("start"), end if isinstance(end, int) else None)


def size_of(call: OpCall) -> Types:
    """One number."""
    return [TensorType("int64", ())]


def constant_of_shape(call: OpCall) -> Types:
    """The shape that the input says, the dtype of the attribute."""
    value = call.attrs.get("value")
    dtype = value.dtype if isinstance(value, Constant) else "float32"
    sizes, length = call.elements(0), call.shape(0)
    if sizes is not None:
        if any(isinstance(s, int) and s < 0 for s in sizes):
            raise ValueError(f"a size in {list(sizes)} is negative")
        return [TensorType(dtype, sizes)]
    if length is None or not isinstance(length[0], int):
        return [TensorType(dtype, call.shape_of_its_own(values=(0,)))]
    return [TensorType(dtype, tuple(call.size_of_its_own(i, values=(0,)) for i in range(rank_of(length[0]))))]


def constant(call: OpCall) -> Types:
    """What the attribute holds."""
    value = call.attrs.get("value")
    return [TensorType(value.dtype, value.shape)] if isinstance(value, Constant) else [None]


def range_(call: OpCall) -> Types:
    """From start up to the limit in steps of delta."""
    start, limit, delta = (call.element(i) for i in range(3))
    count: Size | None = None
    if start is not None and limit is not None and isinstance(delta, int) and delta:
        way = (limit - start) if delta > 0 else (start - limit)
        count = _or_none((way + (abs(delta) - 1)) // abs(delta))
    elif all(r is not None and len(r) == 1 for r in map(call.reals, range(3))):
        from_, to, by = (r[0] for r in map(call.reals, range(3)) if r is not None)
        steps = real("div", real("sub", to, from_).cast("float64"), by.cast("float64"))
        count = _or_none(real("ceil", steps).truncated())
    else:
        ends = [c.array.reshape(()) for i in range(3) if (c := call.constant(i)) is not None and c.size == 1]
        if len(ends) == 3 and ends[2] != 0:
            count = max(0, int(np.ceil((ends[1] - ends[0]) / ends[2])))
    return [call.tensor((call.size_of_its_own("range", values=(0, 1, 2)) if count is None else count,))]


def window(call: OpCall) -> Types:
    """A window of a length, which an attribute gives its dtype, as it does the filters of a mel matrix."""
    dtype = dtype_of(call.integer("output_datatype", 1)) or "float32"
    if call.op != "MelWeightMatrix":
        count = call.element(0)
        return [TensorType(dtype, (call.size_of_its_own("window", values=(0,)) if count is None else count,))]
    filters, length = call.element(0), call.element(1)
    bins = call.size_of_its_own("bins", values=(1,)) if length is None else length // 2 + 1
    return [TensorType(dtype, (bins, call.size_of_its_own("filters", values=(0,)) if filters is None else filters))]


def _or_none(count: Size) -> Size:
    """A number of elements, of which there are none where it is negative."""
    return count if is_size(count) else maximum(0, count)


def random(call: OpCall) -> Types:
    """The shape that an attribute says, or that of the input."""
    given = dtype_of(call.integer("dtype")) if call.integer("dtype") else None
    if call.op.endswith("Like") or call.op == "Bernoulli":
        shape, dtype = call.any_shape(0), given or call.dtype(0)
        return [None if shape is None or dtype is None else TensorType(dtype, shape)]
    sizes = call.integers("shape")
    return [None if sizes is None else TensorType(given or "float32", sizes)]


INDEXING: dict[str, Inference] = {
    **dict.fromkeys(ops.KINDS["reduce"], reduce),
    "ArgMax": arg_reduce,
    "ArgMin": arg_reduce,
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"), window),
    "Bernoulli": random,
    "Compress": compress,
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "EyeLike": random,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "GridSample": grid_sample,
    "NonMaxSuppression": non_max_suppression,
    "NonZero": non_zero,
    "OneHot": one_hot,
    "RandomNormal": random,
    "RandomNormalLike": random,
    "RandomUniform": random,
    "RandomUniformLike": random,
    "Range": range_,
    "ScatterND": scatter_nd,
    "Shape": shape_of,
    "Size": size_of,
    "TopK": top_k,
    "Unique": unique,
}
"""How to infer the types of an op's outputs."""
