"""``graphopt target`` and ``calibrate``: the targets there are, what one says, and prices measured on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli import count_of, names, values
from graphopt.cli.app import app, group, register
from graphopt.cli.options import Json, Models, Quiet
from graphopt.errors import UsageError

if TYPE_CHECKING:
    from graphopt.benchmark.calibrate import Calibration, CalibrationSummary

commands = group("target", "List, show and check targets.")


@register(
    commands,
    "list",
    examples=(
        "graphopt target list",
        "graphopt target list --json -",
        "graphopt optimize model.onnx --target tensorrt",
    ),
)
def list_targets(*, json: Json) -> None:
    """List the targets that come with graphopt: name, and what it is."""
    from graphopt.cli import results
    from graphopt.target import TARGETS

    listed = [results.ListedTarget(t.name, t.summary, t.makes_models) for t in TARGETS.values()]
    if results.written(json, listed):
        return
    width = max(map(len, TARGETS))
    for name, target in TARGETS.items():
        print(f"{name:<{width}}  {target.summary}")


@register(
    commands,
    "show",
    examples=(
        "graphopt target show ort",
        "graphopt target show webgpu --json -",
        "graphopt target show mine.toml",
    ),
)
def show_target(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE.toml", show_default=False, autocompletion=names.targets)],
    *,
    json: Json,
) -> None:
    """Print the ops of a target and its prices, each with its source."""
    from graphopt.cli import results
    from graphopt.target import target
    from graphopt.tools.targets import lines

    found = target(name)
    shown = tuple(lines(found))
    if results.written(json, results.ListedTarget(found.name, found.summary, found.makes_models, shown)):
        return
    for line in shown:
        print(line)


@register(
    commands,
    "check",
    examples=(
        "graphopt target check mine.toml",
        "graphopt target check graphopt/targets/webgpu.toml",
        "graphopt target check mine.toml --json -",
    ),
)
def check_target(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", show_default=False)],
    *,
    json: Json,
) -> None:
    """Check the file of a target: a line for each mistake, with the key and what was expected, and exit code 3."""
    from graphopt.cli import files, printable, results
    from graphopt.errors import ReadError
    from graphopt.tools.targets import mistakes

    files.check_written({"--json": json}, [file])
    lines = mistakes(file)
    is_told = results.written(json, results.CheckedTarget(str(file), tuple(lines)))
    for line in () if is_told else lines or [f"{file}: ok"]:
        print(printable(line))
    if lines:
        raise typer.Exit(ReadError.exit_code)


@register(
    app,
    "calibrate",
    examples=(
        "graphopt calibrate",
        "graphopt calibrate nets/ --target cpu --seconds 600",
        "graphopt calibrate --show",
    ),
)
def calibrate(
    *,
    models: Models,
    target: Annotated[
        str,
        typer.Option(
            metavar="ort|cpu|FILE.toml",
            help="Target whose prices are measured: one that runs here.",
            autocompletion=names.targets,
        ),
    ] = "ort",
    threads: Annotated[int, typer.Option(metavar="N", min=1, help="Threads of one op.")] = 1,
    seconds: Annotated[
        float | None, typer.Option(metavar="S", help="When to stop measuring; default: when done.", show_default=False)
    ] = None,
    database: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Database of measured times; default: the user's.", show_default=False),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Show measured times, and measure nothing.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Delete all measured times.")] = False,
    json: Json,
    quiet: Quiet,
) -> None:
    """Measure how long ops of models (default: common ops) take here, for the costs of optimize and compile."""
    from graphopt.benchmark.calibrate import calibrate as run
    from graphopt.benchmark.calibrate import clear as forget
    from graphopt.benchmark.calibrate import summary
    from graphopt.calibration.store import default_path
    from graphopt.cli import files, progress, results
    from graphopt.target import target as target_named
    from graphopt.tools.coverage import find_models

    values.number("--seconds", seconds, 0)
    path = database or default_path()
    files.check_written({"--json": json}, [path])
    if show and clear:
        raise UsageError("--show and --clear exclude each other")
    if clear:
        print(f"{forget(path)} times deleted: {path}")
        return
    if show:
        found = summary(path)
        if not results.written(json, found):
            _show(found)
        return
    paths = find_models(models or ())
    if models and not paths:
        raise UsageError("no models: name ONNX files or folders that hold some, or none for a corpus of common ops")
    with progress.counted(quiet) as show_progress:
        done = run(paths, target_named(target), path, threads=threads, seconds=seconds, told=show_progress)
    if not results.written(json, done) and not quiet:
        _report(done, path)


def _report(done: Calibration, path: Path) -> None:
    print(f"machine    {done.setting.machine}")
    print(f"runtime    {done.setting.runtime}, {count_of(done.setting.threads, 'thread')}")
    print(
        f"workloads  {done.measured} measured, {done.known} measured before, {done.refused} not measurable"
        + (f", {done.left} not measured in time" if done.left else "")
    )
    for label, quality in (("default prices", done.before), ("fitted prices", done.after)):
        print(f"{label}: {_words(quality)}")
    print(f"kept in    {path}")


def _words(quality: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in quality.items()) or "too few to tell"


def _show(summary: CalibrationSummary) -> None:
    from rich.table import Table

    from graphopt.cli.console import console
    from graphopt.display import duration

    out = console()
    out.print(f"{summary.path}", markup=False)
    for part in summary.parts:
        s = part.setting
        out.print(f"\n{s.machine}\n{s.runtime}, {count_of(s.threads, 'thread')}", markup=False)
        table = Table("op", "measured", "not measurable", "fastest", "slowest", "spread")
        for row in part.rows:
            cells = (duration(row.fastest), duration(row.slowest), f"{row.spread:.0%}")
            table.add_row(row.op, str(row.measured), str(row.refused or ""), *(cells if row.measured else ("", "", "")))
        out.print(table)
        for target, quality in part.fits.items():
            before = {n.removeprefix("before: "): v for n, v in quality.items() if n.startswith("before: ")}
            after = {n: v for n, v in quality.items() if not n.startswith("before: ")}
            out.print(f"default prices of {target}: {_words(before)}", markup=False)
            out.print(f"fitted prices of {target}: {_words(after)}", markup=False)
    if not summary.parts:
        out.print("no times yet: run graphopt calibrate")
