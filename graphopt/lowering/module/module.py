"""Modules: graph functions, tensor programs and external functions, by name.

A graph calls another function of its module by an op of the domain ``module``: ``module::linear0(x, w)``.
Any function can be taken out, changed and put back under its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from keyword import iskeyword
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias
from warnings import warn

from graphopt.display import Scripted, shortened
from graphopt.errors import InvalidModelError, UsageError
from graphopt.ir.constants import Constant
from graphopt.ir.custom_ops import added
from graphopt.ir.graph import Function as GraphFunction
from graphopt.ir.graph import Graph
from graphopt.ir.infer_nests import NEST
from graphopt.ir.structure import same
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.wellformed import check
from graphopt.lowering.lower.embedded_programs import attributes

if TYPE_CHECKING:
    from graphopt.lowering.module.parameters import Params

MAIN = "main"
"""The graph function that a module is called by, where nobody names one."""
DOMAIN = "module"
"""The domain of ops that are functions of the module."""


@dataclass(frozen=True, slots=True)
class External:
    """A registered external function, by name; ``effects``: it has effects besides its result."""

    name: str
    effects: bool = False

    @property
    def op(self) -> str:
        """The op of its calls in graphs: ``env::linear`` for ``env.linear``."""
        domain, _, name = self.name.rpartition(".")
        return f"{domain}::{name}"


ModuleFunction: TypeAlias = Graph | Nest | External


class Module(MutableMapping[str, ModuleFunction], Scripted):
    """A module: functions by name, in order of insertion; a replaced function keeps its place.

    A graph or nest takes the name that it is put under.
    """

    def __init__(self, functions: Mapping[str, ModuleFunction] | None = None) -> None:
        self._functions: dict[str, ModuleFunction] = {}
        self.update(functions or {})

    def __getitem__(self, name: str) -> ModuleFunction:
        return self._functions[name]

    def __setitem__(self, name: str, function: ModuleFunction) -> None:
        self._functions[name] = _named(function, name)

    def __delitem__(self, name: str) -> None:
        del self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    @property
    def functions(self) -> Mapping[str, ModuleFunction]:
        """All functions by name, read-only."""
        return MappingProxyType(self._functions)

    def calls(self, name: str) -> tuple[str, ...]:
        """The callees of a function in the module, each once, in order; only graphs have any."""
        function = self[name]
        return tuple(dict.fromkeys(_called(function))) if isinstance(function, Graph) else ()

    def check(self) -> None:
        """Verifies the module: InvalidModelError for a call of a missing function, or recursion, and NestError for a
        malformed nest."""
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

    def graph(self, name: str | None = None) -> Graph:
        """The graph function of a name (else ``main``, else the only one) with its callees, so that it needs no module.

        Programs become nodes that carry them, graph functions its local functions. Raises as ``check`` does, and
        UsageError where there is no such graph, or an external function is not registered.
        """
        self.check()
        graphs = [n for n, f in self.items() if isinstance(f, Graph)]
        chosen = name or (MAIN if MAIN in graphs or len(graphs) != 1 else graphs[0])
        if name is None and graphs and chosen not in graphs:
            entries = ", ".join(map(repr, self.entries))
            raise UsageError(f"the module has no {MAIN!r}: say which of its graphs, as in entries=[{entries}]")
        if chosen not in graphs:
            raise UsageError(f"the module has no graph {chosen!r}: it has {', '.join(graphs) or 'none'}")
        graph = self._joined(self[chosen])
        for callee in sorted({c for c in self._reached(chosen) if isinstance(self[c], Graph)}):
            body = self._joined(self[callee])
            body.functions = {}
            graph.functions[f"{DOMAIN}::{callee}", ""] = GraphFunction(
                DOMAIN, callee, "", body, opsets=body.header.opsets
            )
        return graph

    @property
    def entries(self) -> tuple[str, ...]:
        """The entry functions: the graphs that no other function of the module calls, in order."""
        called = {callee for name in self for callee in self.calls(name)}
        return tuple(n for n, f in self.items() if isinstance(f, Graph) and n not in called)

    def bind_params(self, params: Params, *, entry: str | None = None) -> None:
        """Replaces inputs of the graph ``entry`` (else of every entry function that has them) by constants: arrays by
        name, or a file of them (``.npz``, ``.safetensors``, ``.onnx``, or ``.npy`` by its own name).

        UsageError for a name that is no input's, or an array that does not fit its type, ReadError for a file that
        cannot be read; the module is then as it was.
        """
        from graphopt.lowering.module.parameters import arrays_of, bound, check_names

        graphs = {n: f for n in ([entry] if entry else self.entries) if isinstance(f := self.get(n), Graph)}
        if not graphs:
            raise UsageError(f"the module has no graph {entry or MAIN!r} whose inputs could be bound")
        arrays = arrays_of(params)
        check_names(arrays, graphs.values())
        self.update({name: bound(graph, arrays) for name, graph in graphs.items()})

    def _reached(self, name: str) -> Iterator[str]:
        for callee in self.calls(name):
            yield callee
            yield from self._reached(callee)

    def _joined(self, function: ModuleFunction) -> Graph:
        """A graph function with programs and external functions in place of calls of them."""
        assert isinstance(function, Graph)
        graph = function.copy()
        for node in list(graph.nodes()):
            for attribute, body in node.bodies.items():
                attrs = graph.node(node.id).attrs
                graph.update(node.id, attrs=attrs.with_(**{attribute: self._joined(body)}))
            domain, _, name = node.op.rpartition("::")
            callee = self[name] if domain == DOMAIN else None
            if isinstance(callee, Nest):
                graph.update(node.id, op=NEST, attrs=attributes(callee))
            elif isinstance(callee, External):
                graph.update(node.id, op=callee.op)
        for external in self.values():
            if isinstance(external, External) and added(external.op) is None:
                raise UsageError(f"{external.name} is not registered: graphopt.register({external.name!r}, function)")
        return graph

    def __repr__(self) -> str:
        return f"<Module of {shortened(', '.join(self)) or 'nothing'}>"

    def show(self, constants: list[Constant] | None = None) -> str | None:  # type: ignore[override]
        """Prints the script, in colour where it is shown by a terminal or notebook.

        With ``constants``, gives the text instead, as ``script`` does now: deprecated, for one version.
        """
        if constants is None:
            super().show()
            return None
        warn("module.show(constants) is module.script(constants) now", DeprecationWarning, stacklevel=2)
        return self.script(constants)

    def script(self, constants: list[Constant] | None = None) -> str:
        """The script of the module; ``read`` gives an equal module back.

        Constants too large to be written out are appended to ``constants`` and stand as ``{#n}``, their number there;
        ``read`` wants the same list.
        """
        from graphopt.lowering.module.script import show_function

        beside: list[Constant] = [] if constants is None else constants
        return "\n".join(show_function(name, function, beside) for name, function in self.items())

    @classmethod
    def read(cls, text: str, constants: Sequence[Constant] = (), filename: str = "<module>") -> Module:
        """The module of a script, which is only parsed, never executed; ``constants`` stand as ``{#n}`` in it.

        Raises ReadError with line and column; ``filename`` says there where the text is from. What the functions call
        is looked for by ``check`` and where they are used, and may be put into the module until then.
        """
        from graphopt.lowering.module.script import read_functions

        return cls(read_functions(text, constants, filename))

    def __eq__(self, other: object) -> bool:
        """Whether the functions of both are the same, by name and in order; graphs are if they compute the same in the
        same way, as ``ir.structure`` compares them."""
        if not isinstance(other, Module):
            return NotImplemented
        pairs = zip(self.values(), other.values(), strict=False)
        return list(self) == list(other) and all(_is_same(a, b) for a, b in pairs)


def _is_same(a: ModuleFunction, b: ModuleFunction) -> bool:
    return same(a, b) is None if isinstance(a, Graph) and isinstance(b, Graph) else a == b


def _named(function: ModuleFunction, name: str) -> ModuleFunction:
    if isinstance(function, External) or function.name == name:
        return function
    if isinstance(function, Nest):
        if not name.isidentifier() or iskeyword(name):
            raise UsageError(f"a program is called by a name of Python, as in 'linear0', not {name!r}")
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
