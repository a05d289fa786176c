"""Resize coordinates: the input elements beside each output element of an axis, and their weights.

The nearest element is found in whole numbers wherever scales are fractions, so that a coordinate that lies just on an
element, or in the middle of two, is known to. Weights need no such care: they are computed in double precision.
"""

from __future__ import annotations

from math import gcd
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.lowering.loops.expressions import INDEX, Apply, Const, Expr, apply, as_expr, cast, const, equal, select
from graphopt.lowering.operators.indices import clamped
from graphopt.lowering.operators.operation import NotLowered

DOUBLE = "float64"
Coordinate: TypeAlias = "float | Expr"
"""What is known ahead of time, or an expression of double precision."""


def double(size: Expr) -> Coordinate:
    """A size as a number."""
    return float(size.value) if isinstance(size, Const) else cast(size, DOUBLE)


@dataclass(frozen=True)
class ResizedAxis:
    """An axis that is resized from ``size`` to ``count`` elements by ``scale``; ``roi`` is the part that is shown.

    The scale as a fraction is ``ratio``: how many elements come from how many.
    """

    size: Expr
    count: Expr
    scale: Coordinate
    transformation: str
    roi: tuple[Coordinate, Coordinate] | None = None
    ratio: tuple[Expr, Expr] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether every element stays where it is."""
        whole = self.roi is None or self.transformation != "tf_crop_and_resize" or self.roi == (0.0, 1.0)
        return self.size == self.count and whole and isinstance(self.scale, float) and abs(self.scale - 1) < 1e-9

    @property
    def is_whole(self) -> bool:
        """Whether elements are repeated, or left out, by a whole factor."""
        above, below = (int(e.value) if isinstance(e, Const) else 0 for e in self.ratio or (Const(0), Const(0)))
        return above > 0 and below > 0 and 0 in (above % below, below % above)

    def fraction(self, index: Expr) -> tuple[Expr, Expr] | None:
        """Whole numbers of which the quotient is the coordinate of the element at an index, where there are such."""
        if self.ratio is None:
            return None
        (p, q), n, m = self.ratio, self.size, self.count
        middle = index * (q * 2) + (q - p), p * 2
        match self.transformation:
            case "asymmetric":
                return index * q, p
            case "half_pixel":
                return middle
            case "tf_half_pixel_for_nn":
                return index * (q * 2) + q, p * 2
            case "pytorch_half_pixel":
                single = equal(p * n, q)
                return select(single, Const(-1), middle[0]), select(single, Const(2), middle[1])
            case "align_corners":
                single = equal(p * n, q)
                return select(single, Const(0), index * ((n - 1) * q)), select(single, Const(1), p * n - q)
            case "half_pixel_symmetric":
                shift = Const(0) if (p, q) == (m, n) else n * p - m * q
                return index * (q * 2) + (shift + (q - p)), p * 2
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
        exact = self.fraction(index)
        if exact is not None:
            above, below = exact
            twice = {
                "floor": 0 * below,
                "ceil": below * 2 - 2,
                "round_prefer_floor": below - 1,
                "round_prefer_ceil": below,
            }
            return self._floored(index, above * 2 + twice[mode], below * 2)
        x = self.origin(index)
        below = apply("floor", x)
        if mode == "ceil":
            below = apply("ceil", x)
        elif mode != "floor":
            up = x - below > 0.5 if mode == "round_prefer_floor" else x - below >= 0.5
            below = below + select(up, const(1, DOUBLE), const(0, DOUBLE))
        return clamped(cast(below, INDEX), self.size)

    def _floored(self, index: Expr, above: Expr, below: Expr) -> Expr:
        """``above // below`` in lowest terms, and within the input."""
        line = _affine(above, index)
        if line is None or not isinstance(below, Const):
            return clamped(above // below, self.size)
        a, b, c = *line, int(below.value)
        common = gcd(a, c)
        a, b, c = a // common, b // common, c // common
        source = (index * a + b) // c
        if b == 0 and a == 1 and self.count == self.size * c:
            return source
        if isinstance(self.count, Const) and isinstance(self.size, Const):
            last = a * (int(self.count.value) - 1) + b
            if b >= 0 and last // c < int(self.size.value):
                return source
        return clamped(source, self.size)

    def between(self, index: Expr, dtype: str) -> tuple[Expr, Expr]:
        """The index of the element at the coordinate or before it (maybe outside), and how far behind that it lies."""
        exact = self.fraction(index)
        if exact is not None and isinstance(exact[1], Const):
            above, c = exact[0], int(exact[1].value)
            if c & (c - 1) == 0:
                return above // c, cast(above % c, dtype) * (1.0 / c)
        x = self.origin(index)
        below = apply("floor", x)
        return cast(below, INDEX), cast(x - below, dtype)


def _affine(expr: Expr, index: Expr) -> tuple[int, int] | None:
    """Numbers ``(a, b)`` with which the expression is ``a * index + b``; None where it has others in it."""
    if expr == index:
        return 1, 0
    if isinstance(expr, Const):
        return 0, int(expr.value)
    if isinstance(expr, Apply) and expr.fn in ("add", "mul") and isinstance(expr.args[1], Const):
        inner, number = _affine(expr.args[0], index), int(expr.args[1].value)
        if inner is None:
            return None
        return (inner[0], inner[1] + number) if expr.fn == "add" else (inner[0] * number, inner[1] * number)
    return None


def _unless_one(width: Coordinate, one: Coordinate, otherwise: Expr) -> Expr:
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
