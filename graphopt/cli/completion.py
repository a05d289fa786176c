"""``graphopt completion``: the script by which a shell asks the command line what may come next."""

from __future__ import annotations

from typing import Annotated

import typer

from graphopt.cli import COMPLETE, names
from graphopt.cli.app import EPILOG, app
from graphopt.errors import UsageError


@app.command("completion", epilog=EPILOG)
def completion(
    shell: Annotated[
        str,
        typer.Argument(
            metavar="|".join(names.SHELLS), help="The shell.", show_default=False, autocompletion=names.shells
        ),
    ],
) -> None:
    """Print what makes a shell complete commands, options and names: eval "$(graphopt completion bash)" in ~/.bashrc,
    the same with zsh in ~/.zshrc, and `graphopt completion fish | source` in config.fish."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    if shell not in names.SHELLS:
        raise UsageError(f"there is no completion for {shell!r}: expected {', '.join(names.SHELLS)}")
    print(f"# {names.SHELLS[shell]}")
    print(get_completion_script(prog_name="graphopt", complete_var=COMPLETE, shell=shell))
