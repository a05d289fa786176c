"""Target descriptions: devices, prices, blocked layouts and what a target takes, as plain frozen values.

Prices are a roofline (how fast products, how fast memory, what a call costs) of five numbers, with exceptions by op.
Nothing here computes: ``rewrite.extract.cost`` reads these numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import inf
from typing import Final

from graphopt.frozen import dataclass


@dataclass(frozen=True)
class DeviceKind:
    """What programs run on, by what it can do. Nobody asks for its name but to print it."""

    name: str
    is_host: bool = False
    """Programs run in this process, on the caller's own arrays, by machine code that can be kept."""
    has_blocks: bool = False
    """Loops are bound to blocks of threads, and functions of libraries compute products beside our own."""
    has_machine_code: bool = True
    """Kernels become machine code, which can be written, and timed; else Python stands in for the device."""


HOST: Final = DeviceKind("cpu", is_host=True)
GPU: Final = DeviceKind("cuda", has_blocks=True)
SIMULATION: Final = DeviceKind("simulated", has_blocks=True, has_machine_code=False)
DEVICES: Final[Mapping[str, DeviceKind]] = {d.name: d for d in (HOST, GPU, SIMULATION)}
"""What programs can run on, by the name that files have for it."""


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


KINDS_OF_CONVOLUTION: Final = {
    "dense": "convolutions of many channels",
    "narrow": "convolutions of fewer than eight input channels",
    "grouped": "convolutions in groups",
    "depthwise": "convolutions of one channel each",
}
KINDS_OF_PRODUCT: Final = {
    "matmul": "matrix products",
    "recurrent": "LSTM, GRU and RNN: many small products in a row",
    "pointwise": "convolutions of many channels and no windows, as matrix products",
    **KINDS_OF_CONVOLUTION,
    **{f"blocked {kind}": f"{what}, in a blocked layout" for kind, what in KINDS_OF_CONVOLUTION.items()},
    "blocked winograd": "convolutions by Winograd's minimal filtering, in a blocked layout",
}
"""The kinds of products that have an efficiency of their own."""


@dataclass(frozen=True)
class Prices:
    """What work costs. All times are seconds, for one thread. The first four fields are a whole roofline."""

    node: float
    """To call an op, whatever it does."""
    flops: float
    """Multiplications and additions a second that a large product of matrices reaches."""
    bandwidth: tuple[float, float]
    """Bytes a second that an op reads and writes: within the caches, and beyond them."""
    cache: float
    """How many bytes of an op's operands count as within the caches."""
    lanes: int = 1
    """Columns of a product, and output channels of a convolution, that are computed at a time: as many are computed as
    fill them up."""
    efficiency: Mapping[str, float] = field(default_factory=dict)
    """By one of ``KINDS_OF_PRODUCT``, the part of ``flops`` that it reaches, if not all."""
    elements: Mapping[str, float] = field(default_factory=dict)
    """By op, or by an op and its mode (``Resize.cubic``): seconds for each element, where arithmetic and not memory is
    what takes long."""
    movement: Mapping[str, float] = field(default_factory=dict)
    """By op that only moves data: how many times dearer its bytes are than those of a plain copy."""
    span: float = 0.0
    """For each contiguous run of elements that a broadcasting op works on at a time."""
    matrix: float = 0.0
    """For each matrix of a product of many."""
    store: float = 0.0
    """To store an element of a product of matrices takes as long as so many multiplications."""
    weights: float = inf
    """Bytes a second at which constants come from memory: other layers have driven them out of the caches."""
    strided: Mapping[str, float] = field(default_factory=dict)
    """By op (reductions under ``Reduce``): seconds for each element where the axis is not the last."""
    run: float = 0.0
    """For each run of neighbouring elements that an op which moves data copies at a time."""
    edge: float = 0.0
    """Columns' worth of work that a product costs beyond its columns."""
    scattered: float = 0.0
    """Seconds for each element of a Transpose that does more than move one axis, or rows."""
    powers: Mapping[float, float] = field(default_factory=dict)
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
class Variant:
    """Other prices, for devices that can do as much as ``least`` says, until a later variant asks for more.

    ``least`` is a GPU's compute capability (``(8, 0)``), or how many elements of float32 the processor's vectors hold
    (``(16,)``).
    """

    least: tuple[int, ...]
    prices: Prices = field(hash=False)
    base: Prices = field(hash=False)
    """The prices that these take the place of: those of a target whose prices were changed since are its user's."""
    sources: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)


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
    lacking_since: Mapping[str, int] = field(default_factory=dict, hash=False, repr=False)
    """By op: the opset from which on there is no kernel for it, because that opset states it anew."""
    within: frozenset[str] = frozenset()
    """Ops that run within the loops of what they read or are read by: what they take alone says nothing."""
    runtime: str = ""
    """The engine (``engines``) in which its prices can be measured, where there is one."""
    device: DeviceKind = HOST
    """What programs for it run on."""
    measured: Mapping[str, float] | None = field(default=None, hash=False, repr=False)
    """Seconds that calls took, by ``rewrite.workload``; what is not among them is priced by ``prices``."""
    paces: Mapping[str, float] = field(default_factory=dict, hash=False, repr=False)
    """By call, by op, and under no name for all others: how many times as long as ``prices`` say those take that are
    not among them."""
    opsets: tuple[int, int] | None = None
    """The first and the last opset that it reads, where that is known."""
    variants: tuple[Variant, ...] = field(default=(), hash=False, repr=False)
    """Other prices, by what the device that is there can do; the least first."""
    sources: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    """Where each number comes from, by the field of ``Prices`` (``flops``), or that and the op (``elements.Pow``); the
    list of ops under ``ops``."""

    digest: str = field(default="", repr=False)
    """Of the file that it was read from, where it is a user's: two may be called the same."""

    @property
    def key(self) -> str:
        """What is kept for it is kept under this: the name, with the digest of the file where that is a user's."""
        return f"{self.name}@{self.digest}" if self.digest else self.name

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

    def reads(self, opset: int) -> bool:
        """Whether it reads models of the opset, as far as that is known."""
        return self.opsets is None or self.opsets[0] <= opset <= self.opsets[1]


def ops(names: str) -> frozenset[str]:
    """The set of the ops named in a text, with spaces between."""
    return frozenset(names.split())


DEVICE_FUNCTIONS: Mapping[frozenset[str], tuple[str, ...]] = {
    ops("MatMul Gemm com.microsoft::FusedMatMul com.microsoft::FusedGemm"): ("gemm", "product"),
    ops("Conv com.microsoft::FusedConv"): ("convolution", "product"),
}
"""By op: the functions of a device that compute it, those of libraries first. The fastest does, by ``Prices.products``,
which has those that are there."""
