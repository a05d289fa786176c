"""Leaves of torch.export: modules and functions with a table entry of their own are not traced into. Apart from
``export`` by size.

While a module is exported, each stands in the graph as one call of an opaque operator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from graphopt.frontends.torch.table import Emitter, Table
from graphopt.frontends.torch.writer import OpWriter
from graphopt.ir.graph import Value

_LIBRARY = "graphopt"
_numbers = count()


class Leaves:
    """A context in which a module's leaves are opaque. ``module`` is what to export, ``table`` has their entries."""

    def __init__(self, module: torch.nn.Module, table: Table) -> None:
        self.table = Table()
        self._own = table
        self._given = module
        self._library: torch.library.Library | None = None
        self._patched: list[tuple[torch.nn.Module, Any]] = []
        """Modules, each with the ``forward`` that it had of its own, if any."""
        self.module = module

    def __enter__(self) -> Leaves:
        for module in self._given.modules():
            emitter = self._own.find(module)
            if emitter is not None:
                self._patched.append((module, vars(module).get("forward")))
                module.forward = self._opaque(module.forward, partial(_of_module, emitter, module))
        if isinstance(self._given, fx.GraphModule):
            self.module = self._with_functions(self._given)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for module, method in self._patched:
            if method is None:
                del module.forward
            else:
                module.forward = method
        if self._library is not None:
            self._library._destroy()

    def _with_functions(self, given: fx.GraphModule) -> fx.GraphModule:
        """The graph with the functions that have entries made opaque."""
        graph = fx.Graph()
        graph.output(graph.graph_copy(given.graph, {}))
        graph_module = fx.GraphModule(given, graph)
        for node in graph_module.graph.nodes:
            if node.op == "call_function" and not hasattr(node.target, "overloadpacket"):
                emitter = self._own.find(node.target)
                if emitter is not None:
                    node.target = self._opaque(node.target, emitter)
        graph_module.recompile()
        return graph_module

    def _opaque(self, function: Callable[..., Any], emitter: Emitter) -> Callable[..., Any]:
        """A function that stands in the graph as one call."""

        def call(*arguments: Any, **named: Any) -> Any:
            flat, tree = pytree.tree_flatten((arguments, named))
            places = [k for k, x in enumerate(flat) if isinstance(x, torch.Tensor)]
            results, form = pytree.tree_flatten(function(*arguments, **named))  # what nobody reads is not exported
            leaf = _LeafCall(emitter, flat, tree, places, results)
            return pytree.tree_unflatten(self._operator(leaf)([flat[k] for k in places]), form)

        return call

    def _operator(self, leaf: _LeafCall) -> Any:
        if self._library is None:
            self._library = torch.library.Library(_LIBRARY, "FRAGMENT")
        name = f"leaf_{next(_numbers)}"
        self._library.define(f"{name}(Tensor[] tensors) -> Tensor[]")
        torch.library.register_fake(f"{_LIBRARY}::{name}", leaf.results, lib=self._library)
        operator = getattr(getattr(torch.ops, _LIBRARY), name).default
        self.table.entry(operator)(leaf.emit)
        return operator


class _LeafCall:
    """One call of a leaf: what is no tensor among its arguments, and what its results are like."""

    def __init__(self, emitter: Emitter, flat: list[Any], tree: Any, places: list[int], results: list[Any]) -> None:
        self._emitter, self._flat, self._tree, self._places = emitter, flat, tree, places
        self._forms = [(r.shape, r.dtype, r.device) for r in results]

    def results(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Tensors without elements of the results' sizes."""
        return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in self._forms]

    def emit(self, g: OpWriter, tensors: list[Any]) -> list[Any]:
        """What the entry gives, in order."""
        flat = list(self._flat)
        for position, tensor in zip(self._places, tensors, strict=True):
            flat[position] = tensor
        arguments, named = pytree.tree_unflatten(flat, self._tree)
        outputs: list[Any] = pytree.tree_flatten(self._emitter(g, *arguments, **named), is_leaf=_is_value)[0]
        return outputs


def _is_value(x: Any) -> bool:
    return isinstance(x, Value)


def _of_module(emitter: Emitter, module: torch.nn.Module, g: OpWriter, *arguments: Any, **named: Any) -> Any:
    return emitter(g, module, *arguments, **named)
