"""Tuning of one nest: the best schedule of a search space, with its trace and time, whatever the default one takes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

from graphopt.calibration.measured_file import Setting
from graphopt.errors import ScheduleError, UsageError
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.lowering.schedule.trace import Trace
from graphopt.target import CPU
from graphopt.target import target as target_named
from graphopt.tuning.database import Records
from graphopt.tuning.draws import Draws
from graphopt.tuning.executors import executor_named
from graphopt.tuning.learned import CostModel
from graphopt.tuning.record import Record
from graphopt.tuning.results import TunedNest, failed, trial, tuned_nest
from graphopt.tuning.search import SearchName, SearchStrategy, strategy_of
from graphopt.tuning.session import FINALISTS, Budget, Progress, Task, Told, check_learning, confirm, here, tune_tasks
from graphopt.tuning.spaces import Space
from graphopt.tuning.workload import Workload


def tune_nest(
    nest: Nest,
    budget: Budget = Budget(),
    *,
    spaces: Sequence[Space] | None = None,
    sizes: Mapping[str, int] | None = None,
    database: Path | None = None,
    search: SearchName | SearchStrategy = "evolution",
    cost_model: CostModel | None = None,
    executor: Executor | str | None = None,
    target: str = CPU.name,
    threads: int = 1,
    seed: int = 0,
    told: Told | None = None,
) -> TunedNest:
    """The best schedule of a nest that was found in ``spaces``, even where the default one is faster; in the built-in
    ones where None, among which the default schedule counts.

    ``database`` keeps what is measured, and what it has of these spaces takes part; where None, nothing is kept.
    ScheduleError where spaces have no legal schedule for the nest, or none that was measured counts, and says why;
    UsageError where an open size is missing; else as ``tune_tasks``.
    """
    workload = Workload.of(nest, sizes)
    check_sizes(sizes, {var.name for var in nest.sizes}, nest.name)
    check_learning(strategy_of(search), cost_model)
    device = target_named(target).device.name  # records are of what comes with graphopt
    with ExitStack() as stack:
        records = stack.enter_context(Records(stack.enter_context(_kept_in(database)), write=True))
        measures = stack.enter_context(measuring(executor))
        report = tune_tasks(
            [Task(workload)],
            records,
            measures,
            budget,
            search=search,
            cost_model=cost_model,
            spaces=spaces,
            target=device,
            threads=threads,
            seed=seed,
            told=told,
        )
        (progress,) = report.tasks
        is_interrupted, best = report.ending == "interrupted", progress.best
        if spaces is not None:
            ranked = partial(
                _ranked, progress, records, Draws.of(workload, spaces, Random(seed)), here(device, threads)
            )
            best = (
                next(iter(ranked()), None)
                if is_interrupted
                else confirm(progress, ranked, records, measures, budget.again)
            )
        if not progress.default or (spaces is not None and best is None):
            if is_interrupted:
                raise KeyboardInterrupt
            raise ScheduleError(f"no schedule of {nest.name} counts: {_why(progress, records, here(device, threads))}")
    plain = replace(nest, notes=tuple(n for n in nest.notes if n != BY_RULE))
    return tuned_nest(progress, plain, best, report.ending, report.seconds)


def _ranked(progress: Progress, records: Records, draws: Draws, setting: Setting) -> list[Record]:
    """The best of those that count of what is known of the schedules of some spaces, the best first."""
    setting = next((r.setting for r in progress.records.values()), setting)  # it may be measured elsewhere
    history = records.history(progress.task.workload, setting)
    counting = sorted((r for r in history if r.outcome.gain), key=lambda r: r.outcome.fastest)

    def is_of_these(trace: str) -> bool:
        return trace in progress.records or draws.again(Trace.from_json(trace), Random(0)) is not None

    return list(islice((r for r in counting if is_of_these(r.candidate.trace)), FINALISTS))


def _why(progress: Progress, records: Records, setting: Setting) -> str:
    """Why nothing counts, in a line."""
    known = [*records.history(progress.task.workload, setting), *progress.records.values()]
    failures = [trial(record) for record in {r.candidate: r for r in known}.values() if record.outcome.problem]
    return "; ".join(line.strip() for line in failed(failures)) or "the budget allowed no trial"


def check_sizes(sizes: Mapping[str, int] | None, known: set[str], name: str) -> None:
    """UsageError for sizes that there are not."""
    if unknown := [size for size in sizes or {} if size not in known]:
        raise UsageError(
            f"{name} has no open size {', '.join(unknown)}: its open sizes are {', '.join(sorted(known)) or 'none'} "
            "(what is no option is taken for a size)"
        )


def measuring(executor: Executor | str | None) -> AbstractContextManager[Executor]:
    """What measures; a user's own is not shut down."""
    return nullcontext(executor) if isinstance(executor, Executor) else executor_named(executor)


@contextmanager
def _kept_in(database: Path | None) -> Iterator[Path]:
    """The file of a database; one that is gone afterwards where none is named."""
    if database is not None:
        yield database
        return
    with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
        yield Path(folder) / "tuning.sqlite"
