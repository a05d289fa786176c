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
    """max(x, 0).

    >>> print(nn.export(nn.ReLU(), X))
    graph ...
    %0: float32[n, 8] = Relu(x)
    return %0 as y
    """

    function = functions.relu


class ReLU6(_Activation):
    """x between 0 and 6.

    >>> print(nn.export(nn.ReLU6(), X))
    graph ...
    %0: float32[n, 8] = Clip(x, 0.0, 6.0)
    return %0 as y
    """

    function = functions.relu6


class LeakyReLU(Module):
    """x, and a part of it where it is negative.

    >>> print(nn.export(nn.LeakyReLU(), X))
    graph ...
    %0: float32[n, 8] = LeakyRelu(x, alpha=0.01)
    return %0 as y
    """

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        """x, times the slope where it is negative."""
        return functions.leaky_relu(x, self.negative_slope)


class PReLU(Module):
    """x, and learned parts of it where it is negative: one for all channels, or one for each.

    >>> print(nn.export(nn.PReLU(), X, parameters="inputs"))
    graph ...
    %0: float32[1] = Reshape(weight, [-1])
    %1: float32[n, 8] = PRelu(x, %0)
    return %1 as y
    """

    def __init__(self, num_parameters: int = 1, *, dtype: str = "float32") -> None:
        self.weight = Parameter((num_parameters,), dtype, constant(0.25))

    def forward(self, x: Tensor) -> Tensor:
        """x, times its channel's slope where it is negative."""
        slope = self.weight.reshape(-1, *[1] * (x.rank - 2)) if x.rank > 1 else self.weight
        return one("PRelu", [x, slope])


class ELU(Module):
    """x, and alpha * (exp(x) - 1) where it is negative.

    >>> print(nn.export(nn.ELU(), X))
    graph ...
    %0: float32[n, 8] = Elu(x, alpha=1.0)
    return %0 as y
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """x, and alpha * (exp(x) - 1) where it is negative."""
        return functions.elu(x, self.alpha)


class GELU(Module):
    """x times the normal distribution's share below x, exactly or by tanh (``approximate="tanh"``).

    >>> print(nn.export(nn.GELU(), X))
    graph ...
    %0: float32[n, 8] = Gelu(x, approximate="none")
    return %0 as y
    """

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """x times the share."""
        return functions.gelu(x, self.approximate)


class SiLU(_Activation):
    """x * sigmoid(x).

    >>> print(nn.export(nn.SiLU(), X))
    graph ...
    %0: float32[n, 8] = Sigmoid(x)
    %1: float32[n, 8] = Mul(x, %0)
    return %1 as y
    """

    function = functions.silu


class Mish(_Activation):
    """x * tanh(softplus(x)).

    >>> print(nn.export(nn.Mish(), X))
    graph ...
    %0: float32[n, 8] = Mish(x)
    return %0 as y
    """

    function = functions.mish


class Hardswish(_Activation):
    """x * relu6(x + 3) / 6.

    >>> print(nn.export(nn.Hardswish(), X))
    graph ...
    %0: float32[n, 8] = HardSwish(x)
    return %0 as y
    """

    function = functions.hardswish


class Hardsigmoid(_Activation):
    """relu6(x + 3) / 6.

    >>> print(nn.export(nn.Hardsigmoid(), X))
    graph ...
    %0: float32[n, 8] = HardSigmoid(x, alpha=0.16666666666666666, beta=0.5)
    return %0 as y
    """

    function = functions.hardsigmoid


class Softplus(_Activation):
    """log(1 + exp(x)).

    >>> print(nn.export(nn.Softplus(), X))
    graph ...
    %0: float32[n, 8] = Softplus(x)
    return %0 as y
    """

    function = functions.softplus


class Sigmoid(_Activation):
    """1 / (1 + exp(-x)).

    >>> print(nn.export(nn.Sigmoid(), X))
    graph ...
    %0: float32[n, 8] = Sigmoid(x)
    return %0 as y
    """

    function = functions.sigmoid


class Tanh(_Activation):
    """The hyperbolic tangent.

    >>> print(nn.export(nn.Tanh(), X))
    graph ...
    %0: float32[n, 8] = Tanh(x)
    return %0 as y
    """

    function = functions.tanh


class Softmax(Module):
    """exp(x) as shares of their sum along an axis.

    >>> print(nn.export(nn.Softmax(), X))
    graph ...
    %0: float32[n, 8] = Softmax(x, axis=-1)
    return %0 as y
    """

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """The shares."""
        return functions.softmax(x, self.dim)


class LogSoftmax(Module):
    """The logarithm of softmax.

    >>> print(nn.export(nn.LogSoftmax(), X))
    graph ...
    %0: float32[n, 8] = LogSoftmax(x, axis=-1)
    return %0 as y
    """

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """The logarithms of the shares."""
        return functions.log_softmax(x, self.dim)


class Identity(Module):
    """Its input; also what stands in the place of a dropout, so that the names of what follows stay.

    >>> print(nn.export(nn.Identity(), X))
    graph ...
    return x as y
    """

    def forward(self, x: Tensor) -> Tensor:
        """x."""
        return x


class Flatten(Module):
    """All axes from one on as one.

    >>> print(nn.export(nn.Flatten(), X))
    graph ...
    %0: float32[n, 8] = Reshape(x, [0, -1])
    return %0 as y
    """

    def __init__(self, start_dim: int = 1) -> None:
        self.start_dim = start_dim

    def forward(self, x: Tensor) -> Tensor:
        """x with fewer axes."""
        return functions.flatten(x, self.start_dim)
