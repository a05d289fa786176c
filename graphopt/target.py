"""What a target is: the ops that it takes, the rules that are for it, and what its work costs, as plain data.

A target is a frozen value that anyone can write. Its prices are a roofline (how fast products, how
fast memory, what a call costs) with exceptions by op; its ``Layout``, where it has one, says which
ops compute in a blocked layout of their own and what entering and leaving that layout costs; its
``fusions`` name the groups of ops that its runtime makes into one by itself, so that a rewrite which
does no more than that is not rewarded. Nothing here computes: ``rewrite.cost`` reads these numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal

from graphopt.errors import UsageError, nearest_or_some


@dataclass(frozen=True)
class ProductPrices:
    """What a product of matrices of float32 takes in one of our functions for it: seconds, for one thread."""

    call: float
    """To call it."""
    step: float
    """For each multiplication and addition."""
    moved: tuple[float, float]
    """For each element of an operand that is arranged anew: of one that lies in the second cache, and of others."""

    def seconds(self, steps: float, moved: float, bits: int) -> float:
        """So many multiplications of operands of so many bits and elements in all, on a device: the longer of
        arithmetic and memory. It is what schedules and the e-graph go by both."""
        return self.call + bits / 32 * max(self.step * steps, self.moved[1] * moved)


@dataclass(frozen=True)
class Prices:
    """What work costs. All times are seconds, for one thread."""

    node: float
    """To call an op, whatever it does."""
    flops: float
    """Multiplications and additions a second that a large product of matrices reaches."""
    bandwidth: tuple[float, float]
    """Bytes a second that an op reads and writes: within the caches, and beyond them."""
    cache: float
    """How many bytes of an op's operands count as within the caches."""
    lanes: int
    """Columns of a product, and output channels of a convolution, that are computed at a time: as many are computed as
    fill them up."""
    efficiency: Mapping[str, float]
    """By kind of product, the part of ``flops`` that it reaches: see ``rewrite.cost.KINDS_OF_PRODUCT``."""
    elements: Mapping[str, float]
    """By op: seconds for each element, where arithmetic and not memory is what takes long."""
    movement: Mapping[str, float]
    """By op that only moves data: how many times dearer its bytes are than those of a plain copy."""
    span: float
    """For each contiguous run of elements that a broadcasting op works on at a time."""
    matrix: float
    """For each matrix of a product of many."""
    store: float
    """To store an element of a product of matrices takes as long as so many multiplications."""
    weights: float
    """Bytes a second at which constants come from memory: other layers have driven them out of the caches."""
    strided: Mapping[str, float]
    """By op (reductions under ``Reduce``): seconds for each element where the axis is not the last."""
    run: float
    """For each run of neighbouring elements that an op which moves data copies at a time."""
    edge: float
    """Columns' worth of work that a product costs beyond its columns."""
    scattered: float
    """Seconds for each element of a Transpose that does more than move one axis, or rows."""
    powers: Mapping[float, float]
    """Seconds for each element of a Pow whose exponent is one of these."""
    stored_byte: float = 1e-13
    """For each byte of constants that an op reads: decides between equals in favour of the smaller file."""
    processors: int = 1
    """How many tiles of a product are computed at a time,"""
    tile: int = 1
    """each of so many rows and columns of its result."""
    short_rows: float = 0.0
    """How many times as long a convolution of plain images takes, by vectors along rows, whose rows fill none; 0 where
    the length of rows does not matter."""
    strided_rows: float = 1.0
    """The same of one whose rows are read in strides."""
    open_rows: float = 1.0
    """The same of one of whose rows it is not known how long they are."""
    signed: float = 1.0
    """How many times as long a product of bytes takes as one of bytes without signs, where its first operand has
    them."""
    columns: float = 0.0
    """Columns' worth of work that a convolution costs beyond its columns, where it is a product of matrices."""
    free: frozenset[str] = frozenset()
    """Ops for which nothing is called: what they make is looked at where it is."""
    products: Mapping[str, ProductPrices] = field(default_factory=dict)
    """By function that computes products of matrices: what these take."""


