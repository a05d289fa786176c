"""Passes over modules and graphs, lowering steps, and pipelines of them.

A pass is a function from a module to a module, or one from a graph to a graph, a Mutator or a Visitor, which in a
module takes each graph function. Behind the passes stand lowering steps, which say how the graph becomes loops: without
``fuse`` each node has a nest of its own, without ``schedule`` nests stay in the loops that they are written in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from inspect import isfunction, signature
from time import perf_counter
from typing import Any, TypeAlias, overload

from graphopt.display import Displayed, shortened
from graphopt.errors import UsageError, nearest_or_some
from graphopt.frozen import dataclass
from graphopt.ir.functions import calls
from graphopt.ir.graph import Graph, Node
from graphopt.ir.visitor import Visitor
from graphopt.lowering.cpu.constant_precompute import prepared
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.cpu.loop_fission import separated
from graphopt.lowering.cpu.weight_packing import laid_out
from graphopt.lowering.fuse.groups import joins
from graphopt.lowering.link.options import Options, alone, as_they_are, as_written, whole
from graphopt.lowering.lower.unlowered import name_of
from graphopt.lowering.module.module import MAIN, Module
from graphopt.lowering.module.mutator import Mutator
from graphopt.lowering.module.subgraph import change_part

NodeSelector: TypeAlias = "str | Iterable[str] | Callable[[Node], bool]"
"""Nodes of a graph: one name, several names, or what is asked of each node."""


@dataclass(frozen=True, slots=True, repr=False)
class Done(Displayed):
    """The record of a pass: numbers of nodes before and after (bodies included), and the time; the names of functions
    before and after it, where it was given a module.

    >>> told = []
    >>> same = passes.Sequential([passes.FuseOps()]).telling(told.append)(dense)
    >>> isinstance(told[0], passes.Done), told[0].name, told[0].before, told[0].after, told[0].is_changed
    (True, 'FuseOps', 2, 3, True)
    """

    name: str
    before: int
    after: int
    seconds: float
    is_changed: bool
    functions: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def __repr__(self) -> str:
        return f"<Done {shortened(str(self))}>"

    def __str__(self) -> str:
        nodes = f"{self.before:5} -> {self.after:5} nodes" if self.is_changed else f"{self.before:5} nodes, as before"
        old, new = map(len, self.functions)
        functions = f"  {old:3} -> {new:3} functions" if new else ""
        return f"{self.name:20} {nodes:22}{functions} {self.seconds * 1e3:9.2f} ms"


class _Part(Displayed):
    """What a pipeline is made of: it has a name, and says what it does in a line."""

    __slots__ = ()

    @property
    def told(self) -> str:
        """The first line of the docstring of what it is made of; nothing where there is none."""
        made_of = getattr(self, "change", self)
        if isinstance(made_of, partial):
            made_of = made_of.func
        return _first_line(made_of if isfunction(made_of) else type(made_of))

    def __repr__(self) -> str:
        kind = "LoweringStep" if isinstance(self, LoweringStep) else "Pass"
        return f"<{kind} {getattr(self, 'name', '')}>"

    def __str__(self) -> str:
        return f"{getattr(self, 'name', '')}: {self.told}".removesuffix(": ")


@dataclass(frozen=True, slots=True, repr=False)
class Pass(_Part):
    """A pass, with its name. It never edits its argument, and returns that very graph where it changes nothing.

    >>> def same(graph):
    ...     "Nothing is changed."
    ...     return graph
    >>> print(passes.Pass("same", same))
    same: Nothing is changed.
    >>> passes.Pass("same", same)(dense) is dense
    True
    >>> passes.Pass("same", same).on(lambda node: node.op == "Relu")
    <Pass same>
    """

    name: str
    change: Callable[[Graph], Graph] | Mutator | Visitor[Any]
    where: NodeSelector | None = None

    @overload
    def __call__(self, given: Graph) -> Graph: ...
    @overload
    def __call__(self, given: Module) -> Module: ...
    def __call__(self, given: Graph | Module) -> Graph | Module:
        """The changed graph; of a module, that with each graph function changed.

        UsageError where the pass gives no graph, or edits the one that it was given.
        """
        if isinstance(given, Graph):
            return self._checked(given, None if self.where is None else _chosen(given, self.where))
        if isinstance(self.change, Mutator):
            where = self.where
            return self.change.mutate_module(given, None if where is None else lambda graph: _chosen(graph, where))
        functions = dict(given)
        for name, graph in given.graphs():
            functions[name] = self._checked(graph, None if self.where is None else _chosen(graph, self.where))
        return Module(functions) if any(functions[name] is not given[name] for name in given) else given

    def _checked(self, graph: Graph, chosen: Callable[[Node], bool] | None) -> Graph:
        before = list(graph.nodes()), list(graph.outputs)
        changed = self._changed(graph, chosen)
        if not isinstance(changed, Graph):
            raise UsageError(f"the pass {self.name} gave {type(changed).__name__}, and a graph is expected")
        after = list(graph.nodes()), list(graph.outputs)
        if len(before[0]) != len(after[0]) or any(a is not b for a, b in zip(before[0], after[0], strict=True)):
            raise UsageError(f"the pass {self.name} edits the graph that it is given: it has to work on graph.copy()")
        if before[1] != after[1]:
            raise UsageError(f"the pass {self.name} edits the outputs of the graph that it is given: copy it first")
        return changed

    def on(self, where: NodeSelector) -> Pass:
        """The pass restricted to parts of graphs: nodes of a name, of several names, or with a property.

        A Mutator or Visitor is shown these nodes only. A function is given them as a graph of their own, which must
        not lie around others: UsageError where a path between them leads outside.
        """
        return replace(self, where=where)

    def _changed(self, graph: Graph, chosen: Callable[[Node], bool] | None) -> Graph:
        if isinstance(self.change, Mutator):
            return self.change.mutate(graph, chosen)
        if isinstance(self.change, Visitor):
            self.change.visit(graph, chosen)
            return graph
        return self.change(graph) if chosen is None else change_part(graph, chosen, self.change)


class ModulePass(_Part):
    """A pass from module to module: subclass it and write ``change``, or put ``module_pass`` before a function.

    A graph is its module's ``main``.

    >>> class Renamed(passes.ModulePass):
    ...     "Each function has a number."
    ...
    ...     def change(self, module):
    ...         return graphopt.Module({f"{name}_{k}": f for k, (name, f) in enumerate(module.items())})
    >>> Renamed()(dense)
    <Module of main_0>
    >>> print(Renamed())
    Renamed: Each function has a number.
    """

    @property
    def name(self) -> str:
        """The name of the pass."""
        return type(self).__name__

    @property
    def told(self) -> str:
        """The first line of its docstring."""
        return _first_line(type(self))

    def change(self, module: Module) -> Module:
        """The changed module, which may be the one given: it is a copy, but for the functions in it."""
        raise NotImplementedError(f"{type(self).__name__} is a pass without change(module)")

    def __call__(self, given: Graph | Module) -> Module:
        """The changed module; the very one that was given where nothing changed.

        UsageError where the pass gives no module, or edits a graph that it was given.
        """
        module = Module.of(given)
        before = {name: (graph, graph.version) for name, graph in module.graphs()}
        old = dict(module)
        changed = self.change(module)
        if not isinstance(changed, Module):
            raise UsageError(f"the pass {self.name} gave {type(changed).__name__}, and a module is expected")
        for name, (graph, version) in before.items():
            if graph.version is not version:
                raise UsageError(f"the pass {self.name} edits the graph {name!r} that it is given: copy it first")
        is_same = list(changed) == list(old) and all(changed[name] is old[name] for name in old)
        return given if is_same and isinstance(given, Module) else changed


class _OfFunction(ModulePass):
    """A function of modules as a pass."""

    def __init__(self, function: Callable[[Module], Module], name: str) -> None:
        self.function, self.named = function, name

    @property
    def name(self) -> str:
        return self.named

    @property
    def told(self) -> str:
        """The first line of the function's docstring."""
        return _first_line(self.function)

    def change(self, module: Module) -> Module:
        return self.function(module)


