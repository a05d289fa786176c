"""Layers of torch.nn with their arguments and inputs: a row for each way to build one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
nn: Any = torch.nn

Inputs = Callable[[int], tuple[Any, ...]]
"""The inputs for a size of the batch, which is the first axis of each."""


@dataclass(frozen=True)
class Row:
    """A layer, what it is built from, and its inputs."""

    layer: str
    arguments: tuple[Any, ...]
    inputs: Inputs
    options: dict[str, Any] = field(default_factory=dict)
    is_trained: bool = False

    def __str__(self) -> str:
        words = [*map(_word, self.arguments), *(f"{k}={_word(v)}" for k, v in self.options.items())]
        shapes = ",".join("x".join(map(str, x.shape[1:])) for x in self.inputs(3) if isinstance(x, torch.Tensor))
        return f"{self.layer}({','.join(words)})-{shapes}" + ("-train" if self.is_trained else "")

    def build(self, inputs: tuple[Any, ...]) -> Any:
        """The layer with parameters and statistics that are not those it begins with."""
        torch.manual_seed(0)
        layer = getattr(nn, self.layer)(*self.arguments, **self.options).train(self.is_trained)
        with torch.no_grad():
            if self.layer.startswith("Lazy"):
                layer(*inputs)
            for name, value in [*layer.named_parameters(), *layer.named_buffers()]:
                if value.is_floating_point() and ("running" in name or "norm" in self.layer.lower()):
                    value.uniform_(0.5, 1.5)
        return layer


def _word(value: Any) -> str:
    return type(value).__name__ if isinstance(value, nn.Module) else str(value).replace(" ", "")


def floats(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def shares(*shape: int) -> Any:
    """Floats between 0 and 1."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(1 + sum(shape)))


def other(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2 + sum(shape)))


def ids(count: int, *shape: int) -> Any:
    return torch.randint(count, shape, generator=torch.Generator().manual_seed(3 + sum(shape)))


def signs(*shape: int) -> Any:
    return ids(2, *shape).float() * 2 - 1


def of(*shape: int) -> Inputs:
    """One input of floats."""
    return lambda n: (floats(n, *shape),)


def rows(layers: str, *arguments: Any, at: list[Inputs], trained: bool = False, **options: Any) -> list[Row]:
    """The rows of layers that are built alike, for each kind of inputs."""
    return [Row(layer, arguments, inputs, options, trained) for layer in layers.split() for inputs in at]


VECTOR, WORDS, SERIES, IMAGE, VOLUME = of(6), of(3, 6), of(4, 7), of(4, 6, 5), of(4, 3, 6, 5)
PIXEL, DOT = of(4, 1, 1), of(1)
PAIR: Inputs = lambda n: (floats(n, 6), other(n, 6))  # noqa: E731
IMAGES: Inputs = lambda n: (floats(n, 4, 3, 5), other(n, 4, 3, 5))  # noqa: E731


def images(rank: int) -> list[Inputs]:
    """Images of one, two or three axes, of a size and of one element."""
    return [[SERIES, IMAGE, VOLUME][rank - 1]]


def _padded(rank: int) -> list[Row]:
    sizes = (2, 1, 1, 2, 0, 1)[: 2 * rank]
    at = images(rank)
    kinds = f"CircularPad{rank}d ReflectionPad{rank}d ReplicationPad{rank}d ZeroPad{rank}d"
    return [
        *rows(kinds, 1, at=at),
        *rows(kinds, sizes, at=at),
        *rows(f"ConstantPad{rank}d", sizes, 1.5, at=at),
        *rows(f"ZeroPad{rank}d", (-1, 2) * rank, at=at),
    ]


