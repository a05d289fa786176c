"""``graphopt tune``: a search for schedules that are faster than the default ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli import names, values
from graphopt.cli.app import app, register
from graphopt.cli.options import Database, FixedSizes, Inputs, Json, Model, On, Quiet, Repeated, Threads
from graphopt.errors import StoppedError, UsageError

if TYPE_CHECKING:
    from graphopt.benchmark.active_measurement import Answers
    from graphopt.benchmark.tune import Tuning
    from graphopt.cli.results import TunedProgram
    from graphopt.tuning.session import Budget, Progress, Told, TuningReport


@register(
    app,
    "tune",
    examples=(
        "graphopt tune model.onnx --seconds 600",
        "graphopt tune model.onnx --node NODE --trials 200",
        "graphopt tune model.onnx --choices",
    ),
)
def tune_model(
    model: Model,
    *,
    trials: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Schedules to measure at most.", show_default=False)
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(metavar="S", help="When to stop; default: when no faster schedule is found.", show_default=False),
    ] = None,
    search: Annotated[
        str,
        typer.Option(
            metavar="evolution|random|exhaustive",
            help="Evolution guided by a learned cost model, random sampling, or all.",
        ),
    ] = "evolution",
    node: Annotated[
        Repeated | None,
        typer.Option(
            metavar="NAME",
            help="Tune what computes a node; repeatable.",
            show_default=False,
            autocompletion=names.nodes,
        ),
    ] = None,
    choices: Annotated[
        bool, typer.Option("--choices", help="Measure only ops whose times could change the choice of ops and layouts.")
    ] = False,
    executor: Annotated[
        str | None, typer.Option(metavar="dask://HOST:PORT", help="A Dask cluster to measure on.", show_default=False)
    ] = None,
    database: Database,
    target: On,
    threads: Threads,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the search.")] = 0,
    input: Inputs,
    sizes: FixedSizes,
    json: Json,
    quiet: Quiet,
) -> None:
    """Look for faster schedules of a model's loops by measuring, keep them, and time the model before and after.

    Measurements are kept at once: after an interrupt, the next run goes on from there.

    --choices measures ops by their default schedules instead, where their times could change which ops and layouts are
    chosen: the table lists them, and lines below it what the choice becomes.
    """
    from graphopt.cli import files, results
    from graphopt.tuning.session import Budget

    values.number("--seconds", seconds, 0)
    files.check_written({"--json": json}, [model])
    if choices:
        others = {"--node": node, "--input": input, "--search": search != "evolution", "--seed": seed}
        if needless := " and ".join(name for name, given in others.items() if given):
            raise UsageError(
                f"--choices are those of the whole model, whatever its inputs, without a search: leave {needless} out"
            )
        _ask(model, Budget(trials, seconds), executor, database, target, threads, sizes, quiet, json)
        return
    from graphopt.benchmark.tune import tune_model as tune
    from graphopt.calibration.schedule_tables import default_path
    from graphopt.tuning.search import strategy_of
    from graphopt.tuning.session import check_learning

    strategy = strategy_of(search)
    check_learning(strategy)
    path = database or default_path()
    budget = Budget(trials, seconds)
    with _keeping(path), _shown(quiet, budget) as show_progress:
        done = tune(
            model,
            path,
            budget,
            executor=executor,
            search=strategy,
            target=target,
            threads=threads,
            seed=seed,
            nodes=node or (),
            inputs=values.inputs(input or ()),
            dims=sizes.dims,
            shapes=sizes.shapes,
            told=show_progress,
        )
    if not results.written(json, _result(done, path)) and not quiet:
        _show(done, path)
    if done.report.ending == "interrupted":
        raise _interrupted(path)


def _ask(
    model: Path,
    budget: Budget,
    executor: str | None,
    database: Path | None,
    target: str,
    threads: int,
    sizes: FixedSizes,
    quiet: bool,
    json: Path | None,
) -> None:
    """What ``--choices`` does."""
    from graphopt.benchmark.active_measurement import tune_choices
    from graphopt.calibration.schedule_tables import default_path
    from graphopt.cli import progress, results
    from graphopt.progress import Event

    path = database or default_path()
    with _keeping(path), progress.shown(quiet, False) as listener:

        def told(done: int, now: int) -> None:
            if listener is not None:
                listener(Event(f"tune: {done} measured, {now} asked for"))

        answers = tune_choices(
            model,
            path,
            budget,
            executor=executor,
            target=target,
            threads=threads,
            dims=sizes.dims,
            shapes=sizes.shapes,
            told=told,
        )
    asked = tuple(results.AskedOp(q.call, q.answer.seconds if q.answer else None) for q in answers.questions)
    counts = answers.trials, answers.seconds, answers.ending
    result = results.ChoicesMeasured(*counts, asked, answers.gone, answers.new, str(path))
    if not results.written(json, result) and not quiet:
        _show_answers(answers, path)
    if answers.ending == "interrupted":
        raise _interrupted(path)


@contextmanager
def _keeping(path: Path) -> Iterator[None]:
    """Where it is interrupted, what is in the database is not lost."""
    try:
        yield
    except KeyboardInterrupt:
        if not path.exists():
            raise
        raise _interrupted(path) from None


def _interrupted(path: Path) -> StoppedError:
    return StoppedError(f"interrupted; what was measured is kept in {path}")


@contextmanager
def _shown(quiet: bool, budget: Budget) -> Iterator[Told | None]:
    """What shows on a terminal how far tuning is."""
    from time import monotonic

    from graphopt.cli import progress

    begun = monotonic()
    with progress.shown(quiet, False) as listener:
        if listener is None:
            yield None
            return
        from graphopt.progress import Event

        def told(tasks: Sequence[Progress], trials: int) -> None:
            seconds = sum(p.seconds for p in tasks)
            default = sum(p.task.times * p.default for p in tasks)
            done = [trials / budget.trials] if budget.trials else []
            done += [(monotonic() - begun) / budget.seconds] if budget.seconds else []
            share = min(max(done), 1.0) if done else None
            listener(Event(f"tune: {trials} measured, {default / seconds if seconds else 1:.2f}x so far", share=share))

        yield told


def _result(done: Tuning, path: Path) -> TunedProgram:
    """What was found, as JSON has it."""
    from graphopt.cli.results import TunedNest, TunedProgram

    nests = tuple(
        TunedNest(tuple(p.task.nodes), p.task.times, p.default or None, p.gain, p.trials, dict(p.problems))
        for p in done.report.tasks
    )
    report = done.report
    return TunedProgram(report.trials, report.seconds, report.ending, done.speedup, done.is_kept, nests, str(path))


def _show_answers(answers: Answers, path: Path) -> None:
    from rich.table import Table

    from graphopt.benchmark.active_measurement import described
    from graphopt.cli import printable
    from graphopt.cli.console import console, escape
    from graphopt.display import duration
    from graphopt.tuning.results import ENDINGS

    out = console()
    table = Table("asked", "in the model", "takes")
    for question in answers.questions:
        times = max(answers.before.get(question.call, 0), answers.after.get(question.call, 0))
        takes = "not measured" if question.answer is None else duration(question.answer.seconds)
        table.add_row(escape(printable(str(question))), str(times), takes)
    if answers.questions:
        out.print(table)
    ending = "nothing else would change a choice" if answers.ending == "done" else ENDINGS[answers.ending]
    out.print(f"{answers.trials} measured in {answers.seconds:.0f} s: {ending}", markup=False)
    for what, calls in (("no longer", answers.gone), ("in their place", answers.new)):
        for text, times in calls.items():
            out.print(f"{what}: {times} x {printable(described(text))}", markup=False)
    if answers.ending != "interrupted" and not answers.gone and not answers.new:
        out.print("the choices stay as they are", markup=False)
    if answers.questions:
        out.print(f"kept in {path}", markup=False)


def _show(done: Tuning, path: Path) -> None:
    from rich.table import Table

    from graphopt.cli import printable
    from graphopt.cli.console import console, escape
    from graphopt.display import duration

    report = done.report
    out = console()
    table = Table("nodes", "times", "default", "tuned", "gain", "measured", "did not count")
    for p in sorted(report.tasks, key=lambda p: -p.task.times * p.default):
        default, best = (duration(p.default), duration(p.default / p.gain)) if p.default else ("", "")
        name = p.task.nodes[0] + (f" and {n} more" if (n := len(p.task.nodes) - 1) else "")
        problems = ", ".join(f"{n} {kind}" for kind, n in sorted(p.problems.items()))
        table.add_row(
            escape(printable(name)), str(p.task.times), default, best, f"{p.gain:.2f}x", str(p.trials), problems
        )
    out.print(table)
    out.print(_summary(report), markup=False)
    if done.speedup is not None:
        verdict = "" if done.is_kept else ", so these are kept"
        out.print(f"the model: {done.speedup:.3f}x as fast as with default schedules{verdict}", markup=False)
    out.print(f"kept in {path}", markup=False)


def _summary(report: TuningReport) -> str:
    from graphopt.tuning.results import ENDINGS

    gained = sum(p.gain > 1 for p in report.tasks)
    return (
        f"{report.trials} measured in {report.seconds:.0f} s ({ENDINGS[report.ending]}): "
        f"{gained} of {len(report.tasks)} nests are faster than by default"
    )