@dataclass(frozen=True)
class Layout:
    """A blocked layout of images (``[N, C/block, H, W, block]``) that a runtime uses inside, by a policy of its own.

    Convolutions with constant weights compute in it, if their channels allow, and pools whose
    channels fill blocks: both enter it for that. Others stay in it where what they read is there.
    """

    block: int
    """Channels in a block."""
    multiple: int
    """Input channels of a convolution come in multiples of this; below ``block`` it reads the plain layout instead."""
    reorder: float
    """How many times dearer the bytes of entering or leaving the layout are than those of a plain copy."""
    keeps: frozenset[str]
    """Elementwise ops of one input that stay in the layout."""
    joins: frozenset[str]
    """Ops of several inputs that stay where all have the layout and equal shapes."""
    pools: frozenset[str]
    """Ops over windows of an image that compute in the layout."""
    epilogues: Mapping[str, float]
    """Ops that a convolution applies to what it writes, where nobody else reads that: seconds an element."""


LACKING_SINCE: Mapping[str, int] = {
    "Bernoulli": 22,
    "CausalConvWithState": 27,
    "GlobalLpPool": 22,
    "ImageDecoder": 21,
    "MaxRoiPool": 22,
    "Multinomial": 22,
    "RandomNormal": 22,
    "RandomNormalLike": 22,
    "RandomUniform": 22,
    "RandomUniformLike": 22,
    "RoiAlign": 22,
    "Swish": 25,
}
"""Ops of ONNX that ONNX Runtime 1.32 on CPU has no kernel for from an opset on, which stated them anew: no rule may
make one in such a model. ``python -m tests.bench.kernels`` asks the installed runtime, and prints this table."""


@dataclass(frozen=True)
class Target:
    """A runtime, as far as rewriting cares.

    ``ops`` lists what results may use, by domain: None stands for every op of the domain that the
    model's opset has. ``tags`` are the names under which rules call this target (``for ort``).
    ``fusions`` are rules, in the syntax of rule files, that the runtime applies by itself.
    """

    name: str
    summary: str
    prices: Prices = field(hash=False)
    ops: Mapping[str, frozenset[str] | None] = field(default_factory=lambda: {"": None}, hash=False)
    tags: frozenset[str] = frozenset()
    layout: Layout | None = field(default=None, hash=False)
    fusions: str = ""
    lacking_since: Mapping[str, int] = field(default_factory=lambda: LACKING_SINCE, hash=False, repr=False)
    """By op: the opset from which on there is no kernel for it."""
    within: frozenset[str] = frozenset()
    """Ops that run within the loops of what they read or are read by: what they take alone says nothing."""
    runtime: str = ""
    """The engine (``engines``) in which its prices can be measured, where there is one."""
    device: Literal["cpu", "cuda", "simulated"] = "cpu"
    """What programs for it run on."""
    measured: Mapping[str, float] | None = field(default=None, hash=False, repr=False)
    """Seconds that calls took, by ``rewrite.workload``; what is not among them is priced by ``prices``."""
    paces: Mapping[str, float] = field(default_factory=dict, hash=False, repr=False)
    """By call, by op, and under no name for all others: how many times as long as ``prices`` say those take that are
    not among them."""

    @property
    def makes_models(self) -> bool:
        """Whether what is optimized for it is an ONNX model: no op of ours is in it."""
        return "graphopt" not in self.ops

    def allows(self, op: str, opset: int = 0) -> bool:
        """Whether results of an opset may use the op (``domain::Name``, or a name of ONNX's own)."""
        if opset >= self.lacking_since.get(op, inf):
            return False
        domain, _, name = op.rpartition("::")
        allowed = self.ops.get(domain, frozenset())
        return allowed is None or name in allowed


def ops(names: str) -> frozenset[str]:
    """The set of the ops named in a text, with spaces between."""
    return frozenset(names.split())


