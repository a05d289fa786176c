"""Layers that multiply by weights or look them up (dense ones, convolutions, embeddings), and pools."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from graphopt.errors import UsageError
from graphopt.nn import functions
from graphopt.nn.initial import uniform
from graphopt.nn.module import Module
from graphopt.nn.scope import one
from graphopt.nn.tensor import Parameter, Tensor

Sizes = int | Sequence[int]
"""A number for each axis of an image, or one for all."""


class Linear(Module):
    """x @ weight.T + bias, with a weight of [out_features, in_features].

    >>> print(nn.export(nn.Linear(8, 4), X, parameters="inputs"))
    graph ...
    %0: float32[n, 4] = Gemm(x, weight, bias, transB=1)
    return %0 as y
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, dtype: str = "float32") -> None:
        self.weight = Parameter((out_features, in_features), dtype, uniform(in_features))
        self.bias = Parameter((out_features,), dtype, uniform(in_features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] to [..., out_features]."""
        return functions.linear(x, self.weight, self.bias)


class Embedding(Module):
    """A row of the weight for each integer.

    >>> print(nn.export(nn.Embedding(10, 4), {"ids": "int64[n]"}, parameters="inputs"))
    graph ...
    %0: float32[n, 4] = Gather(weight, ids, axis=0)
    return %0 as y
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, *, dtype: str = "float32") -> None:
        self.weight = Parameter((num_embeddings, embedding_dim), dtype)

    def forward(self, ids: Tensor) -> Tensor:
        """[...] of integers to [..., embedding_dim]."""
        return functions.embedding(self.weight, ids)


class _ConvolutionLayer(Module):
    """What convolutions have in common: a weight, a bias, and how the window moves."""

    axes: ClassVar[int]

    def __init__(
        self, shape: tuple[int, ...], channels: int, bias: bool, dtype: str, stride: Sizes, dilation: Sizes, groups: int
    ) -> None:
        fan_in = prod(shape[1:])
        self.weight = Parameter(shape, dtype, uniform(fan_in))
        self.bias = Parameter((channels,), dtype, uniform(fan_in)) if bias else None
        self.attrs: dict[str, object] = {
            "kernel_shape": list(shape[2:]),
            "strides": per_axis("stride", stride, self.axes, least=1),
            "dilations": per_axis("dilation", dilation, self.axes, least=1),
            "group": groups,
        }

    def run(self, op: str, x: Tensor) -> Tensor:
        """The op on an image."""
        return one(op, [x, self.weight, self.bias], **self.attrs)


