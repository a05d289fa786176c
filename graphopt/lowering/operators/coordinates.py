"""Where along an axis of its input a resized tensor's element lies: between which elements, and how near to each.

Coordinates are computed in double precision and in the order of ONNX's reference, since what rounding does to them
decides which element is the nearest. Where they are fractions that double precision holds exactly, whole numbers
take their place: indices of enlarged images are then plain divisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, gcd
from typing import TypeAlias

from graphopt.lowering.expressions import INDEX, Const, Expr, apply, as_expr, cast, const, equal, select
from graphopt.lowering.operators.indices import clamped
from graphopt.lowering.operators.operation import NotLowered

DOUBLE = "float64"
Number: TypeAlias = "float | Expr"
"""What is known ahead of time, or an expression of double precision."""


def double(size: Expr) -> Number:
    """A size as a number."""
    return float(size.value) if isinstance(size, Const) else cast(size, DOUBLE)


@dataclass(frozen=True)
class Line:
    """An axis that is resized from ``size`` to ``count`` elements by ``scale``; ``roi`` is the part that is shown."""

    size: Expr
    count: Expr
    scale: Number
    transformation: str
    roi: tuple[Number, Number] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether every element stays where it is."""
        whole = self.roi is None or self.transformation != "tf_crop_and_resize" or self.roi == (0.0, 1.0)
        return self.size == self.count and whole and isinstance(self.scale, float) and abs(self.scale - 1) < 1e-9

    @property
    def fraction(self) -> tuple[int, int, int] | None:
        """Integers with which the coordinate of the y-th element is ``(a * y + b) / c`` exactly; None for others."""
        if not isinstance(self.scale, float) or self.scale <= 0:
            return None
        up, down = self.scale, 1 / self.scale
        if up != int(up) and (down != int(down) or int(down) & (int(down) - 1)):
            return None
        p, q = (int(up), 1) if up == int(up) else (1, int(down))
        if self.transformation == "asymmetric":
            return q, 0, p
        grown = equal(self.size * p, self.count * q) == const(1, "bool")
        if self.transformation == "half_pixel" or (self.transformation == "half_pixel_symmetric" and grown):
            return 2 * q, q - p, 2 * p
        if self.transformation == "pytorch_half_pixel" and isinstance(self.size, Const) and self.size.value * up != 1:
            return 2 * q, q - p, 2 * p
        return None

    def origin(self, index: Expr) -> Expr:
        """The coordinate in the input of the element at an index of the output, in double precision."""
        y, size, scale = cast(index, DOUBLE), double(self.size), self.scale
        width = scale * size
        match self.transformation:
            case "asymmetric":
                return y / scale
            case "half_pixel":
                return (y + 0.5) / scale - 0.5
            case "tf_half_pixel_for_nn":
                return (y + 0.5) / scale
            case "pytorch_half_pixel":
                return _unless_one(width, -0.5, (y + 0.5) / scale - 0.5)
            case "align_corners":
                return _unless_one(width, 0.0, y * (size - 1.0) / (width - 1.0) if width != 1 else y)
            case "half_pixel_symmetric":
                offset = (size / 2.0) * (1.0 - double(self.count) / width)
                return offset + (y + 0.5) / scale - 0.5
            case "tf_crop_and_resize" if self.roi is not None:
                start, end = self.roi
                middle = (end - start) * (size - 1.0) / 2.0
                spread = y * (end - start) * (size - 1.0) / (width - 1.0) if width != 1 else y
                return _unless_one(width, middle, spread) + start * (size - 1.0)
        raise NotLowered(f"Resize has no coordinates {self.transformation}")

    def is_outside(self, index: Expr) -> Expr:
        """Whether the coordinate lies before the first element of the input or behind the last one."""
        x = self.origin(index)
        return (x < 0.0) | (x > as_expr(double(self.size) - 1.0, DOUBLE))

    def nearest(self, index: Expr, mode: str) -> Expr:
        """The index of the nearest element of the input; ``mode`` says which of two that are equally near."""
        if mode not in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
            raise NotLowered(f"Resize has no nearest mode {mode}")
        exact = self.fraction
        if exact is not None:
            a, b, c = exact
            twice = {"floor": 0, "ceil": 2 * c - 2, "round_prefer_floor": c - 1, "round_prefer_ceil": c}[mode]
            return self._floored(index, 2 * a, 2 * b + twice, 2 * c)
        x = self.origin(index)
        below = apply("floor", x)
        if mode == "ceil":
            below = apply("ceil", x)
        elif mode != "floor":
            up = x - below > 0.5 if mode == "round_prefer_floor" else x - below >= 0.5
            below = below + select(up, const(1, DOUBLE), const(0, DOUBLE))
        return clamped(cast(below, INDEX), self.size)

    def _floored(self, index: Expr, a: int, b: int, c: int) -> Expr:
        """``(a * index + b) // c`` in lowest terms, and within the input."""
        common = gcd(a, c)
        a, b, c = a // common, floor(b / common), c // common
        found = (index * a + b) // c
        last = isinstance(self.count, Const) and isinstance(self.size, Const)
        if b == 0 and a == 1 and self.count == self.size * c:
            return found
        if last and b >= 0 and (a * (int(self.count.value) - 1) + b) // c < int(self.size.value):  # type: ignore[attr-defined]
            return found
        return clamped(found, self.size)

    def between(self, index: Expr, dtype: str) -> tuple[Expr, Expr]:
        """The index of the element at the coordinate or before it (maybe outside), and how far behind that it lies."""
        exact = self.fraction
        if exact is not None and exact[2] & (exact[2] - 1) == 0:
            a, b, c = exact
            place = index * a + b
            return place // c, cast(place % c, dtype) * (1.0 / c)
        x = self.origin(index)
        below = apply("floor", x)
        return cast(below, INDEX), cast(x - below, dtype)


def _unless_one(width: Number, one: Number, otherwise: Expr) -> Expr:
    if isinstance(width, Expr):
        return select(equal(width, 1.0), as_expr(one, DOUBLE), otherwise)
    return as_expr(one, DOUBLE) if width == 1 else otherwise


# -- weights by distance: Keys' cubic convolution (1981)


def cubic_near(distance: Expr, a: float) -> Expr:
    """The weight of an element at most one element away."""
    return ((a + 2.0) * distance - (a + 3.0)) * distance * distance + 1.0


def cubic_far(distance: Expr, a: float) -> Expr:
    """The weight of an element between one and two elements away."""
    return ((a * distance - 5.0 * a) * distance + 8.0 * a) * distance - 4.0 * a


def cubic_weights(part: Expr, a: float) -> list[Expr]:
    """The weights of the four elements around a coordinate that lies ``part`` behind the second of them."""
    return [
        cubic_far(part + 1.0, a),
        cubic_near(part, a),
        cubic_near(1.0 - part, a),
        cubic_far(2.0 - part, a),
    ]
