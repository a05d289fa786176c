"""What goes into a pipe is what rich would write there, without importing it."""

import io
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.markup import escape as rich_escape
from rich.text import Text

from graphopt.cli.console import WIDTH, Table, console, escape, unmarked

PIECES = st.sampled_from(["[", "]", "\\", "[bold]", "[/]", "[/bold]", "a", "1", " ", "#", "[2]", "[x y]", "µ", "."])
TEXTS = st.lists(PIECES, max_size=12).map("".join)


def rich_text(what: object) -> str:
    """What rich writes."""
    file = io.StringIO()
    Console(file=file, highlight=False, color_system=None, width=WIDTH).print(what)
    return file.getvalue()


@settings(deadline=None)
@given(TEXTS)
def test_texts_are_spelled_out_as_rich_does(text: str) -> None:
    assert escape(text) == rich_escape(text)
    assert unmarked(escape(text)) == Text.from_markup(rich_escape(text), emoji=False).plain


@pytest.mark.parametrize(
    "text",
    ["[bold]a[/] b", "[yellow]x[/yellow]", r"a \[b]", r"\\[bold]a[/]", "a[1]", "[A]", r"0.9 \[0.8, 1.0]", "[]", "a]["],
)
def test_tags_are_taken_out_as_rich_does(text: str) -> None:
    assert unmarked(text) == Text.from_markup(text, emoji=False).plain


@settings(deadline=None)
@given(
    st.lists(st.tuples(TEXTS.map(escape), st.booleans()), min_size=1, max_size=4),
    st.lists(st.lists(TEXTS.map(escape), max_size=4), max_size=4),
)
def test_tables_are_laid_out_as_rich_does(columns: list[tuple[str, bool]], rows: list[list[str]]) -> None:
    table = Table()
    for header, is_right in columns:
        table.add_column(header, justify="right" if is_right else "left")
    for row in rows:
        table.add_row(*row[: len(columns)], style="bold")
    text = table.text()
    assert text is not None
    assert f"{text}\n" == rich_text(table)


@pytest.mark.parametrize("cell", ["漢字", "a\nb", "a\tb", "x" * WIDTH, "e\u0301"])
def test_what_takes_more_than_padding_is_richs(cell: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("a", "b")
    table.add_row(cell, "c")
    assert table.text() is None
    console().print(table)
    assert capsys.readouterr().out == rich_text(table)


def test_lines_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    out = console()
    out.print("[bold]a[/] 1", soft_wrap=True)
    out.print("[bold]a[/]", markup=False, style="bold")
    out.print("x" * 2 * WIDTH, soft_wrap=True)
    console(stderr=True).print("a\x1b[31mb", soft_wrap=True)
    told = capsys.readouterr()
    assert told.out == f"a 1\n[bold]a[/]\n{'x' * 2 * WIDTH}\n"
    assert told.err == "a\\x1b[31mb\n"


def test_rich_is_imported_for_terminals_alone() -> None:
    program = (
        "import sys; from graphopt.cli.console import Table, console; table = Table('a'); table.add_row('b')\n"
        "console().print(table); print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["a", "b", "False"]
