"""The mechanism that follows pages of the documentation finds out those that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages import PageError, commands, compare, follow, in_process, is_there, look_up


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("```python\nassert False\n```\n", ""),
        ("```python\nprint(1)\n```\n\n```output\n2\n```\n", r"page.md:6: the page says\n2"),
        ("```sh\nfalse\n```\n", r"page.md:2: false exits with 1"),
        ("```console\n$ echo one\ntwo\n```\n", "two"),
        ("```console\n$ false\n```\n", "exits with 1"),
        ("```\nsomething\n```\n", "none of the fences"),
        ("```python needs=torch\n```\n", "none of the fences"),
        ("```rules\nwrong\n```\n", ""),
        ('```sh title="usage"\ngraphopt optimise x\n```\n', "there is no such command"),
        ('```sh title="usage"\ngraphopt optimize MODEL --nonsense\n```\n', "there is no --nonsense"),
        ('```python title="needs nonsense!"\n```\n', "neither"),
    ],
)
def test_a_page_that_is_wrong_is_found_out(folder: Path, text: str, wrong: str) -> None:
    with pytest.raises(Exception, match=wrong or None):
        follow(page(folder, text), in_process)


def test_a_page_that_is_right_is_followed(folder: Path) -> None:
    text = (
        "```python\nn = 1\n```\n```python\nprint(n + 1)\n```\n```output\n2\n```\n"
        '```text title="a.txt"\nhello\n```\n```console\n$ cat a.txt\nhello\n$ cat b.txt\n...\n$ echo $?\n1\n```\n'
        '```python title="needs nothing-of-that-name"\nn = 2\n```\n```output\n3\n```\n'
    )
    assert follow(page(folder, text), in_process) == ["nothing-of-that-name"]


@pytest.mark.parametrize(
    ("expected", "printed", "agree"),
    [
        ("a 1.5 s b", "a  12.25 s b", True),
        ("a 1.5 s b", "a 20 ms b", True),
        ("a 1.5 s b", "a 20 kB b", False),
        ("a 1.5 b", "a 1.6 b", False),
        ("1.27x", "1.31x", True),
        ("3 x Relu", "4 x Relu", False),
        ("12 kB", "3.5 kB", True),
        ("2 ops", "3 ops", False),
        ("1.5e-05 of", "0.1 of", True),
        ("1e-05 of", "2e-05 of", False),
        ("0.5 of the tolerance (1 s)", "0.01 of the tolerance (2 s)", True),
        ("0.5 of the tolerance", "0.01 of something else", False),
        ("seconds     4.65  (read 0.15)", "seconds  12.3  (tidy 0.15, verify 12)", True),
        ("seconds 4.65", "second 4.65", False),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...\nd", "a\nd", True),
        ("a\n...", "a", True),
        ("a\nd", "a\nb\nd", False),
        ("x ... z", "x y z", True),
        ("  a", "a", True),
        ("a (b)", "a b", False),
    ],
)
def test_outputs_are_compared(expected: str, printed: str, agree: bool) -> None:
    if agree:
        compare(expected, printed, "")
    else:
        with pytest.raises(PageError):
            compare(expected, printed, "")


def test_commands_may_go_on_and_have_comments() -> None:
    assert list(commands("a b \\\n  c  # d\n\n# e\nf 'g#h'\n")) == ["a b    c", "f 'g#h'"]


def test_needs_are_looked_up() -> None:
    assert is_there("graphopt[ort]")
    assert is_there("numpy")
    assert not is_there("nothing-of-that-name")
    look_up("graphopt rules list | show NAME", "")
