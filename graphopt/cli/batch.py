"""``graphopt optimize`` for several models: one summary, one exit code. Imported by runs, not for help."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.cli import count_of
from graphopt.errors import UsageError

if TYPE_CHECKING:
    from graphopt.cli.optimize import OptimizeOptions
    from graphopt.progress import Event
    from graphopt.run.report import Report
    from graphopt.tools.batch import BatchJob, BatchOutcome, BatchSummary, CostChange, Runs


def is_asked(models: Sequence[Path], options: OptimizeOptions) -> bool:
    """Whether the arguments ask for a summary rather than for one model."""
    compared = options.baseline is not None or options.fail_if_slower is not None
    if compared or options.check or options.resume or options.executor is not None:
        return True
    if len(models) == 1 and models[0].is_file():  # most often; what tells others from it takes time to import
        return False
    from graphopt.tools.batch import is_several

    return is_several(models)


def find_jobs(models: Sequence[Path], output: Path | None, in_place: bool) -> list[BatchJob]:
    """What to optimize, and where to. One model alone goes to a file, as it does without a summary."""
    from graphopt.cli import files
    from graphopt.tools import batch

    if batch.is_several(models):
        if in_place:
            raise UsageError("--in-place takes one model; give -o, a folder for the results of several")
        return batch.find_jobs(models, output)
    (model,) = models
    return [batch.BatchJob(model.name, model, output or files.beside(model, "opt"))]


def optimize_several(models: Sequence[Path], keywords: Mapping[str, Any], options: OptimizeOptions) -> int:
    """Optimize all, print the summary, and give the exit code of the worst."""
    from graphopt.cli import files
    from graphopt.rewrite.ruleset import ruleset
    from graphopt.tools import batch
    from graphopt.tools.kept_results import KeptResults

    of_one_model = {
        "--print-after": options.printing.print_after,
        "--print-between": options.printing.print_between,
        "--explain": options.explain,
        "--stats": options.stats,
        "--journal": options.journal,
        "--certificate": options.certificate,
        "--report": options.report,
    }
    if alone := [name for name, is_on in of_one_model.items() if is_on]:
        raise UsageError(f"{alone[0]} takes one model, not {', '.join(map(str, models))}")
    if options.resume and options.dry_run:
        raise UsageError("--resume and --dry-run exclude each other: a dry run keeps nothing")
    is_several = batch.is_several(models)
    if options.resume and not is_several:
        raise UsageError("--resume takes several models, whose results go into the folder that -o names")
    given = {**keywords, "rules": ruleset(options.rules or None)}
    dry_run = options.dry_run or options.check
    if options.check and (options.output is not None or options.in_place or options.resume):
        raise UsageError("--check writes nothing: it takes no -o, --in-place or --resume")
    if dry_run and options.executor is not None:
        raise UsageError("--executor brings results, and --dry-run and --check write none")
    found = batch.find_checks(models) if options.check else find_jobs(models, options.output, options.in_place)
    jobs = [replace(job, options=given, journal=not options.no_journal and not dry_run) for job in found]
    target, baseline = options.target, options.baseline
    earlier = None if baseline is None else batch.read_summary(baseline)
    if earlier is not None and earlier.target != target:
        raise UsageError(f"--baseline {baseline} is of target {earlier.target}, whose costs are not those of {target}")
    files.check_written({"--json": options.json}, [*(job.model for job in jobs), *([baseline] if baseline else [])])
    kept = KeptResults(options.output) if options.resume and options.output is not None else None
    with running(jobs, options.executor, options.quiet, options.verbose, dry_run) as (run, runs):
        summary = batch.optimize_all(jobs, run, target, runs=runs, kept=kept)
    changes = batch.compare(summary, earlier)
    if options.fail_if_slower is not None:
        summary = batch.judged(summary, changes, options.fail_if_slower)
    if options.check:
        summary = batch.judged_optimized(summary, options.margin)
    if options.json is not None:
        files.write_or_print(options.json, summary.to_json())
    report(summary, options.quiet, changes if earlier is not None else ())
    return summary.exit_code


@contextmanager
def running(
    jobs: Sequence[BatchJob], executor: str | None, quiet: bool, verbose: bool, dry_run: bool = False
) -> Iterator[tuple[Callable[[BatchJob], Report], Runs | None]]:
    """What optimizes a job here, and shows how far it is; and what has all done elsewhere, where that is asked for."""
    from graphopt.cli import progress
    from graphopt.tools import batch
    from graphopt.tools.elsewhere import on_workers

    numbers = {job.name: number for number, job in enumerate(jobs, 1)}
    prefix = ""
    with (
        ExitStack() as stack,
        tempfile.TemporaryDirectory(prefix="graphopt-") as scratch,
        progress.shown(quiet, verbose) as listener,
    ):

        def listen(event: Event) -> None:
            if listener is not None:
                listener(replace(event, step=f"{prefix}: {event.step}"))

        def run(job: BatchJob) -> Report:
            nonlocal prefix
            prefix = f"{numbers[job.name]} of {len(jobs)}, {job.name}"
            job = replace(job, output=Path(scratch) / job.output.name) if dry_run else job
            job.output.parent.mkdir(parents=True, exist_ok=True)
            return batch.optimize_job(job, listener=listener and listen)

        if executor is None:
            yield run, None
            return
        from graphopt.tuning.executors import executor_named

        yield run, on_workers(stack.enter_context(executor_named(executor)))


def report(summary: BatchSummary, quiet: bool, changes: Sequence[CostChange] = ()) -> None:
    """Print what went wrong, warnings, and the table."""
    for outcome in () if quiet else summary.outcomes:
        for warning in outcome.warnings:
            print(f"warning: {outcome.model}: {warning}", file=sys.stderr)
        for note in outcome.notes if not outcome.exit_code else ():
            print(f"  {note}", file=sys.stderr)
    _complain(summary)
    if not quiet:
        _show(summary, changes)


def _complain(summary: BatchSummary) -> None:
    """What went wrong, a line for each model, on stderr."""
    from graphopt.cli import printable, store_traceback

    for outcome in summary.outcomes:
        if outcome.exit_code:
            where = (
                f"; please report it with the file {store_traceback(outcome.traceback)}" if outcome.traceback else ""
            )
            print(f"graphopt: {printable(f'{outcome.model}: {outcome.error}')}{where}", file=sys.stderr)
            for note in outcome.notes:
                print(f"  {printable(note)}", file=sys.stderr)


def _show(summary: BatchSummary, changes: Sequence[CostChange]) -> None:
    from graphopt.cli.console import Table, console, escape
    from graphopt.cli.tables import size
    from graphopt.run.report import modelled
    from graphopt.tools.batch import mean_speedups

    by_model = {change.model: change for change in changes}
    table = Table("model")
    columns: dict[str, Callable[[BatchOutcome], str]] = {
        "ops": lambda o: "" if o.ops_after is None else f"{o.ops_before} -> {o.ops_after}",
        "file": lambda o: "" if o.bytes_after is None else size(o.bytes_after),
    }
    if any(o.measured for o in summary.outcomes):  # before what is only modelled
        columns["measured"] = lambda o: f"{o.measured:.2f}x" if o.measured else ""
    columns["modelled"] = lambda o: modelled(o.cost_before / o.cost_after) if o.cost_before and o.cost_after else ""
    if any(o.metric_after is not None for o in summary.outcomes):
        columns["metric"] = lambda o: "" if o.metric_after is None else f"{o.metric_before:.4g} -> {o.metric_after:.4g}"
    if changes:
        columns["since baseline"] = lambda o: _since(by_model.get(o.model))
    columns["seconds"] = lambda o: "kept" if o.is_kept else f"{o.seconds:.1f}"
    for name in columns:
        table.add_column(name, justify="right")
    table.add_column("")
    for o in summary.outcomes:
        row = [cell(o) for cell in columns.values()]
        table.add_row(escape(o.model), *row, escape(o.error or o.verification), style="red" * bool(o.exit_code))
    out = console()
    out.print(table)
    failed = sum(o.exit_code != 0 for o in summary.outcomes)
    means = mean_speedups(summary)
    told = [f"{mean}{f' for {count}' * (len(means) > 1)}" for mean, count in means.items()]
    counts = f"{count_of(len(summary.outcomes), 'model')}, {failed} failed"
    out.print(counts + (f"; {', '.join(told)} in the geometric mean" if told else ""))


def _since(change: CostChange | None) -> str:
    if change is None:
        return "new"
    ops = f", {change.ops:+d} ops" if change.ops else ""
    return f"{change.slower:+.1f} %{' measured' if change.is_measured else ''}{ops}"
