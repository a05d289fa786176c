"""``graphopt rules pair``: two small models as a rule."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphopt.cli.app import EPILOG, rules_app
from graphopt.cli.options import written


@rules_app.command("pair", epilog=EPILOG)
def pair(
    left: Annotated[Path, typer.Argument(metavar="LEFT.onnx", help="What is looked for.", show_default=False)],
    right: Annotated[Path, typer.Argument(metavar="RIGHT.onnx", help="What takes its place.", show_default=False)],
    soundness: Annotated[
        str,
        typer.Option(
            metavar="exact|finite|reals|approx", help="How the two are equal; rules check tries it.", show_default=False
        ),
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the rule is called; default: LEFT.", show_default=False)
    ] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why it pays.", show_default=False)] = "",
    family: Annotated[
        str, typer.Option(metavar="H8", help="Its family (graphopt rules list).", show_default=False)
    ] = "",
    always: Annotated[bool, typer.Option("--always", help="Apply it wherever it matches, whatever it costs.")] = False,
    output: Annotated[Path | None, written("FILE.rules", "stdout")] = None,
) -> None:
    """Write two small models of the same inputs as a rule: what the first computes becomes the second."""
    from graphopt.cli import files
    from graphopt.interop.pairs import rule_from_pair
    from graphopt.interop.region import identifier
    from graphopt.rewrite.reading.formatting import format_rules
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