def module_pass(function: Callable[[Module], Module], name: str = "") -> ModulePass:
    """The pass that a function from module to module is: a decorator. A function whose first parameter is annotated as
    a ``Module`` is taken so without it.

    >>> @passes.module_pass
    ... def without_programs(module):
    ...     return graphopt.Module(dict(module.graphs()))
    >>> without_programs(dense)
    <Module of main>
    """
    return _OfFunction(function, name or getattr(function, "__name__", type(function).__name__))


@dataclass(frozen=True, slots=True, repr=False)
class LoweringStep(_Part):
    """A lowering step: a function that adjusts the lowering options."""

    name: str
    ask: Callable[[Options], Options]
    told: str = ""
    """What it does."""


PassLike: TypeAlias = (
    "Pass | ModulePass | LoweringStep | Pipeline | type[ModulePass] | type[Mutator] | type[Visitor[Any]] | Mutator | "
    "Visitor[Any] | Callable[[Graph], Graph] | Callable[[Module], Module]"
)
"""The parts of pipelines."""
Part: TypeAlias = Pass | ModulePass | LoweringStep


def as_pass(part: PassLike, name: str = "") -> Part:
    """A pass from a function or class; its default name is theirs."""
    if isinstance(part, Pass | LoweringStep):
        return replace(part, name=name) if name else part
    if isinstance(part, ModulePass):
        return module_pass(part.change, name) if name else part
    if isinstance(part, Pipeline):
        return module_pass(part.on_module, name or part.name)
    if isinstance(part, type):
        return as_pass(part(), name)
    if isinstance(part, Mutator | Visitor):
        return Pass(name or type(part).__name__, part)
    if not callable(part):
        raise UsageError(f"{part!r} is no pass: it should be a function of a graph or module, a Mutator, or a Visitor")
    function: Callable[[Any], Any] = part
    if _is_of_modules(function):
        return module_pass(function, name)
    return Pass(name or getattr(part, "__name__", type(part).__name__), function)


