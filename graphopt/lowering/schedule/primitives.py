"""Documentation page of the schedule primitives, generated from their docstrings: what each does, before and after."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

from graphopt.lowering.schedule.schedule import Schedule

HEAD = """\
# Primitives of schedules

A `Schedule` rewrites a loop nest step by step: `s = graphopt.Schedule(nest)`. A step that would change what the program
computes, or names what is not there, raises a `ScheduleError` and leaves the nest as it was. `s.nest` is the nest,
`s.show()` prints it, `s.trace` the steps; [tensor programs](tensor-programs.md) use them. An example is the program
before a step, the step, and the program after it; `...` is an end that they share. Examples are docstrings, and tests
(`python -m graphopt.lowering.schedule.primitives > docs/schedules.md`).
"""

EXAMPLE = re.compile(r"\s+Before:\n\n```python\n(.*?)\n```\n\nAfter `([^`]*)`:\n\n```python\n(.*?)\n```", re.DOTALL)
SAME = re.compile(r"(```python\n(?P<before>.*?)\n\n#[^`]*?)\n```\n\n```python\n(?P=before)\n", re.DOTALL)
"""Two examples that begin with the same program."""


def primitives() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The methods of ``Schedule`` that are primitives, in order, with their functions."""
    for name, method in vars(Schedule).items():
        function = inspect.unwrap(method) if callable(method) and hasattr(method, "__wrapped__") else None
        if function is not None:
            yield name, function


def page() -> str:
    """The page in Markdown."""
    parts, module = [HEAD], ""
    for name, function in primitives():
        if function.__module__ != module:
            module = function.__module__
            parts.append(f"## {_title(inspect.getdoc(inspect.getmodule(function)) or '')}\n")
        text = SAME.sub(r"\1\n", EXAMPLE.sub(_example, markdown(inspect.getdoc(function) or "")))
        parts.append(f"### `s.{name}{_signature(function)}`\n\n{text}\n")
    return "\n".join(parts)


def _example(example: re.Match[str]) -> str:
    """The program before a step, the step, and the program after it, without a longer end that both share."""
    before, after = example[1].splitlines(), example[3].splitlines()
    pairs = zip(reversed(before[1:]), reversed(after[1:]), strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0].strip() == pair[1].strip(), pairs))
    if shared > 1:
        before, after = ([*lines[:-shared], re.sub(r"\S.*", "...", lines[-shared])] for lines in (before, after))
    return "\n".join(["\n", "```python", *before, "", f"# {example[2]}", *after, "```"])


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
