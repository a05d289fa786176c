"""libdevice calls: NVIDIA's mathematical functions, in place of the CPU's polynomials."""

from __future__ import annotations

from collections.abc import Callable

from graphopt.kernels import division, values
from graphopt.kernels.cuda.device import elementwise
from graphopt.kernels.values import VectorValue, is_float, select, width

SINGLE = ("exp", "expm1", "log", "log1p", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf")
CIRCULAR = ("sin", "cos", "tan", "asin", "acos", "atan")


def called(name: str, *args: VectorValue) -> VectorValue:
    """The function of that name of floats; ``name`` is C's for float64, the one for float32 ends in ``f``."""
    x = args[0]
    symbol = f"__nv_{name}{'f' * (width(x.dtype) == 32)}"
    return VectorValue(x.builder, values.call(x.builder, symbol, x.ir.type, [arg.ir for arg in args]), x.dtype, 1)


def of_floats(name: str) -> Callable[[VectorValue], VectorValue]:
    """The function of one float, by C's name."""

    def trace(x: VectorValue) -> VectorValue:
        return called(name, x)

    trace.__name__, trace.__doc__ = name, f"``{name}(x)`` of a float."
    return trace


def _sigmoid(x: VectorValue) -> VectorValue:
    """``1 / (1 + exp(-x))``, of which no part overflows."""
    e = called("exp", called("fabs", x) * -1)  # NVVM has no fneg
    return select(x < 0, e, e.number(1)) / (e + 1)


def _atan2(y: VectorValue, x: VectorValue) -> VectorValue:
    """The angle of the point (x, y)."""
    return called("atan2", y, x)


def _pow(x: VectorValue, y: VectorValue) -> VectorValue:
    """``x**y`` as C's pow; integers wrap around, and a negative ``y`` gives 0."""
    return called("pow", x, y) if is_float(x.dtype) else division.integer_power(x, y)


exp, expm1, log, log1p, sinh, cosh, tanh, asinh, acosh, atanh, erf = (elementwise(of_floats(name)) for name in SINGLE)
sin, cos, tan, asin, acos, atan = (elementwise(of_floats(name)) for name in CIRCULAR)
sigmoid, atan2, pow = elementwise(_sigmoid), elementwise(_atan2), elementwise(_pow, "fi")
