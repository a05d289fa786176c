"""``graphopt rules prove``: for which numbers and shapes the two sides of a rule are the same, by proof."""

from __future__ import annotations

from typing import Annotated

import typer

from graphopt.cli.app import EPILOG, rules_app
from graphopt.cli.options import Rules
from graphopt.errors import RuleError


@rules_app.command("prove", epilog=EPILOG)
def prove_rules(
    what: Rules = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update", help="Keep the evidence with the standard rules; what changed is proved, and what is named."
        ),
    ] = False,
    timeout: Annotated[float, typer.Option(metavar="S", help="Seconds for each question to the solver.")] = 4.0,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Take what earlier checks found, and evidence that is there.")
    ] = True,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print only what is wrong, and the figures.")] = False,
) -> None:
    """Prove rules: over IEEE floats and machine integers, over the reals, or for all tensors of small shapes.

    Prints the strongest evidence for each rule, and a small model with inputs where one is refuted.
    """
    from graphopt.cli import files
    from graphopt.proof import evidence, prove
    from graphopt.rewrite.checking.check import check_rule, chosen
    from graphopt.rewrite.checking.verdicts import Verdicts
    from graphopt.rewrite.rule.rule import Rule
    from graphopt.rewrite.rule.rule_digest import content
    from graphopt.rewrite.ruleset import standard, standard_folder

    rules = list(standard().rules) if update else chosen(what or ())
    known = dict(evidence.kept()) if cache and (update or not what) else {}
    for rule in chosen(what) if what else ():
        known.pop(content(rule), None)  # who is named is proved again
    check = Verdicts().check if cache else check_rule
    found: list[tuple[Rule, evidence.Evidence | None]] = []
    wrong = 0
    for rule in rules:
        kept = known.get(content(rule))
        made = prove.Finding(rule, kept) if kept else prove.find_evidence(rule, int(1000 * timeout), check)
        found.append((rule, made.evidence))
        if made.evidence is None:
            wrong += 1
            print(f"{rule.source}: {rule.name}: {rule.soundness.value}, refuted\n{made.counterexample}", flush=True)
        elif not quiet:
            why = f" ({made.why})" if made.why else ""
            print(f"{rule.source}: {rule.name}: {rule.soundness.value}, {made.evidence}{why}", flush=True)
        if update and (not kept or rule is rules[-1]):  # as it goes, so that what was found is not lost
            files.write_text(standard_folder() / evidence.FILE, evidence.written(found))
    print(prove.figures(found))
    if wrong:
        raise RuleError(f"{wrong} rules are refuted: mend their guards or their classes")
