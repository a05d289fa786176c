"""Type inference of products, of sliding windows, and of attention and recurrent ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import isfinite
from operator import mul

from graphopt.ir import contrib_attention, contrib_quantized
from graphopt.ir.call import OpCall
from graphopt.ir.infer_shapes import MOST_AXES, Inference, Types, agree, axis_of, broadcast_shapes, one_way, same, spell
from graphopt.ir.types import Real, Shape, Size, TensorType, broadcast, is_size, maximum, real

# -- products


def matmul_shape(a: tuple[Size, ...], b: tuple[Size, ...]) -> tuple[Size, ...]:
    """numpy's rule for matrix products, vectors included."""
    if not a or not b:
        raise ValueError("a matrix product takes no scalars")
    left = (1, *a) if len(a) == 1 else a
    right = (*b, 1) if len(b) == 1 else b
    agree(left[-1], right[-2], "the sizes summed over")
    result = broadcast_shapes([left[:-2], right[:-2]])
    return result + (() if len(a) == 1 else (left[-2],)) + (() if len(b) == 1 else (right[-1],))


def operand_axes(rank: int, is_transposed: bool, has_rows_first: bool = False) -> tuple[int, ...]:
    """The axes of an operand in the order in which a matrix product takes them.

    FusedMatMul exchanges the last two (``transA``) of what may have its first axis behind the batch (``transBatchA``).
    """
    axes = [*range(rank)]
    if has_rows_first:
        axes.insert(rank - 2, axes.pop(0))
    if is_transposed and rank > 1:
        axes[-2:] = axes[-1], axes[-2]
    return tuple(axes)


def fused_axes(ranks: tuple[int, int], attribute: Callable[[str], object]) -> list[tuple[int, ...]]:
    """The axes of both operands of a FusedMatMul, by its attributes; ValueError where their ranks do not fit."""
    batched = [bool(attribute(name)) for name in ("transBatchA", "transBatchB")]
    if any(batched) and (ranks[0] != ranks[1] or ranks[0] < 3):
        raise ValueError("both operands need one rank of at least 3 where batches are transposed")
    exchanged = [bool(attribute(name)) for name in ("transA", "transB")]
    return [*map(operand_axes, ranks, exchanged, batched)]


def matmul(call: OpCall) -> Types:
    """A batched matrix product; the quantized ones have their second matrix further back."""
    second = 3 if call.op == "QLinearMatMul" else 1
    a, b = call.shape(0), call.shape(second)
    if a is None or b is None:
        return [call.tensor(call.shape_of_its_own("product"))]
    left, right = fused_axes((len(a), len(b)), call.integer)
    return [call.tensor(matmul_shape(tuple(a[k] for k in left), tuple(b[k] for k in right)))]


def gemm(call: OpCall) -> Types:
    """A matrix product of two matrices, and a matrix added."""
    a, b = call.shape(0), call.shape(1)
    if (a is not None and len(a) != 2) or (b is not None and len(b) != 2):
        raise ValueError("both must be matrices")
    across, down = (int(call.integer(name) != 0) for name in ("transA", "transB"))
    rows = a[across] if a else call.size_of_its_own("rows")
    columns = b[1 - down] if b else call.size_of_its_own("columns")
    if a and b:
        agree(a[1 - across], b[down], "the sizes summed over")
    c = call.shape(2)
    if c is not None and broadcast_shapes([(rows, columns), c]) != (rows, columns):
        rows, columns = one_way((rows, columns), c)
    return [call.tensor((rows, columns))]


def prelu(call: OpCall) -> Types:
    """The first input's shape, to which the second broadcasts."""
    x, slope = call.shape(0), call.shape(1)
    if x is not None and slope is not None:
        return [call.tensor(one_way(x, slope))]
    return same(call)


