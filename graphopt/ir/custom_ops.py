"""Custom ops: functions of Python that graphs call, and what is known of their results beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir.types import TensorType, Type

Outputs: TypeAlias = Callable[..., "TensorType | Sequence[TensorType]"]
"""From the types of an op's inputs (None for one that is left out or unknown), and its attributes by name, to the types
of its outputs."""
Filling: TypeAlias = Callable[..., object]
"""A function in destination-passing style: it takes the input arrays, the arrays to fill, and attributes by name."""


@dataclass(frozen=True, slots=True)
class Added:
    """What a user said of an op; ``effects``: it does more than give a result."""

    outputs: Outputs | None = None
    function: Filling | None = None
    effects: bool = False


_added: dict[str, Added] = {}


def add(op: str, what: Added) -> None:
    """Make an op known, in place of what was said of it before."""
    _added[op] = what


def added(op: str) -> Added | None:
    """What was said of an op, or None."""
    return _added.get(op)


def has_effects(op: str) -> bool:
    """Whether the op does more than give a result: it is then neither dropped, shared, folded nor reordered."""
    definition = _added.get(op)
    return definition is not None and definition.effects


def any_effects() -> bool:
    """Whether there is any op that does more than give a result."""
    return bool(_added) and any(what.effects for what in _added.values())


def is_extended() -> bool:
    """Whether users added any."""
    return bool(_added)


def output_types(what: Outputs, inputs: Sequence[Type | None], attrs: dict[str, object]) -> list[TensorType]:
    """The types that a user's function gives. ValueError where it fails, with what it says."""
    try:
        declared = what(*inputs, **attrs)
        types = [declared] if isinstance(declared, TensorType) else list(declared)
    except Exception as error:  # whatever the user's code raises on these types
        raise ValueError(f"its outputs cannot be told: {str(error) or type(error).__name__}") from error
    if not all(isinstance(t, TensorType) for t in types):
        raise ValueError("its outputs cannot be told: a TensorType is expected for each")
    return types
