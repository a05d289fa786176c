"""Mutants of files that strangers send: rules, journals, certificates, databases, programs, and command lines.

Each is a function of a ``random.Random`` alone. ``ended`` runs a command line in this process.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from random import Random
from typing import Any

from graphopt.cli import run
from tests.mutants_of_models import outcome

WORDS = (
    *("", " ", "\n", "\x00", "\x1b[31m", "\u202e", "\u00e9", "x", "y", "_", "...", "a*", "=>", "<=>", "where", "and"),
    *("not", "(", ")", "[", "]", "{", "}", ",", ":", "=", "#", "# [A1] exact\n", "exact", "always", "inf", "nan"),
    *("0", "1", "-1", "9" * 400, str(2**63), str(-(2**63)), "1e308", "1e999", "-0.0", "len(a)", "x.value", "Relu"),
    *("(" * 400, ")" * 400, "Relu(" * 200, "not " * 300, "-" * 300, "1 + " * 300, "x.shape[" * 200, "NoSuchOp"),
    *("each a.shape[0] == 1", "x.shape[9]", "x" * 5000),
)
"""What a word of a text becomes."""
NAN = float("nan")
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**63, -(2**80), 1e308, NAN, "", "x", "../../x", "\x1b[31m", [], {}, [[]]),
)
"""What a value of JSON becomes."""


def text(random: Random, content: str) -> str:
    """A text of which one to four words are other ones, are gone, or stand there twice."""
    words = re.findall(r"\w+|\s+|.", content, re.DOTALL) or [""]
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(words))
        match random.randrange(5):
            case 0:
                words[at] = ""
            case 1:
                words[at] += words[at]
            case 2:
                words[at] = random.choice(words)
            case 3:
                other = random.randrange(len(words))
                words[at], words[other] = words[other], words[at]
            case _:
                words[at] = random.choice(WORDS)
    return "".join(words)


def value(random: Random, content: Any) -> Any:
    """A value of JSON with one to three things in it changed."""
    made = [content]
    for _ in range(random.choice((1, 1, 3))):
        within: Any = made
        while True:
            keys = list(within) if isinstance(within, dict) else range(len(within))
            key = random.choice(keys)
            if isinstance(within[key], dict | list) and within[key] and (within is made or random.random() < 0.85):
                within = within[key]
                continue
            break
        if within is made:
            within[key] = random.choice(VALUES)
            return made[0]
        match random.randrange(5):
            case 0:
                del within[key]
            case 1 if isinstance(within, list):
                within.append(within[key])
            case 2 if isinstance(within[key], int | float):
                within[key] += random.choice((-1, 1, 2**40))
            case 3 if isinstance(within[key], str):
                within[key] = text(random, within[key])
            case _:
                within[key] = random.choice(VALUES)
        if not made[0]:
            break
    return made[0]


def ended(arguments: Sequence[str], seconds: float = 60.0) -> tuple[int | None, str, str]:
    """How a command line ended in this process: its exit code and what it said, and what is wrong with that, if
    anything."""
    said, printed, codes = io.StringIO(), io.StringIO(), list[int]()

    def act() -> None:
        with redirect_stderr(said), redirect_stdout(printed):
            try:
                codes.append(run(arguments))
            except SystemExit as exit:
                codes.append(exit.code if isinstance(exit.code, int) else 1)

    how = outcome(act, seconds)
    if how != "ok":
        return None, said.getvalue(), how
    lines = [line for line in said.getvalue().splitlines() if line.startswith("graphopt: ")]
    wrong = ""
    if codes[0] == 1 or "Traceback" in said.getvalue():
        wrong = said.getvalue()
    elif codes[0] and len(lines) != 1:
        wrong = f"{len(lines)} lines say what is wrong: {said.getvalue()!r}"
    elif any(ord(c) < 32 and c not in "\n\t" for c in said.getvalue() + printed.getvalue()):
        wrong = f"control characters: {said.getvalue()!r}"
    return codes[0], said.getvalue(), wrong
