"""Benchmark of a compiled model beside other engines: the same inputs, taking turns, each run timed by itself."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from graphopt.benchmark import ceilings
from graphopt.compile import CompiledModel, ReferenceWarning, compile
from graphopt.errors import (
    ExecutionError,
    GraphoptError,
    InputError,
    InvalidModelError,
    LimitError,
    MissingDependencyError,
    UsageError,
    nearest_or_some,
)
from graphopt.frozen import dataclass
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.ir.tolerance import error
from graphopt.ir.types import Size, TensorType, is_anonymous, symbol, symbols
from graphopt.ir.work import EACH_SECOND, bytes_handed, handed_excess, work_of
from graphopt.progress import Event, Listener
from graphopt.rewrite.passes import fix_dims
from graphopt.run.derivation import Preparation
from graphopt.runtime.limits import limited, memory_of
from graphopt.runtime.profile import ProfileRow, best_rows
from graphopt.target import CPU, Target
from graphopt.target import target as target_named
from graphopt.verify.inputs import Given, check_inputs, draw, given, ranges, sizes
from graphopt.verify.runtimes import EngineError, Feeds, Runner, open_in_onnxruntime, open_in_openvino


def _by_default(path: str, threads: int, target: str | Target = CPU) -> Runner:
    """The model compiled with default schedules."""
    compiled = compile(path, target=target, threads=threads, tuned="off")
    return lambda feeds: list(compiled(feeds).values())


OURS = "graphopt"
UNTUNED = "untuned"
ENGINES: Mapping[str, Callable[[str, int], Runner]] = {
    "ort": lambda path, threads: open_in_onnxruntime(path, optimized=True, threads=threads),
    "openvino": open_in_openvino,
    UNTUNED: _by_default,
}
"""The engines to compare with, graphopt itself without tuned schedules among them: each opens a model file for a number
of threads."""
RANDOM = "random"
SHARE = 0.05
"""The part of a program's time that nodes take at most of which nothing is said though no kernel computes them."""
LONGEST = 120.0
"""How many seconds the first run may take."""
WARM = 3
ROUNDS = 10


@dataclass(frozen=True, slots=True)
class EngineTiming:
    """How one engine did. Times are seconds of single runs; ``ready`` is how long it took to be ready for the first."""

    engine: str
    median: float
    p90: float
    runs: int
    ready: float
    ratio: float
    """How many times as long the engine takes as graphopt: the median over rounds."""
    error: float | None
    """The largest difference between its outputs and graphopt's, in units of the tolerance (above 1 is wrong)."""
    limit: float | None = None
    """Of graphopt's own: which part of the time its kernels would need at the least on this machine (``ceilings``)."""
    unlowered: float | None = None
    """Of graphopt's own: the part of the time that nodes take that no kernel computes."""
    p99: float | None = None