def _convolved(rank: int) -> list[Row]:
    at = images(rank)
    dot = [of(4, *(1,) * rank)]
    return [
        *rows(f"Conv{rank}d ConvTranspose{rank}d", 4, 6, 3, at=at),
        *rows(f"Conv{rank}d ConvTranspose{rank}d", 4, 6, 1, bias=False, at=dot),
        *rows(f"Conv{rank}d ConvTranspose{rank}d", 4, 6, 3, stride=2, padding=1, groups=2, at=at),
        *rows(f"Conv{rank}d", 4, 4, 2, padding="same", dilation=2, groups=4, at=at),
        *rows(f"ConvTranspose{rank}d", 4, 6, 3, 2, 1, 1, dilation=2, at=at),
        *rows(f"LazyConv{rank}d LazyConvTranspose{rank}d", 6, 3, at=at),
    ] + (
        rows(f"Conv{rank}d", 4, 6, 3, padding=1, padding_mode="reflect", at=at)
        + rows(f"Conv{rank}d", 4, 6, 3, padding=1, padding_mode="circular", at=at)
        if rank < 3
        else []
    )


def _pooled(rank: int) -> list[Row]:
    at = images(rank)
    dot = [of(4, *(1,) * rank)]
    shape = (3, 2, 5)[-rank:]

    def unpooled(n: int) -> tuple[Any, ...]:
        pool = getattr(nn.functional, f"max_pool{rank}d")
        return (
            tuple(pool(floats(n or 1, 4, *(6, 4, 4)[:rank]), 2, return_indices=True))
            if n
            else (
                floats(0, 4, *(3, 2, 2)[:rank]),
                ids(1, 0, 4, *(3, 2, 2)[:rank]),
            )
        )

    return [
        *rows(f"MaxPool{rank}d AvgPool{rank}d", 2, at=at),
        *rows(f"MaxPool{rank}d AvgPool{rank}d", 1, at=dot),
        *rows(f"MaxPool{rank}d AvgPool{rank}d", 3, 2, 1, ceil_mode=True, at=at),
        *rows(f"MaxPool{rank}d", 2, 1, dilation=2, return_indices=True, at=at),
        *rows(f"AvgPool{rank}d", 3, 2, 1, count_include_pad=False, at=at),
        *rows(f"LPPool{rank}d", 2, 2, at=at),
        *rows(f"LPPool{rank}d", 3, 2, 1, ceil_mode=True, at=at),
        *rows(f"AdaptiveAvgPool{rank}d AdaptiveMaxPool{rank}d", 1, at=at + dot),
        *rows(f"AdaptiveAvgPool{rank}d AdaptiveMaxPool{rank}d", shape if rank > 1 else 3, at=at),
        *rows(f"MaxUnpool{rank}d", 2, at=[unpooled]),
    ]


def _normalized(rank: int) -> list[Row]:
    at = images(rank)
    return [
        *rows(f"BatchNorm{rank}d", 4, at=at),
        *rows(f"LazyBatchNorm{rank}d LazyInstanceNorm{rank}d", at=at),
        *rows(f"BatchNorm{rank}d", 4, affine=False, at=at),
        *rows(f"BatchNorm{rank}d", 4, track_running_stats=False, at=at),
        *rows(f"BatchNorm{rank}d", 4, track_running_stats=False, trained=True, at=at),
        *rows(f"InstanceNorm{rank}d", 4, at=at),
        *rows(f"InstanceNorm{rank}d", 4, affine=True, track_running_stats=True, at=at),
    ]


def _recurrent(n: int) -> tuple[Any, ...]:
    return (floats(n, 5, 4),)


def _targets(count: int) -> Inputs:
    return lambda n: (floats(n, count), ids(count, n))


def _words_of(n: int) -> tuple[Any, ...]:
    return (floats(n, 5, 8), other(n, 3, 8))


ACTIVATIONS = (
    "ELU CELU SELU GELU Hardshrink Hardsigmoid Hardswish Hardtanh Identity LeakyReLU LogSigmoid Mish PReLU RReLU ReLU "
    "ReLU6 SiLU Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink"
)
LOSSES = "BCEWithLogitsLoss HuberLoss KLDivLoss L1Loss MSELoss PoissonNLLLoss SmoothL1Loss"

