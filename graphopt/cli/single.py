"""``graphopt optimize`` for one model: where it is written, what is written beside it, and the table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.errors import UsageError, naming

if TYPE_CHECKING:
    from graphopt.run.report import Report


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be told of a run: files to write of it, and what to print."""

    json: Path | None
    page: Path | None
    dry_run: bool
    explain: bool
    stats: bool
    quiet: bool
    verbose: bool


def optimize_one(
    model: Path,
    options: Mapping[str, Any],
    asked: Asked,
    *,
    output: Path | None,
    in_place: bool,
    read: Iterable[Path],
    journal: Path | None,
    keeps_journal: bool,
) -> int:
    """Optimize a model, write it and what was asked for of the run, and print what changed; 0 comes back.

    ``read`` are the files that are read beside the model, which nothing may be written over.
    """
    from graphopt.cli import files, progress
    from graphopt.optimize import optimize
    from graphopt.run.derivation import journal_path
    from graphopt.web.layered import check as check_pages

    written = output or (model if in_place else model.with_name(f"{model.stem}.opt.onnx"))
    is_replaced = _is_model(written, model)
    if is_replaced and not in_place:
        raise UsageError(f"{written} is the input itself: give another -o, or --in-place to write over it")
    kept_from = [*([] if is_replaced else [model]), *read]
    files.check_written({"-o": written}, kept_from)
    beside = journal or journal_path(written) if keeps_journal and not asked.dry_run else None
    files.check_written({"-o": written, "--json": asked.json, "--journal": beside, "--report": asked.page}, kept_from)
    if asked.page is not None:
        check_pages()
    with (
        tempfile.TemporaryDirectory(prefix="graphopt-") as scratch,
        progress.shown(asked.quiet, asked.verbose) as listener,
        naming(model),
    ):
        place = Path(scratch) / written.name if asked.dry_run else written
        _, done = optimize(model, output=place, journal=beside, return_report=True, listener=listener, **options)
    _tell(done, written, asked)
    return 0


def _tell(done: Report, written: Path, asked: Asked) -> None:
    """Write and print what was done."""
    from graphopt.cli import files, tables
    from graphopt.cli.statistics import show_statistics
    from graphopt.web.page import write_page
    from graphopt.web.runs import page_of_report

    if asked.json is not None:
        files.write_or_print(asked.json, done.to_json())
    if asked.page is not None:
        write_page(page_of_report(done), asked.page)
    if asked.quiet:
        if done.verification is not None and done.verification.reason:
            tables.show_warnings([f"{written} is {done.verification.status}: {done.verification.reason}"])
        return
    on_stderr = files.is_stdout(asked.json)
    tables.show_report(done, explain=asked.explain, verbose=asked.verbose, dry_run=asked.dry_run, on_stderr=on_stderr)
    if asked.stats:
        show_statistics(done, on_stderr=on_stderr)


def _is_model(output: Path, model: Path) -> bool:
    return output == model or (output.exists() and model.exists() and output.samefile(model))