def einsum(call: OpCall) -> Types:
    """The output that the equation names; with ``...`` the broadcast of what it stands for."""
    equation = call.text("equation").replace(" ", "")
    terms, arrow, result = equation.partition("->")
    parts = terms.split(",")
    if len(parts) != len(call.inputs):
        raise ValueError(f"{len(call.inputs)} inputs do not fit the equation {equation}")
    sizes: dict[str, Size] = {}
    spread: list[tuple[Size, ...]] = []
    for index, part in enumerate(parts):
        shape = call.shape(index)
        if shape is None:
            return [call.tensor(call.shape_of_its_own("einsum"))]
        head, dots, tail = part.partition("...")
        extra = len(shape) - len(head) - len(tail)
        if extra < 0 or (extra and not dots):
            raise ValueError(f"{part} does not fit the shape {spell(shape)}")
        spread.append(shape[len(head) : len(head) + extra])
        named = [*zip(head, shape, strict=False), *zip(tail, shape[len(head) + extra :], strict=True)]
        for letter, size in named:
            sizes[letter] = broadcast(sizes.get(letter, 1), size)
    if not arrow:
        letters = terms.replace("...", "").replace(",", "")
        result = "..." * ("..." in terms) + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    head, dots, tail = result.partition("...")
    if strange := [c for c in head + tail if c not in sizes]:
        raise ValueError(f"{equation} names {strange[0]!r} in the result, and in no operand")
    middle = broadcast_shapes(spread) if dots else ()
    return [call.tensor((*(sizes[c] for c in head), *middle, *(sizes[c] for c in tail)))]


# -- windows


NO_PIXELS = "an image without pixels has no windows"
"""What is said of windows on an axis of size 0."""


def window(
    size: Size, kernel: Size, stride: int, pads: tuple[int, int], dilation: int, auto_pad: str, ceil: bool = False
) -> Size | None:
    """How many positions a window takes along one axis; None where that cannot be said."""
    if stride < 1 or dilation < 1:
        raise ValueError(f"a window moves by at least 1: its stride is {stride}, its dilation {dilation}")
    span = dilation * (kernel - 1) + 1
    if size == 0:  # pads alone are no image: ONNX Runtime refuses it, too
        raise ValueError(NO_PIXELS)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return (size + (stride - 1)) // stride
    before, after = (0, 0) if auto_pad == "VALID" else pads
    room = size + (before + after) - span
    # a last window may reach beyond where sizes are rounded up, and be the first one, too
    if isinstance(room, int) and room < (1 - stride if ceil else 0):
        raise ValueError(f"a window of {span} does not fit a size of {size} padded by {before + after}")
    if not ceil:
        return room // stride + 1
    count = (room + (stride - 1)) // stride + 1
    # a last window that would start in the padding behind is left out
    if isinstance(span, int) and stride + after <= span:
        return count
    if isinstance(count, int) and isinstance(size, int):
        return count - 1 if (count - 1) * stride >= size + before else count
    return None


def windows(call: OpCall, spatial: tuple[Size, ...], kernel: Sequence[Size]) -> tuple[Size, ...]:
    """How many positions the windows of a convolution or pool take along each spatial axis."""
    n = len(spatial)
    if len(kernel) != n:
        raise ValueError(f"a window of {len(kernel)} axes does not fit {n} spatial axes")
    strides, dilations = call.integers("strides") or (1,) * n, call.integers("dilations") or (1,) * n
    pads, auto = call.integers("pads") or (0,) * (2 * n), call.text("auto_pad") or "NOTSET"
    ceil = bool(call.integer("ceil_mode"))
    if len(strides) != n or len(dilations) != n or len(pads) != 2 * n:
        raise ValueError(f"strides, dilations or pads do not fit {n} spatial axes")
    counts: list[Size] = []
    for i, size in enumerate(spatial):
        count = window(size, kernel[i], strides[i], (pads[i], pads[i + n]), dilations[i], auto, ceil)
        counts.append(call.size_of_its_own("window", i) if count is None else count)
    return tuple(counts)


def conv(call: OpCall) -> Types:
    """A convolution; the quantized one has its weights further back."""
    x, w = call.shape(0), call.shape(3 if call.op == "QLinearConv" else 1)
    if x is None and w is None:
        return [call.tensor(call.shape_of_its_own("conv"))]
    if x is None or w is None:
        sizes: list[Size] = [call.size_of_its_own("conv", i) for i in range(len(x or w or ()))]
        if x is not None and sizes:
            sizes[0] = x[0]
        if w is not None and len(sizes) > 1:
            sizes[1] = w[0]
        return [call.tensor(tuple(sizes))]
    if len(x) != len(w) or len(x) < 3:
        raise ValueError(f"weights {spell(w)} do not fit an input {spell(x)}")
    group = call.integer("group", 1)
    agree(x[1], w[1] * group, f"the input's channels and {group} times the weights'")
    if isinstance(w[0], int) and w[0] % group:
        raise ValueError(f"{w[0]} output channels do not split into {group} groups")
    return [call.tensor((x[0], w[0], *windows(call, x[2:], w[2:])))]


