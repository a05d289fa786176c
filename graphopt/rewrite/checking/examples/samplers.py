"""Sampler table: which operands and attributes give a result of a wanted shape, by op; and the samplers of ops in
blocks of channels. A table apart from drawing, as a new op adds a line here.

Examples are made root first: an op is told what its result should be and says what its operands
should be. What it says is a wish. Types are inferred afterwards, and what does not fit together is
thrown away and drawn again.
"""

from __future__ import annotations

from graphopt.ir import ops
from graphopt.rewrite.checking.examples.computing import (
    along_axis,
    attention,
    batch_norm,
    broadcasting,
    cast,
    cast_like,
    clip,
    conv,
    conv_integer,
    conv_transpose,
    cum_sum,
    dft,
    dropout,
    einsum,
    gemm,
    instance_norm,
    integer_product,
    layer_norm,
    leaky,
    lrn,
    matmul,
    multi_head,
    pool,
    quantize,
    range_,
    reduce,
    rotary,
    same,
    sequence_at,
    skip_layer_norm,
    slope,
    stft,
    top_k,
    where,
)
from graphopt.rewrite.checking.examples.moving import (
    concat,
    constant_of_shape,
    expand,
    flatten,
    gather,
    gather_elements,
    gather_nd,
    one_hot,
    pad,
    reshape,
    resize,
    shape_of,
    slice_,
    space,
    split,
    squeeze,
    tile,
    transpose,
    unsqueeze,
)
from graphopt.rewrite.checking.examples.sample import Misfit, Sample, Sampler, StaticShape, Want

SIZE = 16
"""Channels in a block."""

FORMS = ("blocked", "plain", "depthwise")


def _channels(s: Sample, blocks: int) -> int:
    """Channels that take so many blocks."""
    return blocks * SIZE - (0 if s.chance(0.4) else s.number(1, SIZE - 1))


