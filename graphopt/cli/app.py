"""The application, and how commands are registered on it.

An option (its name, type, help and default) is declared once: where the command is, or for several commands in
``options``. A parameter of a command whose type is a dataclass of options becomes these options on the command line,
and they arrive as one object.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial, wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from graphopt.cli import EXIT_CODES
from graphopt.errors import UsageError
from graphopt.frozen import dataclass

Command = TypeVar("Command", bound=Callable[..., Any])

EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES.items())
CODES_ELSEWHERE = "Exit codes are listed by: graphopt --help"

TASKS = {
    "Optimize": ("demo", "optimize", "ci", "convert", "extract", "calibrate"),
    "Understand": ("inspect", "explain", "egraph", "diff", "bisect", "revert", "certify", "reduce"),
    "Compile and run": ("run", "bench", "compile", "show", "tune", "db"),
    "Rules and targets": ("rules", "learn-rule", "target"),
    "Work with it": ("serve", "doctor", "completion"),
}
"""The commands by what they are for: the order of help."""
_SUMMARY = 200
"""Characters of a command's first sentence that the list of all commands shows."""


def _path(text: str) -> Path:
    """A path that is given, which is not empty: ``Path("")`` is the current folder."""
    if not text:
        raise UsageError("a path is empty: name a file or folder")
    return Path(text)


class Light:
    """A command, or group of them, of which typer converts such values alone as are given and no text or path: it does
    so by pydantic, whose import takes longer than that of the whole command line."""

    types: Mapping[str, Any] = {}
    """Those of its parameters."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, and the option for help."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if not isinstance(parameter.process_value, partial):
                kind = _plain(self.types.get(parameter.name))
                parameter.process_value = partial(_processed, parameter, parameter.process_value, kind)
        return parameters


class LightGroup(Light, TyperGroup):
    """A group of commands."""


class Root(LightGroup):
    """All commands, which help parts by task."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, by task."""
        by_task = [name for names in TASKS.values() for name in names]
        return sorted(super().list_commands(ctx), key=by_task.index)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each task, and what each does."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        width = max(map(len, found))
        for task, names in TASKS.items():
            lines = [(n.ljust(width), c.get_short_help_str(_SUMMARY)) for n in names if (c := found.get(n)) is not None]
            if lines:
                with formatter.section(task):
                    formatter.write_dl(lines)


class LightCommand(Light, TyperCommand):
    """A command."""


def _plain(hint: Any) -> Any:
    """A type without what it is annotated with, and without None."""
    kinds = [kind for kind in get_args(getattr(hint, "__origin__", hint)) if kind is not NoneType]
    is_union = isinstance(getattr(hint, "__origin__", hint), UnionType)
    return kinds[0] if is_union and len(kinds) == 1 else getattr(hint, "__origin__", hint)


def _processed(parameter: Any, process: Callable[[Any, Any], Any], kind: Any, context: Any, value: Any) -> Any:
    """The value of a parameter, by the function that processes it where it is more than a text, a path or a default."""
    is_list = parameter.multiple or parameter.nargs == -1
    if not value and not parameter.required and (value is None or is_list):
        value = () if is_list else None
    elif value and is_list and kind in (list[str], list[Path]):
        value = [_path(v) for v in value] if kind == list[Path] else list(value)
    elif kind is Path and isinstance(value, str):
        value = _path(value)
    elif kind is float and type(value) is int:
        value = float(value)
    elif type(value) not in (kind, bool):
        return process(context, value)
    return parameter.callback(context, parameter, value) if parameter.callback else value


