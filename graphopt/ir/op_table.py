"""Op table: one row for each op, with all that its schema does not say. What reads it: kinds and named sets of rules
(``ops``), inference of shapes and bounds, prices, proofs, dtypes that runtimes lack, lowering. Code by op (a nest, a
term of the solver) stands in the part that it belongs to. An op that has no row is of no kind."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache
from math import inf
from typing import Final, TypeAlias, TypeVar

from graphopt.frozen import dataclass

ABOUT_ONE: Final = 1 + 2.0**-20
"""What runtimes keep to where mathematics says 1: the polynomials by which they compute tanh and the like overshoot."""

ZERO: Final = "zero"
FINITE: Final = "finite"


@dataclass(frozen=True, slots=True)
class Contrib:
    """Schema of an op that is not ONNX's: ``inputs`` and ``outputs`` as names in order, all of one type but those in
    ``typed``; ``?`` marks optional ones."""

    inputs: str
    outputs: str
    attributes: Mapping[str, int | float | str | type] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("float32",)
    typed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of one op."""

    kind: str = "other"
    """``unary``: on each element of one input; ``binary``: of two that broadcast to each other; ``elementwise``: with
    another arity; the others are not on each element."""
    group: str = ""
    """Of ops on elements: ``arithmetic`` that also integers have, ``comparison``, a ``test`` of one number, ``logic``,
    ``bits``."""
    shape: str | None = None
    """The shape of the output: ``same`` as the first input's, or the ``broadcast`` of all; empty where inference has a
    function of its own. Unary ops have the first, binary ones the second, where nothing is said."""
    commutes: bool = False
    """Whether the order of the inputs does not matter."""
    is_random: bool = False
    """Whether equal inputs may give unequal outputs."""
    at_zero: str = ""
    """What it makes of 0, whatever finite attributes it has: ``ZERO``, of either sign; ``FINITE``, another finite
    number."""
    rises: bool = False
    """Whether it grows strictly with its input, as far as floats are fine enough, whatever its attributes."""
    range: tuple[float, float] | None = None
    """Bounds of its result that hold whatever its inputs are."""
    wraps: bool = False
    """Whether it wraps around on integers, not counting the least of them divided by -1."""
    is_approximate: bool = False
    """Whether IEEE 754 does not say how its result is rounded."""
    is_wide: bool = False
    """Whether half precision does not serve: sums along axes, exponentials, coordinates, quantization, chance."""
    lacks: str = ""
    """Dtypes of the data that ONNX defines it for and ONNX Runtime on CPU does not have: no rule may make one."""
    data: int = 0
    """Which input holds the data."""
    sizes: tuple[int, ...] = ()
    """The inputs after whose elements the shapes of outputs go."""
    priced_as: str = ""
    """The op whose price by element it has on targets that name none for it."""
    schema: Contrib | None = None
    """The schema of an op that is not ONNX's and that ``means`` says all of; others have theirs in ``contrib``."""
    means: str = ""
    """What such an op computes, in ops of ONNX on its inputs and attributes: what evaluates it and, where it has no
    formula of its own, what lowers it are made of that."""

    @property
    def output_shape(self) -> str:
        """``shape``, or what holds for the kind."""
        return {"unary": "same", "binary": "broadcast"}.get(self.kind, "") if self.shape is None else self.shape


