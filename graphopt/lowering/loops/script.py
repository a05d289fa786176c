"""Scripts of tensor programs: the textual form, in Python's syntax.

    @program
    def relu(A: Buffer[(128, "n"), "float32"], B: Buffer[(128, "n"), "float32"], n: size):
        for i, j in grid(128, n):
            with block("B"):
                vi, vj = axis.remap("SS", [i, j])
                B[vi, vj] = max(A[vi, vj], 0.0)

The words of a script (``grid``, ``block``, ``axis``, ...) can be imported from here, so that editors
know them; they mean nothing outside of a program, whose body is read and never executed.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from graphopt.errors import ScriptError
from graphopt.lowering.loops.expressions import ScalarNumber
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script_expressions import DTYPES, NAMED
from graphopt.lowering.loops.script_parse import WORDS as WORDS
from graphopt.lowering.loops.script_parse import parse
from graphopt.lowering.loops.script_print import show, show_expr


class ScriptWord:
    """A keyword of scripts."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, key: object) -> ScriptWord:
        return self

    def __call__(self, *args: object, **options: object) -> Any:
        """A word stands for itself in the parameters of a program, and means nothing elsewhere."""
        if self.name == "Buffer":
            return self
        raise TypeError(f"{self.name} is a word of tensor programs: it is read under @program, and never runs")


def __getattr__(name: str) -> ScriptWord:
    """The words of scripts, the functions of expressions and the dtypes of numbers."""
    if name in WORDS or name in NAMED or name in DTYPES:
        return ScriptWord(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def read(text: str, name: str = "<script>") -> Nest:
    """The program of a script. The text is only parsed, never executed.

    Raises ScriptError with line and column; ``name`` says there where the text is from.
    """
    return parse(text, name, {}, 1)


def program(function: Callable[..., Any]) -> Nest:
    """A decorator: the function as a program. Its source is read; its body never runs.

    Names that are numbers where the function is defined may be used as sizes. Raises ScriptError.
    """
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:
        raise ScriptError(f"{function.__name__}: the source is not there to be read; use read(text)") from None
    path = inspect.getsourcefile(function) or "<script>"
    return parse(textwrap.dedent("".join(lines)), path, _numbers(function), first)


def _numbers(function: Callable[..., Any]) -> Mapping[str, ScalarNumber]:
    """The names that stand for numbers where a function is defined."""
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    values = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}
    return {name: value for name, value in values.items() if isinstance(value, bool | int | float)}


__all__ = ["ScriptWord", "program", "read", "show", "show_expr", *WORDS]
