"""Source of an expression, and the lanes that it is for."""

from __future__ import annotations

from dataclasses import dataclass

from graphopt.lowering.loops.expressions import Expr, Var

ATOM, UNARY, PRODUCT, SUM, CHOICE = 9, 8, 6, 5, -1
"""How tightly operators bind."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """That a loop is done ``count`` iterations at once: ``var`` is ``base`` plus the lane's number.

    ``mask`` names the lanes that count, where not all do.
    """

    var: Var
    base: Expr
    count: int
    mask: str | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """Source of an expression, how tightly its outermost operator binds, and whether it is a vector."""

    text: str
    level: int = ATOM
    wide: bool = False

    def within(self, level: int) -> str:
        """The source, in parentheses where it binds less tightly than that."""
        return self.text if self.level >= level else f"({self.text})"

    def argument(self, function: str) -> str | None:
        """What a function of one argument is called with; None where the source is anything else."""
        start = f"{function}("
        if not (self.text.startswith(start) and self.text.endswith(")")):
            return None
        inner, depth = self.text[len(start) : -1], 0
        for letter in inner:
            depth += (letter == "(") - (letter == ")")
            if depth < 0 or (letter == "," and not depth):
                return None
        return inner
