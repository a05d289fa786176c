"""Options of the steps of ``graphopt.compile``, their prices, and graphs specialized to what is known of inputs."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.calibration import ANALYTIC
from graphopt.calibration.schedule_tables import setting_here
from graphopt.calibration.table import Priced, priced
from graphopt.errors import ReadError
from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, Attrs, Graph
from graphopt.ir.types import TensorType, fresh_symbol
from graphopt.lowering.link.options import Options
from graphopt.platforms import Platform, equipped, here, platform_of
from graphopt.run.settings import Settings
from graphopt.run.steps import COMPILE, Steps
from graphopt.tuning.best_schedules import Tuned
from graphopt.tuning.database import Records
from graphopt.tuning.measuring import measure
from graphopt.tuning.tuned_prices import TunedPrices


def steps_of(settings: Settings) -> Steps:
    """What runs the steps that settings ask for. UsageError where one of the user's own takes no step's place."""
    passes = () if settings.pipeline is None else tuple(p.name for p in settings.pipeline.passes)
    return Steps(settings.listener, tuple(dict.fromkeys((*passes, *COMPILE))), settings.steps)


def tuned_prices(settings: Settings) -> TunedPrices | None:
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


def priced_target(settings: Settings) -> Priced:
    """The target that settings name, as it is on this machine, by the costs and the dispatch that they name."""
    by_costs = priced(here(settings.target), settings.costs)
    return replace(by_costs, target=equipped(by_costs.target, settings.dispatch))


def options_of(settings: Settings) -> Options:
    """How a graph is lowered, with what is scheduled by hand."""
    options = _options(settings)
    return replace(options, schedules=settings.schedules, threads=settings.threads or 1, states=settings.states)


def _options(settings: Settings) -> Options:
    if settings.pipeline is not None:
        return settings.pipeline.options
    target = priced_target(settings).target
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
