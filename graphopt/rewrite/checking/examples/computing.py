"""Samplers of ops that compute: elementwise ones, products, windows, norms and reductions. The table in ``samplers``
names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graphopt.ir.dtypes import CODES
from graphopt.rewrite.checking.examples.sample import ANY, Misfit, Sample, StaticShape, Want, ints, normal

# -- elementwise


def same(s: Sample) -> list[Want]:
    """Every input like the result."""
    shape = s.bound(0) or s.shape()
    return [Want(shape) for _ in s.inputs]


def narrower(s: Sample, shape: StaticShape) -> StaticShape:
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
    made = [i for i in open_ones if s.op_of(i)]  # of what is computed less is often wrong
    keep = None if full or not open_ones else s.pick(made if made and s.chance(0.7) else open_ones)
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


def _nested(flat: Sequence[Any], shape: StaticShape) -> Any:
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
    if not left and not right and s.even is None and s.chance(0.05 if s.op_of(1) != "DequantizeLinear" else 0.3):
        k = s.pick((2 * BLOCKS[0], *BLOCKS[:4]))  # blocks of weights divide it
    batch = shape[:-2]
    a: StaticShape = (*batch, shape[-2], k)
    b: StaticShape = (k, shape[-1]) if s.chance(0.6) else (*batch, k, shape[-1])
    return [Want(a), Want(b)]


def integer_product(s: Sample) -> list[Want]:
    """Matrices of integers, a scale and a zero point of the first, and one or one for each column of the second."""
    a, b = matmul(s)
    column: StaticShape = (b.shape or ())[-1:]
    scale, zero = (Want(s.pick(((), (1,), column)), low=low) for low in (0.1, 0))
    return [a, b, Want((), low=0.1), scale, Want(()), zero, Want(column)][: len(s.inputs)]


def attention(s: Sample) -> list[Want]:
    """Queries, and keys and values with as many heads or fewer; a mask."""
    heads, rows, width, columns = s.size(), s.size(), s.size(), s.size()
    batch, groups = s.size(), s.pick((1, heads))
    wanted = s.want.shape if s.want.shape is not None and len(s.want.shape) == 4 else (batch, heads, rows, width)
    q = s.bound(0) or (*wanted[:3], width)
    s.attr("scale", None, lambda: s.pick((None, 0.5, 1.0)))
    s.attr("softcap", 0.0, lambda: s.pick((0.0, 0.0, 1.0)))
    s.attr("is_causal", 0, lambda: s.pick((0, 0, 1)))
    k = s.bound(1) or (q[0], groups if groups == 1 else q[1], columns, q[-1])
    v = s.bound(2) or (*k[:3], wanted[3])
    return [Want(q), Want(k), Want(v), Want((q[-2], k[-2]))][: len(s.inputs)]


def multi_head(s: Sample) -> list[Want]:
    """Queries, keys and values with heads side by side; a mask; as many of the past."""
    heads = s.attr("num_heads", None, lambda: s.number(1, 3)) or 1
    s.attr("scale", None, lambda: s.pick((None, 0.5, 1.0)))
    s.attr("unidirectional", 0, lambda: s.pick((0, 0, 1)))
    wanted = s.want.shape if s.want.shape is not None and len(s.want.shape) == 3 else (s.size(), s.size(), heads)
    batch, rows, width = s.bound(0) or (*wanted[:2], heads * s.size())
    columns = s.pick((rows, s.size()))
    k = Want((batch, columns, width))
    absent = Want((width,))
    return [Want((batch, rows, width)), k, k, absent, absent, Want((1, 1, rows, columns))][: len(s.inputs)]


def rotary(s: Sample) -> list[Want]:
    """Heads of an even width, and half as many angles for each of their places."""
    wanted = s.want.shape if s.want.shape is not None and len(s.want.shape) == 4 else None
    batch, heads, rows, width = s.bound(0) or wanted or (s.size(), s.size(), s.size(), 2 * s.size())
    width += width % 2
    s.attr("interleaved", 0, lambda: s.pick((0, 1)))
    if s.op.startswith("com.microsoft"):
        angles = Want((rows, width // 2))
        return [Want((batch, heads, rows, width)), Want((1,), "int64", (0,)), angles, angles]
    angles = Want((batch, rows, width // 2))
    return [Want((batch, heads, rows, width)), angles, angles][: len(s.inputs)]


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


def _window(
    s: Sample, n: int, kernel: StaticShape, narrow: bool = False
) -> tuple[StaticShape, StaticShape, StaticShape]:
    """Strides, dilations and pads: ``narrow`` ones, where no window may lie in pads alone."""
    auto = s.attr("auto_pad", "NOTSET", lambda: s.pick(("NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER")))
    strides = s.attr("strides", None, lambda: tuple(s.pick((1, 1, 2)) for _ in range(n))) or (1,) * n
    dilations = s.attr("dilations", None, lambda: tuple(s.pick((1, 1, 1, 2)) for _ in range(n))) or (1,) * n
    most = tuple(k - 1 for k in kernel * 2) if narrow else (1,) * (2 * n)
    fixed = s.attr("pads", None, lambda: None if auto != "NOTSET" else tuple(min(s.pick((0, 0, 1)), m) for m in most))
    pads = fixed or (0,) * (2 * n)
    return strides, dilations, pads


def _span(size: int, kernel: int, stride: int, dilation: int, pads: int) -> int:
    """An input size for an output size."""
    return max((size - 1) * stride + dilation * (kernel - 1) + 1 - pads, 1)


def conv(s: Sample) -> list[Want]:
    """An image, a kernel and a bias."""
    bound, weights = s.bound(0), s.bound(1) if len(s.inputs) > 1 else None
    shape = s.shape(s.pick((3, 4, 4, 4, 4, 5)) if not s.want.shape or len(s.want.shape) < 3 else None, 3)
    n = len(bound or weights or shape) - 2
    if n < 1:
        raise Misfit("a convolution needs a spatial axis")
    kernel = weights[2:] if weights else tuple(s.pick((1, 1, 2, 3)) for _ in range(n))
    if n == 2 and not bound and not weights and s.chance(0.2):  # one row, or one column, of some length
        row = s.number(0, 1)
        shape = (*shape[:2], *(1 if i == row else s.number(1, 9) for i in range(n)))
        kernel = tuple(1 if i == row else s.number(2, 5) for i in range(n))
    strides, dilations, pads = _window(s, n, kernel)
    group = s.attr("group", 1, lambda: s.pick((1, 1, 2, 3)))
    if len(shape) != n + 2 or len(kernel) != n or len(pads) != 2 * n:
        raise Misfit("a convolution of images of another rank")
    if bound:
        channels = bound[1]
        if s.want.shape is None and s.chance(0.5):
            shape = (shape[0], channels, *shape[2:])
    else:
        channels = group * (weights[1] if weights else s.pick((1, 1, 2)))
        sizes = zip(shape[2:], kernel, strides, dilations, range(n), strict=True)
        spatial = tuple(_span(o, k, t, d, pads[i] + pads[i + n]) for o, k, t, d, i in sizes)
        bound = (shape[0], channels, *spatial)
    filters = weights[0] if weights else shape[1] if shape[1] % group == 0 else group
    if channels % group:
        raise Misfit("channels do not split into groups")
    return [Want(bound), Want((filters, channels // group, *kernel)), Want((filters,))][: len(s.inputs)]


def conv_integer(s: Sample) -> list[Want]:
    """An image, a kernel and their zero points, the kernel's for each filter or for all."""
    image, kernel, *_ = conv(s)
    assert kernel.shape is not None
    return [image, kernel, Want(()), Want(s.pick(((), kernel.shape[:1])))][: len(s.inputs)]


