"""Value names in a written model: the caller's stay; new ones are readable, unique, and equal in every run."""

from __future__ import annotations

from collections.abc import Iterator

from graphopt.ir.graph import Graph
from graphopt.ir.onnx_io.source import GraphSource


class ValueNames:
    """The names that a model uses, or had when it was read, and new ones beside them: no two values, of the model as it
    was and of what became of it, have one name unless they are the same."""

    def __init__(self, graph: Graph) -> None:
        self._used = set(_names(graph))
        self._next: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """A name that no value of the model has, nor will get: the stem and a number."""
        number = self._next.get(stem, 0)
        while (name := f"{stem}_{number}") in self._used:
            number += 1
        self._next[stem] = number + 1
        self._used.add(name)
        return name


def _names(graph: Graph) -> Iterator[str]:
    yield from graph.names.values()
    yield from graph.output_names
    if isinstance(graph.origin.extra, GraphSource):
        yield from (name for node in graph.origin.extra.proto.node for name in node.output)
    for node in graph.nodes():
        for value in node.attrs.values():
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Graph):
                    yield from _names(item)