def _blocks(channels: int) -> int:
    return -(-channels // SIZE)


def block(s: Sample) -> list[Want]:
    """An image that is not in blocks."""
    wanted = s.want.shape
    if s.bound(0) is not None:
        return [Want(s.bound(0))]
    if wanted is None or len(wanted) < 3 or wanted[-1] != SIZE or wanted[1] < 1:
        wanted = (s.size(), s.number(1, 2), *s.new_shape(s.pick((1, 2, 2))), SIZE)
    return [Want((wanted[0], _channels(s, wanted[1]), *wanted[2:-1]))]


def unblock(s: Sample) -> list[Want]:
    """An image in blocks."""
    shape = s.shape(s.pick((3, 4, 4)) if s.want.shape is None or len(s.want.shape) < 2 else None, 2)
    drawn = s.pick((SIZE, SIZE, 2 * SIZE, 3, 20)) if s.chance(0.6) or shape[1] < 1 else shape[1]
    channels = s.attr("channels", None, lambda: drawn)
    return [Want(s.bound(0) or (shape[0], _blocks(channels), *shape[2:], SIZE))]


def block_weights(s: Sample) -> list[Want]:
    """Weights that are not packed."""
    wanted = s.want.shape or ()
    form = s.attr("form", "blocked", lambda: s.pick(FORMS))
    n = len(wanted) - {"blocked": 4, "plain": 3, "depthwise": 2}[form]
    if s.bound(0) is not None:
        return [Want(s.bound(0))]
    if n < 1 or wanted[-1] != SIZE:
        raise Misfit("weights of another form")
    kernel = wanted[len(wanted) - n - (2 if form == "blocked" else 1) :][:n]
    deep = {"blocked": SIZE * wanted[1] - 3, "plain": wanted[1], "depthwise": 1}[form]
    return [Want((_channels(s, wanted[0]), deep, *kernel))]


def blocked_conv_transpose(s: Sample) -> list[Want]:
    """An image, packed weights and a packed bias; the windows do not overlap."""
    outer, deep, image = s.number(1, 2), s.number(1, 2), (s.number(2, 3), s.number(2, 3))
    weights = (outer, deep, s.number(1, 2), 2, SIZE, SIZE)
    return [Want((s.size(), deep, *image, SIZE)), Want(weights), Want((outer, SIZE))][: len(s.inputs)]


def blocked_conv(s: Sample) -> list[Want]:
    """An image, packed weights and a packed bias."""
    form = s.attr("form", "blocked", lambda: s.pick(FORMS))
    kernel: StaticShape = s.pick(((1, 2), (2,), (3, 3)))
    for name in ("strides", "dilations", "group"):
        s.attr(name, None, lambda: None)
    s.attr("pads", None, lambda: s.pick((None, (1, 0, 1, 2))) if kernel == (3, 3) else None)
    spatial = tuple(s.number(max(kernel), 3 + (kernel == (3, 3))) for _ in kernel)
    outer, deep = 1 if form == "depthwise" else s.number(1, 2), s.number(1, 2)
    image, weights = {
        "blocked": ((s.size(), deep, *spatial, SIZE), (outer, deep, *kernel, SIZE, SIZE)),
        "plain": ((s.size(), deep, *spatial), (outer, deep, *kernel, SIZE)),
        "depthwise": ((s.size(), outer, *spatial, SIZE), (outer, *kernel, SIZE)),
    }[form]
    return [Want(image), Want(weights), Want((outer, SIZE))][: len(s.inputs)]


def sampler_of(op: str, kind: str) -> Sampler:
    """How an op is drawn."""
    name = op.rpartition("::")[2]
    return SAMPLERS.get(name) or _KINDS.get(kind, same)


SAMPLERS: dict[str, Sampler] = {
    "DFT": dft, "STFT": stft,
    "Attention": attention, "MatMul": matmul, "FusedMatMul": matmul, "MatMulInteger": matmul, "MixedMatMul": matmul,
    "MatMulIntegerToFloat": integer_product,
    "Gemm": gemm, "FusedGemm": gemm, "Conv": conv, "FusedConv": conv,
    "ConvInteger": conv_integer, "ConvTranspose": conv_transpose,
    "MaxPool": pool, "AveragePool": pool, "GlobalAveragePool": pool, "GlobalMaxPool": pool, "LpPool": pool,
    "BatchNormalization": batch_norm, "LayerNormalization": layer_norm, "RMSNormalization": layer_norm,
    "SimplifiedLayerNormalization": layer_norm, "SkipLayerNormalization": skip_layer_norm,
    "MultiHeadAttention": multi_head, "RotaryEmbedding": rotary,
    "InstanceNormalization": instance_norm, "GroupNormalization": instance_norm, "LRN": lrn, "Einsum": einsum,
    "Transpose": transpose, "Reshape": reshape, "Flatten": flatten, "Squeeze": squeeze, "Unsqueeze": unsqueeze,
    "Slice": slice_, "Concat": concat, "Split": split, "Pad": pad, "Expand": expand, "Tile": tile, "Gather": gather,
    "GatherND": gather_nd, "GatherElements": gather_elements, "OneHot": one_hot, "Shape": shape_of, "Size": shape_of,
    "ConstantOfShape": constant_of_shape, "Resize": resize, "DepthToSpace": space, "SpaceToDepth": space,
    "Softmax": along_axis, "LogSoftmax": along_axis, "ArgMax": along_axis, "ArgMin": along_axis,
    "Hardmax": along_axis, "LpNormalization": along_axis, "TopK": top_k, "CumSum": cum_sum, "Where": where,
    "Clip": clip, "Cast": cast, "CastLike": cast_like, "PRelu": slope, "LeakyRelu": leaky, "HardSigmoid": leaky,
    "Elu": leaky, "Selu": leaky, "Swish": leaky, "ThresholdedRelu": leaky, "Dropout": dropout,
    "Block": block, "Unblock": unblock, "BlockWeights": block_weights, "BlockedConv": blocked_conv,
    "BlockedConvTranspose": blocked_conv_transpose,
    "QuantizeLinear": quantize, "DequantizeLinear": quantize, "SequenceAt": sequence_at, "Range": range_,
}  # fmt: skip
"""How ops are drawn that need more than operands of one shape."""
DRAWN = sorted(op for op in {*SAMPLERS, *ops.SETS["unary"], *ops.SETS["binary"], *ops.SETS["reduce"]} if ops.schema(op))
"""The ops of ONNX that are drawn."""

_KINDS: dict[str, Sampler] = {"unary": same, "binary": broadcasting, "elementwise": broadcasting, "reduce": reduce}
