"""``graphopt rules fmt``: rule files written in one way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphopt.cli.app import EPILOG, rules_app


@rules_app.command("fmt", epilog=EPILOG)
def format_files(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Rule files.", show_default=False)],
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 7 where a file would change.")
    ] = False,
) -> None:
    """Format rule files in place: what they say stays, comments too. Prints the names of files that changed."""
    from graphopt.cli.files import write_text
    from graphopt.errors import RuleError
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
