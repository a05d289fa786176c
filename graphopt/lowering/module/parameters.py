"""Parameters of graphs: inputs that become constants, by name, from arrays or files.

Modules and builders bind them alike.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from graphopt.errors import UsageError, nearest_or_some
from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, Attrs, Graph, Value
from graphopt.ir.types import TensorType
from graphopt.lowering.module.state import read_state

Params: TypeAlias = "Mapping[str, Any] | str | os.PathLike[str]"
"""Arrays by name, or the path of a file that holds some."""


def arrays_of(params: Params) -> dict[str, Constant]:
    """The constants that are given by name: arrays, or those of a file.

    Raises UsageError for another kind of file, ReadError where it cannot be read.
    """
    if isinstance(params, Mapping):
        return {n: a if isinstance(a, Constant) else Constant.of(np.asarray(a)) for n, a in params.items()}
    return {name: Constant.of(array) for name, array in read_state(params).items()}


def check_names(arrays: Mapping[str, Constant], graphs: Iterable[Graph]) -> None:
    """Raise UsageError for a name that is no input's of any of the graphs."""
    names = [graph.names[v] for graph in graphs for v in graph.inputs]
    for name in arrays:
        if name not in names:
            raise UsageError(f"there is no input {name!r} to bind{nearest_or_some(name, names)}")


def bound(graph: Graph, arrays: Mapping[str, Constant]) -> Graph:
    """The graph with those of its inputs that have an array as constants; itself where none has."""
    if not any(graph.names[v] in arrays for v in graph.inputs):
        return graph
    twin = graph.copy()
    bind(twin, arrays)
    return twin


def bind(graph: Graph, arrays: Mapping[str, Constant]) -> dict[Value, Constant]:
    """Makes constants of inputs, in place; gives which. UsageError, with nothing changed, for one that does not fit."""
    chosen = {v: arrays[graph.names[v]] for v in graph.inputs if graph.names[v] in arrays}
    for value, constant in chosen.items():
        type = graph.types.get(value)
        if isinstance(type, TensorType) and not _fits(constant, type):
            of = f"{constant.dtype}{list(constant.shape)}"
            raise UsageError(f"{graph.names[value]!r} is {type}, and the array for it is {of}")
    for value, constant in chosen.items():
        graph.inputs.remove(value)
        graph.update(value.node, op=CONSTANT, attrs=Attrs(value=constant))
    return chosen


def _fits(constant: Constant, type: TensorType) -> bool:
    shape = type.shape if isinstance(type.shape, tuple) else constant.shape
    return (
        constant.dtype == type.dtype
        and len(shape) == len(constant.shape)
        and all(not isinstance(n, int) or n == m for n, m in zip(shape, constant.shape, strict=True))
    )
