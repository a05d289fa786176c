"""``graphopt db``: the database of tuned schedules, listed, shown, exchanged with other machines and pruned."""

from __future__ import annotations

import json as json_text
from collections import Counter
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphopt.cli.app import group, register
from graphopt.cli.options import Database, Json, Quiet
from graphopt.errors import UsageError

if TYPE_CHECKING:
    from graphopt.calibration.measured_file import Setting
    from graphopt.tuning.database import TunedWorkload
    from graphopt.tuning.record import Record
    from graphopt.tuning.workload import Workload

commands = group("db", "List, show and exchange what graphopt tune found.")

DIGITS = 12
"""Digits of a key that are printed: any that only one workload begins with name it."""


def place(database: Path | None) -> Path:
    """Where tuned schedules are."""
    from graphopt.calibration.schedule_tables import default_path

    return database or default_path()


@register(
    commands,
    "list",
    examples=(
        "graphopt db list",
        "graphopt db list --database tuned.sqlite",
        "graphopt db list --json -",
    ),
)
def list_workloads(*, database: Database, json: Json) -> None:
    """List what was tuned: how many schedules were measured, how many failed, and what the best one gains."""
    from graphopt.cli import files, results
    from graphopt.tuning.database import Records

    files.check_written({"--json": json}, [place(database)])
    with Records(place(database)) as records:
        workloads = records.known()
    if not results.written(json, [results.TunedSummary(**_told(tuned)) for tuned in workloads]):
        _list(sorted(workloads, key=lambda tuned: tuned.setting))


@register(
    commands,
    "show",
    examples=(
        "graphopt db show 1f03",
        "graphopt db show 1f03 --json -",
        "graphopt db show 1f03 --database tuned.sqlite",
    ),
)
def show_workload(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="The first digits of a workload's key.", show_default=False)
    ],
    *,
    database: Database,
    json: Json,
) -> None:
    """Print a workload's loops, its best schedule as Python, its time, and why others failed."""
    from graphopt.cli import files, results
    from graphopt.tuning.database import Records

    files.check_written({"--json": json}, [place(database)])
    with Records(place(database)) as records:
        matching = [tuned for tuned in records.known() if tuned.workload.key.startswith(key)]
        several = list(dict.fromkeys(tuned.workload for tuned in matching))
        if len(several) != 1:
            what = ", ".join(w.key[: DIGITS + len(key)] for w in several[:4])
            raise UsageError(
                f"{len(several)} workloads have keys that begin with {key} ({what}): give more digits"
                if several
                else f"{records.path}: no workload has a key that begins with {key!r}: graphopt db list has them"
            )
        histories = [records.history(tuned.workload, tuned.setting) for tuned in matching]
    pairs = list(zip(matching, histories, strict=True))
    about = tuple(results.TunedHistory(**_told(tuned), failures=_failures(history)) for tuned, history in pairs)
    if results.written(json, results.ShownWorkload(several[0].script, about)):
        return
    print(f"{several[0].script.rstrip()}\n# {_sizes(several[0]) or 'no open sizes'}; key {several[0].key}")
    for tuned, history in pairs:
        print(*_lines(tuned, history), sep="\n")


@register(
    commands,
    "merge",
    examples=(
        "graphopt db merge other.sqlite",
        "graphopt db merge other.sqlite --database tuned.sqlite",
        "graphopt db merge other.sqlite --quiet",
    ),
)
def merge(
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="Another database.", show_default=False)],
    *,
    database: Database,
    quiet: Quiet,
) -> None:
    """Add the records of another database; they are verified before they are used."""
    from graphopt.tuning.database import Records

    if not other.is_file():
        raise UsageError(f"{other}: there is no such file")
    with Records(place(database), write=True) as records:
        count = records.merge(other)
        if not quiet:
            print(f"{records.path}: {count} records taken from {other}")


@register(
    commands,
    "export",
    examples=(
        "graphopt db export -o tuned.jsonl",
        "graphopt db export -o tuned.jsonl --database tuned.sqlite",
        "graphopt db export -o tuned.jsonl --quiet",
    ),
)
def export(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="OUT.jsonl", show_default=False)],
    *,
    database: Database,
    quiet: Quiet,
) -> None:
    """Write all records as lines of JSON."""
    from graphopt.cli import files
    from graphopt.tuning.database import Records

    files.check_written({"-o": output}, [place(database)], piped=())
    with Records(place(database)) as records:
        count = records.export(output)
    if not quiet:
        print(f"{output}: {count} records")


