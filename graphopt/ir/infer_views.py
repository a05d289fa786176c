"""Type inference of views: outputs that are the inputs' elements reshaped, sliced, joined or split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphopt.ir.call import OpCall
from graphopt.ir.facts import Fact
from graphopt.ir.infer_shapes import (
    Inference,
    Types,
    agree,
    axis_of,
    broadcast_shapes,
    known_axes,
    product,
    rank_of,
    spell,
)
from graphopt.ir.types import Size, TensorType, Type, Unranked, is_size, maximum, minimum, text_of

LONGEST = 1500
"""Characters of the longest size that is followed: what is longer is some size."""
HUGE = 10**9
"""Ends of slices from here on mean "to the end": no axis is as long."""


def reshape(call: OpCall) -> Types:
    """Sizes as the second input says: 0 copies (unless ``allowzero``), one -1 takes what is left.

    A symbolic size in the second input is taken to mean itself, that is, not to be 0.
    """
    x, target = call.shape(0), call.elements(1)
    if target is None:
        length = call.shape(1)
        if length is None or not isinstance(length[0], int):
            return [call.tensor(call.shape_of_its_own("reshape", values=(1,)))]
        return [call.tensor(tuple(call.size_of_its_own("reshape", i, values=(1,)) for i in range(rank_of(length[0]))))]
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
    stated = product([s for s in sizes if s is not None])
    total = product(x) if x is not None else None
    if isinstance(stated, int) and isinstance(total, int):
        fits = stated == total if not open_sizes else len(open_sizes) > 1 or stated == 0 or total % stated == 0
        if not fits:
            raise ValueError(f"{spell(x)} does not have as many elements as {list(target)}")
    if len(open_sizes) == 1 and total is not None and stated != 0:
        sizes[open_sizes[0]] = total // stated
    return [
        call.tensor(
            tuple(call.size_of_its_own("reshape", i, values=(1,)) if s is None else s for i, s in enumerate(sizes))
        )
    ]


def flatten(call: OpCall) -> Types:
    """Two axes: the product before the axis and after it."""
    x = call.shape(0)
    if x is None:
        return [call.tensor((call.size_of_its_own(0), call.size_of_its_own(1)))]
    axis = call.integer("axis", 1)
    if not -len(x) <= axis <= len(x):
        raise ValueError(f"axis {axis} is not an axis of a tensor of rank {len(x)}")
    axis = axis + len(x) if axis < 0 else axis
    return [call.tensor((product(x[:axis]), product(x[axis:])))]


def squeeze(call: OpCall) -> Types:
    """Axes of size 1 removed: those given, or all."""
    x = call.shape(0)
    if x is None:
        return [call.tensor(call.shape_of_its_own("squeeze", values=(1,) if call.has(1) else ()))]
    if not call.has(1):
        if all(isinstance(s, int) for s in x):
            return [call.tensor(tuple(s for s in x if s != 1))]
        return [call.tensor(replace(call.shape_of_its_own("squeeze"), is_open=True))]
    axes = known_axes(call, 1, len(x))
    # no axes at all are none by ONNX's reference, and all by ONNX Runtime
    if axes is None or (not axes and any(not isinstance(s, int) or s == 1 for s in x)):
        return [call.tensor(call.shape_of_its_own("squeeze", values=(1,)))]
    for axis in axes:
        agree(x[axis], 1, f"the size of axis {axis} and 1")
    return [call.tensor(tuple(s for i, s in enumerate(x) if i not in axes))]


def squeezed(fact: Fact, declared: Type, x: Fact | None) -> Fact:
    """A result of a Squeeze of all axes of size 1, of which the declared rank says that no open size of ``x`` is 1."""
    if not isinstance(declared, TensorType) or isinstance(declared.shape, Unranked) or x is None or x.shape is None:
        return fact
    left = tuple(size for size in x.shape if size != 1)
    is_told = isinstance(fact.type, TensorType) and fact.shape is None and len(left) == len(declared.shape)
    return replace(fact, type=TensorType(declared.dtype, left)) if is_told else fact


def unsqueeze(call: OpCall) -> Types:
    """Axes of size 1 put in."""
    x, given = call.shape(0), call.elements(1)
    if x is None or given is None:
        return [call.tensor(call.shape_of_its_own("unsqueeze", values=(1,)))]
    axes = known_axes(call, 1, len(x) + len(given))
    if axes is None:
        return [call.tensor(call.shape_of_its_own("unsqueeze", values=(1,)))]
    if len(set(axes)) != len(axes):
        raise ValueError(f"axes {list(given)} are not all different")
    rest = iter(x)
    return [call.tensor(tuple(1 if i in axes else next(rest) for i in range(len(x) + len(axes))))]


def transpose(call: OpCall) -> Types:
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


def expand(call: OpCall) -> Types:
    """The broadcast of the input and the shape that the second input says."""
    x, target = call.shape(0), call.elements(1)
    if x is not None and target is not None:
        return [call.tensor(broadcast_shapes([x, target]))]
    length = call.shape(1)
    if x is None or length is None or not isinstance(length[0], int):
        return [call.tensor(call.shape_of_its_own("expand", values=(1,)))]
    rank = max(len(x), rank_of(length[0]))
    return [call.tensor(tuple(call.size_of_its_own("expand", i, values=(1,)) for i in range(rank)))]


def tile(call: OpCall) -> Types:
    """Every axis repeated."""
    x, repeats = call.shape(0), call.elements(1)
    if x is None:
        return [call.tensor(call.shape_of_its_own("tile", values=(1,)))]
    if repeats is None:
        return [call.tensor(tuple(call.size_of_its_own("tile", i, values=(1,)) for i in range(len(x))))]
    if len(repeats) != len(x):
        raise ValueError(f"{len(repeats)} repeats do not fit {spell(x)}")
    return [call.tensor(tuple(s * r for s, r in zip(x, repeats, strict=True)))]


def pad(call: OpCall) -> Types:
    """Sizes grown by the pads before and behind."""
    x, pads = call.shape(0), call.elements(1)
    if x is None:
        return [call.tensor(call.shape_of_its_own("pad", values=(1,)))]
    axes = known_axes(call, 3, len(x)) if call.has(3) else tuple(range(len(x)))
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
        begins, ends = _counted_behind(n, start), _counted_behind(n, end)
        if begins is None or ends is None:
            return None
        first, last = ends, begins
        start, end, step = end, start, -step
    else:
        first, last = _clamped(n, start), _clamped(n, end)
    same_side = is_size(start) == is_size(end)
    if first == 0 or last == n or (same_side and is_size(end - start)):
        return (last - first + (step - 1)) // step
    return 0 if is_size(first - last) else maximum(0, (last - first + (step - 1)) // step)


def _counted_behind(n: Size, position: Size) -> Size | None:
    """How many of n elements stand up to a bound of a slice that goes back, its own included: 0..n; None where it is
    not known from which end it is counted."""
    if is_size(position):
        return minimum(n, position + 1)
    if isinstance(position, int) and position <= -HUGE:
        return 0
    return n - minimum(n, -position - 1) if is_size(-position - 1) else None


def _clamped(n: Size, position: Size) -> Size:
    """Where a slice's bound falls among 0..n."""
    if position == n or (isinstance(position, int) and position >= HUGE):
        return n
    if is_size(position):
        return minimum(n, position)
    if is_size(-position):  # counted from the end
        return n - minimum(n, -position)
    is_negative = minimum(1, maximum(0, -position))
    return minimum(n, maximum(0, position + n * is_negative))


