"""Every public name has an example that runs: in its docstring, as Python's doctest has them, or on a page.

Examples of a module's functions go on from the example in the module's own docstring, and from that of the package.
"""

from __future__ import annotations

import ast
import doctest
import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import graphopt
from graphopt.lowering.schedule.primitives import primitives
from tests.pages import DOCS, blocks, pages

MODULES = ("graphopt", *(f"graphopt.{name}" for name in graphopt._MODULES))
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PRIMITIVES = {function for _, function in primitives()}
"""What schedules do has examples of its own kind: the program before and after (``tests/lowering/documented.py``)."""

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="the documentation is in a checkout only")


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """What a module lists as public, with its name; of ``graphopt.errors`` and the like, what they define."""
    own = [n for n, t in vars(module).items() if n[0] != "_" and getattr(t, "__module__", "") == module.__name__]
    for name in getattr(module, "__all__", own):
        if not isinstance(thing := getattr(module, name), ModuleType):
            yield name, thing


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class that it defines itself."""
    for name, member in vars(kind).items():
        if not name.startswith("_") and isinstance(member, property | classmethod | staticmethod):
            yield name, member.fget if isinstance(member, property) else member.__func__
        elif not name.startswith("_") and inspect.isfunction(member):
            yield name, inspect.unwrap(member)


def code_of_pages() -> Iterator[tuple[ast.Module, dict[str, str]]]:
    """The programs of pages, with what their names stand for."""
    for page in pages():
        known: dict[str, str] = {}
        for block in blocks(page):
            if block.language == "python":
                yield ast.parse(block.text), known


def code_of_docstrings() -> Iterator[tuple[ast.Module, dict[str, str]]]:
    """The examples of docstrings."""
    for test in (t for name in MODULES for t in examples(name)):
        known = {name: f"graphopt.{name}" for name in graphopt._MODULES} | {"graphopt": "graphopt"}
        yield ast.parse("".join(example.source for example in test.examples)), known
        raised = [example.exc_msg.partition(":")[0] for example in test.examples if example.exc_msg]
        yield ast.parse("\n".join(raised)), known


@cache
def used() -> tuple[set[int], set[str], set[str]]:
    """What examples name: things by id, their names in full, and the attributes that they ask of anything."""
    names, attributes = set[str](), set[str]()
    for program, known in (*code_of_pages(), *code_of_docstrings()):
        for node in ast.walk(program):
            if isinstance(node, ast.Import):
                known.update(
                    {a.asname or (top := a.name.partition(".")[0]): a.name if a.asname else top for a in node.names}
                )
            elif isinstance(node, ast.ImportFrom):
                known.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})
        for node in ast.walk(program):
            if name := full_name(node, known):
                names.add(name)
            if isinstance(node, ast.Attribute):
                attributes.add(node.attr)
            elif isinstance(node, ast.FunctionDef):  # a method that a subclass has to have
                attributes.add(node.name)
    things = {id(thing) for name in names if (thing := resolved(name)) is not None and not isinstance(thing, str | int)}
    return things, names, attributes


def full_name(node: ast.AST, known: dict[str, str]) -> str:
    """``graphopt.te.sum`` for a name or attribute that is this; nothing for another."""
    match node:
        case ast.Name(id=name):
            return known.get(name, "")
        case ast.Attribute(value=inner, attr=name):
            base = full_name(inner, known)
            return f"{base}.{name}" if base else ""
    return ""


def resolved(name: str) -> Any:
    """What a full name stands for; None where that is nothing of ours."""
    if not name.startswith("graphopt"):
        return None
    thing: Any = graphopt
    for part in name.split(".")[1:]:
        thing = getattr(thing, part, None)
    return thing


@cache
def examples(module: str) -> tuple[doctest.DocTest, ...]:
    """The docstrings with examples of a public module, its functions, classes and methods: each thing at one place."""
    finder, found = doctest.DocTestFinder(), dict[str, doctest.DocTest]()
    home = import_module(module)
    others = MODULES[1:] if module == MODULES[0] else MODULES[1 : MODULES.index(module)]
    seen = {id(thing) for name in others for _, thing in public(import_module(name))}
    for name, thing in public(home):
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and id(thing) not in seen:
            for test in finder.find(inspect.unwrap(thing), f"{module}.{name}", module=False, globs={}):
                if test.examples:
                    found.setdefault(test.name, test)
    own = doctest.DocTestParser().get_doctest(home.__doc__ or "", {}, module, home.__file__, 0)
    return (own, *found.values())


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for test in examples(module):
        known: dict[str, Any] = {"__name__": module}
        for name in dict.fromkeys(("graphopt", module)):
            run(examples(name)[0], known)
        if test is not examples(module)[0]:
            run(test, known)


def run(test: doctest.DocTest, known: dict[str, Any]) -> None:
    """Run the examples of a docstring. Fails where one prints something else than stands there."""
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    test.globs = known
    runner.run(test, out=said.append, clear_globs=False)
    assert not said, "".join(said)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_an_example(module: str) -> None:
    things, names, _ = used()
    lacking = [
        n for n, thing in public(import_module(module)) if id(thing) not in things and f"{module}.{n}" not in names
    ]
    assert lacking == []


@pytest.mark.parametrize("module", MODULES)
def test_every_public_method_has_an_example(module: str) -> None:
    """It is called, or asked for, by its name in some example; of a primitive, the program is before and after."""
    attributes = used()[2]
    lacking = [
        f"{name}.{member}"
        for name, thing in public(import_module(module))
        if inspect.isclass(thing)
        for member, function in members(thing)
        if member not in attributes and function not in PRIMITIVES
    ]
    assert lacking == []
