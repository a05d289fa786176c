"""``graphopt rules coverage``: which families of rewrites act on some models."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli.app import EPILOG, rules_app
from graphopt.cli.options import Json, Models, NoProgress, Repeated
from graphopt.errors import UsageError

if TYPE_CHECKING:
    from graphopt.tools.coverage import Coverage


@rules_app.command("coverage", epilog=EPILOG)
def coverage(
    models: Models = None,
    suite: Annotated[bool, typer.Option("--suite", help="ONNX's own backend tests too, counted apart.")] = False,
    target: Annotated[
        Repeated | None,
        typer.Option(
            metavar="portable|ort|NAME|FILE.toml", help="For these targets only; repeatable.", show_default=False
        ),
    ] = None,
    json: Json = None,
    quiet: NoProgress = False,
) -> None:
    """Optimize models for both targets, and list which families of rewrites acted: by which rules, on which models."""
    from graphopt.cli import files, progress
    from graphopt.tools.coverage import cover, cover_suite, find_models, joined

    found = find_models(models or ())
    if not found and not suite:
        raise UsageError("no models: name ONNX files or folders that hold some, or say --suite")
    files.check_written({"--json": json}, found)
    targets = tuple(target or ("portable", "ort"))
    with progress.counted(quiet) as told:
        told(len(found))
        parts = [cover([(str(path), path) for path in found], targets, told=told)]
        if suite:
            parts.append(cover_suite(targets, told=told))
    result = joined(parts)
    if json is not None:
        files.write_or_print(json, result.to_json())
    if not files.is_stdout(json):
        print(*_lines(result), sep="\n")


def _lines(found: Coverage) -> list[str]:
    """The table: a line for each rule that acted on each model, then what is missing, then the sums."""
    from graphopt.tools.catalogue import catalogue

    rows = [("family", "name", "rule", "model", "target", "times", "sites")]
    for family in catalogue().values():
        for firing in found.of(family.id):
            where = f"{firing.target} {firing.policy}" if firing.policy != "reals" else firing.target
            model = f"{firing.model} (suite)" if firing.in_suite else firing.model
            sites = ", ".join(firing.sites)
            rows.append((family.id, family.name, firing.rule, model, where, str(firing.count), sites))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = ["  ".join([*(t.ljust(w) for t, w in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows]
    lines.append("")
    lines += [f"done apart: {id} {catalogue()[id].name}: {catalogue()[id].apart}" for id in found.apart]
    for _, ids in groupby(found.missing, lambda id: id[0]):
        lines.append("not covered: " + ", ".join(f"{id} {catalogue()[id].name}" for id in ids))
    lines += [f"failed: {name}: {why}" for name, why in found.failed.items()]
    lines.append(
        f"{len(found.on_models)} of {len(catalogue())} families on models, "
        f"{len(found.on_suite)} more on ONNX's tests alone, {len(found.apart)} done apart from rules, "
        f"{len(found.missing)} not covered"
    )
    return lines
