"""Display of values: as text in a terminal, in colour, as cards in notebooks, and as JSON.

One rule for all that is displayed: ``repr`` is one short line that names the thing and its sizes, ``str`` is its text
without colour (the script, where it has one, which reads back), and ``show()`` prints that text, in colour where a
terminal or notebook shows it. Where a script can be had by itself, ``script()`` gives it. In JSON a dataclass is an
object of its fields, a named tuple an array, and a number that is not finite is null.

Values lie below what draws them: ``graphopt.web.cards`` is named here, and imported when one is first shown.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final

CARDS = "graphopt.web.cards"
CODE: Final = "python"
"""The language that scripts, graphs, rules and traces are coloured as: the notations of all are near to it."""
HIDDEN: Final = "hidden"
"""In the metadata of a dataclass's field: no JSON of it has the field."""
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""What a terminal would obey: a name of a model's may hold anything."""


class Displayed:
    """What prints itself: ``show()`` in colour in a terminal, and a card of HTML in a notebook, without scripts, in
    which nothing of a model's is markup."""

    __slots__ = ()
    is_code: ClassVar[bool] = False
    """Whether the text is a script, to be coloured as one."""

    def __str__(self) -> str:
        """The text of the card."""
        return str(import_module(CARDS).text(self))

    def show(self) -> None:
        """Prints the text, in colour where it is shown by a terminal or notebook and ``NO_COLOR`` is not set."""
        write(str(self), self.is_code)

    def _repr_html_(self) -> str:
        return str(import_module(CARDS).card(self))


class Scripted(Displayed):
    """What prints itself as the script that it is read from."""

    __slots__ = ()
    is_code = True

    def script(self) -> str:
        """The script."""
        raise NotImplementedError

    def __str__(self) -> str:
        """The script."""
        return self.script()


def encoded(value: Any) -> Any:
    """A value as what JSON has: dictionaries, lists, texts and numbers. Fields that are ``HIDDEN`` are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name_in_json(f): encoded(getattr(value, f.name)) for f in fields(value) if not f.metadata.get(HIDDEN)}
    if isinstance(value, Enum):
        return encoded(value.value)
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): encoded(inner) for name, inner in value.items()}
    if isinstance(value, Set):
        return sorted(map(encoded, value))
    if isinstance(value, Sequence):
        return [*map(encoded, value)]
    if isinstance(value, Path):
        return str(value)
    number = float(value)
    return number if math.isfinite(number) else None


def name_in_json(field: Any) -> str:
    """The name that a dataclass's field has in JSON: that in its metadata, or its own."""
    return str(field.metadata.get("name", field.name))


def counted(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size * (1 - 5e-4):  # three digits are told
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def shortened(text: str, length: int = 90) -> str:
    """The text on one line, without its middle where it is longer."""
    line = " ".join(text.split())
    half = (length - 3) // 2
    return line if len(line) <= length else f"{line[:half]}...{line[-half:]}"


def write(text: str, is_code: bool) -> None:
    """Prints text, in colour where standard output is a terminal or notebook and ``NO_COLOR`` is not set."""
    shown = text.rstrip("\n").translate(_CONTROL)
    if os.environ.get("NO_COLOR") or not (sys.stdout.isatty() or "ipykernel" in sys.modules):
        print(shown)
        return
    from rich.console import Console
    from rich.highlighter import ReprHighlighter
    from rich.syntax import Syntax
    from rich.text import Text

    if is_code:  # in the sixteen colours that a terminal's user has chosen
        coloured = Syntax("", CODE, theme="ansi_dark", background_color="default").highlight(shown)
        coloured.rstrip()
    else:
        coloured = ReprHighlighter()(Text(shown))
    Console().print(coloured, soft_wrap=True)


def coloured_parts(text: str) -> Iterator[tuple[str, str]]:
    """The parts of a script, each with its colour as CSS has it, or none; together they are the text."""
    from rich.color import ColorType
    from rich.console import Console
    from rich.syntax import Syntax

    def parts(code: str) -> Iterator[tuple[str, str]]:
        # accents that are read on light and on dark pages alike
        for part, style, _ in Syntax("", CODE, theme="solarized-light").highlight(code).render(Console()):
            color = style.color if style is not None else None
            known = color is not None and color.type is not ColorType.DEFAULT
            yield part, color.get_truecolor().hex if known and color is not None else ""

    plain = next(parts("x"))[1]
    written = ""
    for part, color in parts(text):
        written += part
        yield part, "" if color == plain else color
    yield text[len(written) :] if text.startswith(written) else "", ""
