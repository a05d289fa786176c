"""Console of a command: what goes to a terminal is laid out by rich, what goes to a file or a pipe by what stands here,
in the same way without colours. To import rich takes a tenth of a short run.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

from graphopt.cli import Harmless, harmless

if TYPE_CHECKING:
    from collections.abc import Iterable

    import rich.console
    import rich.table

WIDTH = 1000
"""Columns of what is no terminal: lines are not broken."""
_TAG = re.compile(r"(\\*)\[([a-z#/@][^[]*?)\]")
_FIRST_UNUSUAL = 0x300
"""The first character that may take other than one column."""


def escape(text: str) -> str:
    """The text with what would be a tag of markup spelled out, as ``rich.markup.escape`` does."""
    text = _TAG.sub(lambda found: f"{2 * found[1]}\\[{found[2]}]", text)
    return text + "\\" if text.endswith("\\") and not text.endswith("\\\\") else text


def unmarked(text: str) -> str:
    """Markup without its tags."""
    if "[" not in text:
        return text
    parts, end = [], 0
    for found in _TAG.finditer(text):
        parts.append(text[end : found.start()].replace("\\[", "["))
        backslashes, is_escaped = divmod(len(found[1]), 2)
        parts.append("\\" * backslashes + (f"[{found[2]}]" if is_escaped else ""))
        end = found.end()
    return "".join([*parts, text[end:].replace("\\[", "[")])


class Table:
    """Rows of cells of markup below headers, without lines between them."""

    def __init__(self, *headers: str) -> None:
        self.columns = [(header, False) for header in headers]
        self.rows: list[tuple[tuple[str, ...], str]] = []

    def add_column(self, header: str, justify: str = "left") -> None:
        """Append a column, of cells that stand at its left or its ``right``."""
        self.columns.append((header, justify == "right"))

    def add_row(self, *cells: str, style: str = "") -> None:
        """Append a row; cells that are not given are empty."""
        self.rows.append((cells, style))

    def __rich__(self) -> rich.table.Table:
        from rich.table import Table as RichTable

        table = RichTable(box=None, pad_edge=False)
        for header, is_right in self.columns:
            table.add_column(header, justify="right" if is_right else "left")
        for cells, style in self.rows:
            table.add_row(*cells, style=style)
        return table

    def text(self) -> str | None:
        """The table as text; None where it takes more than to pad cells."""
        lines = [[header for header, _ in self.columns], *(list(cells) for cells, _ in self.rows)]
        columns = len(self.columns)
        plain = [[*map(unmarked, cells), *[""] * (columns - len(cells))] for cells in lines]
        least = int(columns == 1)  # rich makes no column of no width, spaces between columns included
        widths = [max(least, *(len(cells[k]) for cells in plain)) for k in range(columns)]
        odd = any(not c.isprintable() or ord(c) >= _FIRST_UNUSUAL for cells in plain for cell in cells for c in cell)
        if odd or any(len(cells) > columns for cells in plain) or sum(widths) + 2 * columns > WIDTH:
            return None
        sides = [is_right for _, is_right in self.columns]
        return "\n".join(
            "  ".join(c.rstrip().rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, sides, strict=True))
            for cells in plain
        )


class _Plain:
    """A console for a file or a pipe."""

    def __init__(self, stderr: bool) -> None:
        self.stderr = stderr

    def print(self, what: Any, *, markup: bool = True, soft_wrap: bool = False, style: str = "") -> None:
        """Print a table or a text."""
        text = what.text() if isinstance(what, Table) else what
        if not isinstance(text, str) or not (soft_wrap or isinstance(what, Table) or len(text) < WIDTH):
            on_terminal(self.stderr).print(what, markup=markup, style=style)
            return
        text = unmarked(text) if markup and text is what else text
        print(harmless(text), file=sys.stderr if self.stderr else sys.stdout)


def console(stderr: bool = False) -> rich.console.Console | _Plain:
    """A console as wide as the terminal; what goes into a file or a pipe is not broken into lines."""
    file = _file(stderr)
    return on_terminal(stderr) if file.isatty() or os.environ.get("FORCE_COLOR") else _Plain(stderr)


def _file(stderr: bool) -> Any:
    stream = sys.stderr if stderr else sys.stdout
    return stream.stream if isinstance(stream, Harmless) else stream  # what rich writes is for terminals


def on_terminal(stderr: bool = False) -> rich.console.Console:
    """A console of rich, whose own control codes reach the terminal, and none of the text's."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class OnTerminal(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(harmless(segment.text), segment.style)

    file = _file(stderr)
    plain = os.environ.get("NO_COLOR") or not (file.isatty() or os.environ.get("FORCE_COLOR"))
    console = OnTerminal(file=file, highlight=False, color_system=None if plain else "auto")
    if not file.isatty():
        console.width = WIDTH
    return console
