"""The application, and how commands are registered on it.

An option (its name, type, help and default) is declared once: where the command is, or for several commands in
``options``. A parameter of a command whose type is a dataclass of options becomes these options on the command line,
and they arrive as one object.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import typer

from graphopt.cli import EXIT_CODES
from graphopt.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])

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


def group(name: str, help: str, **options: Any) -> typer.Typer:
    """A group of commands, as ``graphopt rules``."""
    commands = typer.Typer(help=help, rich_markup_mode=None, epilog=EPILOG, **options)
    app.add_typer(commands, name=name)
    return commands


@dataclass(frozen=True)
class Default:
    """The value of an option that is not given, in the annotation that declares it; a command may have its own."""

    value: Any = None


class Without:
    """Options of a class that a command does not take, in the annotation of its parameter: they have their defaults."""

    def __init__(self, *names: str) -> None:
        self.names = names


def _path(text: str) -> Path:
    """A path that is given, which is not empty: ``Path("")`` is the current folder."""
    if not text:
        raise UsageError("a path is empty: name a file or folder")
    return Path(text)


def register(commands: typer.Typer, name: str | None = None) -> Callable[[Command], Command]:
    """Register a function as a command whose options are its parameters, and the fields of those that are classes."""

    def decorate(function: Command) -> Command:
        hints = get_type_hints(function, include_extras=True)
        defaults = {p.name: p.default for p in inspect.signature(function).parameters.values()}
        parameters = [p for key, default in defaults.items() for p in _parameters(key, hints[key], default)]

        @wraps(function)
        def command(**given: Any) -> Any:
            return function(**{key: _value(key, hints[key], default, given) for key, default in defaults.items()})

        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        commands.command(name, epilog=EPILOG)(command)
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
    return given[name] if name in given else _default(hint, default)


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
