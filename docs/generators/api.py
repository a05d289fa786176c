"""The page of what ``import graphopt`` offers, made from signatures and docstrings."""

from __future__ import annotations

import ast
import copy
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import graphopt
from graphopt.lowering.schedule.primitives import markdown

HEAD = """\
# The Python API

What `import graphopt` offers, and the public modules beside it, made from signatures and docstrings (`python -m
docs.generators`); `help(...)` prints types, too, and an example of each function. Of methods, and of what modules
define, it has the first sentence. All examples of docstrings are tests (`tests/test_examples.py`).
[Schedule primitives](schedules.md) and the [command line](cli.md) have pages of their own.
"""

MODULES = (*(f"graphopt.{name}" for name in graphopt._MODULES), "graphopt.interop.backend")
"""Modules of which whatever they list as public is documented beside the package's own names."""

WIDTH = 100
"""A signature that is wider has a line for each parameter."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def page() -> str:
    """The page in Markdown."""
    rows = (f"| [`{name}`](#{name.replace('.', '')}) | {_says(import_module(name))} |" for name in MODULES)
    parts = [HEAD, "\n".join(("| public module | |", "|---|---|", *rows, ""))]
    names = set(graphopt.__all__) - {"__version__", *graphopt._MODULES}
    for name in sorted(names, key=lambda name: (name.lower(), name.swapcase())):
        parts += _entry(f"graphopt.{name}", getattr(graphopt, name), 2)
    for name in MODULES:
        module = import_module(name)
        parts += _section(name, module, 2)
    return "\n".join(parts)


def _says(module: ModuleType) -> str:
    """The first line of a module's docstring."""
    return (module.__doc__ or "").strip().splitlines()[0].rstrip(".").replace("``", "`")


def _public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """What a module lists in ``__all__``, or else the classes and functions that it defines."""
    names = getattr(module, "__all__", None)
    if names is not None:
        yield from ((n, getattr(module, n)) for n in names if _is_documented(getattr(module, n)))
        return
    own = {n: t for n, t in vars(module).items() if n[0] != "_" and getattr(t, "__module__", "") == module.__name__}
    yield from ((n, t) for n, t in own.items() if _is_documented(t))


def _is_documented(thing: Any) -> bool:
    return inspect.isclass(thing) or inspect.isfunction(thing)


def _section(name: str, module: ModuleType, level: int) -> Iterator[str]:
    """A module: a list of what takes one line, then a section for each class with members."""
    yield f"{'#' * level} {name}\n\n{markdown(inspect.getdoc(module) or '')}\n"
    calls, sections = dict[str, list[str]](), list[str]()
    for public, thing in _public(module):
        if inspect.isclass(thing) and (members := list(_members(thing))):
            sections += [f"{'#' * (level + 1)} {name}.{public}\n", *_head(thing, public), *members]
        else:
            calls.setdefault(_first_sentence(_doc(thing)), []).append(_call(thing, public, is_brief=True) or public)
    if calls:
        yield "\n".join([*(f"* {', '.join(f'`{c}`' for c in same)}: {said}" for said, same in calls.items()), ""])
    yield from sections


def _entry(name: str, thing: Any, level: int) -> Iterator[str]:
    """The section of a function, or a class with its methods."""
    yield f"{'#' * level} {name}\n"
    yield from _head(thing, name.rpartition(".")[2])
    if inspect.isclass(thing):
        yield from _members(thing)


def _head(thing: Any, name: str) -> Iterator[str]:
    """How it is called, and its docstring."""
    if signature := _signature(thing, name):
        yield signature
    yield f"{markdown(_doc(thing))}\n"


def _doc(thing: Any) -> str:
    """The docstring; nothing for the one that a dataclass gives itself."""
    doc = inspect.getdoc(thing) or ""
    return "" if inspect.isclass(thing) and doc.startswith(f"{thing.__name__}(") else doc


def _members(kind: type) -> Iterator[str]:
    """The public fields and methods that a class defines itself, as far as something is said of them."""
    definition = _definition(kind)
    lines, fields = list[str](), list[str]()
    body = definition.body if definition is not None else []
    for statement, after in zip(body, [*body[1:], None], strict=True):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                said = _string(after)
                field = f"`{name}`"
                (lines.append(f"* {field}: {_first_sentence(said)}") if said else fields.append(field))
            case ast.FunctionDef(name="forward", args=ast.arguments(args=[_, _])):
                continue  # a layer of one input: its class says what it computes
            case ast.FunctionDef(name=name) if not name.startswith("_") and (doc := ast.get_docstring(statement)):
                is_property = any(ast.unparse(d).endswith("property") for d in statement.decorator_list)
                spelled = name if is_property else f"{name}({_parameters(statement, is_method=True)})"
                lines.append(f"* `{spelled}`: {_first_sentence(doc)}")
    if fields:
        lines.insert(0, f"* {', '.join(fields)}")
    if lines:
        yield "\n".join([*lines, ""])


def _first_sentence(doc: str) -> str:
    """The first sentence of a docstring, on one line."""
    paragraph = " ".join(markdown(inspect.cleandoc(doc)).split("\n\n")[0].split())
    return re.split(r"(?<=[^.]\.) (?=[A-Z`])", paragraph)[0]


def _string(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""


def _call(thing: Callable[..., Any], name: str, is_brief: bool = False) -> str:
    """How a function is called, or a class made, on one line; nothing for a class without its own initializer."""
    definition = _definition(thing)
    if isinstance(definition, ast.ClassDef):
        is_own = getattr(thing.__init__, "__module__", "").startswith("graphopt.")
        made = _definition(thing.__init__) if is_own else None
        return f"{name}({_parameters(made, True)})" if isinstance(made, ast.FunctionDef) else ""
    if isinstance(definition, ast.FunctionDef):
        returns = f" -> {ast.unparse(definition.returns)}" if definition.returns is not None and not is_brief else ""
        return f"{name}({_parameters(definition, False)}){returns}"
    return ""


def _signature(thing: Callable[..., Any], name: str) -> str:
    """How it is called, in a fence; on several lines where one is too long."""
    line = _call(thing, name)
    if len(line) > WIDTH:
        call, _, returns = line.removeprefix(f"{name}(").rpartition(")")
        line = f"{name}(\n{_wrapped(_split(call))}){returns}"
    return f"```python\n{line}\n```\n" if line else ""


def _wrapped(parameters: Iterable[str]) -> str:
    """Parameters on lines that are not too long."""
    lines = [""]
    for parameter in parameters:
        if len(lines[-1]) + len(parameter) > WIDTH - len("     ,"):
            lines.append("")
        lines[-1] += f" {parameter}," if lines[-1] else f"{parameter},"
    return "".join(f"    {line}\n" for line in lines)


def _parameters(definition: ast.FunctionDef, is_method: bool) -> str:
    """The parameters with their defaults; the docstring tells what they are, and ``help`` their types."""
    arguments = copy.deepcopy(definition.args)
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if argument is not None:
            argument.annotation = None
    is_static = any(ast.unparse(d) == "staticmethod" for d in definition.decorator_list)
    parts = _split(ast.unparse(arguments))
    return ", ".join(parts[1:] if is_method and not is_static else parts)


def _split(parameters: str) -> list[str]:
    """Parameters at the commas that stand in no bracket or string."""
    parts, depth, quote = [""], 0, ""
    for c in parameters:
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        else:
            depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip()]


def _definition(thing: Any) -> Definition | None:
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(thing)))
    except (OSError, TypeError):
        return None
    (statement,) = ast.parse(source).body
    return statement if isinstance(statement, Definition) else None
