"""``graphopt optimize`` for several models: one summary, one exit code. Imported by runs, not for help."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.cli import count_of
from graphopt.errors import UsageError

if TYPE_CHECKING:
    from graphopt.cli.optimize import OptimizeOptions
    from graphopt.progress import Event
    from graphopt.run.report import Report
    from graphopt.tools.batch import BatchJob, BatchSummary, CostChange


def is_asked(models: Sequence[Path], options: OptimizeOptions) -> bool:
    """Whether the arguments ask for a summary rather than for one model."""
    from graphopt.tools.batch import is_several

    return is_several(models) or options.baseline is not None or options.fail_if_slower is not None


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
    from graphopt.cli import files, progress
    from graphopt.optimize import optimize
    from graphopt.run.derivation import journal_path
    from graphopt.tools import batch

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
        raise UsageError(f"{alone[0]} takes one model")
    jobs = find_jobs(models, options.output, options.in_place)
    target, baseline = options.target, options.baseline
    earlier = None if baseline is None else batch.read_summary(baseline)
    if earlier is not None and earlier.target != target:
        raise UsageError(f"--baseline {baseline} is of target {earlier.target}, whose costs are not those of {target}")
    files.check_written({"--json": options.json}, [*(job.model for job in jobs), *([baseline] if baseline else [])])
    prefix = ""
    with (
        tempfile.TemporaryDirectory(prefix="graphopt-") as scratch,
        progress.shown(options.quiet, options.verbose) as listener,
    ):

        def listen(event: Event) -> None:
            if listener is not None:
                listener(replace(event, step=f"{prefix}: {event.step}"))

        def run(job: BatchJob) -> Report:
            nonlocal prefix
            prefix = f"{jobs.index(job) + 1} of {len(jobs)}, {job.name}"
            output = Path(scratch) / job.output.name if options.dry_run else job.output
            output.parent.mkdir(parents=True, exist_ok=True)
            journal = None if options.no_journal or options.dry_run else journal_path(output)
            given = {**keywords, "journal": journal, "output": output, "listener": listener and listen}
            _, report = optimize(job.model, return_report=True, **given)
            for warning in () if options.quiet else report.warnings:
                print(f"warning: {job.name}: {warning}", file=sys.stderr)
            return report  # type: ignore[no-any-return]

        summary = batch.optimize_all(jobs, run, target)
    changes = batch.compare(summary, earlier)
    if options.fail_if_slower is not None:
        summary = batch.judged(summary, changes, options.fail_if_slower)
    if options.json is not None:
        files.write_or_print(options.json, summary.to_json())
    _complain(summary)
    if not options.quiet:
        _show(summary, changes if earlier is not None else (), on_stderr=files.is_stdout(options.json))
    return summary.exit_code


def _complain(summary: BatchSummary) -> None:
    """What went wrong, a line for each model, on stderr."""
    from graphopt.cli import printable, store_traceback

    for outcome in summary.outcomes:
        if outcome.exit_code:
            where = (
                f"; please report it with the file {store_traceback(outcome.traceback)}" if outcome.traceback else ""
            )
            print(f"graphopt: {printable(f'{outcome.model}: {outcome.error}')}{where}", file=sys.stderr)


def _show(summary: BatchSummary, changes: Sequence[CostChange], *, on_stderr: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    from graphopt.cli.tables import console, modelled, size
    from graphopt.tools.batch import mean_gain

    by_model = {change.model: change for change in changes}
    table = Table("model", box=None, pad_edge=False)
    columns = ("ops", "file", *(("measured",) if any(o.measured for o in summary.outcomes) else ()), "modelled")
    for name in (*columns, *(("since baseline",) if changes else ()), "seconds"):
        table.add_column(name, justify="right")
    table.add_column("")
    for o in summary.outcomes:
        row = [
            "" if o.ops_after is None else f"{o.ops_before} -> {o.ops_after}",
            "" if o.bytes_after is None else size(o.bytes_after),
            modelled(o.cost_before / o.cost_after) if o.cost_before and o.cost_after else "",
        ]
        if "measured" in columns:
            row.insert(2, f"{o.measured:.2f}x" if o.measured else "")
        if changes:
            row.append(_since(by_model.get(o.model)))
        table.add_row(
            escape(o.model),
            *row,
            f"{o.seconds:.1f}",
            escape(o.error or o.verification),
            style="red" * bool(o.exit_code),
        )
    out = console(stderr=on_stderr)
    out.print(table)
    failed = sum(o.exit_code != 0 for o in summary.outcomes)
    mean = mean_gain(summary)
    out.print(
        f"{count_of(len(summary.outcomes), 'model')}, {failed} failed"
        + (f"; modelled {modelled(mean)} in the geometric mean" if mean else "")
    )


def _since(change: CostChange | None) -> str:
    if change is None:
        return "new"
    ops = f", {change.ops:+d} ops" if change.ops else ""
    return f"{change.slower:+.1f} %{' measured' if change.is_measured else ''}{ops}"
