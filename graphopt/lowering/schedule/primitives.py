"""Documentation page of the schedule primitives, generated from their docstrings: what each does, before and after."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from graphopt.lowering.schedule.schedule import Schedule

HEAD = """\
# Primitives of schedules

A `Schedule` rewrites a loop nest step by step: `s = graphopt.Schedule(nest)`. A step that would change what the program
computes, or names what is not there, raises a `ScheduleError` and leaves the nest as it was. Blocks and loops are what
`s.get_block("name")` and `s.get_loops(block)` give; `s.nest` is the nest, `s.show()` its script, `s.trace` the steps.
[Tensor programs](tensor-programs.md) use them. The page is made from docstrings, whose examples are tests (`python -m
graphopt.lowering.schedule.primitives > docs/schedules.md`).
"""

BEFORE = re.compile(r"Before:\n\n(```python\n.*?```)", re.DOTALL)


def primitives() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The methods of ``Schedule`` that are primitives, in order, with their functions."""
    for name, method in vars(Schedule).items():
        function = inspect.unwrap(method) if callable(method) and hasattr(method, "__wrapped__") else None
        if function is not None:
            yield name, function


def page() -> str:
    """The page in Markdown."""
    parts, module, shown = [HEAD], "", dict[str, str]()
    for name, function in primitives():
        if function.__module__ != module:
            module = function.__module__
            parts.append(f"## {_title(inspect.getdoc(inspect.getmodule(function)) or '')}\n")
        text = BEFORE.sub(partial(_shown_once, name, shown), markdown(inspect.getdoc(function) or ""))
        parts.append(f"### `s.{name}{_signature(function)}`\n\n{text}\n")
    return "\n".join(parts)


def _shown_once(name: str, shown: dict[str, str], example: re.Match[str]) -> str:
    """The program before a step, or the name of the first primitive that has the same one."""
    first = shown.setdefault(example[1], name)
    return example[0] if first == name else f"Before: as for `s.{first}`."


def _title(doc: str) -> str:
    """The first sentence of a module's docstring, without its full stop."""
    return " ".join(doc.split("\n\n")[0].split()).split(". ")[0].rstrip(".")


def _signature(function: Callable[..., Any]) -> str:
    """The arguments, without the nest and the generator that the schedule supplies."""
    kept = [p for p in inspect.signature(function).parameters.values() if p.name not in ("nest", "random")]
    plain = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in kept
        if not (p.kind is inspect.Parameter.POSITIONAL_ONLY and p.name.startswith("_"))
    ]
    return str(inspect.Signature(plain))


def markdown(doc: str) -> str:
    """A docstring with fenced programs."""
    lines, out, is_code = doc.splitlines(), list[str](), False
    for k, line in enumerate(lines):
        begins = (
            is_code is False and line.startswith("    ") and any(p.endswith("::") for p in lines[max(0, k - 2) : k])
        )
        if begins:
            out.append("```python")
            is_code = True
        elif is_code and line.strip() and not line.startswith("    "):
            while out[-1] == "":
                out.pop()
            out += ["```", ""]
            is_code = False
        out.append(line[4:] if is_code else re.sub(r"``([^`]*)``", r"`\1`", line).replace("::", ":"))
    return "\n".join([*out, "```"] if is_code else out)


if __name__ == "__main__":
    print(page(), end="")