def per_op(prices: Mapping[float, str], unit: float = 1e-9) -> dict[str, float]:
    """A table by op, from one by price: ``{0.3: "Tanh Sigmoid"}`` in nanoseconds."""
    return {op: price * unit for price, names in prices.items() for op in names.split()}


# The numbers below are those of ONNX Runtime 1.31 on one thread of an AVX-512 core that does 117 GFLOP/s: for each op
# a model of that op alone, on images of 64 channels of 28 x 28 and 112 x 112, run thirty times under the runtime's own
# profiler; the least time counts, divided by the elements.
ELEMENTS = per_op({
    0.10: "DequantizeLinear QuantizeLinear",
    0.14: "LeakyRelu HardSigmoid BatchNormalization com.microsoft::QLinearAdd com.microsoft::QLinearMul "
          "com.microsoft::QLinearLeakyRelu com.microsoft::QLinearSigmoid com.microsoft::QLinearConcat",
    0.25: "DynamicQuantizeLinear com.microsoft::QLinearSoftmax com.microsoft::QLinearWhere "
          "com.microsoft::QLinearAveragePool com.microsoft::QLinearGlobalAveragePool",
    0.21: "Div Reciprocal Exp Round Softsign Mod",
    0.28: "Tanh HardSwish Sigmoid Floor Ceil RMSNormalization SimplifiedLayerNormalization RotaryEmbedding "
          "com.microsoft::RotaryEmbedding",
    0.35: "Sqrt Where InstanceNormalization",
    0.40: "PRelu Softmax LogSoftmax ThresholdedRelu",
    0.47: "LayerNormalization com.microsoft::FastGelu MeanVarianceNormalization",
    0.52: "Erf com.microsoft::QuickGelu",
    0.62: "Gelu com.microsoft::Gelu Resize Upsample Swish",
    0.78: "com.microsoft::BiasGelu GroupNormalization",
    0.55: "ArgMax ArgMin",
    0.90: "Sign OneHot NonZero ScatterND ScatterElements GatherElements GatherND LpNormalization",
    1.00: "TopK",
    1.15: "com.microsoft::SkipSimplifiedLayerNormalization",
    1.70: "Log",
    1.90: "Elu Selu Celu Sin Cos DepthToSpace",
    2.00: "com.microsoft::EmbedLayerNormalization",
    4.30: "Pow",
    4.90: "com.microsoft::SkipLayerNormalization",
    11.0: "Softplus Mish Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh",
    25.0: "LRN",
})  # fmt: skip

MOVEMENT = {"Transpose": 1.5, "SpaceToDepth": 3.0}

FUSIONS = """
# reals
layer-norm:
    Add(Mul(Div(Sub(x, ReduceMean(x, a, keepdims=1)) as d, Sqrt(Add(ReduceMean(Pow(d, 2.0), a, keepdims=1), e))), s), b)
    => LayerNormalization(x, s, b)
# reals
gelu:             Mul(Mul(x, Add(Erf(Div(x, 1.4142135)), 1.0)), 0.5)     => com.microsoft::Gelu(x)
# reals
gelu-first:       Mul(Mul(x, 0.5), Add(Erf(Div(x, 1.4142135)), 1.0))     => com.microsoft::Gelu(x)
# reals
gelu-bracket:     Mul(x, Mul(Add(Erf(Div(x, 1.4142135)), 1.0), 0.5))     => com.microsoft::Gelu(x)
# reals
gelu-mul:         Mul(Mul(x, Add(Erf(Mul(x, 0.70710677)), 1.0)), 0.5)    => com.microsoft::Gelu(x)
# reals
gelu-mul-first:   Mul(Mul(x, 0.5), Add(Erf(Mul(x, 0.70710677)), 1.0))    => com.microsoft::Gelu(x)
# reals
gelu-mul-bracket: Mul(x, Mul(Add(Erf(Mul(x, 0.70710677)), 1.0), 0.5))    => com.microsoft::Gelu(x)
# reals
four-bits:        MatMul(x, DequantizeLinear(w, s, z?, axis=0, block_size=m) as d)
    => com.microsoft::MatMulNBits(x, w, s, accuracy_level=4)
    where w.is_const and w.dtype in ("int4", "uint4") and w.rank == 2 and m in (16, 32, 64, 128, 256) and d.uses == 1
# reals
gemm:             Add(MatMul(x, w), b)                                   => Gemm(x, w, b)
    where w.is_const and w.rank == 2 and b.is_const and b.shape == (w.shape[1],)
"""
"""What runtimes commonly find in models by themselves."""

