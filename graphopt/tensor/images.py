"""Convolutions, pools and resizing of images: tensors of [batch, channels, *sizes], of one, two or three sizes."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.lowering.loops.compute import Tensor
from graphopt.lowering.loops.expressions import Const, Expr, wrong
from graphopt.tensor.application import Operand, op

PerAxis = int | Sequence[int]
"""A number for each size, or one for all."""


def _each(value: PerAxis, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def _pads(padding: PerAxis, rank: int) -> tuple[int, ...]:
    """Before each size, then behind: numbers for the sizes count for both ends."""
    pads = _each(padding, rank)
    return pads if len(pads) == 2 * rank else pads * 2


def _conv(
    rank: int,
    x: Tensor,
    weight: Tensor,
    bias: Operand,
    stride: PerAxis,
    padding: PerAxis,
    dilation: PerAxis,
    groups: int,
) -> Tensor:
    if x.rank != rank + 2:
        raise wrong(f"conv{rank}d takes images of rank {rank + 2}, and {x.name} is of rank {x.rank}")
    return op(
        "Conv",
        [x, weight, bias],
        strides=_each(stride, rank),
        pads=_pads(padding, rank),
        dilations=_each(dilation, rank),
        group=groups,
    )


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Operand = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """A convolution over 1 size, with a weight of [out, in / groups, *kernel] and a bias of [out].

    >>> tensor.conv1d(te.placeholder((1, 4, 8)), te.placeholder((6, 4, 3)), padding=1)
    <Tensor conv: float32[1, 6, 8]>
    """
    return _conv(1, x, weight, bias, stride, padding, dilation, groups)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Operand = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """A convolution over 2 sizes, with a weight of [out, in / groups, *kernel] and a bias of [out].

    >>> tensor.conv2d(image, te.placeholder((6, 4, 3, 3)), padding=1)
    <Tensor conv: float32[1, 6, 8, 8]>
    """
    return _conv(2, x, weight, bias, stride, padding, dilation, groups)


def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Operand = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """A convolution over 3 sizes, with a weight of [out, in / groups, *kernel] and a bias of [out].

    >>> tensor.conv3d(te.placeholder((1, 4, 8, 8, 8)), te.placeholder((6, 4, 3, 3, 3)))
    <Tensor conv: float32[1, 6, 6, 6, 6]>
    """
    return _conv(3, x, weight, bias, stride, padding, dilation, groups)


def depthwise_conv2d(
    x: Tensor, weight: Tensor, bias: Operand = None, stride: PerAxis = 1, padding: PerAxis = 0, dilation: PerAxis = 1
) -> Tensor:
    """A convolution of each channel by itself, with a weight of [channels, 1, kh, kw].

    >>> tensor.depthwise_conv2d(image, te.placeholder((4, 1, 3, 3)), padding=1)
    <Tensor conv: float32[1, 4, 8, 8]>
    """
    channels = x.shape[1]
    if not isinstance(channels, Const):
        raise wrong("depthwise_conv2d: the number of channels has to be known")
    return _conv(2, x, weight, bias, stride, padding, dilation, int(channels.value))


def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Operand = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """A transposed convolution over all sizes, with a weight of [in, out / groups, *kernel].

    >>> tensor.conv_transpose(image, te.placeholder((4, 6, 2, 2)), stride=2)
    <Tensor convtranspose: float32[1, 6, 16, 16]>
    """
    rank = x.rank - 2
    return op(
        "ConvTranspose",
        [x, weight, bias],
        strides=_each(stride, rank),
        pads=_pads(padding, rank),
        output_padding=_each(output_padding, rank),
        dilations=_each(dilation, rank),
        group=groups,
    )


def max_pool(
    x: Tensor, kernel: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0, dilation: PerAxis = 1
) -> Tensor:
    """The largest element of each window; ``stride`` is the kernel's size where it is None.

    >>> tensor.max_pool(image, 3, stride=2, padding=1)
    <Tensor maxpool: float32[1, 4, 4, 4]>
    """
    rank = x.rank - 2
    return op(
        "MaxPool",
        [x],
        kernel_shape=_each(kernel, rank),
        strides=_each(kernel if stride is None else stride, rank),
        pads=_pads(padding, rank),
        dilations=_each(dilation, rank),
    )


def avg_pool(
    x: Tensor, kernel: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0, count_padding: bool = False
) -> Tensor:
    """The mean of each window, of its elements within the image unless ``count_padding``.

    >>> tensor.avg_pool(image, 2)
    <Tensor mean: float32[1, 4, 4, 4]>
    """
    rank = x.rank - 2
    return op(
        "AveragePool",
        [x],
        kernel_shape=_each(kernel, rank),
        strides=_each(kernel if stride is None else stride, rank),
        pads=_pads(padding, rank),
        count_include_pad=count_padding,
    )


def global_avg_pool(x: Tensor) -> Tensor:
    """The mean over all sizes, which become 1.

    >>> tensor.global_avg_pool(image)
    <Tensor mean: float32[1, 4, 1, 1]>
    """
    return op("GlobalAveragePool", [x])


def global_max_pool(x: Tensor) -> Tensor:
    """The largest element over all sizes, which become 1.

    >>> tensor.global_max_pool(image)
    <Tensor globalmaxpool: float32[1, 4, 1, 1]>
    """
    return op("GlobalMaxPool", [x])


def resize(x: Tensor, sizes: Sequence[int], mode: str = "nearest", coordinates: str = "half_pixel") -> Tensor:
    """The image in other sizes, one for each size (without batch and channels).

    ``mode`` is ``nearest``, ``linear`` or ``cubic``, and ``coordinates`` ONNX's ``coordinate_transformation_mode``.

    >>> tensor.resize(image, (16, 16))
    <Tensor resize: float32[1, 4, 16, 16]>
    """
    whole: tuple[Expr | int, ...] = (*x.shape[:2], *sizes)
    return op("Resize", [x, None, None, whole], mode=mode, coordinate_transformation_mode=coordinates)
