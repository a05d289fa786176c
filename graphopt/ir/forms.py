"""One form per op: what opsets say differently is read into the newest opset's form, and written back.

What was an attribute in one opset and is an input in another stands in the graph as the newest schema
has it, so that a rule is written once. An op of an old opset that has no equal in the newest keeps its
form under a name of its own, ``Name@V``, which no rule mentions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs

H = TypeVar("H")


class Unwritable(Exception):
    """A call has no form in an opset; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Call(Generic[H]):
    """An op applied to handles of values."""

    op: str
    inputs: tuple[H | None, ...]
    attrs: Attrs
    n_outputs: int


def read(call: Call[H], opset: int, make: Callable[[Constant], H], fact: Callable[[H], Fact]) -> Call[H]:
    """The call in the inner form, from the form that it has in an opset."""
    return call


def write(call: Call[H], opset: int, make: Callable[[Constant], H], fact: Callable[[H], Fact]) -> Call[H]:
    """The call in the form of an opset, from the inner form; raises Unwritable."""
    return call


def writable(op: str, attrs: Attrs, inputs: Sequence[Fact | None], opset: int) -> str | None:
    """Why a call in the inner form cannot be written in an opset, or None."""
    return None