def bench(
    model: str | Path,
    *,
    against: Sequence[str] = (),
    target: str | Target = CPU,
    threads: int = 1,
    seconds: float = 5.0,
    inputs: Mapping[str, Given] | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    tuned: str = "auto",
    database: Path | None = None,
    listener: Listener | None = None,
) -> list[EngineTiming]:
    """How long a run of the model takes here, and in each of the other engines; ``target``, ``tuned`` and ``database``
    are those of ``graphopt.compile``.

    Raises UsageError for a target of another device than the CPU, for an engine that nobody knows, and for one that
    refuses the model; MissingDependencyError for one that is not installed; LimitError where a run takes too much.
    Warns (ReferenceWarning) where nodes that no kernel computes take more than 5 % of the time.
    """
    target = target_named(target, makes_models=False)
    if not target.device.is_host:
        raise UsageError(f"bench measures on the CPU: the target {target.name} is for {target.device.name}")
    for name in against:
        if name not in ENGINES:
            raise UsageError(f"no engine is called {name!r}: there are {', '.join(ENGINES)}")
    listen = listener or (lambda event: None)
    graph = onnx_io.load(model)
    runs: dict[str, Callable[[], list[Any]]] = {}
    ready: dict[str, float] = {}
    outputs: dict[str, list[Any]] = {}
    check_run(model, graph, dims or {}, shapes or {}, memory_of(onnx_io.bytes_of(model)), LONGEST)
    start = time.perf_counter()
    compiled = compile(model, target=target, threads=threads, tuned=tuned, database=database, listener=listener)
    with limited(memory_of(compiled.constant_bytes), LONGEST):
        feeds = accepted_feeds(random_feeds(graph, inputs or {}, dims or {}, shapes), compiled)
        runs[OURS] = lambda: list(compiled(feeds).values())
        outputs[OURS], ready[OURS] = runs[OURS](), time.perf_counter() - start
    for name in against:
        listen(Event(f"open in {name}"))
        start = time.perf_counter()
        runs[name] = _opened(name, model, target, threads, feeds)
        outputs[name], ready[name] = runs[name](), time.perf_counter() - start
    listen(Event("measure"))
    times = dict(zip(runs, turns([*runs.values()], seconds), strict=True))
    ours = times[OURS]
    rows = compiled.profile(feeds)
    machine, left = ceilings.measure(threads), _unlowered_share(compiled, rows)
    return [
        EngineTiming(
            name,
            median(seconds_of_runs),
            _percentile(seconds_of_runs, 90),
            len(seconds_of_runs),
            ready[name],
            median(t / our_time for t, our_time in zip(seconds_of_runs, ours, strict=True)),
            None if name == OURS else _error(outputs[name], outputs[OURS]),
            machine.share(rows, median(seconds_of_runs)) if name == OURS else None,
            left if name == OURS else None,
            _percentile(seconds_of_runs, 99),
        )
        for name, seconds_of_runs in times.items()
    ]


def _percentile(seconds: Sequence[float], percent: int) -> float:
    """What so many percent of the runs take at the most."""
    return sorted(seconds)[ceil(percent / 100 * len(seconds)) - 1]


def _unlowered_share(compiled: CompiledModel, rows: Sequence[ProfileRow]) -> float:
    """The part of a run that nodes take that no kernel computes, with a warning where that is much."""
    nodes = {node.name: node.engine for node in compiled.report.unlowered}
    left = [row for row in rows if not row.is_native and nodes.keys() & set(row.nodes)]
    share = sum(row.seconds for row in left) / (sum(row.seconds for row in rows) or 1.0)
    if share > SHARE:
        labels = ", ".join(dict.fromkeys(f"{row.label} in {nodes[row.nodes[0]]}" for row in left))
        warnings.warn(
            f"{share:.0%} of the time goes to {labels}: no kernel computes it", ReferenceWarning, stacklevel=3
        )
    return share


def profile(
    model: str | Path,
    feeds: Mapping[str, Any],
    *,
    target: str | Target = CPU,
    threads: int = 1,
    tuned: str = "auto",
    database: Path | None = None,
    runs: int = ROUNDS,
) -> list[ProfileRow]:
    """What each step of the compiled model takes, the least of several runs."""
    return profiled(compile(model, target=target, threads=threads, tuned=tuned, database=database), feeds, runs)


def profiled(compiled: CompiledModel, feeds: Mapping[str, Any], runs: int = ROUNDS) -> list[ProfileRow]:
    """The same of a model that is compiled already."""
    return best_rows(compiled.profile(feeds) for _ in range(WARM + runs))


def check_run(
    model: str | Path,
    graph: Graph,
    dims: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    memory: int,
    seconds: float,
    hints: tuple[str, str] = ("", ""),
) -> None:
    """LimitError where a model's inputs and outputs alone take more bytes than a run may, or all its operations more
    seconds; ``hints`` say what allows more."""
    if why := handed_excess(graph, memory):
        raise LimitError(f"{model}: out of memory: {why}; --dim and --shape give smaller sizes{hints[0]}")
    fixed = fix_dims(graph, shapes, dims)
    operations = work_of(fixed, {}).operations
    if operations > EACH_SECOND * seconds and bytes_handed(fixed) <= memory:  # else drawing names the input
        raise LimitError(
            f"{model}: a run takes {operations} operations, and may take {seconds:g} s; --dim and --shape give smaller "
            f"sizes{hints[1]}"
        )