PORTABLE = Target(
    name="portable",
    summary="standard ONNX ops at the model's own opset, priced for one core of a current CPU",
    prices=Prices(
        node=1.0e-6,
        flops=117e9,
        bandwidth=(85e9, 30e9),
        cache=8e6,
        lanes=16,
        efficiency={
            "matmul": 0.97, "dense": 0.95, "narrow": 0.85, "grouped": 0.50, "depthwise": 0.60, "recurrent": 0.47,
        },
        # an image with a term for each channel added stays in the layout of convolutions as a batch normalization only
        elements={**ELEMENTS, "BatchNormalization": 0.0},
        movement={**MOVEMENT, "BatchNormalization": 0.8},
        span=9.6e-9,
        matrix=0.15e-6,
        store=64,
        weights=22e9,
        strided={"Reduce": 0.80e-9, "Softmax": 8.0e-9, "LogSoftmax": 8.0e-9},
        run=6e-9,
        edge=5.0,
        scattered=3.8e-9,
        powers={2.0: 0.32e-9, 3.0: 0.41e-9},
    ),
    tags=frozenset({"portable"}),
    fusions=FUSIONS,
)  # fmt: skip

# Which ops stay in the blocked layout was read off the graphs that the runtime saves of a convolution, the op, and
# another convolution; `tests/rewrite/extract/test_layout.py` does so again.
ORT = Target(
    name="ort",
    summary="ONNX Runtime on CPU, one thread: its own ops, and its blocked layout of images",
    prices=replace(
        PORTABLE.prices,
        node=0.5e-6,
        elements=ELEMENTS,
        movement=MOVEMENT,
        # QLinearConv, QLinearMatMul and QGemm of int8 by int8 beside uint8 by int8: 7 to 14 times, as the inputs in ops
        # on integers that tests/bench/quantized_formats.py measures
        signed=10.0,
        efficiency={
            "matmul": 0.97, "dense": 0.72, "narrow": 0.60, "grouped": 0.50, "depthwise": 0.10, "recurrent": 0.47,
            "blocked dense": 0.97, "blocked narrow": 0.85, "blocked grouped": 0.95, "blocked depthwise": 0.75,
        },
    ),
    ops={
        "": None,
        "com.microsoft": ops(
            "Attention BiasGelu DynamicQuantizeMatMul EmbedLayerNormalization FastGelu FusedConv FusedGemm FusedMatMul "
            "Gelu GroupQueryAttention MatMulIntegerToFloat MatMulNBits MultiHeadAttention QGemm QLinearAdd "
            "QLinearAveragePool QLinearConcat QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearSigmoid "
            "QLinearSoftmax QLinearWhere QuickGelu RotaryEmbedding SkipLayerNormalization "
            "SkipSimplifiedLayerNormalization"
        ),
    },
    tags=frozenset({"ort"}),
    runtime="ONNX Runtime",
    layout=Layout(
        block=16,
        multiple=4,
        reorder=1.2,
        keeps=ops("Relu Sigmoid Tanh HardSigmoid HardSwish Gelu com.microsoft::Gelu com.microsoft::QuickGelu"),
        joins=ops("Add Mul Sum"),
        pools=ops("MaxPool AveragePool GlobalMaxPool GlobalAveragePool"),
        epilogues=per_op({0.01: "Relu Clip LeakyRelu", 0.03: "HardSigmoid HardSwish", 0.20: "Sigmoid Tanh"}),
    ),
    fusions=FUSIONS
    + """
# reals
hard-swish:       Mul(x, HardSigmoid(x, alpha=0.16666667, beta=0.5))     => HardSwish(x)
# reals
quick-gelu:       Mul(x, Sigmoid(x))                                     => com.microsoft::QuickGelu(x)
# reals
quick-gelu-alpha: Mul(x, Sigmoid(Mul(x, a)))                             => com.microsoft::QuickGelu(x)
    where a.is_const and a.size == 1
# reals
transposed-matmul: MatMul(x, Transpose(y, perm=p))                       => com.microsoft::FusedMatMul(x, y, transB=1)
    where p in ((1, 0), (0, 2, 1), (0, 1, 3, 2))
# reals
matmul-transposed: MatMul(Transpose(x, perm=p), y)                       => com.microsoft::FusedMatMul(x, y, transA=1)
    where p in ((1, 0), (0, 2, 1), (0, 1, 3, 2))
# reals
scaled-matmul:    Mul(MatMul(x, y), a)                                   => com.microsoft::FusedMatMul(x, y)
    where a.is_const and a.size == 1
# reals
divided-matmul:   Div(MatMul(x, y), a)                                   => com.microsoft::FusedMatMul(x, y)
    where a.is_const and a.size == 1
# reals
gemm-relu:        Relu(Gemm(x, w, b?))                                   => com.microsoft::FusedGemm(x, w, b)
# reals
gemm-bias-relu:   Relu(Add(MatMul(x, w), b))                             => com.microsoft::FusedGemm(x, w, b)
    where x.rank == 2 and w.is_const and w.rank == 2 and b.is_const and b.shape == (w.shape[1],)
# reals
bias-gelu:        com.microsoft::Gelu(Add(x, b))                         => com.microsoft::BiasGelu(x, b)
    where b.is_const and b.rank == 1
""",
)  # fmt: skip

