"""Normalization layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.errors import UsageError
from graphopt.ir.constants import Array
from graphopt.ir.text.elements import numpy_dtype
from graphopt.nn.initial import constant
from graphopt.nn.module import Module
from graphopt.nn.scope import Operand, one
from graphopt.nn.tensor import Parameter, Tensor


class _Norm(Module):
    """A scale and an offset of a shape, where they are wanted."""

    def __init__(self, shape: tuple[int, ...], dtype: str, scale: bool, offset: bool) -> None:
        self.weight = Parameter(shape, dtype, constant(1)) if scale else None
        self.bias = Parameter(shape, dtype, constant(0)) if offset else None
        self._shape, self._dtype = shape, numpy_dtype(dtype)

    @property
    def scale(self) -> Operand:
        """The weight, or ones."""
        return self.weight if self.weight is not None else self.filled(1)

    @property
    def offset(self) -> Operand:
        """The bias, or zeros."""
        return self.bias if self.bias is not None else self.filled(0)

    def filled(self, value: float) -> Array:
        """All the same, in the shape of the scale."""
        return np.full(self._shape, value, self._dtype)


class BatchNorm2d(_Norm):
    """Channels by their running means and variances, as they are when a model is used.

    >>> print(nn.export(nn.BatchNorm2d(4), IMAGE, parameters="inputs"))
    graph ...
    %0: float32[n, 4, 8, 8] = BatchNormalization(x, weight, bias, running_mean, running_var, epsilon=1e-05)
    return %0 as y
    """

    unused = frozenset({"num_batches_tracked"})

    def __init__(self, num_features: int, eps: float = 1e-5, *, affine: bool = True, dtype: str = "float32") -> None:
        super().__init__((num_features,), dtype, affine, affine)
        self.running_mean = Parameter((num_features,), dtype, constant(0))
        self.running_var = Parameter((num_features,), dtype, constant(1))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, ...], each channel normalized."""
        inputs = [x, self.scale, self.offset, self.running_mean, self.running_var]
        return one("BatchNormalization", inputs, epsilon=float(self.eps))


class BatchNorm1d(BatchNorm2d):
    """The same for sequences and features.

    >>> print(nn.export(nn.BatchNorm1d(8), X, parameters="inputs"))
    graph ...
    %0: float32[n, 8] = BatchNormalization(x, weight, bias, running_mean, running_var, epsilon=1e-05)
    return %0 as y
    """


class LayerNorm(_Norm):
    """The last axes by their own mean and variance.

    >>> print(nn.export(nn.LayerNorm(8), X, parameters="inputs"))
    graph ...
    %0: float32[n, 8] = LayerNormalization(x, weight, bias, axis=-1, epsilon=1e-05)
    return %0 as y
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: str = "float32",
    ) -> None:
        shape = _shape(normalized_shape)
        super().__init__(shape, dtype, elementwise_affine, elementwise_affine and bias)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., normalized_shape], normalized."""
        attrs = {"axis": -len(self._shape), "epsilon": float(self.eps)}
        return one("LayerNormalization", [x, self.scale, self.bias], **attrs)


class RMSNorm(_Norm):
    """The last axes by the root of their mean square.

    >>> print(nn.export(nn.RMSNorm(8), X, parameters="inputs"))
    graph ...
    %0: float32[n, 8] = RMSNormalization(x, weight, axis=-1, epsilon=1.1920928955078125e-07)
    return %0 as y
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, *, dtype: str = "float32"
    ) -> None:
        """``eps`` is the dtype's own if it is not given."""
        super().__init__(_shape(normalized_shape), dtype, scale=True, offset=False)
        self.eps = _epsilon(dtype) if eps is None else eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., normalized_shape], normalized."""
        attrs = {"axis": -len(self._shape), "epsilon": float(self.eps)}
        return one("RMSNormalization", [x, self.scale], **attrs)


class GroupNorm(_Norm):
    """Groups of channels by their own mean and variance.

    >>> print(nn.export(nn.GroupNorm(2, 4), IMAGE, parameters="inputs"))
    graph ...
    %0: float32[n, 4, 8, 8] = GroupNormalization(x, weight, bias, epsilon=1e-05, num_groups=2)
    return %0 as y
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, *, dtype: str = "float32"
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise UsageError(f"{num_channels} channels cannot be split into {num_groups} groups")
        super().__init__((num_channels,), dtype, affine, affine)
        self.num_groups, self.eps = num_groups, eps

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, ...], each group normalized."""
        attrs = {"num_groups": self.num_groups, "epsilon": float(self.eps)}
        return one("GroupNormalization", [x, self.scale, self.offset], **attrs)


class InstanceNorm2d(_Norm):
    """Each channel of each image by its own mean and variance.

    >>> print(nn.export(nn.InstanceNorm2d(4), IMAGE, parameters="inputs"))
    graph ...
    %0: float32[n, 4, 8, 8] = InstanceNormalization(x, [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0], epsilon=1e-05)
    return %0 as y
    """

    def __init__(self, num_features: int, eps: float = 1e-5, *, affine: bool = False, dtype: str = "float32") -> None:
        super().__init__((num_features,), dtype, affine, affine)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, height, width], normalized."""
        return one("InstanceNormalization", [x, self.scale, self.offset], epsilon=float(self.eps))


def _shape(sizes: int | Sequence[int]) -> tuple[int, ...]:
    return (sizes,) if isinstance(sizes, int) else tuple(sizes)


def _epsilon(dtype: str) -> float:
    one = np.ones((), numpy_dtype(dtype))
    return float(np.nextafter(one, 2 * one) - one)
