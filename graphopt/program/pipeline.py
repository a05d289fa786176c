"""From a model to its program: every step of ``graphopt.compile``, one line each."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphopt.calibration.schedule_tables import setting_here
from graphopt.calibration.store import ANALYTIC
from graphopt.calibration.table import priced
from graphopt.errors import CompilationError, ReadError, UsageError, names_its_model
from graphopt.ir import onnx_io
from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, Attrs, Graph
from graphopt.ir.infer import infer
from graphopt.ir.onnx_io.tensors import data_files
from graphopt.ir.types import TensorType, fresh_symbol
from graphopt.lowering.link.linker import Linked, link
from graphopt.lowering.link.options import Options
from graphopt.lowering.lower.expand import expanded
from graphopt.lowering.lower.lower import NeedsValues, lower
from graphopt.lowering.module.module import Module
from graphopt.optimize import optimize_graph
from graphopt.platforms import Platform, equipped, platform_of
from graphopt.rewrite.rule.rule import soundness
from graphopt.rewrite.simplify import simplify
from graphopt.run.derivation import Preparation
from graphopt.run.report import Report
from graphopt.run.settings import CompileReport, Settings
from graphopt.run.steps import Steps
from graphopt.runtime.device_program import DeviceProgram
from graphopt.runtime.program import Program
from graphopt.tuning.best_schedules import Tuned
from graphopt.tuning.database import Records
from graphopt.tuning.measuring import measure
from graphopt.tuning.tuned_prices import TunedPrices


@dataclass(frozen=True)
class Compiled:
    """A program with what it was made from."""

    program: Program | DeviceProgram
    linked: Linked
    graph: Graph
    report: CompileReport


class Prepared(NamedTuple):
    """A graph as it is lowered: read, fixed, and rewritten."""

    graph: Graph
    may_be_kept: bool
    """Whether its program may be: the model is all in one piece, and no clock had a say in what it became."""
    report: Report | None = None
    """What rules did to it; None where nobody asked them."""


@names_its_model
def prepared(model: Any, settings: Settings, step: Steps) -> Prepared:
    """The graph of a model as it is lowered."""
    if isinstance(model, Module):
        model = model.graph()
    graph = model if isinstance(model, Graph) else step("read", onnx_io.load, model)
    is_whole = not data_files(graph)
    graph = expanded(Preparation(shapes=settings.shapes, dims=settings.dims).fixed(graph))
    if settings.pipeline is not None:
        return Prepared(settings.pipeline(graph, step), is_whole)
    if settings.optimize:
        going_by = priced(settings.target, settings.costs)
        for line in filter(None, (going_by.warning,)):
            warnings.warn(line, stacklevel=2)
        target = equipped(going_by.target, settings.dispatch)
        timed = _timed(settings)
        found, report = optimize_graph(graph, target=target, policy=soundness(settings.policy), step=step, timed=timed)
        may_be_kept = is_whole and (report.exploration is None or report.exploration.reproducible)
        return Prepared(found, may_be_kept, report)
    return Prepared(step("tidy", _tidied, graph), is_whole)


def _timed(settings: Settings) -> TunedPrices | None:
    """What prices ops by their tuned schedules; None where none are known here, and where that is not asked for: by
    those who want analytic prices, or all nests tuned, which are those of the choice that was tuned."""
    if settings.tuned_in is None or settings.tuned != "auto" or settings.costs == ANALYTIC:
        return None
    if not settings.target.device.is_host:
        return None
    try:
        with Records(settings.tuned_in) as records:
            times = records.times(setting_here(settings.threads))
    except ReadError:  # schedules are looked for in it, too, which tells of it
        return None
    return TunedPrices(times) if times else None


def compile_graph(graph: Graph, settings: Settings, step: Steps) -> Compiled:
    """The program of a graph. NeedsValues where it depends on the elements of some inputs."""
    options = replace(_options(settings), by_hand=settings.schedules)
    facts = step("infer types", infer, graph)
    lowered = step("lower", lower, graph, facts, takes=options.takes, is_for_host=options.is_for_host)
    platform = platform_of(settings.target.device)
    with platform.compiling(settings.jobs) as compiling:
        linked = step("link", link, graph, facts, lowered, options, compiling.begin)
        if settings.strict and linked.reference:
            name, op, why = linked.reference[0]
            raise CompilationError(f"node {name!r} ({op}) cannot be lowered, and --strict allows no other way: {why}")
        objects = step("compile", compiling.objects, linked.kernels)
    program = step("load", platform.program, linked, objects, settings.threads)
    calls = len(linked.parts)
    return Compiled(
        program, linked, graph, CompileReport(tuple(step.done), len(linked.kernels), calls, linked.reference)
    )


@names_its_model
def linked_for(model: Any, settings: Settings) -> Linked:
    """What a model becomes, with nests and kernels, none of which is compiled. UsageError where inputs decide it."""
    graph = prepared(model, settings, Steps()).graph
    facts = infer(graph)
    try:
        options = _options(settings)
        return link(graph, facts, lower(graph, facts, is_for_host=options.is_for_host), options)
    except NeedsValues as needs:
        names = ", ".join(sorted(graph.names[v] for v in needs.inputs))
        raise UsageError(f"the loops of this model depend on what {names} holds: fold it, or give it a value") from None


def _options(settings: Settings) -> Options:
    """How the graph is lowered."""
    if settings.pipeline is not None:
        return settings.pipeline.options
    target = equipped(priced(settings.target, settings.costs).target, settings.dispatch)
    platform = platform_of(target.device)
    options = platform.options(target.prices.products, settings)
    return options if settings.tuned_in is None else _tuned(options, settings.tuned_in, settings, platform)


def _tuned(options: Options, database: Path, settings: Settings, platform: Platform) -> Options:
    """The same, by tuned schedules where there are some."""
    try:
        with Records(database):  # what is no database is said first
            pass
    except ReadError as error:
        if settings.demands_tuned:
            raise
        warnings.warn(f"{error}; default schedules are used", stacklevel=2)
        return options
    here = setting_here(settings.threads, platform.machine())
    require = settings.tuned == "require"
    return replace(options, schedule=Tuned(database, here, options.schedule, measure, require))


def unranked_inputs(graph: Graph) -> tuple[str, ...]:
    """The names of the inputs of which not even the rank is known."""
    return tuple(graph.names[v] for v in graph.inputs if _is_unranked(graph.types.get(v)))


def specialized(graph: Graph, needed: Collection[str], unranked: Collection[str], feeds: Mapping[str, Any]) -> Graph:
    """The graph for the elements of the needed inputs, and for the ranks of those whose rank is open."""
    graph = graph.copy()
    inputs = {graph.names[v]: v for v in graph.inputs}
    for name in unranked:
        value, type = inputs[name], graph.types.get(inputs[name])
        rank = np.asarray(feeds[name]).ndim
        dtype = type.dtype if isinstance(type, TensorType) else np.asarray(feeds[name]).dtype.name
        graph.types[value] = TensorType(dtype, tuple(fresh_symbol() for _ in range(rank)))
    for name in sorted(needed):
        value = inputs[name]
        held = graph.producer(value).attrs.get("default")
        if name in feeds:
            held = Constant.of(np.array(feeds[name]))
        assert isinstance(held, Constant)
        graph.inputs.remove(value)
        graph.types.pop(value, None)
        graph.update(value.node, op=CONSTANT, attrs=Attrs(value=held))
    return graph


def _is_unranked(type: object) -> bool:
    return type is None or (isinstance(type, TensorType) and type.rank is None)


def _tidied(graph: Graph) -> Graph:
    """The graph with its local functions expanded and its constants computed, and no rules applied."""
    return simplify(graph)