def _first_line(thing: object) -> str:
    """The first line of a docstring; nothing for one that Python makes up."""
    doc = getattr(thing, "__doc__", None) or ""
    return doc.strip().split("\n")[0] if not doc.startswith(f"{getattr(thing, '__name__', '')}(") else ""


def _is_of_modules(function: Callable[..., Any]) -> bool:
    """Whether the first parameter of a function is annotated as a module."""
    try:
        parameters = list(signature(function).parameters.values())
    except (TypeError, ValueError):  # functions of C have none
        return False
    annotation = parameters[0].annotation if parameters else None
    return annotation is Module or (isinstance(annotation, str) and annotation.rpartition(".")[2] == "Module")


@dataclass(frozen=True, slots=True, repr=False)
class Pipeline(Displayed):
    """A pipeline: passes in order, then lowering steps; ``pipeline + [my_pass]`` adds a pass after the other passes.

    >>> pipeline = graphopt.pipeline_named("cpu")
    >>> print(pipeline.names, pipeline.passes)
    ('optimize', 'fuse', 'schedule') (<Pass optimize>,)
    >>> print(pipeline.without("fuse").after("optimize", passes.DeadCode))
    cpu: optimize, DeadCode, schedule
    >>> isinstance(pipeline, passes.Pipeline)
    True
    >>> passes.Sequential([passes.FuseOps()]).on_module(dense)
    <Module of main, fused_matmul_relu>
    >>> print(passes.Pipeline("mine", (passes.Pass("same", lambda graph: graph),)).on(lambda node: node.op == "Relu"))
    mine: same
    """

    name: str
    parts: tuple[Part, ...] = ()
    tell: Callable[[Done], object] | None = None

    @overload
    def __call__(self, given: Module, step: Callable[..., Any] | None = None) -> Module: ...
    @overload
    def __call__(self, given: Graph, step: Callable[..., Any] | None = None) -> Graph | Module: ...
    def __call__(self, given: Graph | Module, step: Callable[..., Any] | None = None) -> Graph | Module:
        """Runs the passes on a module or graph; ``step(name, pass, given)`` runs one of them, where it is given.

        A graph stays one until a pass needs its module.
        """
        for each in self.passes:
            begin, old = perf_counter(), given
            given = each(given) if step is None else step(each.name, each, given)
            if self.tell is not None:
                self.tell(_done(each.name, old, given, perf_counter() - begin))
        return given

    def on_module(self, module: Module) -> Module:
        """The module that the passes make of a module."""
        return self(module)

    def telling(self, tell: Callable[[Done], object] = print) -> Pipeline:
        """The pipeline with a report after each pass."""
        return replace(self, tell=tell)

    @property
    def passes(self) -> tuple[Pass | ModulePass, ...]:
        """The passes, in order."""
        return tuple(p for p in self.parts if not isinstance(p, LoweringStep))

    @property
    def options(self) -> Options:
        """The lowering options."""
        options = Options(fuse=alone, parts=whole, schedule=as_written, lay=as_they_are, prepare=as_they_are)
        for part in self.parts:
            if isinstance(part, LoweringStep):
                options = part.ask(options)
        return options

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the passes and steps, in order."""
        return tuple(p.name for p in self.parts)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {shortened(str(self))}>"

    def __str__(self) -> str:
        return f"{self.name}: {', '.join(self.names) or 'nothing'}"

    # -- composing

    def __add__(self, more: Pipeline | PassLike | Iterable[PassLike]) -> Pipeline:
        parts = more.parts if isinstance(more, Pipeline) else tuple(map(as_pass, _several(more)))
        cut = next((k for k, p in enumerate(self.parts) if isinstance(p, LoweringStep)), len(self.parts))
        passes = tuple(p for p in parts if not isinstance(p, LoweringStep))
        steps = tuple(p for p in parts if isinstance(p, LoweringStep))
        return replace(self, parts=(*self.parts[:cut], *passes, *self.parts[cut:], *steps))

    def without(self, *names: str) -> Pipeline:
        """The pipeline without the passes and steps of these names. UsageError for an unknown name."""
        for name in names:
            self._place(name)
        return replace(self, parts=tuple(p for p in self.parts if p.name not in names))

    def before(self, name: str, *parts: PassLike) -> Pipeline:
        """The pipeline with passes inserted before the one of the name. UsageError for an unknown name."""
        k = self._place(name)
        return replace(self, parts=(*self.parts[:k], *map(as_pass, parts), *self.parts[k:]))

    def after(self, name: str, *parts: PassLike) -> Pipeline:
        """The pipeline with passes inserted after the one of the name. UsageError for an unknown name."""
        k = self._place(name) + 1
        return replace(self, parts=(*self.parts[:k], *map(as_pass, parts), *self.parts[k:]))

    def on(self, where: NodeSelector) -> Pipeline:
        """The pipeline with its passes over graphs restricted to parts of them (``Pass.on``)."""
        return replace(self, parts=tuple(p.on(where) if isinstance(p, Pass) else p for p in self.parts))

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise UsageError(f"there is no {name!r} in the pipeline {self}")
        return self.names.index(name)


class Sequential(Pipeline):
    """A pipeline from passes, ``Sequential([LegalizeOps(), FuseOps()])(module)``, that gives a module of a graph, too.

    ``telling(print)`` reports each pass.

    >>> print(passes.Sequential([passes.FuseOps(), passes.FuseTensorPrograms()], name="fused"))
    fused: FuseOps, FuseTensorPrograms
    """

    __slots__ = ()

    def __init__(
        self,
        parts: Iterable[PassLike] = (),
        name: str = "sequential",
        tell: Callable[[Done], object] | None = None,
    ) -> None:
        super().__init__(name, tuple(map(as_pass, parts)), tell)

    def __call__(self, given: Graph | Module, step: Callable[..., Any] | None = None) -> Module:
        """Runs the passes on a module; a graph is its module's ``main``."""
        return super().__call__(given if isinstance(given, Module) else Module.of(given), step)


