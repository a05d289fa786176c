"""Rules that Python makes: those of a file, of a module, and of installed packages that announce them.

A package announces its rules by an entry point of the group ``graphopt.rules``, which names a module, or a rule or
several in one. Nothing is run that a user did not name, but for the listing of all packages.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from graphopt.errors import GraphoptError, ReadError, RuleError
from graphopt.rewrite.reading.wellformed import check
from graphopt.rewrite.rule.rule import Rule

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

GROUP = "graphopt.rules"
"""The group of entry points by which packages announce rules."""
PYTHON = ".py"
"""How the name of a file of Python ends."""
_NO_USERS = tuple(
    str(folder) + os.sep for folder in (Path(__file__).resolve().parents[2], Path(importlib.__file__).parent)
)
"""Where no user's code is: graphopt, and what imports for it."""


def rules_of_file(path: Path, strict: bool = False) -> list[Rule]:
    """The rules that a file of Python defines, which is run, with the modules beside it to import.

    Raises ReadError where it cannot be read, and RuleError with file and line where it fails or defines no rule.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ReadError(f"{path}: cannot be read as a file of Python: {error.strerror}") from None
    module = ModuleType(path.stem)
    module.__file__ = str(path)

    def run() -> ModuleType:
        exec(compile(source, str(path), "exec"), vars(module))
        return module

    with importing_from(str(path.resolve().parent), first=True):
        rules = _defined(str(path), run, path.resolve().parent)
    return [check(replace(rule, source=_placed(rule.source, path)), strict) for rule in rules]


def rules_of_name(name: str, strict: bool = False) -> list[Rule] | None:
    """The rules of the installed package, or else of the module, of a name; None where there is neither.

    Modules are also looked for in the current folder. Raises RuleError as ``rules_of_file``.
    """
    found = [entry for entry in packages() if name in names_of(entry)]
    if found:
        return list(dict.fromkeys(rule for entry in found for rule in rules_of_package(entry, strict)))
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    with importing_from(str(Path.cwd()), first=False):
        root = _root(name)
        if root is None:
            return None
        rules = _defined(name, lambda: import_module(name), root)
    return [check(rule, strict) for rule in rules]


def packages() -> tuple[EntryPoint, ...]:
    """The entry points by which installed packages announce rules, in order of their packages' names."""
    from importlib.metadata import entry_points

    return tuple(sorted(entry_points(group=GROUP), key=lambda entry: (names_of(entry), entry.value)))


def names_of(entry: EntryPoint) -> tuple[str, ...]:
    """What users call the rules behind an entry point: its package, or itself."""
    distribution = getattr(entry, "dist", None)
    return (*((re.sub(r"[-_.]+", "-", distribution.name).lower(),) if distribution else ()), entry.name)


def rules_of_package(entry: EntryPoint, strict: bool = False) -> list[Rule]:
    """The rules behind an entry point. Raises RuleError as ``rules_of_file``."""
    root = _root(entry.module)
    rules = _defined(f"{names_of(entry)[0]} ({GROUP}: {entry.value})", entry.load, root or Path(os.sep))
    return [check(rule, strict) for rule in rules]


def _root(module: str) -> Path | None:
    """The folder of the package that a module is in, or of the module itself; None where there is none of the name."""
    from importlib.util import find_spec

    top, dot, _ = module.partition(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):  # ValueError: one that has no specification, such as __main__
        return None
    if spec is None or (dot and spec.submodule_search_locations is None):
        return None
    places = spec.submodule_search_locations or [str(Path(spec.origin or os.sep).parent)]
    return Path(next(iter(places), os.sep)).resolve()


def _defined(name: str, load: Callable[[], Any], root: Path) -> list[Rule]:
    """The rules of what is loaded: those of a module, or the ones that are named there."""
    found = loaded(name, load, root)
    if isinstance(found, ModuleType):
        public = getattr(found, "__all__", None)
        values = [v for n, v in vars(found).items() if not n.startswith("__") and (public is None or n in public)]
    else:
        values = [found]
    rules = {id(rule): rule for value in values for rule in _rules(value)}
    if not rules:
        raise RuleError(f"{name}: holds no rules: make some by the decorator graphopt.rule")
    return list(rules.values())


def _rules(value: Any) -> Iterable[Rule]:
    """The rules that a value is or holds: itself, those of a set of rules, or those of a list."""
    held = (value,) if isinstance(value, Rule) else getattr(value, "rules", value)
    return [rule for rule in held if isinstance(rule, Rule)] if isinstance(held, list | tuple) else []


def loaded(name: str, load: Callable[[], T], root: Path, kind: type[GraphoptError] = RuleError) -> T:
    """What a user's code gives; an error of a kind, with the last line of what lies in ``root``, where that fails."""
    try:
        return load()
    except SyntaxError as error:
        place = f"{_relative(error.filename)}:{error.lineno}" if error.filename else name
        raise kind(f"{place}: {type(error).__name__}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        frames = [(f.f_code.co_filename, line) for f, line in walk_tb(error.__traceback__)]
        users = [f for f in frames if not f[0].startswith((*_NO_USERS, "<"))]
        inside = [f for f in users if Path(f[0]).resolve().is_relative_to(root)]
        file, line = (inside or users or [(name, 0)])[-1]
        what = " ".join(str(error).split())
        if not isinstance(error, GraphoptError):
            what = f"{type(error).__name__}: {what}".rstrip(": ")
        place = f"{_relative(file)}:{line}" if line else name
        own = re.match(rf"{re.escape(Path(file).name)}:\d+: ", what)  # a rule that is wrong says where it stands
        raise kind(f"{_relative(file)[: -len(Path(file).name)]}{what}" if own else f"{place}: {what}") from None


def _relative(file: str) -> str:
    """A file's name as seen from the current folder, where it lies in it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _placed(source: str, path: Path) -> str:
    """Where a rule was written, with the path of its file where it is this one."""
    return f"{path}{source[len(path.name) :]}" if source.startswith(f"{path.name}:") else source


@contextmanager
def importing_from(folder: str, first: bool) -> Iterator[None]:
    """Have modules looked for in a folder, too: before all others, or after."""
    if not first and folder in sys.path:
        yield
        return
    sys.path.insert(0 if first else len(sys.path), folder)
    try:
        yield
    finally:
        if folder in sys.path:  # unless what was imported took it out
            sys.path.remove(folder)
