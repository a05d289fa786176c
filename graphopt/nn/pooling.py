"""Layers that make one element of each window of an image."""

from __future__ import annotations

from graphopt.errors import UsageError
from graphopt.nn.layers import Sizes, per_axis
from graphopt.nn.module import Module
from graphopt.nn.scope import one
from graphopt.nn.tensor import Tensor


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
    """The largest element of each window."""

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
    """The mean of each window."""

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
    """Means of windows that share an image out evenly."""

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
