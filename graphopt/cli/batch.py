"""``graphopt optimize`` for several models: one summary, one exit code."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.errors import UsageError

if TYPE_CHECKING:
    from graphopt.progress import Event
    from graphopt.run.report import Report
    from graphopt.tools.batch import Change, Job, Summary


def is_asked(models: Sequence[Path], baseline: Path | None, fail_if_slower: float | None) -> bool:
    """Whether the arguments ask for a summary rather than for one model."""
    from graphopt.tools.batch import is_several

    return is_several(models) or baseline is not None or fail_if_slower is not None


def jobs(models: Sequence[Path], output: Path | None, in_place: bool) -> list[Job]:
    """What to optimize, and where to. One model alone goes to a file, as it does without a summary."""
    from graphopt.tools.batch import Job, find_jobs, is_several

    if is_several(models):
        if in_place:
            raise UsageError("--in-place takes one model; give -o, a folder for the results of several")
        return find_jobs(models, output)
    (model,) = models
    return [Job(model.name, model, output or model.with_name(f"{model.stem}.opt.onnx"))]


def optimize_several(
    found: Sequence[Job],
    options: Mapping[str, Any],
    *,
    json: Path | None,
    baseline: Path | None,
    fail_if_slower: float | None,
    keeps_journals: bool,
    dry_run: bool,
    quiet: bool,
    verbose: bool,
) -> int:
    """Optimize all, print the summary, and give the exit code of the worst."""
    from graphopt.cli import files, progress
    from graphopt.optimize import optimize
    from graphopt.run.derivation import journal_path
    from graphopt.tools import batch

    target = str(options.get("target", "portable"))
    earlier = None if baseline is None else batch.read_summary(baseline)
    if earlier is not None and earlier.target != target:
        raise UsageError(f"--baseline {baseline} is of target {earlier.target}, whose costs are not those of {target}")
    files.check_written({"--json": json}, [*(job.model for job in found), *([baseline] if baseline else [])])
    place = ""
    with tempfile.TemporaryDirectory(prefix="graphopt-") as scratch, progress.shown(quiet, verbose) as listener:

        def listen(event: Event) -> None:
            if listener is not None:
                listener(replace(event, step=f"{place}: {event.step}"))

        def run(job: Job) -> Report:
            nonlocal place
            place = f"{found.index(job) + 1} of {len(found)}, {job.name}"
            output = Path(scratch) / job.output.name if dry_run else job.output
            output.parent.mkdir(parents=True, exist_ok=True)
            journal = journal_path(output) if keeps_journals and not dry_run else None
            given = {**options, "journal": journal, "output": output, "listener": listener and listen}
            _, report = optimize(job.model, return_report=True, **given)
            for warning in () if quiet else report.warnings:
                print(f"warning: {job.name}: {warning}", file=sys.stderr)
            return report  # type: ignore[no-any-return]

        summary = batch.optimize_all(found, run, target)
    changes = batch.compare(summary, earlier)
    if fail_if_slower is not None:
        summary = batch.judged(summary, changes, fail_if_slower)
    if json is not None:
        files.write_or_print(json, summary.to_json())
    _complain(summary)
    if not quiet:
        _show(summary, changes if earlier is not None else (), on_stderr=files.is_stdout(json))
    return summary.exit_code


def _complain(summary: Summary) -> None:
    """What went wrong, a line for each model, on stderr."""
    from graphopt.cli import printable, store_traceback

    for outcome in summary.outcomes:
        if outcome.exit_code:
            where = (
                f"; please report it with the file {store_traceback(outcome.traceback)}" if outcome.traceback else ""
            )
            print(f"graphopt: {printable(f'{outcome.model}: {outcome.error}')}{where}", file=sys.stderr)


def _show(summary: Summary, changes: Sequence[Change], *, on_stderr: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    from graphopt.cli.tables import console, size
    from graphopt.tools.batch import mean_gain

    by_model = {change.model: change for change in changes}
    table = Table("model", box=None, pad_edge=False)
    columns = ("ops", "file", "modelled", *(("measured",) if any(o.measured for o in summary.outcomes) else ()))
    for name in (*columns, *(("since baseline",) if changes else ()), "seconds"):
        table.add_column(name, justify="right")
    table.add_column("")
    for o in summary.outcomes:
        row = [
            "" if o.ops_after is None else f"{o.ops_before} -> {o.ops_after}",
            "" if o.bytes_after is None else size(o.bytes_after),
            f"{o.cost_before / o.cost_after:.2f}x" if o.cost_before and o.cost_after else "",
        ]
        if "measured" in columns:
            row.append(f"{o.measured:.2f}x" if o.measured else "")
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
        f"{len(summary.outcomes)} models, {failed} failed"
        + (f"; modelled {mean:.2f}x in the geometric mean" if mean else "")
    )


def _since(change: Change | None) -> str:
    if change is None:
        return "new"
    ops = f", {change.ops:+d} ops" if change.ops else ""
    return f"{change.slower:+.1f} %{' measured' if change.is_measured else ''}{ops}"
