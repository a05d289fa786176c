"""Bindings: values that a match binds, and their facts for guards and replacements.

The directed matcher works on values of a graph, the e-graph on classes of equal terms. Guards,
attribute functions and the building of right sides are written once, over a handle ``H`` that is
either.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field
from typing import Any, Generic, Protocol, TypeGuard, TypeVar

from graphopt.frozen import dataclass
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attr, Attrs

H = TypeVar("H", bound=Hashable)
H_contra = TypeVar("H_contra", bound=Hashable, contravariant=True)


@dataclass(frozen=True, slots=True)
class Head:
    """The value of an op variable: an op with all its attributes."""

    op: str
    attrs: Attrs


@dataclass(slots=True)
class Bindings(Generic[H]):
    """Values of a pattern's names. A starred variable binds a tuple, an absent optional one None."""

    values: dict[str, H | tuple[H, ...] | None] = field(default_factory=dict)
    attrs: dict[str, Attr | Attrs | None] = field(default_factory=dict)
    heads: dict[str, Head] = field(default_factory=dict)

    def copy(self) -> Bindings[H]:
        """Bindings of its own, for a branch of the search."""
        return Bindings(dict(self.values), dict(self.attrs), dict(self.heads))


def is_several(bound: object) -> TypeGuard[tuple[Any, ...]]:
    """Whether a name stands for several values: a plain tuple (one value of a graph is a named tuple)."""
    return type(bound) is tuple


class Operands(Protocol[H_contra]):
    """Questions that guards may ask of a value."""

    opset: int

    def fact(self, value: H_contra) -> Fact:
        """The known facts of the value."""

    def constant(self, value: H_contra) -> Constant | None:
        """The value's elements where it is a constant, computed if need be (within the folding limit)."""

    def uses(self, value: H_contra) -> int | None:
        """The number of uses of the value, graph outputs included; None where that has no meaning (in an e-graph)."""


class Builder(Operands[H], Protocol[H]):
    """The builder of right sides: into a graph, or an e-graph."""

    def make_constant(self, constant: Constant) -> H:
        """A value that is this constant."""

    def call(self, op: str, inputs: Sequence[H | None], attrs: Attrs, facts: Sequence[Fact]) -> tuple[H, ...]:
        """The outputs of an op applied to inputs; ``facts`` are those inferred for its outputs."""