def conv_transpose(call: OpCall) -> Types:
    """A transposed convolution."""
    x, w = call.shape(0), call.shape(1)
    if x is None or w is None:
        return [call.tensor(call.shape_of_its_own("conv"))]
    n = len(x) - 2
    if len(x) != len(w) or n < 1:
        raise ValueError(f"weights {spell(w)} do not fit an input {spell(x)}")
    agree(x[1], w[0], "the channels of input and weights")
    channels = w[1] * call.integer("group", 1)
    given = call.integers("output_shape")
    if given:
        return [call.tensor((x[0], channels, *given[-n:]))]
    strides, dilations = call.integers("strides") or (1,) * n, call.integers("dilations") or (1,) * n
    pads, extra = call.integers("pads") or (0,) * (2 * n), call.integers("output_padding") or (0,) * n
    if any(len(steps) != n for steps in (strides, dilations, extra)) or len(pads) != 2 * n:
        raise ValueError(f"strides, dilations or pads do not fit {n} spatial axes")
    same_size = call.text("auto_pad").startswith("SAME")
    spatial: list[Size] = []
    for i, size in enumerate(x[2:]):
        span = dilations[i] * (w[2 + i] - 1) + 1
        full = (size - 1) * strides[i] + span + extra[i] - pads[i] - pads[i + n]
        spatial.append(size * strides[i] if same_size else full)
    return [call.tensor((x[0], channels, *spatial))]


def pool(call: OpCall) -> Types:
    """A window's maximum or mean; MaxPool also says where."""
    x, kernel = call.shape(0), call.integers("kernel_shape")
    if x is None or kernel is None:
        shape: Shape = call.shape_of_its_own("pool")
    else:
        shape = (*x[:2], *windows(call, x[2:], kernel))
    return [call.tensor(shape), TensorType("int64", shape)]


def max_unpool(call: OpCall) -> Types:
    """What a pooled image was, or the shape that is asked for."""
    x, kernel, sizes = call.shape(0), call.integers("kernel_shape"), call.elements(2)
    if sizes is not None:
        return [call.tensor(sizes)]
    if x is None or kernel is None:
        return [call.tensor(call.shape_of_its_own("unpool"))]
    if call.has(2):
        return [call.tensor(tuple(call.size_of_its_own("unpool", i, values=(2,)) for i in range(len(x))))]
    n = len(kernel)
    strides, pads = call.integers("strides") or (1,) * n, call.integers("pads") or (0,) * (2 * n)
    if not len(x) == n + 2 == len(strides) + 2 == len(pads) // 2 + 2:
        raise ValueError(f"strides or pads do not fit a window of {n} axes")
    spatial = ((x[i + 2] - 1) * strides[i] + (kernel[i] - pads[i] - pads[i + n]) for i in range(n))
    return [call.tensor((*x[:2], *(s if is_size(s) else maximum(0, s) for s in spatial)))]


