"""``graphopt rules docs``: the documentation of the standard rules, made from the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphopt.cli.app import EPILOG, rules_app


@rules_app.command("docs", epilog=EPILOG)
def rules_docs(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where the pages go.")] = Path(
        "docs/rules"
    ),
) -> None:
    """Write a page for each rule file: what each rule does, why it pays, where it is true, and who else has it."""
    from graphopt.tools.documentation import write

    for path in write(output):
        print(path)
