"""Name scopes of nodes: the modules of the framework that a model was exported from, which each node comes from.

torch's exporter writes them into the metadata of nodes (``pkg.torch.onnx.name_scopes``, or ``namespace``), and what
rewrites make inherits them. Other exporters have them in the names of nodes, as paths: ``/model/layers.0/mlp/MatMul``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from graphopt.ir.graph import Node

SCOPES = "pkg.torch.onnx.name_scopes"
"""The key of a list of full names in Python's notation, of which the last is the node's own."""
NAMESPACE = "namespace"
"""The key of a path of names, each with the class behind a colon."""
NOWHERE = "_empty_nn_module_stack_from_metadata_hook"
"""torch's name for no module."""
DEEPEST = 64
"""So many scopes, one within the other, are told at most: models come from strangers."""

NameScopes: TypeAlias = "tuple[str, ...]"
"""The full names of scopes, the outermost first, each within the one before: ``model``, ``model.layers.0``."""


def name_scopes(node: Node) -> NameScopes:
    """The scopes that a node comes from; none where nothing says them.

    >>> from graphopt.ir.graph import Graph, Origin
    >>> graph = Graph()
    >>> x = graph.add_input("x", None)
    >>> name_scopes(graph.add("Relu", (x,), origin=Origin(name="/model/act/Relu")))
    ('model', 'model.act')
    """
    metadata = dict(node.origin.metadata)
    if SCOPES in metadata:
        names = _listed(metadata[SCOPES])
    elif NAMESPACE in metadata:
        names = [part.partition(":")[0].strip() for part in metadata[NAMESPACE].split("/")]
    else:
        parts = [part for part in node.origin.name.split("/") if part]
        names = [".".join(parts[: k + 1]) for k in range(len(parts))]
    return tuple(dict.fromkeys(name for name in names[:-1] if name not in ("", NOWHERE)))[:DEEPEST]


def _listed(text: str) -> list[str]:
    try:
        names = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def own_name(scopes: NameScopes) -> str:
    """The name of the innermost scope within the one around it.

    >>> own_name(("model", "model.layers.0"))
    'layers.0'
    """
    around = f"{scopes[-2]}." if len(scopes) > 1 else ""
    return scopes[-1].removeprefix(around)


@dataclass
class _Scope:
    members: list[int] = field(default_factory=list)
    inner: dict[str, _Scope] = field(default_factory=dict)


def grouped(items: Sequence[NameScopes]) -> Iterator[tuple[NameScopes, list[int]]]:
    """The scopes of items, each before those within it, in the order in which they come up, with the numbers of the
    items that are in no inner scope; first those of no scope at all."""
    root = _Scope()
    for number, scopes in enumerate(items):
        at = root
        for name in scopes:
            at = at.inner.setdefault(name, _Scope())
        at.members.append(number)
    waiting: list[tuple[NameScopes, _Scope]] = [((), root)]
    while waiting:
        path, scope = waiting.pop()
        yield path, scope.members
        waiting += [((*path, name), inner) for name, inner in reversed(scope.inner.items())]
