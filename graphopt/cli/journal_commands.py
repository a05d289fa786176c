"""``graphopt explain``, ``egraph``, ``bisect``, ``revert`` and ``certify``: commands that tell how a result came to be,
from its journal or its e-graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli import count_of, names, printable, values
from graphopt.cli.app import Piped, app, register
from graphopt.cli.options import (
    Check,
    Journal,
    Json,
    Model,
    NoProgress,
    Policy,
    Quiet,
    Repeated,
    RuleFiles,
    Runtime,
    Seconds,
    Verify,
    written,
)
from graphopt.errors import StoppedError, UsageError, naming

if TYPE_CHECKING:
    from graphopt.rewrite.match.journal import Entry


@register(
    app,
    examples=(
        "graphopt explain model.opt.onnx NODE",
        "graphopt explain model.onnx --rule hard-swish",
        "graphopt explain model.onnx --choices --target cpu",
    ),
)
def explain(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="An optimized model; with --rule, any.", show_default=False), Piped
    ],
    *,
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="[NODE]",
            help="A node, by its name or that of one of its outputs.",
            show_default=False,
            autocompletion=names.nodes,
        ),
    ] = None,
    rule: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where this rule fires, and why not elsewhere.")
    ] = None,
    choices: Annotated[
        bool,
        typer.Option("--choices", help="Layouts, libraries and fusions chosen for a program, and the alternatives."),
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(
            metavar=names.one_of(*names.target_names(), "FILE.toml"),
            help="What will run the model; default: portable, cpu for --choices.",
            show_default=False,
            autocompletion=names.targets,
        ),
    ] = None,
    policy: Policy,
    rules: RuleFiles,
    journal: Journal,
    json: Json,
) -> None:
    """Explain from which rewrites a node of an optimized model comes, where a rule fires and why not elsewhere, or what
    was chosen for a program among equal alternatives."""
    from graphopt.cli import files, results
    from graphopt.target import target as named

    files.check_written({"--json": json}, [model, *(rules or ()), *([journal] if journal else [])])
    if [node is not None, rule is not None, choices].count(True) != 1:
        raise UsageError(
            "say which node to explain, or which rule: graphopt explain OUT.onnx NODE, or --rule NAME; or --choices"
        )
    if choices:
        from graphopt.cli import tables
        from graphopt.tools.alternatives_report import choices as made

        found = made(model, named(target or "cpu"), policy)
        if not results.written(json, found):
            tables.show_choices(found)
        return
    from graphopt.tools import explanation

    if node is not None:
        origins = explanation.explain_node(model, node, journal)
        made_by = results.NodeOrigins(origins.node, origins.op, results.rewrites_of(origins.chain))
        if results.written(json, made_by):
            return
        if not origins.chain:
            print(f"{node} ({origins.op}) is as it was in the original")
        for entry in origins.chain:
            _print_entry(entry)
        return
    assert rule is not None
    explained = explanation.explain_rule(model, rule, rules or None, named(target or "portable"), policy)
    places = results.RulePlaces(
        explained.rule, results.rewrites_of(explained.fired), explained.misses, explained.places
    )
    if results.written(json, places):
        return
    of = f", of {explained.places} where its left side is" if explained.places > len(explained.fired) else ""
    print(f"{explained.rule}: acts at {count_of(len(explained.fired), 'place')}{of}")
    for entry in explained.fired:
        _print_entry(entry)
    for why, sites in sorted(explained.misses.items(), key=lambda item: (-len(item[1]), item[0])):
        shown = ", ".join(sites[:3]) + (", …" if len(sites) > 3 else "")
        print(printable(f"  not at {len(sites)}: {why}  ({shown})" if sites else f"  nowhere: {why}"))


@register(
    app,
    examples=(
        "graphopt egraph model.onnx",
        "graphopt egraph model.onnx --target ort --html egraph.html",
        "graphopt egraph model.onnx --json - | jq .",
    ),
)
def egraph(
    model: Model,
    *,
    target: Runtime,
    policy: Policy,
    rules: RuleFiles,
    budget: Annotated[
        str | None,
        typer.Option(metavar="nodes=N,iters=N,...", help="Limits of equality saturation.", show_default=False),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page to look around in.", show_default=False)
    ] = None,
    json: Json,
) -> None:
    """Show which equal terms the rules found for a model, what each costs, why the chosen one won, and what another
    would change."""
    from graphopt.calibration.table import priced
    from graphopt.cli import files, results, tables
    from graphopt.rewrite.egraph.saturate import SaturationBudget
    from graphopt.rewrite.ruleset import ruleset
    from graphopt.target import target as named
    from graphopt.tools.egraph import egraphs

    files.check_written({"--html": html, "--json": json}, [model, *(rules or ())])
    limits = None if budget is None else SaturationBudget(**values.budget(budget))
    for_target = priced(named(target)).target
    with naming(model):
        told = egraphs(model, ruleset(rules or None), for_target, policy, limits)
    if html is not None:
        from graphopt.web.runs import page_of_egraphs

        files.write_page(page_of_egraphs(str(model), for_target.name, policy, told), html)
    if not results.written(json, told):
        tables.show_egraphs(told)


@register(
    app,
    examples=(
        "graphopt bisect model.onnx --check 'python run.py'",
        "graphopt bisect model.onnx --check 'python run.py' --target ort",
        "graphopt bisect model.onnx --check './fails.sh {}' --timeout 300",
    ),
)
def bisect(
    model: Model,
    check: Check,
    *,
    target: Runtime,
    policy: Policy,
    rules: RuleFiles,
    timeout: Annotated[float, typer.Option(metavar="S", help="Seconds that CMD may take; more is a failure.")] = 60,
    seconds: Seconds,
    json: Json,
    quiet: NoProgress,
) -> None:
    """Find the single rewrite with which CMD begins to fail: it succeeds on MODEL with all rewrites before it."""
    from graphopt.cli import files, progress, results
    from graphopt.rewrite.ruleset import ruleset
    from graphopt.target import target as named
    from graphopt.tools import explanation

    values.number("--timeout", timeout, 0)
    values.number("--seconds", seconds, 0)
    files.check_written({"--json": json}, [model, *(rules or ())])
    with progress.shown(quiet, False) as listener:
        culprit = explanation.bisect(
            model,
            check,
            rules=ruleset(rules or None),
            target=named(target),
            policy=policy,
            timeout=timeout,
            seconds=seconds,
            listener=listener,
        )
    others = results.rewrites_of(culprit.others)
    (rewrite,) = results.rewrites_of([culprit.entry])
    is_silent = results.written(
        json, results.Bisection(rewrite, culprit.rewrites, culprit.tries, culprit.ending, others)
    )
    if culprit.ending:
        early = "when time was up" if culprit.ending == "time" else "when it was interrupted"
        if not is_silent:
            print(f"{early}, it was one of these {len(culprit.others) + 1} rewrites, of {culprit.rewrites}:")
        for entry in () if is_silent else (*culprit.others, culprit.entry):
            _print_entry(entry)
        if culprit.ending == "interrupted":
            raise StoppedError("interrupted; what was found until then is printed")
    if is_silent or culprit.ending:
        return
    tried = count_of(culprit.tries, "model")
    print(f"{check!r} begins to fail with this rewrite, one of {culprit.rewrites} (tried {tried}):")
    _print_entry(culprit.entry)
    given = "".join(
        f" --{name} {value}"
        for name, value, usual in (("target", target, "portable"), ("policy", policy, "reals"))
        if value != usual
    ) + "".join(f" --rules {file}" for file in rules or ())
    print(f"without this rule: graphopt optimize {model}{given} --without {culprit.entry.rule}")
    print(f"without this rewrite alone: graphopt revert {model} OUT.onnx {culprit.entry.id}")


@register(
    app,
    examples=(
        "graphopt revert model.onnx model.opt.onnx 12",
        "graphopt revert model.onnx model.opt.onnx hard-swish -o without.onnx",
        "graphopt revert model.onnx model.opt.onnx 3 7 --verify require",
    ),
)
def revert(
    model: Annotated[Path, typer.Argument(metavar="IN.onnx", help="The original.", show_default=False)],
    result: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="The optimized model.", show_default=False)],
    rewrites: Annotated[
        Repeated, typer.Argument(metavar="REWRITE...", help="Numbers (12), or names of rules.", show_default=False)
    ],
    *,
    output: Annotated[Path | None, written("NEW.onnx", "OUT.reverted.onnx")] = None,
    journal: Journal,
    verify: Verify,
    json: Json,
    quiet: Quiet,
) -> None:
    """Write the optimized model without some of its rewrites, and without what needed them."""
    from graphopt.cli import files, progress, results, tables
    from graphopt.run.derivation import journal_path
    from graphopt.tools import explanation

    path = output or files.beside(result, "reverted")
    files.check_written(
        {"-o": path, "its journal": journal_path(path), "--json": json},
        [model, result, *([journal] if journal else [])],
    )
    with files.delivered(path) as place:
        with progress.shown(quiet, False) as listener:
            reverted = explanation.revert(
                model, result, rewrites, place, journal=journal, verify=values.draws(verify), listener=listener
            )
        gone, lost = map(results.rewrites_of, (reverted.taken_back, reverted.lost))
        if not results.written(json, results.Reversion(str(path), gone, lost, reverted.verification)) and not quiet:
            count = count_of(len(reverted.taken_back), "rewrite")
            print(f"{path}: without {count}, and {len(reverted.lost)} more that needed them")
            for entry in (*reverted.taken_back, *reverted.lost):
                _print_entry(entry)
            tables.show_verification("outputs", reverted.verification)


@register(
    app,
    examples=(
        "graphopt certify model.onnx model.opt.onnx model.certificate",
        "graphopt certify model.onnx model.opt.onnx model.certificate --quiet",
        "graphopt optimize model.onnx --certificate model.certificate",
    ),
)
def certify(
    model: Annotated[Path, typer.Argument(metavar="IN.onnx", help="The original.", show_default=False)],
    result: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="The optimized model.", show_default=False)],
    certificate: Annotated[
        Path, typer.Argument(metavar="CERTIFICATE", help="What optimize --certificate wrote.", show_default=False)
    ],
    *,
    rules: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A file of rules of yours, whose evidence to believe (rules prove --update); repeatable.",
            show_default=False,
        ),
    ] = None,
    json: Json,
    quiet: Quiet,
) -> None:
    """Replay the journal in a certificate, compare both sides of each rewrite at its place, and print what the result
    rests on. Exits with 14 where it does not hold."""
    from graphopt.cli import files, progress, results, tables
    from graphopt.run.certificate import certify as check
    from graphopt.run.kept_evidence import kept_beside

    files.check_written({"--json": json}, [model, result, certificate, *(rules or ())])
    believed = [kept_beside(file) for file in rules or ()]
    for file in believed:
        if not file.is_file():
            raise UsageError(f"--rules: there is no {file}: graphopt rules prove --update writes it")
    with progress.shown(quiet, False):
        certified = check(model, result, certificate, believed)
    if not results.written(json, certified) and not quiet:
        tables.show_certified(certified)


def _print_entry(entry: Entry) -> None:
    family = f" [{entry.family}]" if entry.family else ""
    gain = f"  ({_microseconds(entry.gain)} modelled)" if entry.gain is not None else ""
    needs = f"  needs {' '.join(f'#{n}' for n in entry.needs)}" if entry.needs else ""
    print(f"#{entry.id} {entry.rule}{family} at {printable(entry.site) or 'the graph'}{gain}{needs}")
    if entry.before:
        print(f"    {printable(entry.before)}" + (f"\n    => {printable(entry.after)}" if entry.after else ""))


def _microseconds(gain: float) -> str:
    return f"{round(-gain * 1e6, 1) + 0.0:+.1f} µs"  # no -0.0
