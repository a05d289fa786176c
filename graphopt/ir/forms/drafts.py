"""Drafts: calls of ops whose form is being changed, and what a change of form is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import Attr, Attrs, trimmed
from graphopt.ir.types import Size

H = TypeVar("H")


class Unreadable(Exception):  # noqa: N818 -- no error: the op keeps its old form
    """A call has no form in the newest opset."""


class Unwritable(Exception):  # noqa: N818
    """A call has no form in an older opset; the message is the reason."""


@dataclass(frozen=True, slots=True)
class OpsetCall(Generic[H]):
    """An op applied to handles of values."""

    op: str
    inputs: tuple[H | None, ...]
    attrs: Attrs
    n_outputs: int


class Draft:
    """A call whose parts may be changed, and what may be asked of its operands."""

    def __init__(
        self, call: OpsetCall[Any], opset: int, make: Callable[[Constant], Any], fact: Callable[[Any], Fact],
        until: int = ops.LATEST,
    ) -> None:  # fmt: skip
        """``until`` is the first opset behind ``opset`` whose form of the op is another."""
        self.op, self.n_outputs, self.opset = call.op, call.n_outputs, opset
        self.inputs: list[Any] = list(call.inputs)
        self.attrs: dict[str, Attr] = dict(call.attrs)
        self._make, self._fact, self._until = make, fact, until

    def call(self) -> OpsetCall[Any]:
        """The call as it is now."""
        self._trim()
        return OpsetCall(self.op, tuple(self.inputs), Attrs(self.attrs), self.n_outputs)

    def fact(self, index: int) -> Fact:
        """What is known of an input; nothing of one that is absent."""
        handle = self.inputs[index] if index < len(self.inputs) else None
        return NOTHING if handle is None else self._fact(handle)

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def set(self, index: int, constant: Constant | None) -> None:
        """Make an input a constant, or absent."""
        self.inputs += [None] * (index + 1 - len(self.inputs))
        self.inputs[index] = None if constant is None else self._make(constant)

    def take(self, index: int) -> None:
        """Remove an input, and its place if it is the last one."""
        if index < len(self.inputs):
            self.inputs[index] = None
        self._trim()

    def _trim(self) -> None:
        """Remove the places of inputs that are absent behind the last one that is given."""
        self.inputs = list(trimmed(self.op, self.inputs))

    def attr(self, name: str, default: Attr | None = None) -> Attr | None:
        """Remove an attribute; its value comes back."""
        return self.attrs.pop(name, default)

    def number(self, name: str, default: float | None = None) -> float | None:
        """Remove an attribute that has to be a number."""
        value = self.attr(name, default)
        if value is not None and not isinstance(value, (int, float)):
            raise Unreadable
        return value

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """Remove an attribute that has to be a list of numbers."""
        value = self.attr(name)
        if value is not None and not (isinstance(value, tuple) and all(isinstance(v, (int, float)) for v in value)):
            raise Unreadable
        return value  # type: ignore[return-value]

    def elements(self, index: int, what: str) -> list[Any]:
        """The elements of an input that has to be constant."""
        fact = self.fact(index)
        if fact.constant is not None:
            return list(fact.constant.array.reshape(-1).tolist())
        if fact.is_const and fact.elements is not None and all(isinstance(e, int) for e in fact.elements):
            return list(fact.elements)
        raise Unwritable(f"{what} of {self.op} must be constant before opset {self._until}")

    def element(self, index: int, what: str) -> Any:
        """The only element of an input that has to be constant."""
        elements = self.elements(index, what)
        if len(elements) != 1:
            raise Unwritable(f"{what} of {self.op} must be one number")
        return elements[0]

    def shape(self, index: int = 0) -> tuple[Size, ...] | None:
        """The shape of an input, where its rank is known."""
        return self.fact(index).shape


DraftStep: TypeAlias = Callable[[Draft], None]


@dataclass(frozen=True, slots=True)
class FormChange:
    """How an op was said before an opset: ``read`` changes a call to the newer form, ``write`` to the older one."""

    before: int
    read: DraftStep
    write: DraftStep