FUSE = LoweringStep(
    "fuse",
    lambda options: replace(options, fuse=joins),
    "Nodes share a nest where that is worth it, so that what lies between them is not stored.",
)
SCHEDULE = LoweringStep(
    "schedule",
    lambda options: replace(options, parts=separated, schedule=scheduled, lay=laid_out, prepare=prepared),
    "Nests are scheduled by the default rules.",
)


def lower_only(*ops: str) -> LoweringStep:
    """A lowering step: only nodes of these ops get loops, the others the reference evaluator.

    >>> print(graphopt.pipeline_named("zero") + passes.lower_only("MatMul", "Relu"))
    zero: tidy, schedule, lower_only
    """
    told = f"Nodes of {', '.join(ops) or 'no op'} get loops."
    return LoweringStep("lower_only", lambda options: replace(options, takes=lambda node: node.op in ops), told)


def count(given: Graph | Module) -> int:
    """The number of nodes that apply an op or call a function, bodies included; of a module, in all graphs."""
    graphs = [given] if isinstance(given, Graph) else [graph for _, graph in given.graphs()]
    return sum(1 for graph in graphs for _ in calls(graph))


def _done(name: str, old: Graph | Module, new: Graph | Module, seconds: float) -> Done:
    functions = [tuple(each) if isinstance(each, Module) else () for each in (old, new)]
    if isinstance(old, Graph) and isinstance(new, Module):
        functions[0] = (MAIN,)
    return Done(name, count(old), count(new), seconds, new is not old, (functions[0], functions[1]))


def _several(more: PassLike | Iterable[PassLike]) -> Iterator[PassLike]:
    if callable(more) or isinstance(more, LoweringStep | Mutator | Visitor):
        return iter((more,))
    return iter(more)


def _chosen(graph: Graph, where: NodeSelector) -> Callable[[Node], bool]:
    """The test that a node of the graph is meant. UsageError for a name that no node has."""
    if callable(where):
        return where
    wanted = {where} if isinstance(where, str) else set(where)
    there = {n.id: name_of(graph, n) for n in graph.nodes()}
    ids = {id for id, name in there.items() if name in wanted}
    missing = wanted - set(there.values())
    if missing:
        hint = nearest_or_some(min(missing), there.values())
        raise UsageError(f"the graph has no node {min(missing)!r}{hint}")
    return lambda node: node.id in ids
