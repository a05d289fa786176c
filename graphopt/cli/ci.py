"""``graphopt ci``: the models of a recipe, optimized and checked, with one table and one exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphopt.cli.app import app, register
from graphopt.cli.options import Executor, Quiet

RECIPE = Path("graphopt.toml")


@register(
    app,
    examples=(
        "graphopt ci",
        "graphopt ci graphopt.toml --junit results.xml",
        "graphopt ci graphopt.toml --json - --fresh",
    ),
)
def ci(
    recipe: Annotated[Path, typer.Argument(metavar="[RECIPE.toml]", help="Which models, options and checks.")] = RECIPE,
    *,
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE.xml", help="Write the outcome of each model as JUnit's XML.", show_default=False),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the summary as JSON (- is stdout).", show_default=False)
    ] = None,
    executor: Executor,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do all anew; keep no results of earlier runs.")] = False,
    quiet: Quiet,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print each step.")] = False,
) -> int:
    """Optimize the models of a recipe, check what it asks of the results, and print a table.

    Each result has a journal and a certificate beside it. Results of an earlier run are kept as long as all that they
    rest on is the same.
    """
    from graphopt.cli import batch, files
    from graphopt.tools.batch import optimize_all
    from graphopt.tools.kept_results import KeptResults
    from graphopt.tools.recipe import read_recipe

    read = read_recipe(recipe)
    files.check_written({"--junit": junit, "--json": json}, [recipe, *(job.model for job in read.jobs)])
    kept = KeptResults(read.output, read.rests_on(), fresh)
    with batch.running(read.jobs, executor, quiet, verbose) as (run, runs):
        targets = ", ".join(dict.fromkeys(str(job.options["target"]) for job in read.jobs))
        summary = optimize_all(read.jobs, run, targets, runs=runs, checked=read.check, kept=kept)
    if junit is not None:
        files.write_or_print(junit, summary.to_junit(read.name))
    if json is not None:
        files.write_or_print(json, summary.to_json())
    batch.report(summary, quiet)
    return summary.exit_code