class _Conv(_ConvolutionLayer):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        *,
        dtype: str = "float32",
    ) -> None:
        """``padding`` is a number for each axis, ``"same"`` (with a stride of 1, results as large as the image), or
        ``"valid"`` (none)."""
        check_groups(in_channels, out_channels, groups)
        kernel = per_axis("kernel_size", kernel_size, self.axes, least=1)
        shape = (out_channels, in_channels // groups, *kernel)
        super().__init__(shape, out_channels, bias, dtype, stride, dilation, groups)
        if not isinstance(padding, str):
            self.attrs["pads"] = per_axis("padding", padding, self.axes) * 2
        elif padding in ("same", "valid"):
            self.attrs["auto_pad"] = {"same": "SAME_UPPER", "valid": "VALID"}[padding]
        else:
            raise UsageError(f"padding is a number for each axis, 'same' or 'valid', not {padding!r}")

    def forward(self, x: Tensor) -> Tensor:
        """[batch, in_channels, ...] to [batch, out_channels, ...]."""
        return self.run("Conv", x)


class Conv1d(_Conv):
    """A convolution along one axis.

    >>> print(nn.export(nn.Conv1d(4, 6, 3, padding=1), {"x": "float32[n, 4, 8]"}, parameters="inputs"))
    graph ...
    %0: float32[n, 6, 8] = Conv(x, weight, bias, dilations=[1], group=1, kernel_shape=[3], pads=[1, 1], strides=[1])
    return %0 as y
    """

    axes = 1


class Conv2d(_Conv):
    """A convolution of images.

    >>> print(nn.export(nn.Conv2d(4, 6, 3, padding=1), IMAGE, parameters="inputs"))
    graph ...
    %0: float32[n, 6, 8, 8] = Conv(x, weight, bias, dilations=[1, 1], group=1, kernel_shape=[3, 3], ...
    return %0 as y
    """

    axes = 2


class ConvTranspose2d(_ConvolutionLayer):
    """The convolution that goes back from results to images.

    >>> print(nn.export(nn.ConvTranspose2d(4, 6, 2, stride=2), IMAGE, parameters="inputs"))
    graph ...
    %0: float32[n, 6, 16, 16] = ConvTranspose(x, weight, bias, dilations=[1, 1], group=1, ...
    return %0 as y
    """

    axes = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        *,
        dtype: str = "float32",
    ) -> None:
        check_groups(in_channels, out_channels, groups)
        shape = (in_channels, out_channels // groups, *per_axis("kernel_size", kernel_size, 2, least=1))
        super().__init__(shape, out_channels, bias, dtype, stride, dilation, groups)
        self.attrs["pads"] = per_axis("padding", padding, 2) * 2
        self.attrs["output_padding"] = per_axis("output_padding", output_padding, 2)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, in_channels, height, width] to [batch, out_channels, ...]."""
        return self.run("ConvTranspose", x)


def per_axis(name: str, sizes: Sizes, axes: int, least: int = 0) -> list[int]:
    """A number for each axis. UsageError where there are others than one, or one for each, or it is too small."""
    values: list[Any] = list(sizes) if isinstance(sizes, list | tuple) else [sizes] * axes
    if len(values) != axes or not all(isinstance(n, int) and n >= least for n in values):
        raise UsageError(f"{name} is a number from {least} on, or {axes} of them, not {sizes!r}")
    return values


def check_groups(in_channels: int, out_channels: int, groups: int) -> None:
    """UsageError where channels cannot be split into so many groups."""
    if groups < 1 or in_channels % groups or out_channels % groups:
        raise UsageError(f"{in_channels} and {out_channels} channels cannot be split into {groups} groups")


class _Pool(Module):
    def __init__(self, kernel_size: Sizes, stride: Sizes | None, padding: Sizes, ceil_mode: bool) -> None:
        kernel = per_axis("kernel_size", kernel_size, 2, least=1)
        self.attrs: dict[str, object] = {
            "kernel_shape": kernel,
            "strides": kernel if stride is None else per_axis("stride", stride, 2, least=1),
            "pads": per_axis("padding", padding, 2) * 2,
            "ceil_mode": int(ceil_mode),
        }


class MaxPool2d(_Pool):
    """The largest element of each window.

    >>> print(nn.export(nn.MaxPool2d(3, stride=2, padding=1), IMAGE))
    graph ...
    %0: float32[n, 4, 4, 4] = MaxPool(x, ceil_mode=0, dilations=[1, 1], kernel_shape=[3, 3], pads=[1, ...
    return %0 as y
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> None:
        """``stride`` is the window's size if it is not given."""
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.attrs["dilations"] = per_axis("dilation", dilation, 2, least=1)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, height, width] to fewer rows and columns."""
        return one("MaxPool", [x], **self.attrs)


class AvgPool2d(_Pool):
    """The mean of each window.

    >>> print(nn.export(nn.AvgPool2d(2), IMAGE))
    graph ...
    %0: float32[n, 4, 4, 4] = AveragePool(x, ceil_mode=0, count_include_pad=1, kernel_shape=[2, 2], ...
    return %0 as y
    """

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        """``stride`` is the window's size if it is not given; ``count_include_pad``: padding counts as zeros."""
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.attrs["count_include_pad"] = int(count_include_pad)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, height, width] to fewer rows and columns."""
        return one("AveragePool", [x], **self.attrs)


class AdaptiveAvgPool2d(Module):
    """Means of windows that share an image out evenly.

    >>> print(nn.export(nn.AdaptiveAvgPool2d(1), IMAGE))
    graph ...
    %0: float32[n, 4, 1, 1] = GlobalAveragePool(x)
    return %0 as y
    """

    def __init__(self, output_size: Sizes) -> None:
        self.output_size = per_axis("output_size", output_size, 2, least=1)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, height, width] to [batch, channels, *output_size]. UsageError for an image of open or other
        sizes than multiples of the result's, unless that is 1 by 1."""
        if self.output_size == [1, 1]:
            return one("GlobalAveragePool", [x])
        if x.rank != 4:
            raise UsageError(f"{x!r} is no image of [batch, channels, height, width]")
        window = []
        for size, wanted in zip(x.shape[2:], self.output_size, strict=True):
            if not isinstance(size, int) or size % wanted:
                raise UsageError(f"{x!r} cannot be shared out evenly to {self.output_size}: give it a fixed multiple")
            window.append(size // wanted)
        return one("AveragePool", [x], kernel_shape=window, strides=window)