ROWS: list[Row] = [
    *rows(ACTIVATIONS, at=[VECTOR, IMAGE]),
    *rows("GELU", "tanh", at=[VECTOR]),
    *rows("PReLU", 4, at=[SERIES, IMAGE]),
    *rows("Softplus", 2.0, 3.0, at=[VECTOR]),
    *rows("ELU CELU LeakyReLU Hardshrink Softshrink", 0.3, at=[VECTOR]),
    *rows("Threshold", 0.1, 20, at=[VECTOR, IMAGE]),
    *rows("GLU", at=[VECTOR]),
    *rows("GLU", 1, at=[IMAGE]),
    *rows("Softmax LogSoftmax Softmin", -1, at=[VECTOR, DOT]),
    *rows("Softmax LogSoftmax Softmin", 1, at=[IMAGE]),
    *rows("Softmax", 0, at=[VECTOR]),
    *rows("Softmax2d", at=[IMAGE]),
    *rows("Linear", 6, 5, at=[VECTOR, WORDS]),
    *rows("Linear", 1, 1, at=[DOT]),
    *rows("Linear", 6, 5, bias=False, at=[of(2, 3, 6)]),
    *rows("LazyLinear", 5, at=[VECTOR, WORDS]),
    *rows("Bilinear", 6, 6, 3, at=[PAIR]),
    *rows("Bilinear", 5, 5, 1, bias=False, at=[IMAGES]),
    *(row for rank in (1, 2, 3) for of_rank in (_padded, _convolved, _pooled, _normalized) for row in of_rank(rank)),
    *rows("BatchNorm1d", 6, at=[VECTOR]),
    *rows("SyncBatchNorm", 4, at=[IMAGE]),
    *rows("LayerNorm RMSNorm", 6, at=[VECTOR, WORDS]),
    *rows("LayerNorm RMSNorm", (6, 5), elementwise_affine=False, at=[IMAGE]),
    *rows("LayerNorm", 1, bias=False, at=[DOT]),
    *rows("GroupNorm", 2, 4, at=[SERIES, IMAGE]),
    *rows("GroupNorm", 4, 4, affine=False, at=[IMAGE]),
    *rows("LocalResponseNorm", 2, at=[SERIES, IMAGE]),
    *rows("LocalResponseNorm", 3, 1e-2, 0.6, 2.0, at=[IMAGE]),
    *rows("CrossMapLRN2d", 3, at=[IMAGE]),
    *rows("Dropout AlphaDropout FeatureAlphaDropout", at=[VECTOR]),
    *rows("Dropout1d", at=[SERIES]),
    *rows("Dropout2d", at=[IMAGE]),
    *rows("Dropout3d", at=[VOLUME]),
    *rows("Dropout", 0.0, trained=True, at=[VECTOR]),
    *rows("Embedding", 10, 4, at=[lambda n: (ids(10, n),), lambda n: (ids(10, n, 3),)]),
    *rows("Embedding", 10, 4, padding_idx=2, at=[lambda n: (ids(10, n, 3),)]),
    *(
        row
        for mode in ("sum", "mean", "max")
        for row in rows("EmbeddingBag", 10, 4, mode=mode, at=[lambda n: (ids(10, n, 3),)])
    ),
    *rows("ChannelShuffle", 2, at=[IMAGE]),
    *rows("PixelShuffle", 2, at=[IMAGE]),
    *rows("PixelUnshuffle", 2, at=[of(3, 6, 4)]),
    *rows("Flatten", at=[VECTOR, IMAGE]),
    *rows("Flatten", 2, 3, at=[VOLUME]),
    *rows("Unflatten", 1, (2, 3), at=[VECTOR]),
    *rows("Unflatten", -1, (1, 5), at=[IMAGE]),
    *rows("Fold", (4, 5), (2, 2), at=[of(8, 12)]),
    *rows("Fold", (4, 5), (2, 3), dilation=1, padding=1, stride=2, at=[of(12, 9)]),
    *rows("Unfold", (2, 3), at=[IMAGE]),
    *rows("Unfold", (2, 3), dilation=2, padding=1, stride=2, at=[IMAGE]),
    *rows(
        "FractionalMaxPool2d",
        2,
        (3, 2),
        at=[lambda n: (floats(n, 4, 6, 5),)],
        _random_samples=torch.full((3, 4, 2), 0.4),
    ),
    *rows(
        "FractionalMaxPool3d",
        2,
        (2, 3, 2),
        at=[lambda n: (floats(n, 4, 4, 6, 5),)],
        _random_samples=torch.full((3, 4, 3), 0.4),
    ),
    *(
        row
        for mode in ("nearest", "nearest-exact")
        for at in (SERIES, IMAGE, VOLUME)
        for row in rows("Upsample", scale_factor=2, mode=mode, at=[at])
    ),
    *rows("Upsample", scale_factor=2, mode="linear", at=[SERIES]),
    *rows("Upsample", (9, 4), mode="bilinear", at=[IMAGE, PIXEL]),
    *rows("Upsample", scale_factor=1.5, mode="bilinear", align_corners=True, at=[IMAGE]),
    *rows("Upsample", (9, 4), mode="bicubic", at=[IMAGE]),
    *rows("Upsample", scale_factor=2, mode="trilinear", at=[VOLUME]),
    *rows("UpsamplingNearest2d UpsamplingBilinear2d", scale_factor=2, at=[IMAGE]),
    *rows("UpsamplingNearest2d UpsamplingBilinear2d", (3, 7), at=[IMAGE]),
    *rows("RNN GRU LSTM", 4, 6, batch_first=True, at=[_recurrent]),
    *rows("RNN GRU LSTM", 4, 6, at=[of(2, 4)]),
    *rows("RNN GRU LSTM", 4, 6, 2, bidirectional=True, batch_first=True, at=[_recurrent]),
    *rows("RNN GRU LSTM", 1, 1, bias=False, batch_first=True, at=[of(1, 1)]),
    *rows("RNN", 4, 6, nonlinearity="relu", batch_first=True, at=[_recurrent]),
    *rows("LSTM", 4, 6, proj_size=3, batch_first=True, at=[_recurrent]),
    *rows("RNNCell GRUCell LSTMCell", 4, 6, at=[of(4)]),
    *rows("RNNCell GRUCell", 4, 6, at=[lambda n: (floats(n, 4), other(n, 6))]),
    *rows("RNNCell", 4, 6, False, "relu", at=[of(4)]),
    *rows("MultiheadAttention", 8, 2, batch_first=True, at=[lambda n: (floats(n, 5, 8),) * 3]),
    *rows("MultiheadAttention", 8, 1, at=[lambda n: (floats(n, 2, 8), other(n, 2, 8), other(n, 2, 8))]),
    *rows(
        "MultiheadAttention",
        8,
        2,
        bias=False,
        add_zero_attn=True,
        batch_first=True,
        kdim=3,
        vdim=4,
        at=[lambda n: (floats(n, 5, 8), other(n, 3, 3), other(n, 3, 4))],
    ),
    *rows("TransformerEncoderLayer", 8, 2, 16, batch_first=True, at=[of(5, 8), of(1, 8)]),
    *rows("TransformerEncoderLayer", 8, 4, 16, activation="gelu", norm_first=True, at=[of(2, 8)]),
    *rows("TransformerDecoderLayer", 8, 2, 16, batch_first=True, at=[_words_of]),
    *rows("TransformerEncoder", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, at=[of(5, 8)]),
    *rows("TransformerDecoder", nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 2, at=[_words_of]),
    *rows("Transformer", 8, 2, 1, 1, 16, batch_first=True, at=[_words_of]),
    *rows("Sequential", nn.Linear(6, 5), nn.ReLU(), nn.LayerNorm(5), at=[VECTOR]),
    *rows("CosineSimilarity", at=[PAIR, IMAGES]),
    *rows("CosineSimilarity", -1, 1e-3, at=[IMAGES]),
    *rows("PairwiseDistance", at=[PAIR]),
    *rows("PairwiseDistance", 1, keepdim=True, at=[IMAGES]),
    *rows(LOSSES, at=[PAIR]),
    *rows(LOSSES, reduction="none", at=[IMAGES]),
    *rows("HuberLoss", "sum", 0.5, at=[PAIR]),
    *rows("BCELoss", at=[lambda n: (shares(n, 6), shares(n, 6).round())]),
    *rows("BCELoss", reduction="none", at=[lambda n: (shares(n, 6), shares(n, 6).round())]),
    *rows("GaussianNLLLoss", at=[lambda n: (floats(n, 6), other(n, 6), shares(n, 6))]),
    *rows("HingeEmbeddingLoss SoftMarginLoss", at=[lambda n: (floats(n, 6), signs(n, 6))]),
    *rows("CrossEntropyLoss MultiMarginLoss NLLLoss", at=[_targets(5)]),
    *rows(
        "CrossEntropyLoss NLLLoss",
        reduction="none",
        ignore_index=2,
        at=[lambda n: (floats(n, 5, 3, 2), ids(5, n, 3, 2))],
    ),
    *rows("CrossEntropyLoss", label_smoothing=0.1, at=[_targets(5), lambda n: (floats(n, 5), shares(n, 5))]),
    *rows("LinearCrossEntropyLoss", 6, 5, at=[lambda n: (floats(n, 6), ids(5, n))]),
    *rows("NLLLoss2d", at=[lambda n: (floats(n, 5, 3, 2), ids(5, n, 3, 2))]),
    *rows("MultiLabelSoftMarginLoss", at=[lambda n: (floats(n, 6), shares(n, 6).round())]),
    *rows("MultiLabelMarginLoss", at=[lambda n: (floats(n, 5), ids(5, n, 5))]),
    *rows("CosineEmbeddingLoss", at=[lambda n: (floats(n, 6), other(n, 6), signs(n))]),
    *rows("MarginRankingLoss", at=[lambda n: (floats(n), other(n), signs(n))]),
    *rows(
        "TripletMarginLoss TripletMarginWithDistanceLoss",
        at=[lambda n: (floats(n, 6), other(n, 6), shares(n, 6))],
    ),
    *rows("AdaptiveLogSoftmaxWithLoss", 6, 12, [4, 8], at=[lambda n: (floats(n, 6), ids(12, n))]),
    *rows(
        "CTCLoss",
        at=[
            lambda n: (
                floats(n + 6, 2, 5).log_softmax(-1),
                1 + ids(4, 2, 3),
                torch.full((2,), n + 6),
                torch.full((2,), 3),
            )
        ],
    ),
]

