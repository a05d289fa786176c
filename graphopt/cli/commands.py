"""The commands: each reads its options, calls the one function that does the work, and prints what came back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graphopt.cli import names, values
from graphopt.cli.app import EPILOG, app, rules_app
from graphopt.cli.options import (
    Check,
    Dims,
    Fed,
    Model,
    PageFile,
    Policy,
    PrintAfter,
    PrintBetween,
    Quiet,
    Repeated,
    RuleFiles,
    Runtime,
    Shapes,
    Verify,
    written,
)
from graphopt.errors import UsageError, naming


def _version(asked: bool) -> None:
    if asked:
        import graphopt

        print(f"graphopt {graphopt.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Rewrite ONNX models into faster equal ones."""


@app.command(epilog=EPILOG)
def optimize(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL|FOLDER|PATTERN...",
            help="An ONNX file. Several, a folder or a quoted pattern ('nets/*.onnx') give one summary.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None, written("OUT.onnx|FOLDER", "MODEL.opt.onnx beside it; several models need a folder")
    ] = None,
    target: Runtime = "portable",
    opset: Annotated[int | None, typer.Option(metavar="N", help="Convert to this opset first.")] = None,
    rules: RuleFiles = None,
    only: Annotated[
        Repeated | None,
        typer.Option(
            metavar="FAMILY|RULE",
            help="Only these rules; repeatable.",
            show_default=False,
            autocompletion=names.rules,
        ),
    ] = None,
    without: Annotated[
        Repeated | None,
        typer.Option(
            metavar="FAMILY|RULE", help="Not these rules; repeatable.", show_default=False, autocompletion=names.rules
        ),
    ] = None,
    policy: Policy = "reals",
    freeze: Annotated[bool, typer.Option("--freeze", help="Fold initializers that callers could override.")] = False,
    shape: Shapes = None,
    dim: Dims = None,
    budget: Annotated[
        str | None, typer.Option(metavar="nodes=N,iters=N,seconds=S", help="Limits of exploration.", show_default=False)
    ] = None,
    verify: Verify = "1",
    input: Fed = None,
    costs: Annotated[
        str,
        typer.Option(
            metavar="auto|analytic|measured|FILE",
            help="Prices to choose by: the target's, those of graphopt calibrate, or measured ones if there are some.",
        ),
    ] = "auto",
    measure: Annotated[
        bool, typer.Option("--measure", help="Run results beside the original, and keep what is not slower.")
    ] = False,
    measure_seconds: Annotated[float, typer.Option(metavar="S", min=0, help="How long to measure.")] = 30,
    margin: Annotated[
        float, typer.Option(metavar="PERCENT", min=0, help="What a result may seem slower when measured: noise.")
    ] = 2,
    in_place: Annotated[bool, typer.Option("--in-place", help="Allow writing over MODEL itself.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do everything but write.")] = False,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where to write what was done, for explain and revert; default: OUT.journal.json beside it.",
            show_default=False,
        ),
    ] = None,
    no_journal: Annotated[bool, typer.Option("--no-journal", help="Do not write it.")] = False,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="Leave out of nodes' metadata which rewrite made them.")
    ] = False,
    json: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the report, or the summary, as JSON (- is stdout).", show_default=False
        ),
    ] = None,
    report: PageFile = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compare with the summary of an earlier run.", show_default=False),
    ] = None,
    fail_if_slower: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with 9 where a result is slower by more than this than in the baseline, or else its original.",
            show_default=False,
        ),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="List each rewrite: rule, site, before, after.")] = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="List each rule: matches tried, fired, kept, and the time that it took.")
    ] = False,
    print_after: PrintAfter = None,
    print_between: PrintBetween = False,
    quiet: Quiet = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Print each step and how often each rule acted.")
    ] = False,
) -> int:
    """Write an equivalent model that runs faster, and a table of what changed."""
    from graphopt.cli import batch, single
    from graphopt.rewrite.egraph.saturate import Budget

    values.number("--fail-if-slower", fail_if_slower)
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other")
    if journal and no_journal:
        raise UsageError("--journal and --no-journal exclude each other")
    how: dict[str, Any] = {
        "rules": rules or None,
        "only": only or (),
        "without": without or (),
        "target": target,
        "policy": policy,
        "opset": opset,
        "freeze": freeze,
        "shapes": values.shapes(shape or ()),
        "dims": values.dims(dim or ()),
        "budget": None if budget is None else Budget(**values.budget(budget)),
        "verify": values.draws(verify),
        "inputs": values.inputs(input or ()),
        "costs": costs,
        "measure": measure and measure_seconds,
        "margin": margin / 100,
        "signed": not unsigned,
    }
    if batch.is_asked(models, baseline, fail_if_slower):
        is_printing = {"--print-after": print_after, "--print-between": print_between}
        given = {**is_printing, "--explain": explain, "--stats": stats, "--journal": journal, "--report": report}
        if alone := [name for name, is_on in given.items() if is_on]:
            raise UsageError(f"{alone[0]} takes one model")
        return batch.optimize_several(
            batch.jobs(models, output, in_place),
            how,
            json=json,
            baseline=baseline,
            fail_if_slower=fail_if_slower,
            keeps_journals=not no_journal,
            dry_run=dry_run,
            quiet=quiet,
            verbose=verbose,
        )
    if printed := values.printed(print_after, print_between, "optimize"):
        how["steps"] = printed
    return single.optimize_one(
        models[0],
        how,
        single.Asked(json, report, dry_run, explain, stats, quiet, verbose),
        output=output,
        in_place=in_place,
        read=[*(rules or ()), *map(Path, how["inputs"].values())],
        journal=journal,
        keeps_journal=not no_journal,
    )