app = typer.Typer(
    name="graphopt",
    cls=Root,
    help="Rewrite ONNX models into faster equal ones.",
    epilog=EPILOG,
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(is_given: bool) -> None:
    if is_given:
        import graphopt

        print(f"graphopt {graphopt.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Rewrite ONNX models into faster equal ones."""


def group(name: str, help: str, **options: Any) -> typer.Typer:
    """A group of commands, as ``graphopt rules``."""
    commands = typer.Typer(cls=LightGroup, help=help, rich_markup_mode=None, epilog=CODES_ELSEWHERE, **options)
    app.add_typer(commands, name=name)
    return commands


@dataclass(frozen=True)
class Default:
    """The value of an option that is not given, in the annotation that declares it; a command may have its own."""

    value: Any = None


class Piped:
    """Whether ``-`` is a model that comes from stdin, in the annotation of an argument."""


class Without:
    """Options of a class that a command does not take, in the annotation of its parameter: they have their defaults."""

    def __init__(self, *names: str) -> None:
        self.names = names


def register(
    commands: typer.Typer, name: str | None = None, examples: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """Register a function as a command whose options are its parameters, and the fields of those that are classes.

    ``examples`` are lines of a shell that help shows.
    """

    def decorate(function: Command) -> Command:
        hints = get_type_hints(function, include_extras=True)
        defaults = {p.name: p.default for p in inspect.signature(function).parameters.values()}
        parameters = [p for key, default in defaults.items() for p in _parameters(key, hints[key], default)]

        @wraps(function)
        def command(**given: Any) -> Any:
            return function(**{key: _value(key, hints[key], default, given) for key, default in defaults.items()})

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        kind = type("Command", (LightCommand,), {"types": command.__annotations__, "examples": tuple(examples)})
        shown = "\n".join(["\b\nExamples:", *(f"  {line}" for line in examples)])
        epilog = f"{shown}\n\n{CODES_ELSEWHERE}" if examples else CODES_ELSEWHERE
        commands.command(name, cls=kind, epilog=epilog)(command)
        return function

    return decorate


def _parameters(name: str, hint: Any, default: Any) -> Iterator[inspect.Parameter]:
    """What typer reads for a parameter of a command: itself, or the fields of its class."""
    if inner := _fields(hint):
        for field, (kind, usual) in inner.items():
            if field not in _left_out(hint):
                yield from _parameters(field, kind, usual)
    else:
        default = _default(hint, default)
        for mark in _marks(hint):
            if isinstance(mark, typer.models.ParameterInfo) and Path in _kinds(hint):
                mark.parser = _path
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _value(name: str, hint: Any, default: Any, given: Mapping[str, Any]) -> Any:
    """What a parameter of a command is, by what is given on the command line."""
    if inner := _fields(hint):
        there = {field: {} if field in _left_out(hint) else given for field in inner}
        kind = getattr(hint, "__origin__", hint)
        return kind(**{f: _value(f, type_, usual, there[f]) for f, (type_, usual) in inner.items()})
    value = given[name] if name in given else _default(hint, default)
    return _unpiped(value) if Piped in _marks(hint) else value


def _unpiped(value: Any) -> Any:
    """Paths with that of what comes from stdin in the place of ``-``."""
    from graphopt.cli.files import STDOUT, from_stdin

    if isinstance(value, Sequence):
        return [_unpiped(v) for v in value]
    return from_stdin() if value == STDOUT else value


def _default(hint: Any, default: Any) -> Any:
    """What an option is that is not given: what the command says, or else what the option's declaration does."""
    if default is not inspect.Parameter.empty:
        return default
    return next((mark.value for mark in _marks(hint) if isinstance(mark, Default)), default)


def _left_out(hint: Any) -> set[str]:
    return {name for mark in _marks(hint) if isinstance(mark, Without) for name in mark.names}


def _marks(hint: Any) -> tuple[Any, ...]:
    """What a type is annotated with."""
    return getattr(hint, "__metadata__", ())


def _kinds(hint: Any) -> set[Any]:
    """The types of which an annotated type is made."""
    return {hint}.union(*map(_kinds, get_args(hint)))


def _fields(hint: Any) -> Mapping[str, tuple[Any, Any]]:
    """The types and defaults of the fields of a class of options; nothing for any other type."""
    kind = getattr(hint, "__origin__", hint)
    return _fields_of(kind) if isinstance(kind, type) and is_dataclass(kind) else {}


@cache
def _fields_of(kind: type) -> Mapping[str, tuple[Any, Any]]:
    hints, empty = get_type_hints(kind, include_extras=True), inspect.Parameter.empty
    return {f.name: (hints[f.name], empty if f.default is MISSING else f.default) for f in fields(kind)}