def col2im(call: OpCall) -> Types:
    """An image of the size that is asked for, with a channel for as many rows as a block has elements."""
    x, image, block = call.shape(0), call.elements(1), call.elements(2)
    if x is None or image is None:
        return [call.tensor(call.shape_of_its_own("image", values=(1, 2)))]
    if len(x) != 3:
        raise ValueError(f"columns of rank {len(x)}, not 3")
    channels = None if block is None else reduce(mul, block, 1)
    if isinstance(channels, int) and channels:
        return [call.tensor((x[0], x[1] // channels, *image))]
    return [call.tensor((x[0], call.size_of_its_own("channels", values=(2,)), *image))]


def global_pool(call: OpCall) -> Types:
    """All spatial axes become 1."""
    x = call.shape(0)
    return [call.tensor(call.shape_of_its_own() if x is None else (*x[:2], *(1,) * (len(x) - 2)))]


def resize(call: OpCall) -> Types:
    """Spatial sizes given, or scaled."""
    x = call.shape(0)
    if x is None:
        return [call.tensor(call.shape_of_its_own("resize"))]
    axes = [axis_of(a, len(x)) for a in call.integers("axes") or range(len(x))]
    policy = call.text("keep_aspect_ratio_policy")
    sizes, scales = call.elements(3), _scales(call)
    shape = list(x)
    values = tuple(i for i in (2, 3) if call.has(i))
    if call.has(3) and sizes is not None and len(sizes) == len(axes):
        if policy not in ("", "stretch"):
            sizes = _keeping_ratio([x[a] for a in axes], sizes, policy)
        for axis, size in zip(axes, sizes, strict=True):
            shape[axis] = size
    elif not call.has(3) and scales is not None and len(scales) == len(axes):
        for axis, scale in zip(axes, scales, strict=True):
            shape[axis] = _scaled(x[axis], scale)
    else:
        for axis in axes:
            shape[axis] = call.size_of_its_own("resize", axis, values=values)
    return [call.tensor(tuple(shape))]


def _scales(call: OpCall) -> tuple[Real, ...] | None:
    """The scales of a Resize, constants or computed of sizes."""
    scales, constant = call.reals(2), call.constant(2)
    if constant is not None and constant.size <= MOST_AXES:
        numbers = constant.array.reshape(-1).tolist()
        for wrong in (n for n in numbers if not isfinite(n) or n <= 0):
            raise ValueError(f"a scale of {wrong:g}: expected a positive number")
        scales = tuple(r for n in numbers if (r := Real.constant(n, "float32")) is not None)
    return scales


def _scaled(size: Size, scale: Real) -> Size:
    """The floor of a size times a scale, as runtimes compute it: in float32."""
    if scale.value is not None and scale.value.is_integer():
        return size * int(scale.value)
    return real("mul", Real.of(size, "float32"), scale).truncated()


def _keeping_ratio(sizes: Sequence[Size], wanted: Sequence[Size], policy: str) -> tuple[Size, ...]:
    """The sizes times the scale that keeps their ratio, rounded."""
    twice = real("mul", Real.of(2, "float32"), common_scale(sizes, wanted, policy))
    halves = (real("floor", real("mul", twice, Real.of(size, "float32"))) for size in sizes)
    return tuple(real("ceil", real("div", half, Real.of(2, "float32"))).truncated() for half in halves)  # halves go up


def common_scale(sizes: Sequence[Size], wanted: Sequence[Size], policy: str) -> Real:
    """The least or greatest of the scales that give what is wanted, as a policy of keeping the ratio says."""
    scales = (
        real("div", Real.of(want, "float32"), Real.of(size, "float32"))
        for size, want in zip(sizes, wanted, strict=True)
    )
    return reduce(partial(real, "min" if policy == "not_larger" else "max"), scales)


def space_to_depth(call: OpCall) -> Types:
    """Blocks of pixels become channels."""
    return _move_blocks(call, 1, call.integer("blocksize", 1))


def depth_to_space(call: OpCall) -> Types:
    """Channels become blocks of pixels."""
    return _move_blocks(call, call.integer("blocksize", 1), 1)


def _move_blocks(call: OpCall, grow: int, shrink: int) -> Types:
    x = call.shape(0)
    if x is None:
        return [call.tensor(tuple(call.size_of_its_own(i) for i in range(4)))]
    if len(x) != 4:
        raise ValueError(f"the input must have rank 4, not {len(x)}")
    n, c, h, w = x
    channels = c * (shrink * shrink) // (grow * grow)
    return [call.tensor((n, channels, h * grow // shrink, w * grow // shrink))]


# -- attention and recurrent ops


def attention(call: OpCall) -> Types:
    """The attended values, the keys and values with those of the past before them, and the scores."""
    q, k, v = call.shape(0), call.shape(1), call.shape(2)
    heads, groups = call.integer("q_num_heads"), call.integer("kv_num_heads")
    if q is None or k is None or v is None or len({len(q), len(k), len(v)}) > 1 or (len(q) == 3 and not heads * groups):
        return [call.tensor(call.shape_of_its_own("attention", port), port) for port in range(4)]
    if len(q) not in (3, 4):
        raise ValueError(f"queries, keys and values have 3 or 4 axes, not {len(q)}")
    if len(q) == 3:
        q4, k4, v4 = _with_heads(q, heads), _with_heads(k, groups), _with_heads(v, groups)
        y: tuple[Size, ...] = (q[0], q[1], v4[3] * heads)
    else:
        q4, k4, v4 = q, k, v
        y = (*q[:3], v[3])
    past = call.shape(4)
    if call.has(4):
        total: Size = k4[2] + past[2] if past is not None and len(past) == 4 else call.size_of_its_own("total")
    else:
        total = k4[2]
    keys, values = (*k4[:2], total, k4[3]), (*v4[:2], total, v4[3])
    return [call.tensor(shape, port) for port, shape in enumerate([y, keys, values, (*q4[:3], total)])]


def _with_heads(shape: tuple[Size, ...], heads: int) -> tuple[Size, ...]:
    return (shape[0], heads, shape[1], shape[2] // heads)


def recurrent(call: OpCall) -> Types:
    """All hidden states, the last one, and for LSTM the last cell state."""
    x = call.shape(0)
    directions = 2 if call.text("direction") == "bidirectional" else 1
    hidden: Size | None = call.integer("hidden_size") or None
    if hidden is None:
        r = call.shape(2)
        hidden = r[2] if r is not None and len(r) == 3 else call.size_of_its_own("hidden")
    if x is not None and len(x) != 3:
        raise ValueError(f"the input must have rank 3, not {len(x)}")
    sizes = list(x[:2]) if x else [call.size_of_its_own(0), call.size_of_its_own(1)]
    batch = 0 if call.integer("layout") else 1
    for state in (5, 6):  # exporters open the batch of the input alone, where the states say what it is
        given = call.shape(state) if call.has(state) else None
        if given is not None and len(given) == 3:
            sizes[batch] = agree(sizes[batch], given[batch], "the batches of the input and of its states")
    first, second = sizes
    if call.integer("layout"):
        states: tuple[Size, ...] = (first, directions, hidden)
        every: tuple[Size, ...] = (first, second, directions, hidden)
    else:
        states, every = (directions, second, hidden), (first, directions, second, hidden)
    return [call.tensor(every, 0), call.tensor(states, 1), call.tensor(states, 2)]


def stft(call: OpCall) -> Types:
    """The spectra of frames: onnx infers other sizes than its reference implementation gives."""
    x, window = call.shape(0), call.shape(2)
    length = call.element(3) if call.has(3) else window[0] if window else None if call.has(2) else x[1] if x else None
    hop = call.element(1)
    if x is None or len(x) not in (2, 3):
        return [call.tensor(tuple(call.size_of_its_own(i) for i in range(4)))]
    frames = bins = None
    if length is not None and hop is not None and is_size(length) and is_size(hop) and hop != 0:
        frames = (x[1] - length) // hop + 1
    if length is not None:
        bins = length // 2 + 1 if call.integer("onesided", 1) else length
    values = tuple(i for i in (1, 3) if call.has(i))
    found = [call.size_of_its_own(i, values=values) if s is None else s for i, s in enumerate((frames, bins))]
    return [call.tensor((x[0], *found, 2))]


def dft(call: OpCall) -> Types:
    """The spectra along an axis, or what they are spectra of, which is real where a half of it is given."""
    x, axis = call.shape(0), call.element(2) if call.has(2) else -2
    if x is None or not isinstance(axis, int):
        return [call.tensor(call.shape_of_its_own("dft", values=(1, 2)))]
    inverse, half = call.integer("inverse"), call.integer("onesided")
    size: Size | None = x[axis]
    if call.has(1):
        size = call.element(1)
    elif inverse and half:
        size = (x[axis] - 1) * 2
    size = call.size_of_its_own("dft", values=(1,)) if size is None else size
    shape = [*x[:-1], 1 if inverse and half else 2]
    shape[axis] = size // 2 + 1 if half and not inverse else size
    return [call.tensor(tuple(shape))]


PRODUCTS: dict[str, Inference] = {
    "Attention": attention,
    "AveragePool": pool,
    "Conv": conv,
    "Col2Im": col2im,
    "ConvInteger": conv,
    "ConvTranspose": conv_transpose,
    "DFT": dft,
    "DepthToSpace": depth_to_space,
    "Einsum": einsum,
    "GRU": recurrent,
    "Gemm": gemm,
    "GlobalAveragePool": global_pool,
    "GlobalLpPool": global_pool,
    "GlobalMaxPool": global_pool,
    "LSTM": recurrent,
    "LpPool": pool,
    "MatMul": matmul,
    "MatMulInteger": matmul,
    "MaxPool": pool,
    "MaxUnpool": max_unpool,
    "PRelu": prelu,
    "QLinearConv": conv,
    "QLinearMatMul": matmul,
    "RNN": recurrent,
    "Resize": resize,
    "STFT": stft,
    "SpaceToDepth": space_to_depth,
    "com.microsoft::Attention": contrib_attention.infer_packed_attention,
    "com.microsoft::EmbedLayerNormalization": contrib_attention.infer_embed_layer_normalization,
    "com.microsoft::FusedGemm": gemm,
    "com.microsoft::FusedMatMul": matmul,
    "com.microsoft::GroupQueryAttention": contrib_attention.infer_group_query_attention,
    "com.microsoft::MultiHeadAttention": contrib_attention.infer_multi_head_attention,
    **contrib_quantized.INFERENCES,
}
"""How to infer the types of an op's outputs."""
