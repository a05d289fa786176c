"""Mathematical functions of kernel source, on scalars and vectors of float32 and float64, lane by lane.

They are polynomials that become part of the kernel, so that results are the same for every number of lanes.
"""

from __future__ import annotations

from graphopt.kernels import exponential
from graphopt.kernels.values import Value
from graphopt.kernels.vector_type import elementwise


def _exp(x: Value) -> Value:
    """``exp(x)``, within 1 ulp; infinite and 0 where the exact result rounds to that."""
    return exponential.exp(x)


exp = elementwise(_exp)