# Numbers of our own kernels, on one core as above. A call costs little, since programs walk their calls natively; ops
# on elements run within the loops of what they read, so that little of their bytes is moved.
ELEMENTWISE = ops(
    "Abs Add Cast Ceil Clip Div Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish LeakyRelu Less "
    "LessOrEqual Max Min Mul Neg Not PRelu Pow Reciprocal Relu Round Sigmoid Sign Softplus Sqrt Sub Swish Tanh Where "
    "BatchNormalization com.microsoft::BiasGelu com.microsoft::FastGelu com.microsoft::Gelu com.microsoft::QuickGelu"
)

CPU = Target(
    name="cpu",
    summary="our own kernels on one core: programs that graphopt compile makes, no ONNX model",
    prices=replace(
        PORTABLE.prices,
        node=0.3e-6,
        efficiency={
            "matmul": 0.95, "pointwise": 0.80, "dense": 0.60, "narrow": 0.60, "grouped": 0.75, "depthwise": 0.45,
            "recurrent": 0.30, "blocked dense": 0.97, "blocked narrow": 0.60, "blocked grouped": 0.97,
            "blocked depthwise": 0.38,
            # measured by tests/bench/winograd.py, relative to the direct convolution in the same run; so are the
            # elements of tiles that are transformed, below
            "blocked winograd": 0.70,
        },
        elements={
            **ELEMENTS,
            **per_op({
                0.01: "Div Reciprocal Round Mod HardSwish Floor Ceil Sqrt Where PRelu ThresholdedRelu LeakyRelu Sign "
                      "HardSigmoid BatchNormalization Abs",
                0.10: "Exp Sigmoid Tanh Erf Softsign Swish Gelu com.microsoft::Gelu com.microsoft::QuickGelu Elu Selu "
                      "Celu com.microsoft::FastGelu com.microsoft::BiasGelu Log Softmax LogSoftmax",
                # beside Exp in the same run of tests/bench/rows.py
                0.07: "RMSNormalization SimplifiedLayerNormalization com.microsoft::SkipSimplifiedLayerNormalization",
                0.09: "LayerNormalization com.microsoft::SkipLayerNormalization",
                0.20: "Softplus Mish Sin Cos Resize Upsample",
                0.50: "Pow DepthToSpace GroupNormalization InstanceNormalization",
                0.32: "graphopt::BlockedWinogradConv",
            }),
        },
        movement={
            **dict.fromkeys(ELEMENTWISE, 0.25),
            "Transpose": 1.5, "SpaceToDepth": 3.0, "MaxPool": 4.0, "AveragePool": 4.0,
            "graphopt::BlockedMaxPool": 1.7, "graphopt::BlockedAveragePool": 1.7,
            "graphopt::Block": 2.0, "graphopt::Unblock": 2.5,
        },
        span=0.0,
        matrix=0.1e-6,
        strided={"Reduce": 0.05e-9, "Softmax": 1.0e-9, "LogSoftmax": 1.0e-9},
        run=2e-9,
        scattered=1.5e-9,
        short_rows=2.5,
        strided_rows=1.5,
        open_rows=50.0,
        columns=200.0,
        # fitted to what tests/bench/product_ways.py measures
        products={
            "product": ProductPrices(call=0.25e-6, step=16.7e-12, moved=(0.2e-9, 0.6e-9)),
            "gemm": ProductPrices(call=0.10e-6, step=17.4e-12, moved=(0.5e-9, 0.8e-9)),
        },
    ),
    ops={
        "": None,
        "com.microsoft": ops(
            "BiasGelu FastGelu FusedMatMul Gelu MatMulIntegerToFloat MultiHeadAttention QGemm QuickGelu "
            "SkipLayerNormalization SkipSimplifiedLayerNormalization"
        ),
        "graphopt": None,
    },
    tags=frozenset({"cpu"}),
    lacking_since={},
    within=ELEMENTWISE,
    runtime="graphopt",
)  # fmt: skip
"""Our own programs: with layouts of images as ops, which no ONNX model has."""

