"""Activation functions as modules, named as in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from graphopt.nn import functions
from graphopt.nn.initial import constant
from graphopt.nn.module import Module
from graphopt.nn.scope import one
from graphopt.nn.tensor import Parameter, Tensor


class _Activation(Module):
    """A function of one tensor as a module."""

    function: ClassVar[Callable[[Tensor], Tensor]]

    def forward(self, x: Tensor) -> Tensor:
        """What the function gives."""
        return type(self).function(x)


class ReLU(_Activation):
    """max(x, 0)."""

    function = functions.relu


class ReLU6(_Activation):
    """x between 0 and 6."""

    function = functions.relu6


class LeakyReLU(Module):
    """x, and a part of it where it is negative."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        """x, times the slope where it is negative."""
        return functions.leaky_relu(x, self.negative_slope)


class PReLU(Module):
    """x, and learned parts of it where it is negative: one for all channels, or one for each."""

    def __init__(self, num_parameters: int = 1, *, dtype: str = "float32") -> None:
        self.weight = Parameter((num_parameters,), dtype, constant(0.25))

    def forward(self, x: Tensor) -> Tensor:
        """x, times its channel's slope where it is negative."""
        slope = self.weight.reshape(-1, *[1] * (x.rank - 2)) if x.rank > 1 else self.weight
        return one("PRelu", [x, slope])


class ELU(Module):
    """x, and alpha * (exp(x) - 1) where it is negative."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """x, and alpha * (exp(x) - 1) where it is negative."""
        return functions.elu(x, self.alpha)


class GELU(Module):
    """x times the normal distribution's share below x, exactly or by tanh (``approximate="tanh"``)."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """x times the share."""
        return functions.gelu(x, self.approximate)


class SiLU(_Activation):
    """x * sigmoid(x)."""

    function = functions.silu


class Mish(_Activation):
    """x * tanh(softplus(x))."""

    function = functions.mish


class Hardswish(_Activation):
    """x * relu6(x + 3) / 6."""

    function = functions.hardswish


class Hardsigmoid(_Activation):
    """relu6(x + 3) / 6."""

    function = functions.hardsigmoid


class Softplus(_Activation):
    """log(1 + exp(x))."""

    function = functions.softplus


class Sigmoid(_Activation):
    """1 / (1 + exp(-x))."""

    function = functions.sigmoid


class Tanh(_Activation):
    """The hyperbolic tangent."""

    function = functions.tanh


class Softmax(Module):
    """exp(x) as shares of their sum along an axis."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """The shares."""
        return functions.softmax(x, self.dim)


class LogSoftmax(Module):
    """The logarithm of softmax."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """The logarithms of the shares."""
        return functions.log_softmax(x, self.dim)


class Identity(Module):
    """Its input; also what stands in the place of a dropout, so that the names of what follows stay."""

    def forward(self, x: Tensor) -> Tensor:
        """x."""
        return x


class Flatten(Module):
    """All axes from one on as one."""

    def __init__(self, start_dim: int = 1) -> None:
        self.start_dim = start_dim

    def forward(self, x: Tensor) -> Tensor:
        """x with fewer axes."""
        return functions.flatten(x, self.start_dim)