WITHOUT = {
    "Container": "has no forward",
    "DataParallel": "replicates a module on several GPUs",
    "Module": "has no forward",
    "ModuleDict": "has no forward",
    "ModuleList": "has no forward",
    "ParameterDict": "has no forward",
    "ParameterList": "has no forward",
    "RNNBase": "the base of RNN, GRU and LSTM",
    "RNNCellBase": "the base of the cells",
}
"""Classes that are no layers of their own, and why."""

FAILING = {
    "CTCLoss": "torch.export cannot export it: its decomposition lacks aten._ctc_loss.Tensor",
    "CrossMapLRN2d": "torch.export cannot export it: resize_as_ fails within torch",
    "AdaptiveLogSoftmaxWithLoss": "torch.export cannot export it: how many targets a cluster has decides",
    "GaussianNLLLoss": "torch.export cannot export it: it looks at whether a variance is negative",
    "LSTM(4,6,proj_size=3,batch_first=True)-5x4": "an LSTM with a projection has no op in ONNX",
    "FractionalMaxPool2d": "aten.fractional_max_pool2d has no entry",
    "FractionalMaxPool3d": "aten.fractional_max_pool3d has no entry",
}
"""Layers, or rows of one, that no graph is made of, and why."""

NEVER_EMPTY = {
    "GRU": "ONNX Runtime 1.32 aborts the process in its GRU on a batch of 0",
    "GroupNorm": "ONNX Runtime reshapes no tensor without elements as its function of the op does",
    "LSTM": "ONNX Runtime 1.32 aborts the process in its LSTM on a batch of 0",
    "Loss": "the mean of nothing is NaN in torch, or whatever is in memory, and 0 in ONNX Runtime 1.32",
    "MultiheadAttention": "torch gives no weights for it",
    "PixelUnshuffle": "torch gives a tensor without elements the shape of the input",
}
"""Layers, by the end of their names, that are not tried on a batch of 0 that torch takes, and why."""
