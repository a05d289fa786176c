"""``graphopt rules check``: whether rules fire, and whether both their sides agree wherever they do."""

from __future__ import annotations

from typing import Annotated

import typer

from graphopt.cli.app import EPILOG, rules_app
from graphopt.cli.options import Rules


@rules_app.command("check", epilog=EPILOG)
def check_rules(
    what: Rules = None,
    deep: Annotated[bool, typer.Option("--deep", help="Many more graphs and draws.")] = False,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Take and keep what earlier checks found.")] = True,
) -> None:
    """Check that every rule reads, that it fires, and that both its sides agree on random tensors.

    Results are kept by the rule's content, so that a second run is quick. Stops at the first rule that is wrong.
    """
    from functools import partial

    from graphopt.rewrite.checking.check import DEEP, QUICK, check_files, check_rule
    from graphopt.rewrite.checking.verdicts import Verdicts

    depth = DEEP if deep else QUICK
    verdicts = Verdicts() if cache else None
    check = partial(check_rule, depth=depth) if verdicts is None else partial(verdicts.check, depth=depth)
    count = 0
    for rule in check_files(what or (), check):
        count += 1
        print(f"{rule.source}: {rule.name} ok")
    known = f", {verdicts.hits} of them before" if verdicts is not None and verdicts.hits else ""
    print(f"{count} rules checked{known}")
