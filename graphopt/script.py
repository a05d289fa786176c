"""Scripts of tensor programs: ``from graphopt import script as T``, or ``from graphopt.script import *``.

``program`` reads a function as a tensor program, ``read`` a text, ``show`` prints one that reads back. The other names
are the words of scripts, so that editors know them: under ``program`` they are read, and never run.
"""

from __future__ import annotations

import builtins
from typing import Final

from graphopt.lowering.loops.script import ScriptWord, program, read, show
from graphopt.lowering.loops.script_expressions import DTYPES, NAMED
from graphopt.lowering.loops.script_parse import WORDS

FUNCTIONS: Final = sorted({*NAMED, *DTYPES} - set(dir(builtins)))
"""The functions of expressions and the dtypes, apart from those that Python has names for, such as ``max``."""


def __getattr__(name: str) -> ScriptWord:
    """The words of scripts, the functions of expressions and the dtypes of numbers."""
    if name in WORDS or name in NAMED or name in DTYPES:
        return ScriptWord(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = ["program", "read", "show", *WORDS, *FUNCTIONS]
