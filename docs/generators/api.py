"""The page of what ``import graphopt`` offers, made from signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import graphopt
from graphopt.lowering.schedule.primitives import markdown

HEAD = """\
# The Python API

What `import graphopt` offers, and the modules that are public beside it. A name is imported when it is first used:
`import graphopt` itself takes no time. This page is made from signatures and docstrings: `python -m docs.generators`
makes it anew. The primitives of a `Schedule` have [a page of their own](schedules.md), and so has the
[command line](cli.md).
"""

MODULES = (
    "graphopt.nn",
    "graphopt.runtime",
    "graphopt.interop.backend",
    "graphopt.lowering.loops.compute",
    "graphopt.tuning",
    "graphopt.errors",
)
"""Modules of which whatever they list as public is documented beside the package's own names."""

WIDTH = 100
"""A signature that is wider has a line for each parameter."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def page() -> str:
    """The page in Markdown."""
    parts = [HEAD]
    for name in sorted(set(graphopt.__all__) - {"__version__"}, key=str.lower):
        parts += _entry(f"graphopt.{name}", getattr(graphopt, name), 2)
    for name in MODULES:
        module = import_module(name)
        parts.append(f"## {name}\n\n{markdown(inspect.getdoc(module) or '')}\n")
        for public, thing in _public(module):
            parts += _entry(f"{name}.{public}", thing, 3)
    return "\n".join(parts)


def _public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """What a module lists in ``__all__``, or else what it defines, of functions and classes."""
    names = getattr(module, "__all__", None)
    for name, thing in vars(module).items() if names is None else ((n, getattr(module, n)) for n in names):
        is_own = names is not None or getattr(thing, "__module__", "") == module.__name__
        if is_own and not name.startswith("_") and (inspect.isclass(thing) or inspect.isfunction(thing)):
            yield name, thing


def _entry(name: str, thing: Any, level: int) -> Iterator[str]:
    """The section of a function, a class with its methods, or a module."""
    if isinstance(thing, ModuleType):
        yield f"{'#' * level} {name}\n\n{markdown(inspect.getdoc(thing) or '')}\n"
        for public, inner in _public(thing):
            yield from _entry(f"{name}.{public}", inner, level + 1)
        return
    yield f"{'#' * level} {name}\n\n{_signature(thing, name.rpartition('.')[2])}\n{markdown(_doc(thing))}\n"
    if inspect.isclass(thing):
        yield from _members(thing)


def _doc(thing: Any) -> str:
    """The docstring; nothing for the one that a dataclass gives itself."""
    doc = inspect.getdoc(thing) or ""
    return "" if inspect.isclass(thing) and doc.startswith(f"{thing.__name__}(") else doc


def _members(kind: type) -> Iterator[str]:
    """The public fields and methods that a class defines itself, as far as something is said of them."""
    definition = _definition(kind)
    lines = list[str]()
    body = definition.body if definition is not None else []
    for statement, after in zip(body, [*body[1:], None], strict=True):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if not name.startswith("_"):
                said = _string(after)
                lines.append(f"* `{name}: {ast.unparse(annotation)}`" + (f": {_inline(said)}" if said else ""))
            case ast.FunctionDef(name=name) if not name.startswith("_") and (doc := ast.get_docstring(statement)):
                is_property = any(ast.unparse(d).endswith("property") for d in statement.decorator_list)
                spelled = name if is_property else f"{name}({_parameters(statement, is_method=True)})"
                returns = f" -> {ast.unparse(statement.returns)}" if statement.returns is not None else ""
                lines.append(f"* `{spelled}{returns}`: {_inline(doc)}")
    if lines:
        yield "\n".join([*lines, ""])


def _inline(doc: str) -> str:
    """A docstring within a list: its paragraphs, and programs in fences, are indented as the item is."""
    return textwrap.indent(markdown(inspect.cleandoc(doc)), "  ").lstrip()


def _string(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""


def _signature(thing: Callable[..., Any], name: str) -> str:
    """How a function is called, or a class made, as it is written, in a fence."""
    definition = _definition(thing)
    if isinstance(definition, ast.ClassDef):
        made = (
            _definition(thing.__init__) if getattr(thing.__init__, "__module__", "").startswith("graphopt.") else None
        )
        if not isinstance(made, ast.FunctionDef):
            return ""
        call, returns = _parameters(made, is_method=True), ""
    elif isinstance(definition, ast.FunctionDef):
        call = _parameters(definition, is_method=False)
        returns = f" -> {ast.unparse(definition.returns)}" if definition.returns is not None else ""
    else:
        return ""
    line = f"{name}({call}){returns}"
    if len(line) > WIDTH:
        line = f"{name}(\n" + "".join(f"    {p},\n" for p in _split(call)) + f"){returns}"
    return f"```python\n{line}\n```\n"


def _parameters(definition: ast.FunctionDef, is_method: bool) -> str:
    is_static = any(ast.unparse(d) == "staticmethod" for d in definition.decorator_list)
    parts = _split(ast.unparse(definition.args))
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
    return [re.sub(r"^(\W*\w+: [^=]+?) *=(?!=) *", r"\1 = ", part.strip()) for part in parts if part.strip()]


def _definition(thing: Any) -> Definition | None:
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(thing)))
    except (OSError, TypeError):
        return None
    (statement,) = ast.parse(source).body
    return statement if isinstance(statement, Definition) else None
