"""A module: graph functions, tensor programs and external functions, by name.

A graph calls another function of its module by an op of the domain ``module``: ``module::linear0(x, w)``.
Any function can be taken out, changed and put back under its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from graphopt.errors import InvalidModelError
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph
from graphopt.ir.text import show as show_graph
from graphopt.lowering.loops import Nest
from graphopt.lowering.script_print import show as show_nest
from graphopt.lowering.wellformed import check

DOMAIN = "module"
"""The domain of ops that are functions of the module."""


@dataclass(frozen=True, slots=True)
class External:
    """A function that is written elsewhere, registered by its name; ``effects``: it does more than give a result."""

    name: str
    effects: bool = False


Function: TypeAlias = Graph | Nest | External


class Module(MutableMapping[str, Function]):
    """Functions by name, in the order in which the names came in; a function put in place of another keeps that place.

    A graph or nest takes the name that it is put under.
    """

    def __init__(self, functions: Mapping[str, Function] | None = None) -> None:
        self._functions: dict[str, Function] = {}
        self.update(functions or {})

    def __getitem__(self, name: str) -> Function:
        return self._functions[name]

    def __setitem__(self, name: str, function: Function) -> None:
        self._functions[name] = _named(function, name)

    def __delitem__(self, name: str) -> None:
        del self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    @property
    def functions(self) -> Mapping[str, Function]:
        """All functions by name, to look at."""
        return MappingProxyType(self._functions)

    def calls(self, name: str) -> tuple[str, ...]:
        """The functions of the module that a function calls, each once, in order; only graphs call any."""
        function = self[name]
        return tuple(dict.fromkeys(_called(function))) if isinstance(function, Graph) else ()

    def check(self) -> None:
        """Raises InvalidModelError where a function calls one that is not there, or itself through others, and
        NestError where a nest is not well formed."""
        for function in self.values():
            if isinstance(function, Nest):
                check(function)
        done: set[str] = set()
        for name in self:
            self._follow(name, (), done)

    def _follow(self, name: str, path: tuple[str, ...], done: set[str]) -> None:
        if name in path:
            raise InvalidModelError(
                f"{' calls '.join((*path[path.index(name) :], name))}: a function cannot call itself"
            )
        if name not in self:
            raise InvalidModelError(f"{path[-1]} calls {DOMAIN}::{name}, which the module does not have")
        if name not in done:
            for callee in self.calls(name):
                self._follow(callee, (*path, name), done)
            done.add(name)

    def show(self, constants: list[Constant] | None = None) -> str:
        """All functions as one script: nests as programs, graphs in the notation of graphs.

        Constants too large to be written out are appended to ``constants`` and stand as ``{#n}``.
        """
        beside: list[Constant] = [] if constants is None else constants
        return "\n".join(_shown(name, function, beside) for name, function in self.items())


def _named(function: Function, name: str) -> Function:
    if isinstance(function, External) or function.name == name:
        return function
    if isinstance(function, Nest):
        return replace(function, name=name)
    twin = function.copy()
    twin.name = name
    return twin


def _called(graph: Graph) -> Iterator[str]:
    for node in graph.nodes():
        domain, _, name = node.op.rpartition("::")
        if domain == DOMAIN:
            yield name
        for body in node.bodies.values():
            yield from _called(body)


def _shown(name: str, function: Function, beside: list[Constant]) -> str:
    if isinstance(function, External):
        return f"external {name} = {function.name}{' (effects)' if function.effects else ''}\n"
    return show_graph(function, beside) if isinstance(function, Graph) else show_nest(function)