def random_feeds(
    graph: Graph,
    inputs: Mapping[str, Given],
    dims: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Iterator[dict[str, Any]]:
    """Elements for every input: those that are given, else (or for ``"random"``) random ones, of the ``shapes`` that
    are given and at several sizes of open dimensions, the most promising first.

    Raises UsageError for an input or dimension that the graph does not have, and where nothing can be drawn.
    """
    check_inputs(graph, inputs)
    graph = Preparation(shapes=shapes or {}).fixed(graph)
    types = (graph.types.get(v) for v in graph.inputs)
    open_sizes = {n for t in types if isinstance(t, TensorType) and isinstance(t.shape, tuple) for n in _named(t.shape)}
    for name in dims:
        if name not in open_sizes:
            hint = nearest_or_some(name, sorted(open_sizes))
            raise UsageError(f"no dimension of an input is called {name!r}{hint}")
    arrays = {name: given(value) for name, value in inputs.items() if not (isinstance(value, str) and value == RANDOM)}
    for chosen in sizes(graph, {**_bound(graph, arrays), **dims}):
        try:
            yield draw(graph, chosen, ranges(graph), arrays, seed=0, kind=0)
        except ValueError as problem:
            raise UsageError(str(problem)) from None


def accepted_feeds(candidates: Iterable[dict[str, Any]], run: Callable[[Feeds], Any]) -> dict[str, Any]:
    """The first of some inputs with which a model runs; where it runs with none, the error of the first."""
    problem: GraphoptError | None = None
    for feeds in candidates:
        try:
            run(feeds)
        except (InputError, ExecutionError, InvalidModelError) as error:
            problem = problem or error
        else:
            return feeds
    assert problem is not None
    raise problem


def _named(shape: Iterable[Size]) -> Iterator[str]:
    """The names of the open sizes in a shape that the model names."""
    return (name for size in shape for name in symbols(size) if not is_anonymous(symbol(name)))


def _bound(graph: Graph, arrays: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of named dimensions that arrays have."""
    bound: dict[str, int] = {}
    for value in graph.inputs:
        array, type = arrays.get(graph.names[value]), graph.types.get(value)
        if isinstance(array, np.ndarray) and isinstance(type, TensorType) and isinstance(type.shape, tuple):
            for size, n in zip(type.shape, array.shape, strict=False):
                if not isinstance(size, int) and str(size) in symbols(size):
                    bound.setdefault(str(size), n)
    return bound


def _opened(name: str, model: str | Path, target: Target, threads: int, feeds: Feeds) -> Callable[[], list[Any]]:
    """A run of the model in another engine."""
    open_model = partial(_by_default, target=target) if name == UNTUNED else ENGINES[name]
    try:
        run = open_model(os.fspath(model), threads)
        run(feeds)
    except ImportError as problem:
        raise MissingDependencyError(
            f"--against {name} needs the package {problem.name}: install it, for example with pip"
        ) from None
    except EngineError as problem:
        raise UsageError(f"--against {name}: it does not run the model: {problem}") from None
    return lambda: run(feeds)


def turns(runs: Sequence[Callable[[], Any]], seconds: float) -> list[list[float]]:
    """The seconds of each run of each of several functions, which take turns for so long, after some that do not
    count."""
    for run in runs:
        for _ in range(WARM):
            run()
    times_by_run: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + seconds
    while len(times_by_run[-1]) < ROUNDS or time.perf_counter() < end:
        for run, times in zip(runs, times_by_run, strict=True):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
    return times_by_run


def _error(want: Sequence[Any], got: Sequence[Any]) -> float | None:
    """How far apart outputs are; None where they are no arrays."""
    pairs = list(zip(want, got, strict=True))
    if not all(isinstance(x, np.ndarray) for pair in pairs for x in pair):
        return None
    return max((error(a, b) for a, b in pairs), default=0.0)
