"""The application that commands are registered on."""

from __future__ import annotations

import typer

from graphopt.cli import EXIT_CODES

EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES.items())

app = typer.Typer(
    name="graphopt",
    help="Rewrite ONNX models into faster equal ones.",
    epilog=EPILOG,
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
rules_app = typer.Typer(help="List, show, check and try rules.", rich_markup_mode=None, epilog=EPILOG)
app.add_typer(rules_app, name="rules")
