"""Facts: what is known of a value without running the model: its type, its elements, its bounds.

Guards of rules, constant folding, costs and the e-graph's analyses all read facts. A fact that is
not known is ``None``, and a guard on it does not hold.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from graphopt.frozen import dataclass
from graphopt.ir.constants import Constant
from graphopt.ir.types import Real, Size, TensorType, Type


@dataclass(frozen=True, slots=True)
class Fact:
    """Everything known of one value. All fields hold for every input on which the model is defined."""

    type: Type | None = None
    is_const: bool = False
    """Computed from constants alone, whether or not its elements have been computed."""
    constant: Constant | None = None
    """Its elements, where it is a constant that has been computed."""
    elements: tuple[Size, ...] | None = None
    """For integer tensors of rank 0 or 1 (shapes and what is computed from them): each element as a size."""
    low: float = -inf
    high: float = inf
    """Bounds that every element keeps that is not NaN."""
    reals: tuple[Real, ...] | None = None
    """For float tensors of rank 0 or 1 that are computed of sizes: each element."""

    @property
    def dtype(self) -> str | None:
        """The dtype, where this is a tensor and it is known."""
        return self.type.dtype if isinstance(self.type, TensorType) else None

    @property
    def shape(self) -> tuple[Size, ...] | None:
        """The shape, where the rank is known."""
        if isinstance(self.type, TensorType) and isinstance(self.type.shape, tuple):
            return self.type.shape
        return None

    @property
    def rank(self) -> int | None:
        """The number of axes, where it is known."""
        shape = self.shape
        return None if shape is None else len(shape)

    @property
    def size(self) -> Size | None:
        """The number of elements, where the rank is known."""
        return self.type.size if isinstance(self.type, TensorType) else None

    @property
    def count(self) -> int | None:
        """The number of elements, where it is a number."""
        return self.type.count if isinstance(self.type, TensorType) else None


NOTHING = Fact()


def _better(a: tuple[Size, ...] | None, b: tuple[Size, ...] | None) -> tuple[Size, ...] | None:
    """Of each element the number, where either is one."""
    if a is None or b is None or len(a) != len(b):
        return b if a is None else a
    return tuple(y if isinstance(y, int) and not isinstance(x, int) else x for x, y in zip(a, b, strict=True))


def meet(a: Fact, b: Fact) -> Fact:
    """Both facts hold of the value: keep what is known by either."""
    if a is b or b is NOTHING:
        return a
    if a is NOTHING:
        return b
    merged = replace(
        a,
        type=a.type or b.type,
        is_const=a.is_const or b.is_const,
        constant=a.constant or b.constant,
        elements=_better(a.elements, b.elements),
        reals=a.reals or b.reals,
        low=max(a.low, b.low),
        high=min(a.high, b.high),
    )
    return a if merged == a else merged
