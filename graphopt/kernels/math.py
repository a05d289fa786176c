"""Mathematical functions of kernel source, on scalars and vectors of float32 and float64, lane by lane.

They become part of the kernel, with no call: formulas and polynomials, the same for every number of lanes, so that
results do not depend on the width of vectors. Where a float64 has no polynomial, libm is called for each lane; its name
says so in the function's documentation.

The formulas stand in a module for each family of functions: there they have their names, which here are functions of
kernel source.
"""

from __future__ import annotations

from graphopt.kernels import division, exponential, hyperbolic, trigonometry
from graphopt.kernels.values import VectorValue, is_float
from graphopt.kernels.vector_type import elementwise


def _exp(x: VectorValue) -> VectorValue:
    """``exp(x)``, within 1.2 ulps; it overflows and underflows as the exact result does."""
    return exponential.exp(x)


def _pow(x: VectorValue, y: VectorValue) -> VectorValue:
    """``x**y``: float32 within 1 ulp, float64 by libm's ``pow``; integers wrap around, and a negative ``y`` gives 0."""
    return exponential.power(x, y) if is_float(x.dtype) else division.integer_power(x, y)


exp = elementwise(_exp)
expm1 = elementwise(exponential.expm1)
log = elementwise(exponential.log)
log1p = elementwise(exponential.log1p)
pow = elementwise(_pow, "fi")

tanh = elementwise(hyperbolic.tanh)
sigmoid = elementwise(hyperbolic.sigmoid)
softplus = elementwise(hyperbolic.softplus)
sinh = elementwise(hyperbolic.sinh)
cosh = elementwise(hyperbolic.cosh)
asinh = elementwise(hyperbolic.asinh)
acosh = elementwise(hyperbolic.acosh)
atanh = elementwise(hyperbolic.atanh)

erf = elementwise(hyperbolic.erf)
gelu = elementwise(hyperbolic.gelu)
gelu_tanh = elementwise(hyperbolic.gelu_tanh)

sin = elementwise(trigonometry.sin)
cos = elementwise(trigonometry.cos)
tan = elementwise(trigonometry.tan)
asin = elementwise(trigonometry.asin)
acos = elementwise(trigonometry.acos)
atan = elementwise(trigonometry.atan)
atan2 = elementwise(trigonometry.atan2)
