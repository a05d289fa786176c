"""Source text of expressions, with its precedence and lanes."""

from __future__ import annotations

from graphopt.frozen import dataclass
from graphopt.lowering.loops.expressions import Expr, Var

ATOM, UNARY, PRODUCT, SUM, CHOICE = 9, 8, 6, 5, -1
"""Precedences of operators."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes of a vectorized loop, ``count`` iterations at once: ``var`` is ``base`` plus the lane's number.

    ``mask`` names the lanes that count, where not all do.
    """

    var: Var
    base: Expr
    count: int
    mask: str | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """Source of an expression, the precedence of its outermost operator, and whether it is a vector."""

    text: str
    level: int = ATOM
    wide: bool = False

    def within(self, level: int) -> str:
        """The source, in parentheses where its precedence is lower."""
        return self.text if self.level >= level else f"({self.text})"

    def argument(self, function: str) -> str | None:
        """The argument of a call of a function of one argument; None for any other source."""
        start = f"{function}("
        if not (self.text.startswith(start) and self.text.endswith(")")):
            return None
        inner, depth = self.text[len(start) : -1], 0
        for letter in inner:
            depth += (letter == "(") - (letter == ")")
            if depth < 0 or (letter == "," and not depth):
                return None
        return inner