def conv_transpose(s: Sample) -> list[Want]:
    """An image, a kernel and a bias, the other way round; often windows that do not overlap, of many channels."""
    bound, weights = s.bound(0), s.bound(1) if len(s.inputs) > 1 else None
    n = len(bound or weights or (1,) * s.pick((3, 4, 4))) - 2
    if n < 1:
        raise Misfit("a convolution needs a spatial axis")
    kernel = weights[2:] if weights else tuple(s.pick((1, 2, 3)) for _ in range(n))
    s.attr("kernel_shape", None, lambda: kernel)
    s.attr("strides", None, lambda: kernel if s.chance(0.5) else tuple(s.pick((1, 1, 2)) for _ in range(n)))
    s.attr("pads", None, lambda: s.pick((None, (0,) * (2 * n))))
    group = s.attr("group", 1, lambda: s.pick((1, 1, 2)))
    most = 17 if group == 1 and s.chance(0.5) else 2
    channels, filters = (group * s.number(1, most) for _ in range(2))
    image = bound or (s.size(), weights[0] if weights else channels, *(s.number(2, 4) for _ in range(n)))
    each = weights or (image[1], filters // group, *kernel)
    return [Want(image), Want(each), Want((each[1] * group,))][: len(s.inputs)]


def pool(s: Sample) -> list[Want]:
    """An image; the window is an attribute."""
    shape = s.shape(s.pick((3, 4, 4)) if not s.want.shape or len(s.want.shape) < 3 else None, 3)
    n = len(shape) - 2
    kernel = s.attr("kernel_shape", None, lambda: tuple(s.pick((1, 2, 3)) for _ in range(n)))
    if kernel is None:
        return [Want(shape)]
    strides, dilations, pads = _window(s, n, kernel, narrow=True)
    if any(p >= k for p, k in zip(pads, kernel * 2, strict=False)):
        raise Misfit("a window of nothing but pads")
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
    s.attr("epsilon", 1e-5, lambda: s.pick((1e-5, 1e-3, 0.5)))
    return [Want(shape), Want((shape[1],)), Want((shape[1],))]


def dft(s: Sample) -> list[Want]:
    """Rows of real or complex numbers, no other length, and the axis of a Fourier transform."""
    rank, length = s.number(3, 4), s.number(1, 9)
    s.attr("inverse", 0, lambda: s.pick((0, 0, 1)))
    s.attr("onesided", 0, lambda: s.pick((0, 1)))
    shape = (*s.new_shape(rank - 2), length, s.pick((1, 1, 1, 2)))
    return [Want(shape), Want((), "int64", length), Want((), "int64", s.pick((-2, rank - 2, 0)))][: len(s.inputs)]


def stft(s: Sample) -> list[Want]:
    """A signal of several frames, the step from one to the next, a window, and its length."""
    length, step = s.number(1, 9), s.number(1, 4)
    s.attr("onesided", 1, lambda: s.pick((0, 1)))
    signal = (s.size(), length + step * s.number(0, 4) + s.number(0, step - 1), 1)
    return [Want(signal), Want((), "int64", step), Want((length,)), Want((), "int64", length)][: len(s.inputs)]


def lrn(s: Sample) -> list[Want]:
    """An image normalized across channels."""
    s.attr("size", 3, lambda: s.pick((1, 3, 5)))
    for name, default in (("alpha", 0.5), ("beta", 0.75), ("bias", 1.0)):
        s.attr(name, default, lambda d=default: s.pick((d, 1.0, 0.5)))
    return [Want(s.shape(4))]


def einsum(s: Sample) -> list[Want]:
    """Operands that fit the equation; equations that a guard names come first."""
    named = [e for e in s.strings if "->" in e and e.split("->")[0].count(",") == len(s.inputs) - 1]
    more = ["ij->ji", "ijk->kij", "bij->bji"]
    if len(s.inputs) > 1:
        more = ["ij,jk->ik", "bij,bjk->bik", "ij,kj->ik", "i,j->ij", "bij,jb->jib"]
    batch = "BCD"[: s.number(0, 2)]
    named = [e.replace("...", batch) for e in named] + named  # the dots, and letters that say the same
    equation = s.attr("equation", "", lambda: s.pick(named + more))
    sizes: dict[str, int] = {}
    extra = s.new_shape(s.number(0, 2))
    wants = []
    for part in equation.replace(" ", "").split("->")[0].split(","):
        head, dots, tail = part.partition("...")
        letters = [sizes.setdefault(c, s.size()) for c in head]
        wants.append(Want((*letters, *(extra if dots else ()), *(sizes.setdefault(c, s.size()) for c in tail))))
    return wants


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
        axes = ints(
            s.value(1, lambda: (s.pick((-1, len(shape) - 1)),) if s.chance(0.4) else _spatial_or(s, shape, least))
        )
        before = list(shape)
        single = s.chance(0.25)
        for axis in normal(axes, len(shape)):
            if s.bound(0) is None:
                before[axis] = 1 if single else s.size()
        return [Want(tuple(before)), Want((len(axes),), "int64", tuple(axes))]
    count = s.number(1, 2)
    axes = ints(s.value(1, lambda: s.axes(len(shape) + count, count)[:count]))
    rank = len(shape) + len(axes)
    gone, rest = set(normal(axes, rank)), iter(shape)
    before = [s.size() if i in gone else next(rest) for i in range(rank)]
    return [Want(tuple(before)), Want((len(axes),), "int64", tuple(axes))]


def _spatial_or(s: Sample, shape: StaticShape, least: int) -> StaticShape:
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
    for name in ("exclusive", "reverse"):
        s.attr(name, 0, lambda: s.number(0, 1))
    return [Want(shape), Want((), "int64", s.axis(len(shape)))]


def dropout(s: Sample) -> list[Want]:
    """A tensor, a ratio, and whether this is training: no."""
    s.attr("seed", None, lambda: s.pick((None, 7)))
    return [Want(s.shape()), Want((), "float32", 0.5), Want((), "bool", False)][: len(s.inputs)]


def quantize(s: Sample) -> list[Want]:
    """A tensor, a scale and a zero point, sometimes along an axis, one for each element of it or for each block."""
    dtype = s.pick(("int8", "uint8"))
    shape = s.bound(0) or s.shape()
    axis = s.attr("axis", 1, lambda: s.pick(range(len(shape) or 1)))
    block = s.attr("block_size", 0, lambda: s.pick(_blocks(shape[axis] if axis < len(shape) else 0)))
    if block and len(shape) > axis >= 0:
        scales = (*shape[:axis], shape[axis] // block, *shape[axis + 1 :])
        return [Want(shape), Want(scales, low=0.1, high=1), Want(scales)][: len(s.inputs)]
    along = -len(shape) <= axis < len(shape) and s.chance(0.3)
    size: StaticShape = (shape[axis],) if along else ()
    scale: Any = 1.0 if s.chance(0.6) else s.pick((0.25, 0.1, 0.01, 0.01))
    zero: Any = s.number(0, 5)
    if along:
        is_even = s.chance(0.4)
        scale = tuple(scale if is_even else s.pick((1.0, 0.5, 0.25, 0.1)) for _ in range(size[0]))
        zero = tuple(zero if is_even else s.number(0, 5) for _ in range(size[0]))
    data = Want(shape) if s.op == "QuantizeLinear" else Want(shape, dtype, low=0 if dtype == "uint8" else -60, high=60)
    return [data, Want(size, value=scale), Want(size, dtype, value=zero)][: len(s.inputs)]


BLOCKS = (256, 128, 64, 32, 16)
"""Sizes of blocks of weights that share a scale."""


def _blocks(size: int) -> Sequence[int]:
    """Sizes of blocks that divide an axis, the largest most often."""
    fitting = [b for b in (*BLOCKS, 8) if size and size % b == 0]
    return (*fitting[:1], *fitting) or (16,)


def sequence_at(s: Sample) -> list[Want]:
    """A sequence and a position."""
    return [ANY, Want((), "int64", 0)]


def range_(s: Sample) -> list[Want]:
    """Start, limit and step."""
    size = s.shape(1)[0]
    return [Want((), value=0), Want((), value=size), Want((), value=1)]