@app.command(epilog=EPILOG)
def inspect(
    model: Model,
    nodes: Annotated[
        bool, typer.Option("--nodes", help="List the nodes instead: number, op, name, and what they make.")
    ] = False,
) -> None:
    """Print what a model holds: ops, sizes, types, open dimensions, opsets."""
    from graphopt.cli import printable, tables
    from graphopt.tools.inspection import inspect as look
    from graphopt.tools.inspection import list_nodes

    if nodes:
        for line in list_nodes(model):
            print(printable(line))
        return
    tables.show_inspection(look(model))


@app.command(epilog=EPILOG)
def diff(
    a: Annotated[Path, typer.Argument(metavar="A.onnx", show_default=False)],
    b: Annotated[Path, typer.Argument(metavar="B.onnx", show_default=False)],
    verify: Verify = "1",
    input: Fed = None,
) -> None:
    """Compare two models: their structure, and their outputs on random inputs. Exits with 6 where outputs differ."""
    from graphopt.cli import tables
    from graphopt.tools.diff import diff as compare
    from graphopt.verify.verification import verify_as_asked

    tables.show_difference(compare(a, b))
    called = str(a), str(b)
    found = verify_as_asked(a, b, values.draws(verify), values.inputs(input or ()), called)
    tables.show_verification("outputs", found)


@app.command(epilog=EPILOG)
def reduce(
    model: Model,
    check: Check,
    output: Annotated[Path | None, written("OUT.onnx", "MODEL.reduced.onnx beside it")] = None,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds that CMD may take; more counts as another failure.")
    ] = 60,
    quiet: Quiet = False,
) -> None:
    """Find the smallest model on which CMD still fails with the same exit code."""
    from graphopt.cli import files, progress, tables
    from graphopt.tools.reduce import reduce_file

    values.number("--timeout", timeout, 0)
    place = output or model.with_name(f"{model.stem}.reduced.onnx")
    files.check_written({"-o": place}, [model])
    with progress.shown(quiet, False) as listener, naming(model):
        reduction = reduce_file(model, check, place, timeout=timeout, listener=listener)
    if not quiet:
        tables.show_reduction(reduction, place)


@rules_app.command("list", epilog=EPILOG)
def list_rules() -> None:
    """List the standard rules and native passes: name, family, class, evidence, stage, reason."""
    from graphopt.cli import tables
    from graphopt.rewrite.ruleset import standard

    tables.show_rules(standard())


@rules_app.command("show", epilog=EPILOG)
def show_rules(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, autocompletion=names.rules)],
) -> None:
    """Print a rule, or all rules of a family, as a rule file would write them, after what the families mean."""
    from graphopt.proof.evidence import evidence_of
    from graphopt.rewrite.rule.notation import show_rule
    from graphopt.rewrite.ruleset import standard
    from graphopt.tools.catalogue import catalogue, ids

    found = standard().named(name)
    named = [name, *(p.family for p in found.passes), *(r.family for r in found.rules)]
    for id in dict.fromkeys(id for families in named for id in ids(families) if id in catalogue()):
        print(f"# {id} {catalogue()[id].name}: {catalogue()[id].meaning}")
    print()
    for item in found.passes:
        print(f"# {item.reason}  [{item.family}] {item.soundness.value} always\n{item.name}: a native pass\n")
    for rule in found.rules:
        print(f"{show_rule(rule)}# evidence: {evidence_of(rule) or 'none yet'}\n")


__all__ = ["app"]

# commands with a file of their own define themselves on the app
from graphopt.cli import (  # noqa: E402, F401
    calibrate,
    completion,
    convert,
    coverage,
    database,
    doctor,
    extract,
    journal_commands,
    learn,
    programs,
    rules_check,
    rules_docs,
    rules_fmt,
    rules_pair,
    rules_prove,
    rules_try,
    serve,
    targets,
    tune,
)
