"""``graphopt rules try``: why a rule applies at a node, or does not, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli import names
from graphopt.cli.app import EPILOG, rules_app
from graphopt.cli.options import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphopt.rewrite.checking.explain_match import Asked, Trial


@rules_app.command("try", epilog=EPILOG)
def try_rule(
    rule: Annotated[
        str,
        typer.Argument(
            metavar="RULE|FILE",
            help="A rule or family, or a rule file.",
            show_default=False,
            autocompletion=names.rules,
        ),
    ],
    model: Model,
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE",
            help="A node by its name, or that of a value it makes.",
            show_default=False,
            autocompletion=names.nodes,
        ),
    ],
) -> None:
    """Try a rule at one node of a model as it is read: operands that do not fit, and every guard with its values."""
    from graphopt.rewrite.checking.check import chosen
    from graphopt.rewrite.checking.explain_match import attempt_in

    for trial in attempt_in(model, chosen([rule]), node):
        print(*_lines(trial), sep="\n")


def _lines(trial: Trial) -> Iterator[str]:
    applies = any(found.applies for found in trial.attempts)
    yield f"{trial.rule.name}: {'applies' if applies else 'does not apply'}"
    for depth, reason in trial.misfits:
        yield f"  {'  ' * depth}no  {reason}"
    for number, found in enumerate(trial.attempts, 1):
        yield f"  match {number}: " + ", ".join(f"{name} = {bound}" for name, bound in found.bindings)
        for asked in found.guards:
            yield f"    {_line(asked)}"
        if found.applies:
            yield "    the right side fits"
        elif found.refused:
            yield f"    no  the right side does not fit: {found.refused}"


def _line(asked: Asked) -> str:
    verdict = f"no  {asked.guard}: {asked.reason}" if asked.reason else f"yes {asked.guard}"
    values = [f"{text} = {value}" for text, value in asked.values if text != asked.guard]
    return f"{verdict}  ({'; '.join(values)})" if values else verdict