OPS: Final[Mapping[str, Row]] = {
    # -- unary
    "Abs": Row("unary", group="arithmetic", at_zero=ZERO, wraps=True),
    "Acos": Row("unary", at_zero=FINITE, range=(0.0, inf), is_approximate=True, lacks="float64", priced_as="Tan"),
    "Acosh": Row("unary", is_approximate=True, lacks="float64", priced_as="Tan"),
    "Affine": Row("unary", schema=Contrib("X", "Y", {"alpha": 1.0, "beta": 0.0}), means="Add(Mul(X, alpha), beta)"),
    "Asin": Row("unary", at_zero=ZERO, is_approximate=True, lacks="float64", priced_as="Tan"),
    "Asinh": Row("unary", at_zero=ZERO, rises=True, is_approximate=True, lacks="float64", priced_as="Tan"),
    "Atan": Row("unary", at_zero=ZERO, rises=True, is_approximate=True, lacks="float64", priced_as="Tan"),
    "Atanh": Row("unary", at_zero=ZERO, is_approximate=True, lacks="float64", priced_as="Tan"),
    "BitwiseNot": Row("unary", group="bits"),
    "Cast": Row("unary", shape="", wraps=True),
    "Ceil": Row("unary", at_zero=ZERO, priced_as="Floor"),
    "Celu": Row("unary", at_zero=ZERO, is_approximate=True, lacks="float64", priced_as="Elu"),
    "Cos": Row("unary", at_zero=FINITE, range=(-ABOUT_ONE, ABOUT_ONE), is_approximate=True, priced_as="Sin"),
    "Cosh": Row("unary", at_zero=FINITE, range=(1.0, inf), is_approximate=True, lacks="float64", priced_as="Tan"),
    "Elu": Row("unary", at_zero=ZERO, is_approximate=True, lacks="float64"),
    "Erf": Row("unary", at_zero=ZERO, rises=True, range=(-ABOUT_ONE, ABOUT_ONE), is_approximate=True, lacks="float64"),
    "Exp": Row("unary", at_zero=FINITE, rises=True, is_approximate=True, is_wide=True),
    "Floor": Row("unary", at_zero=ZERO),
    "Gelu": Row("unary", at_zero=ZERO, is_approximate=True, lacks="float64"),
    "HardSigmoid": Row("unary", at_zero=FINITE, range=(0.0, 1.0), is_approximate=True, lacks="float64"),
    "HardSwish": Row("unary", at_zero=ZERO, is_approximate=True, lacks="float64"),
    "Identity": Row("unary", group="arithmetic", shape=""),
    "IsInf": Row("unary", group="test"),
    "IsNaN": Row("unary", group="test"),
    "LeakyRelu": Row("unary", at_zero=ZERO, lacks="float64"),
    "Log": Row("unary", is_approximate=True, is_wide=True),
    "Mish": Row("unary", at_zero=ZERO, is_approximate=True, lacks="float64", priced_as="Softplus"),
    "Neg": Row("unary", group="arithmetic", wraps=True),
    "Not": Row("unary", group="logic"),
    "Reciprocal": Row("unary", priced_as="Div"),
    "Relu": Row("unary", group="arithmetic", at_zero=ZERO, lacks="int64"),
    "Round": Row("unary", at_zero=ZERO, priced_as="Div"),
    "ScaledTanh": Row(
        "unary",
        at_zero=ZERO,
        is_approximate=True,
        priced_as="Sigmoid",
        schema=Contrib("X", "Y", {"alpha": float, "beta": float}),
        means="Mul(Tanh(Mul(X, beta)), alpha)",
    ),
    "Selu": Row("unary", at_zero=ZERO, is_approximate=True, lacks="float64", priced_as="Elu"),
    "Shrink": Row("unary"),
    "Sigmoid": Row("unary", at_zero=FINITE, rises=True, range=(0.0, ABOUT_ONE), is_approximate=True),
    "Sign": Row("unary", group="arithmetic", at_zero=ZERO, range=(-1.0, 1.0)),
    "Sin": Row("unary", at_zero=ZERO, range=(-ABOUT_ONE, ABOUT_ONE), is_approximate=True),
    "Sinh": Row("unary", at_zero=ZERO, rises=True, is_approximate=True, lacks="float64", priced_as="Tan"),
    "Softplus": Row(
        "unary", at_zero=FINITE, rises=True, range=(0.0, inf), is_approximate=True, lacks="float64", is_wide=True
    ),
    "Softsign": Row("unary", at_zero=ZERO, rises=True, range=(-1.0, 1.0), is_approximate=True, lacks="float64"),
    "Sqrt": Row("unary", at_zero=ZERO),
    "Swish": Row("unary", at_zero=ZERO, is_approximate=True, priced_as="Gelu"),
    "Tan": Row("unary", at_zero=ZERO, is_approximate=True, lacks="float64"),
    "Tanh": Row(
        "unary", at_zero=ZERO, rises=True, range=(-ABOUT_ONE, ABOUT_ONE), is_approximate=True, priced_as="Sigmoid"
    ),
    "ThresholdedRelu": Row("unary", at_zero=ZERO, lacks="float64"),
    "com.microsoft::Gelu": Row(
        "unary",
        at_zero=ZERO,
        is_approximate=True,
        lacks="float64",
        priced_as="Gelu",
        schema=Contrib("X", "Y"),
        means="Gelu(X)",
    ),
    "com.microsoft::QuickGelu": Row(
        "unary",
        at_zero=ZERO,
        is_approximate=True,
        lacks="float64",
        priced_as="Erf",
        schema=Contrib("X", "Y", {"alpha": 1.702}, ("float32", "float16")),
        means="Mul(X, Sigmoid(Mul(X, alpha)))",
    ),
    # -- binary
    "Add": Row("binary", group="arithmetic", commutes=True, wraps=True),
    "And": Row("binary", group="logic", commutes=True),
    "BitShift": Row("binary", group="bits"),
    "BitwiseAnd": Row("binary", group="bits", commutes=True),
    "BitwiseOr": Row("binary", group="bits", commutes=True),
    "BitwiseXor": Row("binary", group="bits", commutes=True),
    "Div": Row("binary", group="arithmetic"),
    "Equal": Row("binary", group="comparison", commutes=True),
    "Greater": Row("binary", group="comparison"),
    "GreaterOrEqual": Row("binary", group="comparison"),
    "Less": Row("binary", group="comparison"),
    "LessOrEqual": Row("binary", group="comparison"),
    "Mod": Row("binary", group="arithmetic"),
    "Mul": Row("binary", group="arithmetic", commutes=True, wraps=True),
    "Or": Row("binary", group="logic", commutes=True),
    "Pow": Row("binary", wraps=True, is_wide=True),
    "Sub": Row("binary", group="arithmetic", wraps=True),
    "Xor": Row("binary", group="logic", commutes=True),
    # -- elementwise
    "CastLike": Row("elementwise"),
    "Clip": Row("elementwise", group="arithmetic", shape="same"),
    "Max": Row("elementwise", group="arithmetic", shape="broadcast", commutes=True),
    "Mean": Row("elementwise", shape="broadcast", commutes=True, is_approximate=True, lacks="float64"),
    "Min": Row("elementwise", group="arithmetic", shape="broadcast", commutes=True),
    "PRelu": Row("elementwise", lacks="float64 int64 int32"),
    "Sum": Row("elementwise", group="arithmetic", shape="broadcast", commutes=True, wraps=True),
    "Where": Row("elementwise", group="arithmetic", shape="broadcast", lacks="bool", data=1),
    # -- movement
    "CenterCropPad": Row("movement", sizes=(1,)),
    "Concat": Row("movement"),
    "DepthToSpace": Row("movement", lacks="int64 int32 bool"),
    "Expand": Row("movement", sizes=(1,)),
    "Flatten": Row("movement"),
    "Gather": Row("movement"),
    "GatherElements": Row("movement"),
    "GatherND": Row("movement"),
    "Pad": Row("movement", sizes=(1, 3)),
    "Reshape": Row("movement", sizes=(1,)),
    "ReverseSequence": Row("movement", shape="same"),
    "Slice": Row("movement", sizes=(1, 2, 3, 4)),
    "SpaceToDepth": Row("movement", lacks="int64 int32 bool"),
    "Split": Row("movement", sizes=(1,)),
    "Squeeze": Row("movement", sizes=(1,)),
    "Tile": Row("movement", sizes=(1,)),
    "Transpose": Row("movement"),
    "Trilu": Row("movement", shape="same"),
    "Unsqueeze": Row("movement", sizes=(1,)),
    # -- reduce
    "ReduceL1": Row("reduce", range=(0.0, inf), wraps=True, is_wide=True, sizes=(1,)),
    "ReduceL2": Row("reduce", range=(0.0, inf), is_wide=True, sizes=(1,)),
    "ReduceLogSum": Row("reduce", is_wide=True, sizes=(1,)),
    "ReduceLogSumExp": Row("reduce", is_wide=True, sizes=(1,)),
    "ReduceMax": Row("reduce", sizes=(1,)),
    "ReduceMean": Row("reduce", is_wide=True, sizes=(1,)),
    "ReduceMin": Row("reduce", sizes=(1,)),
    "ReduceProd": Row("reduce", wraps=True, is_wide=True, sizes=(1,)),
    "ReduceSum": Row("reduce", wraps=True, is_wide=True, sizes=(1,)),
    "ReduceSumSquare": Row("reduce", range=(0.0, inf), wraps=True, is_wide=True, sizes=(1,)),
    # -- product
    "Conv": Row("product", lacks="float64"),
    "ConvInteger": Row("product", wraps=True),
    "ConvTranspose": Row("product", lacks="float64"),
    "Einsum": Row("product", wraps=True),
    "Gemm": Row("product", wraps=True, lacks="int64 int32"),
    "MatMul": Row("product", wraps=True),
    "MatMulInteger": Row("product", wraps=True),
    "QLinearConv": Row("product"),
    "QLinearMatMul": Row("product"),
    "com.microsoft::FusedConv": Row("product", lacks="float64"),
    "com.microsoft::FusedGemm": Row("product", lacks="float64"),
    "com.microsoft::FusedMatMul": Row("product"),
    # -- pool
    "AveragePool": Row("pool", lacks="float64"),
    "GlobalAveragePool": Row("pool", lacks="float64", is_wide=True),
    "GlobalLpPool": Row("pool", range=(0.0, inf), lacks="float64"),
    "GlobalMaxPool": Row("pool", lacks="float64"),
    "LpPool": Row("pool", range=(0.0, inf), lacks="float64"),
    "MaxPool": Row("pool"),
    # -- normalization
    "BatchNormalization": Row("normalization", is_wide=True),
    "GroupNormalization": Row("normalization", is_wide=True),
    "InstanceNormalization": Row("normalization", lacks="float64", is_wide=True),
    "LRN": Row("normalization", shape="same", lacks="float64", is_wide=True),
    "LayerNormalization": Row("normalization", is_wide=True),
    "LogSoftmax": Row("normalization", range=(-inf, 0.0), is_wide=True),
    "LpNormalization": Row("normalization", shape="same", is_wide=True),
    "MeanVarianceNormalization": Row("normalization", shape="same", lacks="float64", is_wide=True),
    "RMSNormalization": Row("normalization", is_wide=True),
    "SimplifiedLayerNormalization": Row("normalization", is_wide=True),
    "Softmax": Row("normalization", range=(0.0, ABOUT_ONE), is_wide=True),
    "com.microsoft::SkipLayerNormalization": Row("normalization", is_wide=True),
    "com.microsoft::SkipSimplifiedLayerNormalization": Row("normalization", is_wide=True),
    # -- control
    "If": Row("control"),
    "Loop": Row("control"),
    "Scan": Row("control"),
    # -- sequence
    "ConcatFromSequence": Row("sequence"),
    "SequenceAt": Row("sequence"),
    "SequenceConstruct": Row("sequence"),
    "SequenceEmpty": Row("sequence"),
    "SequenceErase": Row("sequence"),
    "SequenceInsert": Row("sequence"),
    "SequenceLength": Row("sequence", range=(0.0, inf)),
    "SequenceMap": Row("sequence"),
    "SplitToSequence": Row("sequence"),
    # -- other
    "AffineGrid": Row(sizes=(1,)),
    "ArgMax": Row(range=(0.0, inf)),
    "ArgMin": Row(range=(0.0, inf)),
    "Attention": Row(lacks="float64"),
    "Bernoulli": Row(is_random=True, is_wide=True),
    "BlackmanWindow": Row(sizes=(0,)),
    "Col2Im": Row(sizes=(1,)),
    "Compress": Row(sizes=(1,)),
    "ConstantOfShape": Row(sizes=(0,)),
    "CumProd": Row(shape="same", wraps=True, is_wide=True),
    "CumSum": Row(shape="same", wraps=True, is_wide=True),
    "DFT": Row(sizes=(1,)),
    "DequantizeLinear": Row(is_wide=True),
    "Det": Row(is_wide=True),
    "Dropout": Row(is_random=True),
    "DynamicQuantizeLinear": Row(is_wide=True),
    "GRU": Row(is_wide=True),
    "GridSample": Row(lacks="int64 int32 bool", is_wide=True),
    "HammingWindow": Row(sizes=(0,)),
    "HannWindow": Row(sizes=(0,)),
    "Hardmax": Row(range=(0.0, 1.0), lacks="float64"),
    "LSTM": Row(is_wide=True),
    "MaxUnpool": Row(sizes=(2,)),
    "MelWeightMatrix": Row(sizes=(0, 1)),
    "Multinomial": Row(is_random=True, is_wide=True),
    "NonMaxSuppression": Row(range=(0.0, inf), is_wide=True, sizes=(0, 1, 2, 3, 4)),
    "NonZero": Row(range=(0.0, inf), sizes=(0,)),
    "OneHot": Row(lacks="float64 bool", data=2, sizes=(1,)),
    "QuantizeLinear": Row(is_wide=True),
    "RNN": Row(is_wide=True),
    "RandomNormal": Row(is_random=True, is_wide=True),
    "RandomNormalLike": Row(is_random=True, is_wide=True),
    "RandomUniform": Row(is_random=True, is_wide=True),
    "RandomUniformLike": Row(is_random=True, is_wide=True),
    "Range": Row(is_wide=True, sizes=(0, 1, 2)),
    "Resize": Row(lacks="float64 int64 bool", is_wide=True, sizes=(1, 2, 3)),
    "RoiAlign": Row(is_wide=True),
    "RotaryEmbedding": Row(shape="same"),
    "STFT": Row(sizes=(1, 3)),
    "Scatter": Row(shape="same"),
    "ScatterElements": Row(shape="same"),
    "ScatterND": Row(shape="same"),
    "Shape": Row(range=(0.0, inf)),
    "Size": Row(range=(0.0, inf)),
    "TensorScatter": Row(shape="same"),
    "TopK": Row(sizes=(1,)),
    "Unique": Row(sizes=(0,)),
    "Upsample": Row(is_wide=True, sizes=(1,)),
    "com.microsoft::BiasGelu": Row(
        shape="broadcast", is_approximate=True, lacks="float64", schema=Contrib("A B", "C"), means="Gelu(Add(A, B))"
    ),
    "com.microsoft::EmbedLayerNormalization": Row(is_wide=True),
    "com.microsoft::FastGelu": Row(shape="same", is_approximate=True, lacks="float64"),
    "com.microsoft::RotaryEmbedding": Row(shape="same"),
}
"""The rows."""