T4 = Target(
    name="t4",
    summary="NVIDIA T4: a roofline of published numbers, to compare with the literature; nothing of it was measured",
    prices=Prices(
        # NVIDIA's data sheet of the T4: 8.1 TFLOP/s in single precision, 320 GB/s. A short kernel costs between 3.8 us
        # (launches overlap) and 9.6 us (each is waited for): A. Gray, "Getting Started with CUDA Graphs", NVIDIA, 2019.
        node=5e-6,
        flops=8.1e12,
        bandwidth=(320e9, 320e9),
        cache=4e6,
        lanes=1,
        efficiency=dict.fromkeys(("matmul", "dense", "narrow", "grouped", "depthwise", "recurrent"), 1.0),
        elements={"DepthToSpace": 0.0, "Pow": 0.0},
        movement={},
        span=0.0,
        matrix=0.0,
        store=0.0,
        weights=inf,
        strided=dict.fromkeys(("Reduce", "Softmax", "LogSoftmax"), 0.0),
        run=0.0,
        edge=0.0,
        scattered=0.0,
        powers={},
        # 40 multiprocessors; the smallest tile that NVIDIA's guide to matrix products lists for cuBLAS is 64 x 64
        processors=40,
        tile=64,
        # as TASO, and TENSAT after it, assume of splits; runtimes of strided tensors need no copy for the others either
        free=ops("Split Reshape Flatten Squeeze Unsqueeze Identity"),
    ),
    ops={
        "": None,
        "com.microsoft": ops("BiasGelu FastGelu FusedConv FusedGemm FusedMatMul Gelu SkipLayerNormalization"),
    },
    tags=frozenset({"gpu", "t4"}),
)
"""A GPU, for rules that pay where launching a kernel is what takes long."""

