"""How each op is called in examples: which operands and attributes give a result of a wanted shape.

Examples are made root first: an op is told what its result should be and says what its operands
should be. What it says is a wish. Types are inferred afterwards, and what does not fit together is
thrown away and drawn again.
"""

from __future__ import annotations

from graphopt.rewrite.checking.examples.blocks import (
    block,
    block_weights,
    blocked_conv,
    blocked_conv_transpose,
    unblock,
)
from graphopt.rewrite.checking.examples.computing import (
    along_axis,
    attention,
    batch_norm,
    broadcasting,
    cast,
    cast_like,
    clip,
    conv,
    conv_transpose,
    cum_sum,
    dropout,
    einsum,
    gemm,
    instance_norm,
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
from graphopt.rewrite.checking.examples.sample import Sampler


def sampler_of(op: str, kind: str) -> Sampler:
    """How an op is drawn."""
    name = op.rpartition("::")[2]
    return SAMPLERS.get(name) or _KINDS.get(kind, same)


SAMPLERS: dict[str, Sampler] = {
    "Attention": attention, "MatMul": matmul, "FusedMatMul": matmul, "MatMulInteger": matmul, "BfloatMatMul": matmul,
    "Gemm": gemm, "FusedGemm": gemm, "Conv": conv, "FusedConv": conv,
    "ConvTranspose": conv_transpose,
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

_KINDS: dict[str, Sampler] = {"unary": same, "binary": broadcasting, "elementwise": broadcasting, "reduce": reduce}