def ops_where(**facts: object) -> frozenset[str]:
    """The ops whose rows say all of this; of a fact that is given as a tuple, any of these."""
    wanted = {name: fact if isinstance(fact, tuple) else (fact,) for name, fact in facts.items()}
    return frozenset(op for op, row in OPS.items() if all(getattr(row, name) in some for name, some in wanted.items()))


TRUTHS: Final = ops_where(group=("comparison", "test", "logic"))
"""Ops whose results are truth values."""

Said: TypeAlias = str | tuple["Said", ...]
"""What an op means: the name of an input or attribute, or the name of an op and what it takes."""
T = TypeVar("T")


def interpret(means: str, values: Mapping[str, T], call: Callable[[str, list[T]], T]) -> T:
    """``Row.means`` over some algebra (arrays, expressions): ``values`` are the inputs and attributes by name, and
    ``call`` applies an op."""

    def value(part: Said) -> T:
        return values[part] if isinstance(part, str) else call(str(part[0]), [value(p) for p in part[1:]])

    return value(parsed(means))


@cache
def parsed(means: str) -> Said:
    """``Row.means`` taken apart."""

    def read(part: ast.expr) -> Said:
        match part:
            case ast.Name(name):
                return name
            case ast.Call(ast.Name(op), args, []):
                return (op, *map(read, args))
        raise ValueError(f"{means}: expected calls of ops and names of inputs and attributes, not {ast.unparse(part)}")

    return read(ast.parse(means, mode="eval").body)
