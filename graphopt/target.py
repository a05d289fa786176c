"""What a target is: the ops that it takes, the rules that are for it, and what its work costs, as plain data.

A target is a frozen value that anyone can write. Its prices are a roofline (how fast products, how
fast memory, what a call costs) with exceptions by op; its ``Layout``, where it has one, says which
ops compute in a blocked layout of their own and what entering and leaving that layout costs; its
``fusions`` name the groups of ops that its runtime makes into one by itself, so that a rewrite which
does no more than that is not rewarded. Nothing here computes: ``rewrite.cost`` reads these numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from graphopt.errors import UsageError


@dataclass(frozen=True)
class Prices:
    """What work costs. All times are seconds, for one thread."""

    node: float
    """To call an op, whatever it does."""
    flops: float
    """Multiplications and additions a second that a large product of matrices reaches."""
    bandwidth: float
    """Bytes a second that an op reads and writes."""
    efficiency: Mapping[str, float]
    """By kind of product, the part of ``flops`` that it reaches: see ``rewrite.cost.KINDS_OF_PRODUCT``."""
    elements: Mapping[str, float]
    """By op: seconds for each element of the output, where arithmetic and not memory is what takes long."""
    movement: Mapping[str, float]
    """By op that only moves data: how many times dearer its bytes are than those of a plain copy."""
    stored_byte: float = 1e-13
    """For each byte of constants that an op reads: decides between equals in favour of the smaller file."""


@dataclass(frozen=True)
class Layout:
    """A blocked layout of images (``[N, C/block, H, W, block]``) that a runtime uses inside, by a policy of its own."""

    block: int
    """Channels in a block."""
    reorder: float
    """Seconds an element to enter or leave the layout."""
    keeps: frozenset[str]
    """Elementwise ops of one input that stay in the layout."""
    joins: frozenset[str]
    """Ops of several inputs that stay where all inputs have the layout and equal shapes."""
    pools: frozenset[str]
    """Ops that compute in the layout, and enter it for that, where the channels come out even."""
    epilogues: frozenset[str]
    """Ops that a convolution applies to what it writes, at no cost, where nobody else reads it."""


@dataclass(frozen=True)
class Target:
    """A runtime, as far as rewriting cares.

    ``ops`` lists what results may use, by domain: None stands for every op of the domain that the
    model's opset has. ``tags`` are the names under which rules call this target (``for ort``).
    """

    name: str
    summary: str
    prices: Prices
    ops: Mapping[str, frozenset[str] | None] = field(default_factory=lambda: {"": None})
    tags: frozenset[str] = frozenset()
    layout: Layout | None = None
    fusions: tuple[str, ...] = ()

    def allows(self, op: str) -> bool:
        """Whether results may use the op (``domain::Name``, or a name of ONNX's own)."""
        domain, _, name = op.rpartition("::")
        allowed = self.ops.get(domain, frozenset())
        return allowed is None or name in allowed


def ops(names: str) -> frozenset[str]:
    """The set of the ops named in a text, with spaces between."""
    return frozenset(names.split())


NANO = 1e-9

ELEMENTS = {
    op: price * NANO
    for price, ops in (
        (0.15, "Div Sqrt Reciprocal PRelu LeakyRelu ThresholdedRelu HardSwish HardSigmoid Where Mod"),
        (0.40, "Floor Ceil Round Sign Cast CastLike Equal Less Greater LessOrEqual GreaterOrEqual And Or Not Xor"),
        (0.60, "Exp Log Sigmoid Tanh Erf Softmax LogSoftmax Swish com.microsoft::QuickGelu"),
        (1.20, "Gelu com.microsoft::Gelu com.microsoft::FastGelu com.microsoft::BiasGelu Elu Selu Celu Mish"),
        (8.00, "Softplus Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh"),
        (10.0, "Pow"),
        (27.0, "LRN"),
        (0.50, "LayerNormalization RMSNormalization InstanceNormalization GroupNormalization"),
        (0.80, "com.microsoft::SkipLayerNormalization com.microsoft::GroupNorm LpNormalization"),
        (1.00, "CumSum TopK OneHot NonZero ScatterND ScatterElements GatherElements GatherND Resize Upsample"),
    )
    for op in ops.split()
}
"""Seconds for each element of the output, on one core with vectors of 256 or 512 bits."""

MOVEMENT = {
    "Transpose": 3.0, "Pad": 1.5, "Tile": 1.5, "Expand": 1.0, "Gather": 1.0, "Concat": 1.0, "Slice": 1.2, "Split": 1.2,
    "DepthToSpace": 3.0, "SpaceToDepth": 3.0,
}  # fmt: skip

PORTABLE = Target(
    name="portable",
    summary="standard ONNX ops at the model's own opset, priced for one core of a current CPU",
    prices=Prices(
        node=1.5e-6,
        flops=100e9,
        bandwidth=25e9,
        efficiency={"dense": 0.90, "narrow": 0.45, "grouped": 0.35, "depthwise": 0.12, "recurrent": 0.30},
        elements=ELEMENTS,
        movement=MOVEMENT,
    ),
    tags=frozenset({"portable"}),
)

ORT = Target(
    name="ort",
    summary="ONNX Runtime on CPU, one thread: its own ops, and its blocked layout of images",
    prices=PORTABLE.prices,
    ops={
        "": None,
        "com.microsoft": ops("BiasGelu FastGelu FusedConv FusedGemm FusedMatMul Gelu QuickGelu SkipLayerNormalization"),
    },
    tags=frozenset({"ort"}),
)

TARGETS: Mapping[str, Target] = {t.name: t for t in (PORTABLE, ORT)}
"""The targets that come with graphopt, by name."""


def target(name: str) -> Target:
    """The target of this name. UsageError, with the nearest names, where there is none."""
    found = TARGETS.get(name)
    if found is None:
        near = get_close_matches(name, TARGETS, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(TARGETS)}"
        raise UsageError(f"no target is called {name!r}: {hint}")
    return found
