"""The page of all commands, made from the command line itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import typer.main

from graphopt.cli import EXIT_CODES
from graphopt.cli.commands import app

HEAD = """\
# The command line

Commands with their arguments and options, made from `graphopt COMMAND --help` (`python -m docs.generators`), which
prints the ranges of numbers, too. Defaults are in brackets. Results go to stdout; progress, warnings and errors to
stderr. Colours are for terminals, or where `FORCE_COLOR` is set, unless `NO_COLOR` is.

`graphopt` alone prints help. As a model, `-` is stdin, and is called so in tables, pages and journals; as `-o` of what
writes a model, it is stdout, and all else goes to stderr (`graphopt optimize - < in.onnx > out.onnx`), as for pages
(`--report -`, `--html -`) and JUnit's XML. `--json FILE` (`-` is stdout) writes a result as JSON:
[schemas.json](schemas.json) has the JSON schema of each command's; later versions may add fields.

## Exit codes

| code | meaning |
|---|---|
"""

SHARED = """\
## Arguments and options of several commands

A command's section names the ones that it takes.

"""

TYPE = r" <[^<>]*>$"
"""What stands behind an argument that has a word of its own for what it is."""
NOTES = r"\s*\[(?:required|default: (?P<default>[^];]*)(?:; [^]]*)?|[^]]*<=[^]]*|[^]]*>=[^]]*)\]$"
"""What typer writes behind a help text: whether a value is required, its default, its range."""


@dataclass(frozen=True)
class Parameter:
    """An argument or option as a command declares it."""

    declared: str
    told: str
    is_option: bool

    @property
    def meaning(self) -> str:
        """What it means in every command that has it."""
        return re.sub(NOTES, "", self.told)

    @property
    def option(self) -> str:
        """The long name."""
        return self.declared.split(", ")[-1].split(" ")[0]

    @property
    def default(self) -> str:
        """What a command's section says behind the name of one that several have."""
        found = re.search(NOTES, self.told)
        default = found["default"] if found else None
        return f" ({default})" if default else " (required)" if "[required]" in self.told else ""


@dataclass(frozen=True)
class Command:
    """A command with its help text, its line of usage and its parameters."""

    name: str
    help: str
    usage: str
    parameters: tuple[Parameter, ...]
    examples: tuple[str, ...] = ()


def page() -> str:
    """The page in Markdown."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    commands = list(_commands(typer.main.get_command(app), "graphopt"))
    shared = _shared(p for command in commands for p in command.parameters)
    sections = (_section(command, shared) for command in commands)
    return "\n".join([HEAD + codes, SHARED + _list(shared.items()), *sections])


def _shared(parameters: Iterable[Parameter]) -> dict[str, str]:
    """What several commands declare alike, with the meaning that it has in most of them."""
    found = list(parameters)
    uses = Counter((p.declared, p.meaning) for p in found)
    return {
        p.declared: meaning for p in found for meaning in [_most(p.declared, uses)] if uses[p.declared, meaning] > 1
    }


def _most(declared: str, uses: Counter[tuple[str, str]]) -> str:
    return max((key for key in uses if key[0] == declared), key=lambda key: uses[key])[1]


def _commands(command: Any, name: str) -> Iterator[Command]:
    """A command, or each command below it that is not hidden."""
    if getattr(command, "hidden", False):
        return
    below = getattr(command, "commands", {})
    context = command.make_context(name, [], resilient_parsing=True)
    context.info_name = name
    if not below:
        parameters = [
            Parameter(re.sub(TYPE, "", record[0]), record[1], parameter.param_type_name == "option")
            for parameter in command.get_params(context)
            if (record := parameter.get_help_record(context)) and "--help" not in parameter.opts
        ]
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        yield Command(name, command.help or "", usage, tuple(parameters), command.examples)
    for inner in below.values():
        yield from _commands(inner, f"{name} {inner.name}")


def _section(command: Command, shared: Mapping[str, str]) -> str:
    own, also = list[tuple[str, str]](), list[str]()
    options = Counter(declared.split(", ")[-1].split(" ")[0] for declared in shared)
    for p in command.parameters:
        if shared.get(p.declared) != p.meaning:
            own.append((p.declared, p.meaning + p.default if p.is_option else p.meaning))
        elif p.is_option:
            also.append(f"`{p.option if options[p.option] == 1 else p.declared}`{p.default}")
    arguments = command.usage.removeprefix(command.name).replace("[OPTIONS]", "").strip()
    arguments = re.sub(r"\{([^{}|]*)\}", r"\1", arguments)
    takes = f" Takes `{arguments}`." if arguments else ""
    parts = [f"## {command.name}", f"{_prose(command.help)}{takes}"]
    told = [(declared, meaning) for declared, meaning in own if meaning]
    parts += [_list(told).rstrip()] if told else []
    parts += [f"[Also](#arguments-and-options-of-several-commands) {', '.join(also)}."] if also else []
    parts += ["\n".join(["```sh", *command.examples, "```"])]
    return "\n\n".join(parts) + "\n"


def _list(records: Iterable[tuple[str, str]]) -> str:
    return "".join(f"* `{declared}`: {_prose(told)}\n" for declared, told in records)


def _prose(text: str) -> str:
    """A text in which words in capitals, options and patterns stay as they are written."""
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"[<>*_]", lambda found: "\\" + found[0], text)
