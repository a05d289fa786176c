"""Modules: graph functions, tensor programs and external functions, by name.

A graph calls another function of its module by an op of the domain ``module``: ``module::linear0(x, w)``.
Any function can be taken out, changed and put back under its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from keyword import iskeyword
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias
from warnings import warn

from graphopt.display import Scripted, shortened
from graphopt.errors import InvalidModelError, UsageError
from graphopt.frozen import dataclass
from graphopt.ir.annotations import is_primitive
from graphopt.ir.constants import Constant
from graphopt.ir.custom_ops import added
from graphopt.ir.functions import FunctionKey
from graphopt.ir.graph import NO_ATTRS, Graph
from graphopt.ir.graph import Function as GraphFunction
from graphopt.ir.infer import infer
from graphopt.ir.infer_nests import NEST
from graphopt.ir.structure import same
from graphopt.lowering.loops import structural_equality
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.wellformed import check
from graphopt.lowering.lower.embedded_programs import attributes, program_of

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

    >>> [*module], module.entries, module.functions["main"] is graph
    (['main'], ('main',), True)
    >>> dict(module.graphs()), dict(module.programs())
    ({'main': <Graph main: 1 node>}, {})
    >>> graphopt.Module.of(graph) == module
    True
    >>> module.check()
    >>> module.without_carried() == module, module.joined("main")
    (True, <Graph main: 1 node>)
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

    @classmethod
    def of(cls, given: Graph | Module) -> Module:
        """The module of a graph, or a copy of a module: what is called from a graph stands in the module by its name.

        The graph is ``main``. Programs that nodes carry, and local functions of the domain ``module``, are functions of
        the module: ``of`` is the inverse of ``graph``.
        """
        if isinstance(given, Module):
            return cls(given._functions)
        module = cls()
        main = given.copy()
        main.functions = {key: f for key, f in given.functions.items() if f.domain != DOMAIN}
        module[MAIN] = main
        for function in given.functions.values():
            if function.domain == DOMAIN:
                module[function.name] = function.body
        return module.without_carried()

    def without_carried(self) -> Module:
        """The module with the programs that nodes carry as functions of it, which are called."""
        module = Module(self._functions)
        for name, graph in self.graphs():
            module[name] = module._taken_out(graph)
        return module

    def _taken_out(self, graph: Graph) -> Graph:
        """A graph that calls the programs that its nodes carry, which are in the module from now on."""
        carrying = [node for node in graph.nodes() if node.op == NEST]
        if not carrying:
            return opened(graph)
        facts, graph = infer(graph), graph.copy()
        for node in carrying:
            graph.update(node.id, op=f"{DOMAIN}::{self.add(program_of(node))}", attrs=NO_ATTRS)
            graph.types.update({v: type for v in node.outputs if (type := facts[v].type) is not None})
        return opened(graph)

    def add(self, function: ModuleFunction, name: str = "") -> str:
        """Adds a function under its name, or ``name``, or one like it that is free, which it gives.

        A function that is there already under such a name is not added again.
        """
        wanted = name or function.name
        free, k = wanted, 1
        while free in self:
            if _is_equal(self[free], function):
                return free
            free, k = f"{wanted}_{k}", k + 1
        self[free] = function
        return free

    def graphs(self) -> Iterator[tuple[str, Graph]]:
        """The graph functions, by name."""
        return ((name, f) for name, f in self.items() if isinstance(f, Graph))

    def programs(self) -> Iterator[tuple[str, Nest]]:
        """The tensor programs, by name."""
        return ((name, f) for name, f in self.items() if isinstance(f, Nest))

    @property
    def entries(self) -> tuple[str, ...]:
        """The graph functions that are called from outside: ``main``, and those that no graph calls, but for
        ``primitive`` ones."""
        called = {callee for name in self for callee in self.calls(name)}
        return tuple(
            name for name, graph in self.graphs() if name == MAIN or not (name in called or is_primitive(graph))
        )

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
        graph = self.joined(chosen)
        for callee in sorted({c for c in self._reached(chosen) if isinstance(self[c], Graph)}):
            body = self.joined(callee)
            body.functions = {}
            graph.functions[f"{DOMAIN}::{callee}", ""] = GraphFunction(
                DOMAIN, callee, "", body, opsets=body.header.opsets
            )
        return _with_functions(graph, graph.functions)

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

    def joined(self, name: str) -> Graph:
        """A graph function with programs and external functions in place of calls of them; those of graph functions
        stay. Its nodes have the numbers that they have in the function."""
        function = self[name]
        assert isinstance(function, Graph), f"{name} is no graph"
        for external in self.values():
            if isinstance(external, External) and added(external.op) is None:
                raise UsageError(f"{external.name} is not registered: graphopt.register({external.name!r}, function)")
        return self._joined(function)

    def _joined(self, function: Graph) -> Graph:
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


def _with_functions(graph: Graph, functions: dict[FunctionKey, GraphFunction]) -> Graph:
    """The graph with these local functions, which its bodies have too; it is changed."""
    graph.functions = functions
    for node in list(graph.nodes()):
        for attribute, body in node.bodies.items():
            twin = _with_functions(body.copy(), functions)
            graph.update(node.id, attrs=graph.node(node.id).attrs.with_(**{attribute: twin}))
    return graph


def opened(graph: Graph) -> Graph:
    """The graph, which says that it calls functions of its module where it does."""
    if DOMAIN in dict(graph.header.opsets) or next(_called(graph), None) is None:
        return graph
    graph = graph.copy()
    graph.header = replace(graph.header, opsets=(*graph.header.opsets, (DOMAIN, 1)))
    return graph


def _is_equal(a: ModuleFunction, b: ModuleFunction) -> bool:
    """Whether one function may stand in the other's place."""
    if isinstance(a, Nest) and isinstance(b, Nest):
        return structural_equality.equal(a, b)
    if isinstance(a, Graph) and isinstance(b, Graph):
        return same(a, b) is None
    return a == b


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
