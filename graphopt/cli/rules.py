"""``graphopt rules``: rules listed, shown, checked, tried, proved and written."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli import count_of, names, values
from graphopt.cli.app import group, register
from graphopt.cli.options import Json, Model, Models, NoProgress, Repeated, Rules, written
from graphopt.errors import LimitError, RuleError, UsageError, VerificationError

if TYPE_CHECKING:
    from graphopt.cli.results import ListedRule, TriedRule
    from graphopt.rewrite.checking.explain_match import GuardResult, Trial
    from graphopt.rewrite.rule.rule import Rule
    from graphopt.rewrite.ruleset import Ruleset
    from graphopt.tools.coverage import Coverage

commands = group("rules", "List, show, check and try rules.")


@register(
    commands,
    "list",
    examples=(
        "graphopt rules list",
        "graphopt rules list | grep Conv",
        "graphopt rules list --json -",
    ),
)
def list_rules(*, json: Json) -> None:
    """List the standard rules and native passes, and the rules of installed packages: name, family, class, evidence,
    stage, where from, reason."""
    from graphopt.cli import results, tables
    from graphopt.rewrite.reading.modules import names_of, packages, rules_of_package
    from graphopt.rewrite.ruleset import Ruleset, standard

    listed = _listed(standard(), origin="graphopt")
    for entry in packages():
        try:
            listed += _listed(Ruleset(tuple(rules_of_package(entry))), origin=names_of(entry)[0])
        except RuleError as error:  # of one package, which is no reason to list no others
            tables.show_warnings([str(error)])
    if not results.written(json, listed):
        tables.show_rules(listed)


def _listed(rules: Ruleset, with_text: bool = False, origin: str = "") -> list[ListedRule]:
    """Native passes and rules of a package, the latter with their text where that is wanted."""
    from graphopt.cli.results import ListedRule
    from graphopt.rewrite.rule.notation import show_rule
    from graphopt.run.kept_evidence import evidence_of
    from graphopt.tools.catalogue import catalogue, ids

    def families(named: str) -> str:
        return ", ".join(f"{id} {catalogue()[id].name}" for id in ids(named))

    passes = [
        ListedRule(p.name, families(p.family), p.soundness.value, "tested", "native", origin, p.reason)
        for p in rules.passes
    ]
    found = [(rule, evidence_of(rule)) for rule in rules.rules]
    return passes + [
        ListedRule(
            rule.name,
            families(rule.family),
            rule.soundness.value,
            "none" if evidence is None else evidence.brief,
            rule.stage.value,
            ": ".join(filter(None, ("" if origin == "graphopt" else origin, rule.source))),
            rule.reason,
            show_rule(rule) if with_text else None,
        )
        for rule, evidence in found
    ]


@register(
    commands,
    "show",
    examples=(
        "graphopt rules show hard-swish",
        "graphopt rules show H8",
        "graphopt rules show constant-folding",
    ),
)
def show_rules(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", show_default=False, autocompletion=names.rules)],
    *,
    json: Json,
) -> None:
    """Print a rule, all rules of a family, or those of Python or a package, as rule files write them, with the meaning
    of their families."""
    from graphopt.cli import results
    from graphopt.rewrite.checking.check import chosen
    from graphopt.rewrite.rule.notation import show_rule
    from graphopt.rewrite.ruleset import Ruleset, standard
    from graphopt.run.kept_evidence import evidence_of
    from graphopt.tools.catalogue import catalogue, ids

    selected = standard().named(name) if standard().has(name) else Ruleset(tuple(chosen([name])))
    if results.written(json, _listed(selected, with_text=True)):
        return
    named = [name, *(p.family for p in selected.passes), *(r.family for r in selected.rules)]
    for id in dict.fromkeys(id for families in named for id in ids(families) if id in catalogue()):
        print(f"# {id} {catalogue()[id].name}: {catalogue()[id].meaning}")
    print()
    for item in selected.passes:
        print(f"# {item.reason}  [{item.family}] {item.soundness.value} always\n{item.name}: a native pass\n")
    for rule in selected.rules:
        evidence = evidence_of(rule)
        why = f"; no proof: {evidence.why}" if evidence is not None and evidence.why else ""
        print(f"{show_rule(rule)}# evidence: {evidence or 'none yet'}{why}\n")


@register(
    commands,
    "coverage",
    examples=(
        "graphopt rules coverage nets/",
        "graphopt rules coverage model.onnx --target ort",
        "graphopt rules coverage --suite --json coverage.json",
    ),
)
def coverage(
    *,
    models: Models,
    suite: Annotated[bool, typer.Option("--suite", help="ONNX's own backend tests too, counted apart.")] = False,
    target: Annotated[
        Repeated | None,
        typer.Option(
            metavar=names.one_of(*names.target_names(makes_models=True), "FILE.toml"),
            help="For these targets only; repeatable; default: portable and ort.",
            show_default=False,
            autocompletion=names.model_targets,
        ),
    ] = None,
    json: Json,
    quiet: NoProgress,
) -> None:
    """Optimize models for both targets, and list which families of rewrites acted: by which rules, on which models."""
    from graphopt.cli import files, progress
    from graphopt.tools.coverage import cover, cover_suite, find_models, joined

    paths = find_models(models or ())
    if not paths and not suite:
        raise UsageError("no models: name ONNX files or folders that hold some, or say --suite")
    files.check_written({"--json": json}, paths)
    targets = tuple(target or ("portable", "ort"))
    with progress.counted(quiet) as show_progress:
        show_progress(len(paths))
        parts = [cover([(str(path), path) for path in paths], targets, told=show_progress)]
        if suite:
            parts.append(cover_suite(targets, told=show_progress))
    result = joined(parts)
    if json is not None:
        files.write_or_print(json, result.to_json())
    if not files.is_stdout(json):
        print(*_coverage_lines(result), sep="\n")


def _coverage_lines(covered: Coverage) -> list[str]:
    """The table: a line for each rule that acted on each model, then what is missing, then the sums."""
    from graphopt.tools.catalogue import catalogue

    rows = [("family", "name", "rule", "model", "target", "times", "sites")]
    for family in catalogue().values():
        for firing in covered.of(family.id):
            where = f"{firing.target} {firing.policy}" if firing.policy != "reals" else firing.target
            model = f"{firing.model} (suite)" if firing.in_suite else firing.model
            sites = ", ".join(firing.sites)
            rows.append((family.id, family.name, firing.rule, model, where, str(firing.count), sites))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = ["  ".join([*(t.ljust(w) for t, w in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows]
    lines.append("")
    lines += [f"done apart: {id} {catalogue()[id].name}: {catalogue()[id].apart}" for id in covered.apart]
    for _, ids in groupby(covered.missing, lambda id: id[0]):
        lines.append("not covered: " + ", ".join(f"{id} {catalogue()[id].name}" for id in ids))
    lines += [f"failed: {name}: {why}" for name, why in covered.failed.items()]
    lines.append(
        f"{len(covered.on_models)} of {len(catalogue())} families on models, "
        f"{len(covered.on_suite)} more on ONNX's tests alone, {len(covered.apart)} done apart from rules, "
        f"{len(covered.missing)} not covered"
    )
    return lines


@register(
    commands,
    "check",
    examples=(
        "graphopt rules check mine.rules",
        "graphopt rules check mine.rules --deep",
        "graphopt rules check hard-swish --no-cache",
    ),
)
def check_rules(
    *,
    what: Rules,
    deep: Annotated[bool, typer.Option("--deep", help="Many more graphs and random inputs.")] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            min=0,
            help="Time limit of a rule, in seconds of processors; default: 1, with --deep none.",
            show_default=False,
        ),
    ] = None,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Reuse and keep results of checks.")] = True,
    json: Json,
) -> None:
    """Check that each rule can be read, that it fires, and that both its sides agree on random tensors.

    Results are kept by the rule's content. Stops at the first rule that is wrong. Says which rules there was no time to
    try on all graphs.
    """
    from dataclasses import replace
    from functools import partial
    from math import inf

    from graphopt.cli import files, results
    from graphopt.rewrite.checking.check import DEEP, QUICK, check_files, check_rule
    from graphopt.rewrite.checking.verdicts import Verdicts

    values.number("--seconds", seconds, 0)
    depth = DEEP if deep else QUICK
    depth = replace(depth, seconds=(inf if deep else 1.0) if seconds is None else seconds)
    verdicts = Verdicts() if cache else None
    check = partial(check_rule, depth=depth) if verdicts is None else partial(verdicts.check, depth=depth)
    files.check_written({"--json": json}, [Path(name) for name in what or ()])
    count, left_out = 0, 0
    checked = list[results.CheckedRule]()
    for report in check_files(what or (), check):
        count += 1
        left_out += not report.compared and report.is_late
        tried = f" as far as time allowed, on {count_of(report.compared, 'random input')}" if report.is_late else ""
        checked.append(results.CheckedRule(report.rule.name, str(report.rule.source), report.compared, report.is_late))
        if not files.is_stdout(json):
            print(f"{report.rule.source}: {report.rule.name} {'ok' if report.compared else 'left out'}{tried}")
    is_told = results.written(json, checked)
    if left_out:
        raise LimitError(
            f"there was no time to compare the sides of {count_of(left_out, 'rule')}: --seconds allows more"
        )
    cached = f", {verdicts.hits} of them before" if verdicts is not None and verdicts.hits else ""
    if not is_told:
        print(f"{count_of(count, 'rule')} checked{cached}")


@register(
    commands,
    "docs",
    examples=(
        "graphopt rules docs",
        "graphopt rules docs -o pages",
        "graphopt rules docs --output docs/rules",
    ),
)
def rules_docs(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where the pages go.")] = Path(
        "docs/rules"
    ),
) -> None:
    """Write a page for each rule file: what each rule does, why it pays, where it holds, which tools have it."""
    from graphopt.tools.documentation import write

    for path in write(output):
        print(path)


@register(
    commands,
    "fmt",
    examples=(
        "graphopt rules fmt mine.rules",
        "graphopt rules fmt mine.rules --check",
        "graphopt rules fmt rules/*.rules",
    ),
)
def format_files(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Rule files.", show_default=False)],
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 7 where a file would change.")
    ] = False,
) -> None:
    """Format rule files in place: only spaces and line breaks change. Prints the names of files that changed."""
    from graphopt.cli.files import write_text
    from graphopt.rewrite.reading.formatting import format_rules
    from graphopt.rewrite.ruleset import read_text

    changed = []
    for path in files:
        text = read_text(path)
        formatted = format_rules(text, str(path))
        if formatted != text:
            changed.append(path)
            print(path)
            if not check:
                write_text(path, formatted)
    if check and changed:
        raise RuleError(f"{len(changed)} of {len(files)} files would change: run graphopt rules fmt without --check")


@register(
    commands,
    "pair",
    examples=(
        "graphopt rules pair before.onnx after.onnx --soundness reals",
        "graphopt rules pair before.onnx after.onnx --soundness exact -o mine.rules",
        "graphopt rules pair before.onnx after.onnx --soundness reals --name my-rule --always",
    ),
)
def pair(
    left: Annotated[Path, typer.Argument(metavar="LEFT.onnx", help="The pattern.", show_default=False)],
    right: Annotated[Path, typer.Argument(metavar="RIGHT.onnx", help="The replacement.", show_default=False)],
    soundness: Annotated[
        str,
        typer.Option(
            metavar="exact|finite|reals|approx",
            help="In which sense the two are equal; rules check tests it.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the rule; default: LEFT.", show_default=False)
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why the rewrite pays off.", show_default=False)] = "",
    family: Annotated[
        str, typer.Option(metavar="H8", help="Its family (graphopt rules list).", show_default=False)
    ] = "",
    always: Annotated[bool, typer.Option("--always", help="Apply it wherever it matches, whatever it costs.")] = False,
    output: Annotated[Path | None, written("FILE.rules", "stdout")] = None,
) -> None:
    """Write two small models of the same inputs as a rule: what the first computes becomes the second."""
    from graphopt.cli import files
    from graphopt.rewrite.reading.formatting import format_rules
    from graphopt.rewrite.reading.pairs import rule_from_pair
    from graphopt.rewrite.reading.region import identifier
    from graphopt.rewrite.rule.notation import show_rule

    files.check_written({"-o": output}, [left, right])
    rule = rule_from_pair(
        left,
        right,
        name=name or identifier(left.stem),
        soundness=soundness,
        reason=reason or f"{right.stem} computes what {left.stem} does",
        family=family,
        always=always,
    )
    files.write_or_print(output, format_rules(show_rule(rule)))


@register(
    commands,
    "export",
    examples=(
        "graphopt rules export mine.rules -o pairs.onnx",
        "graphopt rules export H8 -o pairs.onnx",
        "graphopt rules export my_rules.py -o mine.rules",
    ),
)
def export_rules(
    *,
    what: Rules,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT.onnx|OUT.rules",
            help="Where to write: pairs of functions in a model, or the text of a file of rules.",
            show_default=False,
        ),
    ],
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print the sum only.")] = False,
) -> None:
    """Write rules as pairs of ONNX functions, or as text, such as those of Python or of such pairs.

    Which rules no functions can say is printed, with the reason. What only graphopt reads, such as guards, stands in
    the metadata of the functions.
    """
    from graphopt.cli import files
    from graphopt.rewrite.checking.check import chosen
    from graphopt.rewrite.reading.formatting import format_rules
    from graphopt.rewrite.reading.functions import UnwritableRule, functions_of, only_for_us, save_rules
    from graphopt.rewrite.rule.notation import show_rule
    from graphopt.rewrite.ruleset import MODEL, RULES

    if output.suffix not in (MODEL, RULES):
        raise UsageError(f"-o {output}: the name must end in {MODEL} or {RULES}")
    files.check_written({"-o": output}, [path for path in map(Path, what or ()) if path.is_file()])
    rules = chosen(what or ())
    if output.suffix == RULES:
        files.write_text(output, format_rules("\n".join(map(show_rule, rules))))
        print(f"{count_of(len(rules), 'rule')} written")
        return
    written, reasons = [], []
    for rule in rules:
        try:
            functions_of(rule)
            written.append(rule)
        except UnwritableRule as error:
            reasons.append(str(error))
    if not written:
        raise RuleError(f"no functions say these rules: {reasons[0]}{', and others' * (len(reasons) > 1)}")
    save_rules(written, output)
    for reason in () if quiet else reasons:
        print(f"left out: {reason}")
    guarded = [f"{rule.name}: only graphopt reads: {own}" for rule in written if (own := only_for_us(rule))]
    for line in () if quiet else guarded:
        print(line)
    print(f"{count_of(len(written), 'rule')} written, {len(guarded)} with guards in metadata; {len(reasons)} left out")


@register(
    commands,
    "prove",
    examples=(
        "graphopt rules prove mine.rules",
        "graphopt rules prove hard-swish --timeout 30",
        "graphopt rules prove --update",
    ),
)
def prove_rules(
    *,
    what: Rules,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Store evidence beside the rules, of yours in FILE.evidence.json; those that changed or are named are "
            "proved again.",
        ),
    ] = False,
    timeout: Annotated[float, typer.Option(metavar="S", help="Seconds for each question to the solver.")] = 4.0,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Reuse results of earlier checks and proofs.")
    ] = True,
    json: Json,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only what is wrong, and the figures.")] = False,
) -> None:
    """Prove rules: over IEEE floats and machine integers, over the reals, or for all tensors of small shapes.

    Prints the strongest evidence for each rule, and a small model with inputs where one is refuted.
    """
    from graphopt.cli import files, results
    from graphopt.proof import evidence, prove, solver
    from graphopt.rewrite.checking.check import check_rule, chosen
    from graphopt.rewrite.checking.verdicts import Verdicts
    from graphopt.rewrite.ruleset import standard, standard_folder
    from graphopt.run.kept_evidence import kept_in, kept_with

    files.check_written({"--json": json}, [Path(name) for name in what or ()])
    named = chosen(what or ())
    store, *others = {kept_with(rule) for rule in named}
    if update and (store is None or others):
        raise UsageError("--update keeps evidence beside the standard rules, or beside one file of rules: name that")
    is_standard = not others and store == standard_folder() / evidence.FILE
    rules = list(standard().rules) if update and is_standard else named
    there = {} if store is None else kept_in(store)
    is_of_solver = bool(there) and store is not None and evidence.solver_of(store) == solver.version()
    evidence_by_rule = dict(there) if cache and is_of_solver and (update or not what) else {}
    for rule in named if what and is_standard else ():
        evidence_by_rule.pop(evidence.key(rule), None)  # who is named is proved again
    check = Verdicts().check if cache else check_rule
    proved: list[tuple[Rule, evidence.Evidence | None]] = []
    findings = list[results.ProvedRule]()
    is_silent = files.is_stdout(json)
    wrong = 0
    for rule in rules:
        kept = evidence_by_rule.get(evidence.key(rule))
        finding = prove.ProofResult(rule, kept) if kept else prove.find_evidence(rule, int(1000 * timeout), check)
        proved.append((rule, finding.evidence))
        said = None if finding.evidence is None else str(finding.evidence)
        why = str(finding.counterexample) if said is None else finding.why
        findings.append(results.ProvedRule(rule.name, str(rule.source), rule.soundness.value, said, why, said is None))
        wrong += said is None
        if is_silent:
            pass
        elif said is None:
            print(f"{rule.source}: {rule.name}: {rule.soundness.value}, refuted\n{finding.counterexample}", flush=True)
        elif not quiet:
            why = f"; no proof: {finding.why}" if finding.why else ""
            print(f"{rule.source}: {rule.name}: {rule.soundness.value}, {finding.evidence}{why}", flush=True)
        if update and store is not None and (not kept or rule is rules[-1]):  # as it goes: an interrupt loses nothing
            left = [(r, there.get(evidence.key(r))) for r in rules[len(proved) :] if is_of_solver]
            files.write_text(store, evidence.written([*proved, *left], solver.version()))
    if not results.written(json, findings):
        print(prove.figures(proved))
    if wrong:
        raise RuleError(f"{count_of(wrong, 'rule')} refuted: mend guards or classes")


@register(
    commands,
    "try",
    examples=(
        "graphopt rules try hard-swish model.onnx NODE",
        "graphopt rules try H8 model.onnx NODE",
        "graphopt rules try mine.rules model.onnx NODE",
    ),
)
def try_rule(
    rule: Annotated[
        str,
        typer.Argument(
            metavar="RULE|FILE",
            help="A rule or family, a file of rules, or a module or package with some.",
            show_default=False,
            autocompletion=names.rules,
        ),
    ],
    model: Model,
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE",
            help="A node, by its name or that of one of its outputs.",
            show_default=False,
            autocompletion=names.nodes,
        ),
    ],
    *,
    json: Json,
) -> None:
    """Try a rule at one node of a model as it is read: operands that do not fit, every guard with its values, and
    whether both sides agree there on random inputs. Exits with 6 where they do not."""
    from graphopt.cli import files, results
    from graphopt.rewrite.checking.check import chosen
    from graphopt.rewrite.checking.explain_match import attempt_in

    files.check_written({"--json": json}, [model])
    trials = list(attempt_in(model, chosen([rule]), node))
    tried = [_tried(trial, _difference(trial, model, node)) for trial in trials]
    if not results.written(json, tried):
        for trial, told in zip(trials, tried, strict=True):
            print(*_trial_lines(trial, told.difference), sep="\n")
    if wrong := [told for told in tried if told.difference]:
        raise VerificationError(f"{wrong[0].rule} at {node}: {wrong[0].difference}")


def _difference(trial: Trial, model: Path, node: str) -> str | None:
    """How the sides of a rule differ at a node on random inputs; empty where they agree, None where it does not act."""
    from graphopt.ir.onnx_io import load
    from graphopt.rewrite.checking.explain_match import find_node
    from graphopt.run.reproducer import difference_at
    from graphopt.run.write_result import mismatch
    from graphopt.verify.verification import Demands

    if not any(attempt.applies for attempt in trial.attempts):
        return None
    graph = load(model)
    found = find_node(graph, node)
    differ = partial(mismatch, verify=1, demands=Demands(trial.rule.soundness.value))
    return None if found is None else difference_at(trial.rule, graph, found.id, differ)


def _tried(trial: Trial, difference: str | None) -> TriedRule:
    """What came of a rule at a node, as JSON has it."""
    from graphopt.cli.results import TriedGuard, TriedMatch, TriedRule

    matches = tuple(
        TriedMatch(a.bindings, tuple(TriedGuard(g.guard, g.reason, g.values) for g in a.guards), a.refused)
        for a in trial.attempts
    )
    applies = any(a.applies for a in trial.attempts)
    return TriedRule(trial.rule.name, applies, tuple(trial.misfits), matches, difference)


def _trial_lines(trial: Trial, difference: str | None) -> Iterator[str]:
    applies = any(attempt.applies for attempt in trial.attempts)
    yield f"{trial.rule.name}: {'applies' if applies else 'does not apply'}"
    for depth, reason in trial.misfits:
        yield f"  {'  ' * depth}no  {reason}"
    for number, attempt in enumerate(trial.attempts, 1):
        yield f"  match {number}: " + ", ".join(f"{name} = {bound}" for name, bound in attempt.bindings)
        for checked in attempt.guards:
            yield f"    {_line(checked)}"
        if attempt.applies:
            yield "    the right side fits"
        elif attempt.refused:
            yield f"    no  the right side does not fit: {attempt.refused}"
    if difference is not None:
        yield f"  both sides {'differ there' if difference else 'agree there'} on random inputs"


def _line(checked: GuardResult) -> str:
    verdict = f"no  {checked.guard}: {checked.reason}" if checked.reason else f"yes {checked.guard}"
    values = [f"{text} = {value}" for text, value in checked.values if text != checked.guard]
    return f"{verdict}  ({'; '.join(values)})" if values else verdict