CUDA = Target(
    name="cuda",
    summary="our own kernels and cuBLAS on an NVIDIA GPU: programs that graphopt compile makes, no ONNX model",
    prices=replace(
        T4.prices,
        # NVIDIA's data sheet of the H100 SXM: 67 TFLOP/s in single precision, 3.35 TB/s, 50 MB of second cache, 132
        # multiprocessors. A launch that a CUDA graph replays costs about 2 us where the next one waits for it.
        node=2e-6,
        flops=67e12,
        bandwidth=(5.5e12, 3.35e12),
        cache=50e6,
        processors=132,
        free=ops("Reshape Flatten Squeeze Unsqueeze Identity"),
        # assumed, not measured: that cuBLAS and cuDNN reach 85 % of this data sheet, our own kernels 60 % of that, and
        # that a call costs a launch; tests/device/run.sh measures all of it on a GPU, for these to be corrected
        products={
            "gemm": ProductPrices(call=2e-6, step=2 / (0.85 * 67e12), moved=(4 / 5.5e12, 4 / 3.35e12)),
            "convolution": ProductPrices(call=2e-6, step=2 / (0.85 * 67e12), moved=(4 / 5.5e12, 4 / 3.35e12)),
            "product": ProductPrices(call=2e-6, step=2 / (0.60 * 0.85 * 67e12), moved=(4 / 5.5e12, 4 / 3.35e12)),
        },
    ),
    ops={"": None, "com.microsoft": CPU.ops["com.microsoft"], "graphopt": frozenset()},
    tags=frozenset({"cuda"}),
    lacking_since={},
    within=ELEMENTWISE,
    device="cuda",
)
"""Our own programs on a GPU."""

SIMULATED = replace(
    CUDA,
    name="simulated",
    summary="as cuda, on a GPU that Python simulates: to find faults without one, on small inputs",
    device="simulated",
)
"""Our own programs on a GPU that is simulated."""

DEVICE_FUNCTIONS: Mapping[frozenset[str], tuple[str, ...]] = {
    ops("MatMul Gemm com.microsoft::FusedMatMul com.microsoft::FusedGemm"): ("gemm", "product"),
    ops("Conv com.microsoft::FusedConv"): ("convolution", "product"),
}
"""By op: the functions of a device that compute it, those of libraries first. The fastest does, by ``Prices.products``,
which has those that are there."""

LACKING: Mapping[str, frozenset[str]] = {
    "float64": ops(
        "Acos Acosh Asin Asinh Atan Atanh Attention AveragePool Celu Conv ConvTranspose Cosh Elu Erf Gelu "
        "GlobalAveragePool GlobalLpPool GlobalMaxPool HardSigmoid HardSwish Hardmax InstanceNormalization LRN "
        "LeakyRelu LpPool Mean MeanVarianceNormalization Mish OneHot PRelu Resize Selu Sinh Softplus Softsign Tan "
        "ThresholdedRelu "
        "com.microsoft::BiasGelu com.microsoft::FastGelu com.microsoft::FusedConv com.microsoft::FusedGemm "
        "com.microsoft::Gelu com.microsoft::QuickGelu"
    ),
    "int64": ops("DepthToSpace Gemm GridSample PRelu Relu Resize SpaceToDepth"),
    "int32": ops("DepthToSpace Gemm GridSample PRelu SpaceToDepth"),
    "bool": ops("DepthToSpace GridSample OneHot Resize SpaceToDepth Where"),
}
"""By dtype, ops that ONNX defines for data of it and ONNX Runtime on CPU does not have: no rule may make one."""

DATA = {"OneHot": 2, "Where": 1}
"""Which input of an op holds the data, where it is not the first."""

TARGETS: Mapping[str, Target] = {t.name: t for t in (PORTABLE, ORT, CPU, CUDA, SIMULATED, T4)}
"""The targets that come with graphopt, by name."""


def target(name: str, makes_models: bool | None = None) -> Target:
    """The target of this name. UsageError, with the nearest names, where there is none; ``makes_models`` is which of
    them are of use."""
    found = TARGETS.get(name)
    if found is None:
        there = [t.name for t in TARGETS.values() if makes_models in (None, t.makes_models)]
        raise UsageError(f"no target is called {name!r}{nearest_or_some(name, there)}")
    return found
