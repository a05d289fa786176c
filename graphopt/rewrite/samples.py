"""How each op is called in examples: which operands and attributes give a result of a wanted shape.

The soundness check of rules makes small graphs from left sides, root first: an op is told what its
result should be and says what its operands should be. What it says is a wish. Types are inferred
afterwards, and what does not fit together is thrown away and drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

from graphopt.ir.dtypes import CODES

Shape = tuple[int, ...]


class Misfit(Exception):  # noqa: N818 - drawn again, no error
    """What was drawn does not fit together."""


@dataclass(frozen=True, slots=True)
class Want:
    """What a value should be, as far as it matters: None leaves it open. ``value`` are the elements of a constant."""

    shape: Shape | None = None
    dtype: str | None = None
    value: Any = None
    low: float | None = None
    high: float | None = None


ANY = Want()


@dataclass(frozen=True, slots=True)
class Operand:
    """What is known of an input before it is drawn: its elements, its shape and dtype where it is bound already."""

    value: Any = None
    shape: Shape | None = None
    dtype: str | None = None


@dataclass(slots=True)
class Sample:
    """One call that is being drawn: the op, what its result should be, and its inputs (None: absent).

    ``attr`` gives the value of an attribute: what the pattern says where it says so, a draw where it may be any.
    """

    random: Random
    op: str
    want: Want
    inputs: Sequence[Operand | None]
    attr: Callable[..., Any]
    ranks: Sequence[int] = ()
    strings: Sequence[str] = ()
    port: int = 0
    n_outputs: int = 1
    even: int | None = None
    """All axes are this long: so that a result with its axes mixed up has the right shape, and is seen to be wrong."""

    def chance(self, p: float) -> bool:
        """True with this probability."""
        return self.random.random() < p

    def pick(self, options: Sequence[Any]) -> Any:
        """One of the options."""
        return self.random.choice(list(options))

    def number(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return self.random.randint(low, high)

    def size(self) -> int:
        """A size of an axis."""
        return self.even or self.random.choice((1, 2, 2, 3, 3, 4))

    def shape(self, rank: int | None = None, least: int = 0) -> Shape:
        """The shape of the result: the wanted one where its rank fits, else a new one."""
        wanted = self.want.shape
        if wanted is not None and (rank is None or len(wanted) == rank) and len(wanted) >= least:
            return wanted
        return self.new_shape(rank, least)

    def new_shape(self, rank: int | None = None, least: int = 0) -> Shape:
        """Any small shape."""
        if rank is None:
            options = [r for r in (*self.ranks, 0, 1, 2, 2, 3, 3, 4) if r >= least]
            rank = self.pick(options or [least])
        return tuple(self.size() for _ in range(rank))

    def perm(self, rank: int) -> Shape:
        """A permutation."""
        order = list(range(rank))
        self.random.shuffle(order)
        if rank >= 2 and self.chance(0.3):
            order = [*range(rank - 2), rank - 1, rank - 2]
        return tuple(order)

    def axis(self, rank: int, extra: int = 0) -> int:
        """An axis, sometimes counted from the end."""
        if rank + extra <= 0:
            raise Misfit("no axis")
        axis = self.random.randrange(rank + extra)
        return axis - rank - extra if self.chance(0.3) else axis

    def axes(self, rank: int, least: int = 1) -> Shape:
        """Some axes."""
        if rank < least:
            raise Misfit("too few axes")
        chosen = self.random.sample(range(rank), self.number(least, max(least, min(rank, 2))))
        chosen = sorted(chosen)
        return tuple(a - rank if self.chance(0.2) else a for a in chosen)

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int, draw: Callable[[], Any]) -> Any:
        """The elements of a constant input: its own where it has some, else drawn."""
        operand = self.inputs[index] if index < len(self.inputs) else None
        known = None if operand is None else operand.value
        return draw() if known is None else known

    def bound(self, index: int) -> Shape | None:
        """The shape of an input that is bound already."""
        operand = self.inputs[index] if index < len(self.inputs) else None
        return None if operand is None else operand.shape


Sampler = Callable[[Sample], "list[Want]"]


def sampler_of(op: str, kind: str) -> Sampler:
    """How an op is drawn."""
    name = op.rpartition("::")[2]
    return SAMPLERS.get(name) or _KINDS.get(kind, same)


def _ints(value: Any) -> Shape:
    return tuple(value) if isinstance(value, tuple | list) else (int(value),)


def _normal(axes: Sequence[int], rank: int) -> list[int]:
    if any(not -rank <= a < rank for a in axes):
        raise Misfit("axis out of range")
    return [a % rank for a in axes]


# -- elementwise


def same(s: Sample) -> list[Want]:
    """Every input like the result."""
    shape = s.bound(0) or s.shape()
    return [Want(shape) for _ in s.inputs]


def narrower(s: Sample, shape: Shape) -> Shape:
    """A shape that broadcasts to this one."""
    way = s.random.random()
    if way < 0.3 or not shape:
        return shape
    if way < 0.45:
        return ()
    if way < 0.55:
        return (1,) * s.number(1, len(shape))
    if way < 0.8 and len(shape) >= 2:  # one number for each channel
        channel = (shape[1],) + (1,) * (len(shape) - 2)
        return channel if s.chance(0.5) else (1, *channel)
    cut = s.number(0, len(shape) - 1)
    return tuple(n if s.chance(0.6) else 1 for n in shape[cut:])


def broadcasting(s: Sample) -> list[Want]:
    """One input like the result, the others like it or narrower; those that are bound stay as they are."""
    shape = s.shape()
    full = [i for i, o in enumerate(s.inputs) if o is not None and o.shape == shape]
    open_ones = [i for i, o in enumerate(s.inputs) if o is not None and o.shape is None and o.value is None]
    wants = [Want(shape)] * len(s.inputs)
    keep = None if full or not open_ones else s.pick(open_ones)
    for i in open_ones:
        if i != keep:
            wants[i] = Want(narrower(s, shape))
    return wants


def where(s: Sample) -> list[Want]:
    """A condition and two values that broadcast."""
    wants = broadcasting(s)
    if s.chance(0.3):
        shape = wants[0].shape or ()
        total = 1
        for n in shape:
            total *= n
        wants[0] = replace(wants[0], value=_nested((s.chance(0.5),) * total, shape))
    return wants


def _nested(flat: Sequence[Any], shape: Shape) -> Any:
    if not shape:
        return flat[0]
    step = len(flat) // shape[0] if shape[0] else 0
    return tuple(_nested(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))


def clip(s: Sample) -> list[Want]:
    """A tensor and scalar bounds, mostly in order."""
    low = s.pick((0, 0, -1, 1, s.number(-3, 3)))
    high = low + s.pick((1, 1, 2, 6, 0, -1))
    return [Want(s.shape()), Want((), value=low), Want((), value=high)][: len(s.inputs)]


def cast(s: Sample) -> list[Want]:
    """A cast to the wanted dtype."""
    s.attr(
        "to", CODES[s.want.dtype or "float32"], lambda: CODES[s.want.dtype or s.pick(("float32", "int64", "float16"))]
    )
    source = s.pick(("float32", "float32", "int32", "int64", "float16", "bool", "float64"))
    return [Want(s.shape(), source)]


def cast_like(s: Sample) -> list[Want]:
    """A cast to the dtype of another tensor."""
    return [Want(s.shape(), s.pick(("float32", "int64", "float16"))), Want((), s.want.dtype)]


def slope(s: Sample) -> list[Want]:
    """PRelu: a tensor, and slopes that broadcast to it."""
    shape = s.shape()
    return [Want(shape), Want(narrower(s, shape))]


def leaky(s: Sample) -> list[Want]:
    """An op of one input whose float attributes are drawn."""
    for name in ("alpha", "beta"):
        s.attr(name, None, lambda: s.pick((0.5, 0.25, 2.0)))
    return [Want(s.shape())]


# -- products and convolutions


def matmul(s: Sample) -> list[Want]:
    """Matrices, sometimes stacked."""
    left, right = s.bound(0), s.bound(1)
    if s.want.shape is None and s.chance(0.1):
        k = s.size()
        return [Want((k,)), Want((k, s.size()))] if s.chance(0.5) else [Want((s.size(), k)), Want((k,))]
    shape = s.shape(None, 2) if s.chance(0.5) or s.want.shape else s.new_shape(2)
    k = left[-1] if left else right[-2] if right and len(right) > 1 else s.size()
    batch = shape[:-2]
    a: Shape = (*batch, shape[-2], k)
    b: Shape = (k, shape[-1]) if s.chance(0.6) else (*batch, k, shape[-1])
    return [Want(a), Want(b)]


def gemm(s: Sample) -> list[Want]:
    """Two matrices, transposed or not, and what is added."""
    m, n = s.shape(2)
    trans_a = s.attr("transA", 0, lambda: s.number(0, 1))
    trans_b = s.attr("transB", 0, lambda: s.number(0, 1))
    for name in ("alpha", "beta"):
        s.attr(name, 1.0, lambda: s.pick((1.0, 0.5, 2.0)))
    left = s.bound(0)
    k = left[0 if trans_a else 1] if left and len(left) == 2 else s.size()
    added = s.pick(((n,), (n,), (1, n), (m, n), (m, 1), (), (1,)))
    return [Want((k, m) if trans_a else (m, k)), Want((n, k) if trans_b else (k, n)), Want(added)][: len(s.inputs)]


def _window(s: Sample, n: int, kernel: Shape) -> tuple[Shape, Shape, Shape]:
    """Strides, dilations and pads."""
    auto = s.attr("auto_pad", "NOTSET", lambda: s.pick(("NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER")))
    strides = s.attr("strides", None, lambda: tuple(s.pick((1, 1, 2)) for _ in range(n))) or (1,) * n
    dilations = s.attr("dilations", None, lambda: tuple(s.pick((1, 1, 1, 2)) for _ in range(n))) or (1,) * n
    fixed = s.attr("pads", None, lambda: None if auto != "NOTSET" else tuple(s.pick((0, 0, 1)) for _ in range(2 * n)))
    pads = fixed or (0,) * (2 * n)
    return strides, dilations, pads


def _span(size: int, kernel: int, stride: int, dilation: int, pads: int) -> int:
    """An input size for an output size."""
    return max((size - 1) * stride + dilation * (kernel - 1) + 1 - pads, 1)


def conv(s: Sample) -> list[Want]:
    """An image, a kernel and a bias."""
    bound = s.bound(0)
    shape = s.shape(s.pick((3, 4, 4, 4)) if not s.want.shape or len(s.want.shape) < 3 else None, 3)
    n = (len(bound) if bound else len(shape)) - 2
    if n < 1:
        raise Misfit("a convolution needs a spatial axis")
    kernel = tuple(s.pick((1, 1, 2, 3)) for _ in range(n))
    strides, dilations, pads = _window(s, n, kernel)
    group = s.attr("group", 1, lambda: s.pick((1, 1, 2, 3)))
    if bound:
        channels = bound[1]
    else:
        channels = group * s.pick((1, 1, 2))
        sizes = zip(shape[2:], kernel, strides, dilations, range(n), strict=True)
        spatial = tuple(_span(o, k, t, d, pads[i] + pads[i + n]) for o, k, t, d, i in sizes)
        bound = (shape[0], channels, *spatial)
    filters = shape[1] if shape[1] % group == 0 else group
    if channels % group:
        raise Misfit("channels do not split into groups")
    return [Want(bound), Want((filters, channels // group, *kernel)), Want((filters,))][: len(s.inputs)]


def conv_transpose(s: Sample) -> list[Want]:
    """An image, a kernel and a bias, the other way round."""
    n = s.pick((1, 2, 2))
    kernel = tuple(s.pick((1, 2, 3)) for _ in range(n))
    s.attr("strides", None, lambda: tuple(s.pick((1, 1, 2)) for _ in range(n)))
    s.attr("pads", None, lambda: None)
    group = s.attr("group", 1, lambda: s.pick((1, 1, 2)))
    channels, filters = group * s.number(1, 2), group * s.number(1, 2)
    image = (s.size(), channels, *(s.number(2, 4) for _ in range(n)))
    return [Want(image), Want((channels, filters // group, *kernel)), Want((filters,))][: len(s.inputs)]


def pool(s: Sample) -> list[Want]:
    """An image; the window is an attribute."""
    shape = s.shape(s.pick((3, 4, 4)) if not s.want.shape or len(s.want.shape) < 3 else None, 3)
    n = len(shape) - 2
    kernel = s.attr("kernel_shape", None, lambda: tuple(s.pick((1, 2, 3)) for _ in range(n)))
    if kernel is None:
        return [Want(shape)]
    strides, dilations, pads = _window(s, n, kernel)
    pads = tuple(min(p, k - 1) for p, k in zip(pads, kernel * 2, strict=True))
    s.attr("count_include_pad", 0, lambda: s.number(0, 1))
    sizes = zip(shape[2:], kernel, strides, dilations, range(n), strict=True)
    return [Want((*shape[:2], *(_span(o, k, t, d, pads[i] + pads[i + n]) + 1 for o, k, t, d, i in sizes)))]


def batch_norm(s: Sample) -> list[Want]:
    """A tensor, and four numbers for each channel."""
    shape = s.shape(None, 2)
    s.attr("epsilon", 1e-5, lambda: s.pick((1e-5, 1e-3, 0.5)))
    channel = Want((shape[1],))
    return [Want(shape), channel, channel, channel, replace(channel, low=0.2, high=2.0)]


def layer_norm(s: Sample) -> list[Want]:
    """A tensor, and a scale and a bias of the normalized axes."""
    shape = s.shape(None, 1)
    axis = s.attr("axis", -1, lambda: s.axis(len(shape)))
    s.attr("epsilon", 1e-5, lambda: s.pick((1e-5, 1e-3)))
    tail = Want(shape[axis:] if -len(shape) <= axis < len(shape) else shape[-1:])
    return [Want(shape), tail, tail][: len(s.inputs)]


def skip_layer_norm(s: Sample) -> list[Want]:
    """Two tensors that are added, and a scale and a bias of the last axis."""
    shape = s.shape(3)
    tail = Want(shape[-1:])
    return [Want(shape), Want(shape), tail, tail, tail][: len(s.inputs)]


def instance_norm(s: Sample) -> list[Want]:
    """A tensor, and a scale and a bias for each channel."""
    shape = s.shape(None, 3)
    s.attr("num_groups", None, lambda: 1)
    return [Want(shape), Want((shape[1],)), Want((shape[1],))]


def lrn(s: Sample) -> list[Want]:
    """An image normalized across channels."""
    s.attr("size", 3, lambda: s.pick((1, 3, 5)))
    for name, default in (("alpha", 0.5), ("beta", 0.75), ("bias", 1.0)):
        s.attr(name, default, lambda d=default: s.pick((d, 1.0, 0.5)))
    return [Want(s.shape(4))]


def einsum(s: Sample) -> list[Want]:
    """Operands that fit the equation; equations that a guard names come first."""
    known = [e for e in s.strings if "->" in e and e.split("->")[0].count(",") == len(s.inputs) - 1]
    more = ["ij->ji", "ijk->kij", "bij->bji"] if len(s.inputs) == 1 else ["ij,jk->ik", "bij,bjk->bik", "ij,kj->ik"]
    equation = s.attr("equation", "", lambda: s.pick(known + more))
    sizes: dict[str, int] = {}
    extra = s.new_shape(s.number(0, 2))
    wants = []
    for part in equation.replace(" ", "").split("->")[0].split(","):
        head, dots, tail = part.partition("...")
        letters = [sizes.setdefault(c, s.size()) for c in head]
        wants.append(Want((*letters, *(extra if dots else ()), *(sizes.setdefault(c, s.size()) for c in tail))))
    return wants


# -- movement


def transpose(s: Sample) -> list[Want]:
    """A tensor with its axes in another order."""
    rank = len(s.want.shape) if s.want.shape is not None else len(s.new_shape())
    default = tuple(reversed(range(rank)))
    perm = s.attr("perm", default, lambda: s.perm(rank)) or default
    shape = s.shape(len(perm))
    before = [0] * len(perm)
    for place, source in enumerate(perm):
        before[source] = shape[place]
    return [Want(tuple(before))]


def refactored(s: Sample, shape: Shape) -> Shape:
    """Another shape with as many elements."""
    if s.chance(0.25):
        return shape
    total = 1
    for n in shape:
        total *= n
    if total == 0:
        return shape
    sizes: list[int] = []
    while total > 1 and len(sizes) < 3:
        divisor = s.pick([d for d in range(1, total + 1) if total % d == 0])
        sizes.append(divisor)
        total //= divisor
    if total > 1 or s.chance(0.2):
        sizes.insert(s.number(0, len(sizes)), total)
    return tuple(sizes)


def reshape(s: Sample) -> list[Want]:
    """A tensor with as many elements, and the shape."""
    s.attr("allowzero", 0, lambda: 0)
    target = s.inputs[1].value if s.has(1) and s.inputs[1] is not None else None
    shape = s.shape() if target is None else tuple(n if n > 0 else s.size() for n in _ints(target))
    before = s.bound(0) or refactored(s, shape)
    if s.bound(0) is not None and target is None:
        shape = refactored(s, before)
    written = [*shape]
    for i, n in enumerate(shape):
        if i < len(before) and before[i] == n and s.chance(0.2):
            written[i] = 0
    if written and 0 not in shape and s.chance(0.3):
        written[s.number(0, len(written) - 1)] = -1
    return [Want(before), Want((len(shape),), "int64", tuple(written))]


def flatten(s: Sample) -> list[Want]:
    """A tensor of any rank that becomes a matrix."""
    shape = s.new_shape(None, 1) if s.want.shape is None or len(s.want.shape) != 2 else s.want.shape
    if s.want.shape is not None and len(s.want.shape) == 2 and s.chance(0.6):
        a, b = s.want.shape
        head, tail = ((a,), refactored(s, (b,))) if s.chance(0.5) else (refactored(s, (a,)), (b,))
        shape = head + tail
        axis = s.attr("axis", 1, lambda: len(head))
    else:
        axis = s.attr("axis", 1, lambda: s.axis(len(shape), 1) if s.chance(0.5) else 1)
    return [Want(shape if axis <= len(shape) else (1, *shape))]


def squeeze(s: Sample) -> list[Want]:
    """A tensor with more axes of size one."""
    shape = s.shape()
    if not s.has(1):
        if s.chance(0.3) and 1 not in shape:
            return [Want(shape)]
        count = s.number(1, 2)
        axes: Sequence[int] = sorted(s.random.sample(range(len(shape) + count), count))
    else:
        count = s.number(0 if s.chance(0.2) else 1, 2)
        axes = _ints(s.value(1, lambda: s.axes(len(shape) + count, count)[:count] if count else ()))
    rank = len(shape) + len(axes)
    ones = set(_normal(axes, rank))
    rest = iter(shape)
    before = tuple(1 if i in ones else next(rest) for i in range(rank))
    return [Want(before), Want((len(axes),), "int64", tuple(axes))][: len(s.inputs)]


def unsqueeze(s: Sample) -> list[Want]:
    """A tensor with fewer axes; the wanted axes of size one are those that are new, where there are some."""
    known = s.inputs[1].value if s.has(1) and s.inputs[1] is not None else None
    shape = s.shape()
    if known is None and s.chance(0.12):
        return [Want(shape), Want((0,), "int64", ())]
    ones = [i for i, n in enumerate(shape) if n == 1]
    if known is None and not ones:
        shape = s.new_shape(None, 1)
        ones = list(s.axes(len(shape)))
    axes = _ints(known) if known is not None else tuple(s.random.sample(ones, s.number(1, min(2, len(ones)))))
    if len(shape) < len(axes):
        shape = (1,) * len(axes)
    gone = set(_normal(axes, len(shape)))
    before = tuple(n for i, n in enumerate(shape) if i not in gone)
    return [Want(before), Want((len(axes),), "int64", tuple(sorted(axes)))]


def slice_(s: Sample) -> list[Want]:
    """A part of a larger tensor."""
    shape = s.bound(0) or s.shape(None, 1)
    rank = len(shape)
    axes = _ints(s.value(3, lambda: s.axes(rank))) if s.has(3) else tuple(range(s.number(1, rank)))
    before, starts, ends, steps = list(shape), [], [], []
    for axis in _normal(axes, rank):
        size = shape[axis]
        step = s.pick((1, 1, 2, -1)) if s.has(4) else 1
        if s.bound(0) is None:
            start, more = s.pick((0, 0, 1, 2)), s.pick((0, 0, 1, 2))
            if s.chance(0.25):
                start, more, step = 0, 0, 1
            before[axis] = start + (size - 1) * abs(step) + 1 + more if size else start + more
        else:
            start = s.number(0, size - 1) if size and s.chance(0.5) else 0
            more = s.number(0, max(size - start - 1, 0)) if s.chance(0.5) else 0
            size = max(size - start - more, 0)
        length = before[axis]
        if step > 0:
            end = min(start + (size - 1) * step + 1, length) if size else start
            if end >= length and s.chance(0.4):
                end = 2**63 - 1
            elif s.chance(0.2) and 0 < end < length:
                end -= length
        else:
            start, end = length - 1 - start, max(length - 1 - start - (size - 1) * abs(step) - 1, -1)
            end = -(2**63) + 1 if end < 0 else end
        starts.append(start)
        ends.append(end)
        steps.append(step)
    n = (len(axes),)
    given = [tuple(starts), tuple(ends), tuple(axes), tuple(steps)]
    return [Want(tuple(before)), *(Want(n, "int64", v) for v in given)][: len(s.inputs)]


def concat(s: Sample) -> list[Want]:
    """Parts that lie one after another."""
    n = len(s.inputs)
    if isinstance(s.want.value, tuple) and s.want.value and len(s.want.value) >= n:
        cuts = [0, *sorted(s.random.sample(range(1, len(s.want.value)), n - 1)), len(s.want.value)]
        s.attr("axis", 0, lambda: 0)
        parts = [s.want.value[a:b] for a, b in pairwise(cuts)]
        return [Want((len(p),), "int64", p) for p in parts]
    shape = s.shape(None, 1)
    axis = s.attr("axis", 0, lambda: s.axis(len(shape)))
    if not -len(shape) <= axis < len(shape):
        shape = s.new_shape(abs(axis) + 1)
    wants = []
    for _ in range(n):
        part = list(shape)
        part[axis] = s.pick((1, 1, 2, 3, 0) if s.chance(0.3) else (1, 1, 2))
        wants.append(Want(tuple(part)))
    return wants


def split(s: Sample) -> list[Want]:
    """A tensor that falls into parts."""
    shape = list(s.bound(0) or s.shape(None, 1))
    axis = s.attr("axis", 0, lambda: s.axis(len(shape)))
    if not -len(shape) <= axis < len(shape):
        raise Misfit("axis out of range")
    sizes = tuple(s.size() for _ in range(s.n_outputs))
    if s.has(1):
        sizes = _ints(s.value(1, lambda: sizes))
        shape[axis] = sum(sizes)
    else:
        s.attr("num_outputs", None, lambda: s.n_outputs)
        shape[axis] = s.n_outputs * s.number(1, 2)
    return [Want(tuple(shape)), Want((len(sizes),), "int64", sizes)][: len(s.inputs)]


def pad(s: Sample) -> list[Want]:
    """A tensor, and how many elements are put around it."""
    shape = s.bound(0) or s.shape(None, 1)
    rank = len(shape)
    mode = s.attr("mode", "constant", lambda: s.pick(("constant", "constant", "edge")))
    axes = _ints(s.value(3, lambda: s.axes(rank))) if s.has(3) else tuple(range(rank))
    spatial = s.chance(0.5) and rank > 2
    begin = [0 if (a % rank < 2 and spatial) else s.pick((0, 0, 1, 2)) for a in axes]
    end = [0 if (a % rank < 2 and spatial) else s.pick((0, 0, 1, 2)) for a in axes]
    if s.chance(0.25):
        begin, end = [0] * len(axes), [0] * len(axes)
    pads = _ints(s.value(1, lambda: tuple(begin + end)))
    if mode != "constant" and 0 in shape:
        raise Misfit("an empty tensor has no edge")
    wants = [Want(shape), Want((len(pads),), "int64", pads), Want(()), Want((len(axes),), "int64", axes)]
    return wants[: len(s.inputs)]


def expand(s: Sample) -> list[Want]:
    """A tensor that is repeated to a shape."""
    shape = s.shape()
    before = shape if s.chance(0.3) else narrower(s, shape)
    written = tuple(
        1 if n == m and s.chance(0.2) else n
        for n, m in zip(shape, (0,) * (len(shape) - len(before)) + before, strict=True)
    )
    return [Want(before), Want((len(shape),), "int64", written)]


def tile(s: Sample) -> list[Want]:
    """A tensor, and how often each axis is repeated."""
    shape = s.shape()
    repeats = tuple(1 if s.chance(0.5) else 2 for _ in shape)
    if s.chance(0.3):
        repeats = (1,) * len(shape)
    before = tuple(max(n // r, 1) for n, r in zip(shape, repeats, strict=True))
    return [Want(before), Want((len(shape),), "int64", repeats)]


def gather(s: Sample) -> list[Want]:
    """A tensor, and which of its slices are taken."""
    data = s.bound(0) or s.new_shape(None, 1)
    axis = s.attr("axis", 0, lambda: s.axis(len(data)))
    if not -len(data) <= axis < len(data):
        raise Misfit("axis out of range")
    size = data[axis]
    way = s.random.random()
    if size == 0:
        raise Misfit("nothing to gather")
    index: Any = s.number(0, size - 1)
    if way < 0.3:
        index = tuple(range(size))
    elif way < 0.5:
        start = s.number(0, size - 1)
        index = tuple(range(start, s.number(start, size - 1) + 1))
    elif way < 0.7:
        index = tuple(s.number(-size, size - 1) for _ in range(s.number(1, 3)))
    elif way < 0.8:
        index = ((0, size - 1),)
    return [Want(data), Want(_shape_of(index), "int64", index, low=0, high=size - 1)]


def gather_nd(s: Sample) -> list[Want]:
    """A tensor, and the places of elements or slices."""
    data = s.bound(0) or s.new_shape(None, 1)
    s.attr("batch_dims", 0, lambda: 0)
    depth = 1 if s.chance(0.6) else s.number(1, len(data))
    index = tuple(tuple(s.number(0, data[d] - 1) for d in range(depth)) for _ in range(s.size()))
    return [Want(data), Want(_shape_of(index), "int64", index)]


def gather_elements(s: Sample) -> list[Want]:
    """A tensor, and an index for each element of the result."""
    data = s.bound(0) or s.new_shape(None, 1)
    axis = s.attr("axis", 0, lambda: s.axis(len(data)))
    return [Want(data), Want(data, "int64", low=0, high=data[axis] - 1)]


def _shape_of(value: Any) -> Shape:
    return (len(value), *(_shape_of(value[0]) if value else ())) if isinstance(value, tuple) else ()


def one_hot(s: Sample) -> list[Want]:
    """Indices, how many classes there are, and the two values."""
    s.attr("axis", -1, lambda: -1)
    depth = s.size()
    shape = s.shape(None, 1)[:-1]
    values = Want((2,), value=(0.0, 1.0) if s.chance(0.7) else (-1.0, 2.0))
    return [Want(shape, "int64", low=0, high=depth - 1), Want((), "int64", depth), values]


def shape_of(s: Sample) -> list[Want]:
    """A tensor of which only the shape matters."""
    if isinstance(s.want.value, tuple):
        return [Want(s.want.value)]
    shape = s.new_shape()
    s.attr("start", 0, lambda: s.number(-len(shape), len(shape)))
    s.attr("end", None, lambda: s.pick((None, s.number(-len(shape), len(shape)))))
    return [Want(shape)]


def constant_of_shape(s: Sample) -> list[Want]:
    """A shape."""
    shape = s.shape()
    return [Want((len(shape),), "int64", shape)]


def resize(s: Sample) -> list[Want]:
    """An image that changes its size by whole factors."""
    shape = s.shape(4)
    s.attr("mode", "nearest", lambda: s.pick(("nearest", "linear")))
    s.attr("coordinate_transformation_mode", "half_pixel", lambda: s.pick(("half_pixel", "asymmetric")))
    factors = (1, 1, 1, 1) if s.chance(0.4) else (1, 1, s.number(1, 2), s.number(1, 2))
    target = tuple(n * f for n, f in zip(shape, factors, strict=True))
    scales = Want((4,), "float32", tuple(map(float, factors)))
    return [Want(shape), Want((0,), "float32", ()), scales, Want((4,), "int64", target)][: len(s.inputs)]


def space(s: Sample) -> list[Want]:
    """An image whose blocks become channels, or the other way round."""
    block = s.attr("blocksize", 2, lambda: 2)
    if s.op == "DepthToSpace":
        s.attr("mode", "DCR", lambda: s.pick(("DCR", "CRD")))
        return [Want((1, block * block * s.number(1, 2), s.size(), s.size()))]
    return [Want((1, s.number(1, 2), block * s.size(), block * s.size()))]


# -- reductions


def reduce(s: Sample) -> list[Want]:
    """A tensor with the axes that are reduced."""
    keep = s.attr("keepdims", 1, lambda: s.number(0, 1))
    shape = s.bound(0) or s.shape()
    if not s.has(1):
        if s.bound(0) is None and s.chance(0.3):
            shape = (1,) * len(shape)
        return [Want(shape)]
    least = 0 if s.chance(0.1) else 1
    if s.bound(0) is not None or keep:
        if not shape:
            shape = s.new_shape(None, 1)
        axes = _ints(
            s.value(1, lambda: (s.pick((-1, len(shape) - 1)),) if s.chance(0.4) else _spatial_or(s, shape, least))
        )
        before = list(shape)
        single = s.chance(0.25)
        for axis in _normal(axes, len(shape)):
            if s.bound(0) is None:
                before[axis] = 1 if single else s.size()
        return [Want(tuple(before)), Want((len(axes),), "int64", tuple(axes))]
    count = s.number(1, 2)
    axes = _ints(s.value(1, lambda: s.axes(len(shape) + count, count)[:count]))
    rank = len(shape) + len(axes)
    gone, rest = set(_normal(axes, rank)), iter(shape)
    before = [s.size() if i in gone else next(rest) for i in range(rank)]
    return [Want(tuple(before)), Want((len(axes),), "int64", tuple(axes))]


def _spatial_or(s: Sample, shape: Shape, least: int) -> Shape:
    if len(shape) > 2 and s.chance(0.4):
        return tuple(range(2, len(shape)))
    return s.axes(len(shape), least)


def along_axis(s: Sample) -> list[Want]:
    """A tensor, and the axis that an attribute names."""
    shape = s.bound(0) or s.shape(None, 1)
    s.attr("axis", None, lambda: s.axis(len(shape)))
    s.attr("keepdims", 1, lambda: s.number(0, 1))
    s.attr("select_last_index", 0, lambda: s.number(0, 1))
    return [Want(shape)]


def top_k(s: Sample) -> list[Want]:
    """A tensor, and how many of its largest elements are wanted."""
    shape = s.shape(None, 1)
    axis = s.attr("axis", -1, lambda: s.axis(len(shape)))
    return [Want(shape), Want((1,), "int64", (s.number(1, shape[axis]),))]


def cum_sum(s: Sample) -> list[Want]:
    """A tensor and an axis."""
    shape = s.shape(None, 1)
    return [Want(shape), Want((), "int64", s.axis(len(shape)))]


def dropout(s: Sample) -> list[Want]:
    """A tensor, a ratio, and whether this is training: no."""
    s.attr("seed", None, lambda: s.pick((None, 7)))
    return [Want(s.shape()), Want((), "float32", 0.5), Want((), "bool", False)][: len(s.inputs)]


def quantize(s: Sample) -> list[Want]:
    """A tensor, a scale and a zero point."""
    return [Want(s.shape()), Want((), value=0.25), Want((), value=s.number(0, 5))][: len(s.inputs)]


def sequence_at(s: Sample) -> list[Want]:
    """A sequence and a position."""
    return [ANY, Want((), "int64", 0)]


def range_(s: Sample) -> list[Want]:
    """Start, limit and step."""
    size = s.shape(1)[0]
    return [Want((), value=0), Want((), value=size), Want((), value=1)]


SAMPLERS: dict[str, Sampler] = {
    "MatMul": matmul, "FusedMatMul": matmul, "Gemm": gemm, "Conv": conv, "ConvTranspose": conv_transpose,
    "MaxPool": pool, "AveragePool": pool, "GlobalAveragePool": pool, "GlobalMaxPool": pool, "LpPool": pool,
    "BatchNormalization": batch_norm, "LayerNormalization": layer_norm, "RMSNormalization": layer_norm,
    "SimplifiedLayerNormalization": layer_norm, "SkipLayerNormalization": skip_layer_norm,
    "InstanceNormalization": instance_norm, "GroupNormalization": instance_norm, "LRN": lrn, "Einsum": einsum,
    "Transpose": transpose, "Reshape": reshape, "Flatten": flatten, "Squeeze": squeeze, "Unsqueeze": unsqueeze,
    "Slice": slice_, "Concat": concat, "Split": split, "Pad": pad, "Expand": expand, "Tile": tile, "Gather": gather,
    "GatherND": gather_nd, "GatherElements": gather_elements, "OneHot": one_hot, "Shape": shape_of, "Size": shape_of,
    "ConstantOfShape": constant_of_shape, "Resize": resize, "DepthToSpace": space, "SpaceToDepth": space,
    "Softmax": along_axis, "LogSoftmax": along_axis, "ArgMax": along_axis, "ArgMin": along_axis,
    "Hardmax": along_axis, "LpNormalization": along_axis, "TopK": top_k, "CumSum": cum_sum, "Where": where,
    "Clip": clip, "Cast": cast, "CastLike": cast_like, "PRelu": slope, "LeakyRelu": leaky, "HardSigmoid": leaky,
    "Elu": leaky, "Selu": leaky, "Swish": leaky, "ThresholdedRelu": leaky, "Dropout": dropout,
    "QuantizeLinear": quantize, "DequantizeLinear": quantize, "SequenceAt": sequence_at, "Range": range_,
}  # fmt: skip
"""How ops are drawn that need more than operands of one shape."""

_KINDS: dict[str, Sampler] = {"unary": same, "binary": broadcasting, "elementwise": broadcasting, "reduce": reduce}
