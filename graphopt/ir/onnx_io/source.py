"""Source records: what writing needs of the model that a graph was read from, to spell unchanged things as they were.

The reader leaves these records in ``Origin.extra`` and ``Header.extra``; nobody else looks into them.
They speak of names and positions, never of values, and so hold for any graph that carries them on.
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from onnx import FunctionProto, GraphProto, NodeProto, ValueInfoProto

from graphopt.frozen import dataclass
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Attrs
from graphopt.ir.types import Type

InputSource: TypeAlias = int | Constant | None
"""Where an input of the inner form comes from: a position in the model's node, or a constant made from an attribute."""


@dataclass(frozen=True, eq=False, slots=True)
class NodeSource:
    """A node of the model, and the inner form that it was read into."""

    proto: NodeProto
    op: str
    attrs: Attrs
    places: tuple[InputSource, ...]
    opset: int
    dropped: tuple[tuple[int, str, Constant], ...] = ()
    """Inputs of the model's node (position, name, elements) that became attributes or nothing."""


@dataclass(frozen=True, eq=False, slots=True)
class GraphSource:
    """A graph of the model: what is said in it beside nodes and initializers."""

    proto: GraphProto | FunctionProto
    inputs: dict[str, ValueInfoProto] = field(default_factory=dict)
    outputs: dict[str, ValueInfoProto] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)
    """The types as they were read, by the names of the values."""