@register(
    commands,
    "import",
    examples=(
        "graphopt db import tuned.jsonl",
        "graphopt db import tuned.jsonl --database tuned.sqlite",
        "graphopt db import tuned.jsonl --quiet",
    ),
)
def import_lines(
    lines: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="What db export wrote.", show_default=False)],
    *,
    database: Database,
    quiet: Quiet,
) -> None:
    """Add records that db export wrote, all or none; they are verified before they are used."""
    from graphopt.tuning.database import Records

    if not lines.is_file():
        raise UsageError(f"{lines}: there is no such file")
    with Records(place(database), write=True) as records:
        count = records.import_records(lines)
        if not quiet:
            print(f"{records.path}: {count} records taken from {lines}")


@register(
    commands,
    "prune",
    examples=(
        "graphopt db prune --stale",
        "graphopt db prune --failed --best 3",
        "graphopt db prune --stale --database tuned.sqlite",
    ),
)
def prune(
    *,
    stale: Annotated[bool, typer.Option("--stale", help="Records of versions that are not installed.")] = False,
    best: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="All but the N best records of each workload.", show_default=False),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Records of schedules that failed.")] = False,
    database: Database,
    quiet: Quiet,
) -> None:
    """Delete records."""
    from graphopt.calibration.schedule_tables import runtime
    from graphopt.tuning.database import Records

    if not (stale or failed or best is not None):
        raise UsageError("nothing says which records to delete: give --stale, --best N or --failed")
    with Records(place(database)) as records:
        count = records.prune(runtime=runtime() if stale else None, best=best, failed=failed)
        if not quiet:
            print(f"{records.path}: {count} records deleted")


def _told(tuned: TunedWorkload) -> dict[str, Any]:
    """What is known of a workload under a setting, as JSON has it."""
    from graphopt.cli.results import TunedBest

    best = tuned.best
    return {
        "key": tuned.workload.key,
        "types": tuned.types,
        "sizes": dict(tuned.workload.sizes),
        "machine": tuned.setting.machine,
        "runtime": tuned.setting.runtime,
        "threads": tuned.setting.threads,
        "measured": tuned.measured,
        "failed": tuned.failed,
        "best": None
        if best is None
        else TunedBest(
            median(best.outcome.seconds),
            median(best.outcome.beside),
            best.outcome.speedup,
            best.outcome.gain,
            json_text.loads(best.candidate.trace),
        ),
    }


def _failures(history: list[Record]) -> dict[str, int]:
    """How often each kind of problem came up, the most common first."""
    return dict(Counter(r.outcome.kind for r in history if r.outcome.problem).most_common())


def _list(workloads: list[TunedWorkload]) -> None:
    from rich.table import Table

    from graphopt.cli import printable
    from graphopt.cli.console import console, escape
    from graphopt.display import duration

    out = console()
    for setting, under_it in groupby(workloads, key=lambda tuned: tuned.setting):
        out.print(_setting(setting), markup=False)
        table = Table(
            "key", "workload", "sizes", "measured", "failed", "default", "best", "ratio", box=None, header_style="bold"
        )
        for k in under_it:
            times = ("", "", "")
            if k.best is not None:
                outcome = k.best.outcome
                times = (
                    duration(median(outcome.beside)),
                    duration(median(outcome.seconds)),
                    f"{outcome.speedup:.2f}x",
                )
            cells = (k.workload.key[:DIGITS], escape(printable(k.types)), escape(printable(_sizes(k.workload))))
            table.add_row(*cells, str(k.measured), str(k.failed or ""), *times)
        out.print(table)
    if not workloads:
        out.print("nothing yet: run graphopt tune")


def _lines(tuned: TunedWorkload, history: list[Record]) -> list[str]:
    from graphopt.display import duration
    from graphopt.lowering.schedule.trace import Trace

    unverified = sum(not r.verified for r in history)
    lines = ["", _setting(tuned.setting), f"measured   {tuned.measured}, {unverified} of them elsewhere"]
    if failures := _failures(history):
        lines.append("failed     " + ", ".join(f"{count} {kind}" for kind, count in failures.items()))
    if tuned.best is None:
        return [*lines, "best       the default schedule"]
    outcome = tuned.best.outcome
    spent = [duration(median(seconds)) for seconds in (outcome.seconds, outcome.beside)]
    lines.append(f"best       {spent[0]}, the default schedule {spent[1]}: {outcome.speedup:.2f} times as fast")
    return [*lines, "", str(Trace.from_json(tuned.best.candidate.trace)).rstrip()]


def _sizes(workload: Workload) -> str:
    return ", ".join(f"{name} = {size}" for name, size in workload.sizes)


def _setting(setting: Setting) -> str:
    from graphopt.cli import printable

    threads = f"{setting.threads} thread{'s' * (setting.threads > 1)}"
    return printable(f"{setting.machine}; {setting.runtime}, {threads}")
