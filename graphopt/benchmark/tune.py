"""Tuning of models (``graphopt tune``): the schedules of all their nests, and the model timed before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from graphopt.benchmark.bench import LONGEST, accepted_feeds, check_run, random_feeds, turns
from graphopt.compile import CompiledModel, compile
from graphopt.errors import UsageError, nearest_or_some
from graphopt.frozen import dataclass
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.ir.work import stored_bytes
from graphopt.lowering.link.linked import Linked, Work
from graphopt.runtime.limits import limited, memory_of
from graphopt.runtime.sizes import evaluate
from graphopt.target import CPU
from graphopt.target import target as target_named
from graphopt.tuning.database import Records
from graphopt.tuning.learned import CostModel
from graphopt.tuning.nest_tuner import measuring
from graphopt.tuning.search import SearchName, SearchStrategy
from graphopt.tuning.session import Budget, Progress, Task, Told, TuningReport, here, renamed, tune_tasks
from graphopt.tuning.spaces import Space
from graphopt.tuning.workload import Workload
from graphopt.verify.inputs import Given

HARM: Final = 1.03
"""How many times as long as the default schedule one may take within the model, where it is faster by itself, unless
in a quarter of the runs it takes no longer."""
PROFILES: Final = 9
"""Runs of the model, each way, that tell."""
ROUNDS: Final = 3
"""How often schedules are given up, and the next best are tried, before the default ones are left."""


@dataclass(frozen=True)
class Tuning:
    """What became of a model: what was found, and seconds of its runs, which took turns. ``is_kept``: whether it is
    compiled like that from now on, for it is not slower."""

    report: TuningReport
    before: tuple[float, ...]
    after: tuple[float, ...]
    is_kept: bool = True

    @property
    def speedup(self) -> float | None:
        """How many times as fast the model is: the median over pairs of runs; None where tuning was interrupted."""
        return None if not self.before else median(b / a for b, a in zip(self.before, self.after, strict=True))


def tune_model(
    model: str | Path | bytes | Graph,
    database: Path,
    budget: Budget = Budget(),
    *,
    executor: Executor | str | None = None,
    search: SearchName | SearchStrategy = "evolution",
    cost_model: CostModel | None = None,
    spaces: Sequence[Space] | None = None,
    target: str = CPU.name,
    threads: int = 1,
    seed: int = 0,
    nodes: Sequence[str] = (),
    inputs: Mapping[str, Given] | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seconds: float = 3.0,
    told: Told | None = None,
    way: SearchName | None = None,
) -> Tuning:
    """Tune the nests of a model, or of some nodes, and time the model before and after, on the CPU or ``"cuda"``.

    If times in the database change which ops and layouts there are, the nests are those of that choice. A schedule that
    is faster alone but not within the model is given up; if the whole model is slower, all are. Timing takes
    ``seconds`` in all. Open sizes are those of ``inputs``, ``dims`` and ``shapes``, else what the model runs with.
    ``way`` is what ``search`` was called in the last version. Raises UsageError where a node has no nest,
    LimitError where a run takes too much, and what ``compile``, ``executor_named`` and ``Records`` raise.

    >>> from pathlib import Path
    >>> budget = graphopt.tuning.Budget(trials=0)
    >>> tuned = graphopt.tune_model(graph, Path("tuning.sqlite"), budget, search="random", seconds=0.01)
    >>> tuned.report.ending
    'trials'
    """
    search = renamed(search, way)
    graph = onnx_io.load(model)
    name, size = (
        (str(model), onnx_io.bytes_of(model)) if isinstance(model, str | Path) else ("the model", stored_bytes(graph))
    )
    check_run(name, graph, dims or {}, shapes or {}, memory_of(size), LONGEST)
    compiled = partial(compile, model, target=target, threads=threads, cache=False)
    plain = compiled(tuned="off")
    with limited(memory_of(plain.constant_bytes), LONGEST):
        feeds = accepted_feeds(random_feeds(graph, inputs or {}, dims or {}, shapes), plain)
    chosen = compiled(database=database) if database.exists() else plain
    tasks = tasks_of(chosen, feeds, nodes)
    comparable = {task.workload for task in tasks_of(plain, feeds)}
    with Records(database, write=True) as records, measuring(executor) as measures:
        report = tune_tasks(
            tasks,
            records,
            measures,
            budget,
            search=search,
            cost_model=cost_model,
            spaces=spaces,
            target=target_named(target).device.name,  # records are of what comes with graphopt
            threads=threads,
            seed=seed,
            told=told,
        )
        if report.ending == "interrupted":
            return Tuning(report, (), ())
        for left in reversed(range(ROUNDS)):
            tuned = compiled(database=database)
            harm = harmful(report.tasks, plain, tuned, feeds)
            harm = {k: why for k, why in harm.items() if report.tasks[k].task.workload in comparable}
            if not harm:
                break
            give_up(harm, report.tasks, records, is_last=not left)
        else:
            tuned = compiled(database=database)
        before, after = turns([lambda: plain(feeds), lambda: tuned(feeds)], seconds)
        tuning = Tuning(report, tuple(before), tuple(after))
        assert tuning.speedup is not None
        if tuning.speedup >= 1:
            return tuning
        whole = f"slow: its model takes {1 / tuning.speedup:.3f} times as long as with default schedules"
        give_up(dict.fromkeys(_tuned_here(report.tasks), whole), report.tasks, records, is_last=True)
        return replace(tuning, is_kept=False)


def harmful(
    tasks: Sequence[Progress], plain: CompiledModel, tuned: CompiledModel, feeds: Mapping[str, Any]
) -> dict[int, str]:
    """Which of the tasks that were tuned for this machine take longer within the model than by default, and what is to
    be said of them."""
    ratios_by_task: dict[int, list[float]] = {k: [] for k in _tuned_here(tasks)}
    of = {name: k for k in ratios_by_task for name in tasks[k].task.nodes}
    for turn in range(PROFILES if ratios_by_task else 0):
        spent = [dict.fromkeys(ratios_by_task, 0.0) for _ in range(2)]
        pairs = list(zip((plain, tuned), spent, strict=True))
        for model, seconds in reversed(pairs) if turn % 2 else pairs:
            for row in model.profile(feeds):
                for k in {of[name] for name in row.nodes if name in of}:
                    seconds[k] += row.seconds
        for k in ratios_by_task:
            ratios_by_task[k].append(spent[1][k] / spent[0][k] if spent[0][k] else 1.0)
    return {
        k: f"slow: within the model it takes {median(ratios):.2f} times as long as the default schedule"
        for k, ratios in ratios_by_task.items()
        if median(ratios) > HARM and sorted(ratios)[len(ratios) // 4] > 1
    }


def _tuned_here(tasks: Sequence[Progress]) -> list[int]:
    """Which of the tasks have a schedule that is faster by itself on this machine."""
    bests = enumerate(p.best for p in tasks)
    where = [(k, best.setting, best.candidate) for k, best in bests if best is not None]
    return [k for k, setting, c in where if setting == here(c.target, c.threads)]


def give_up(harm: Mapping[int, str], tasks: Sequence[Progress], records: Records, is_last: bool) -> None:
    """Keep of tasks that their best schedule does not count, and why: the next best is tried. Where it ``is_last``,
    none is, and the default schedule is what is left."""
    for k, problem in harm.items():
        best = tasks[k].best
        assert best is not None
        where = best.candidate.workload, best.setting
        for record in records.ranked(*where) if is_last else [best]:
            if record.candidate != best.candidate:
                problem = "slow: schedules that are faster by themselves take longer within the model"
            records.keep(replace(record, outcome=replace(record.outcome, problem=problem)))
            tasks[k].problems["slow"] += 1
        tasks[k].best = records.best(*where)


def tasks_of(compiled: CompiledModel, feeds: Mapping[str, Any], nodes: Sequence[str] = ()) -> list[Task]:
    """What a model spends its time in: each nest that is scheduled by rule, with its sizes for these inputs, once."""
    linked = compiled.compiled.linked
    symbols = _sizes(linked, feeds)
    there = {name for work in linked.work for name in work.nodes}
    for name in nodes:
        if name not in there:
            raise UsageError(f"no nest computes a node {name!r}{nearest_or_some(name, sorted(there))}")
    works: dict[Workload, list[Work]] = {}
    for work in linked.work:
        if nodes and not set(nodes) & set(work.nodes):
            continue
        try:
            sizes = {var.name: evaluate(size, symbols) for var, size in work.sizes.items()}
        except KeyError:  # a size that only elements say
            continue
        works.setdefault(Workload.of(work.nest, sizes), []).append(work)
    return [Task(w, len(many), tuple(dict.fromkeys(n for one in many for n in one.nodes))) for w, many in works.items()]


def _sizes(linked: Linked, feeds: Mapping[str, Any]) -> dict[str, int]:
    """What the open sizes are that inputs say."""

    def pairs() -> Iterator[tuple[object, int]]:
        for port in linked.inputs:
            if port.name in feeds:
                yield from zip(linked.buffers[port.buffer].shape or (), feeds[port.name].shape, strict=False)

    return {size: n for size, n in pairs() if isinstance(size, str)}
