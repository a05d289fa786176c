"""``graphopt target``: the targets there are, what one says, and whether a file is one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphopt.cli import names
from graphopt.cli.app import EPILOG, app

target_app = typer.Typer(help="List, show and check targets.", rich_markup_mode=None, epilog=EPILOG)
app.add_typer(target_app, name="target")


@target_app.command("list", epilog=EPILOG)
def list_targets() -> None:
    """List the targets that come with graphopt: name, and what it is."""
    from graphopt.target import TARGETS

    width = max(map(len, TARGETS))
    for name, target in TARGETS.items():
        print(f"{name:<{width}}  {target.summary}")


@target_app.command("show", epilog=EPILOG)
def show_target(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE.toml", show_default=False, autocompletion=names.targets)],
) -> None:
    """Print what a target takes and what its work costs, each price with where it comes from."""
    from graphopt.target import target
    from graphopt.tools.targets import lines

    for line in lines(target(name)):
        print(line)


@target_app.command("check", epilog=EPILOG)
def check_target(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", show_default=False)],
) -> None:
    """Check the file of a target: a line for each mistake, with the key and what was expected, and exit code 3."""
    from graphopt.cli import printable
    from graphopt.errors import ReadError
    from graphopt.tools.targets import mistakes

    found = mistakes(file)
    for line in found:
        print(printable(line))
    if found:
        raise typer.Exit(ReadError.exit_code)
    print(f"{file}: ok")
