"""The page of all commands, made from the command line itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from graphopt.cli import EXIT_CODES
from graphopt.cli.commands import app

HEAD = """\
# The command line

Every command with its arguments and options, as `graphopt COMMAND --help` prints them. Results go to stdout, messages
to stderr. This page is generated: `python -m docs.generators` writes it.

## Exit codes

| code | meaning |
|---|---|
"""


TYPE = r" <[^<>]*>$"
"""What stands behind an argument that has a word of its own for what it is."""


def page() -> str:
    """The page in Markdown."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    return "\n".join([HEAD + codes, *_sections(typer.main.get_command(app), "graphopt")])


def _sections(command: Any, name: str) -> Iterator[str]:
    """A section for a command, and for each command below it that is not hidden."""
    if getattr(command, "hidden", False):
        return
    below = getattr(command, "commands", {})
    context = command.make_context(name, [], resilient_parsing=True)
    context.info_name = name
    if not below:
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        yield f"## {name}\n\n{_prose(command.help or '')}\n\n```text\n{usage}\n```\n"
        yield _table(
            [
                (re.sub(TYPE, "", record[0]), record[1])
                for parameter in command.get_params(context)
                if (record := parameter.get_help_record(context)) and "--help" not in parameter.opts
            ]
        )
    for inner in below.values():
        yield from _sections(inner, f"{name} {inner.name}")


def _table(records: list[tuple[str, str]]) -> str:
    rows = [f"| {_cell(f'`{declared}`')} | {_cell(_prose(told))} |" for declared, told in records]
    return "\n".join(["| | |", "|---|---|", *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _prose(text: str) -> str:
    """A text in which words in capitals, options and patterns stay as they are written."""
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"[<>*_]", lambda found: "\\" + found[0], text)