def slice_parts(call: OpCall, rank: int) -> list[tuple[int, Size, Size, int]] | None:
    """(axis, start, end, step) of a Slice, where all are known."""
    starts, ends = call.elements(1), call.elements(2)
    if starts is None or ends is None:
        return None
    axes = known_axes(call, 3, rank) if call.has(3) else tuple(range(len(starts)))
    steps = call.elements(4) if call.has(4) else (1,) * len(starts)
    if axes is None or steps is None:
        return None
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ValueError("starts, ends, axes and steps are not equally long")
    parts = []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if not isinstance(step, int):
            return None
        if step == 0:
            raise ValueError("a step of 0 makes no sense")
        parts.append((axis, start, end, step))
    return parts


def slice_(call: OpCall) -> Types:
    """Parts of some axes."""
    x = call.shape(0)
    values = tuple(i for i in range(1, 5) if call.has(i))
    if x is None:
        return [call.tensor(call.shape_of_its_own("slice", values=values))]
    parts = slice_parts(call, len(x))
    if parts is None:
        axes = known_axes(call, 3, len(x)) if call.has(3) else None
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
        is_short = length is not None and len(text_of(length)) <= LONGEST
        shape[axis] = length if length is not None and is_short else call.size_of_its_own("slice", axis, values=values)
    return [call.tensor(tuple(shape))]


def concat(call: OpCall) -> Types:
    """The sum of the sizes along one axis."""
    shapes = [call.shape(i) for i in range(len(call.inputs))]
    ranked = [s for s in shapes if s is not None]
    if not ranked:
        return [call.tensor(call.shape_of_its_own("concat"))]
    rank = len(ranked[0])
    if any(len(s) != rank for s in ranked):
        raise ValueError(f"shapes {', '.join(map(spell, ranked))} have different ranks")
    axis = axis_of(call.integer("axis"), rank)
    shape = list(ranked[0])
    for other in ranked[1:]:
        for i in range(rank):
            if i != axis:
                shape[i] = agree(shape[i], other[i], f"the sizes of axis {i}")
    total: Size = 0
    for s in ranked:
        total = total + s[axis]
    shape[axis] = total if len(ranked) == len(shapes) else call.size_of_its_own("concat")
    return [call.tensor(tuple(shape))]


def split(call: OpCall) -> Types:
    """Parts along one axis: as the second input says, or equal ones of which the last may be smaller."""
    x = call.shape(0)
    if x is None:
        return [call.tensor(call.shape_of_its_own("split", i), i) for i in range(call.n_outputs)]
    axis = axis_of(call.integer("axis"), len(x))
    n, count = x[axis], call.integer("num_outputs") or call.n_outputs
    if count < call.n_outputs:
        raise ValueError(f"num_outputs is {count}, and there are {call.n_outputs} outputs")
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
        last = n - part * (count - 1)
        if isinstance(last, int) and last < 0:
            sizes = [max(0, min(part, n - part * i)) for i in range(call.n_outputs)]
        else:
            sizes = [part if i < count - 1 else last for i in range(call.n_outputs)]
    else:
        sizes = [n // count] * call.n_outputs
    return [call.tensor((*x[:axis], size, *x[axis + 1 :]), i) for i, size in enumerate(sizes)]


VIEWS: dict[str, Inference] = {
    "Concat": concat,
    "Expand": expand,
    "Flatten": flatten,
    "Pad": pad,
    "Reshape": reshape,
    "Slice": slice_,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
"""How to infer the types of an op's outputs."""
