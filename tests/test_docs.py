"""The documentation does what it says: every block of every page, as ``tests/pages.py`` follows it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphopt
from tests.lowering.cuda.simulated import launch
from tests.pages import ROOT, PageError, blocks, commands, compare, follow, in_process, is_there, look_up, provide

DOCS = ROOT / "docs"
MADE = {"api.md", "cli.md", "schedules.md", *(f"rules/{path.name}" for path in (DOCS / "rules").glob("*.md"))}
"""Pages that are made from the code, and tested where that is."""

PAGES = sorted({path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - MADE)
LONG = {"modules.md", "tutorial/5-tune-and-measure.md", "tutorial/6-gpu.md"}
"""Pages that take a quarter of a minute each, followed with ``pytest -m slow tests/test_docs.py``."""
APART = {"cuda.md", "tensor-programs.md"}
"""Pages of which more is tested than they say."""

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="the documentation is in a checkout only")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of whoever follows a page, with data and settings of its own."""
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / ".local"))
    monkeypatch.setenv("COLUMNS", "120")
    place = tmp_path / "reader"
    place.mkdir()
    monkeypatch.chdir(place)
    provide(place)
    return place


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.slow if p in LONG else ()) for p in PAGES if p not in APART]
)
def test_the_page_does_what_it_says(page: str, folder: Path) -> None:
    follow(DOCS / page, in_process)


@pytest.mark.parametrize("page", ["README.md", "rules/README.md"])
def test_the_readme_does_what_it_says(page: str, folder: Path) -> None:
    follow(ROOT / page, in_process)


def test_the_fuser_of_tensor_programs_is_short(folder: Path) -> None:
    page = DOCS / "tensor-programs.md"
    follow(page, in_process)
    (text,) = (block.text for block in blocks(page) if block.text.startswith("class FuseDense"))
    assert len(ast.parse(text).body) == 1
    assert len(text.strip().splitlines()) <= 15


def test_the_ladder_of_cuda_runs_as_kernels_too(folder: Path) -> None:
    """The page interprets its steps; as kernels, threads wait where they have to."""
    known: dict[str, Any] = {"__name__": "cuda"}
    follow(DOCS / "cuda.md", in_process, known)
    for nest in known["small"].values():
        found = np.zeros((32, 32), np.float32)
        launch(nest, [known["A"], known["B"], found])
        assert np.allclose(found, known["A"] @ known["B"], atol=1e-5)


# -- what is made from the code, and the site


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """As the command makes it: in a process of its own, whose commands and environment no other test changed."""
    code = "import json; from docs.generators.__main__ import made; print(json.dumps(made()))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_what_is_made_from_the_code_is_current(made: dict[str, str]) -> None:
    stale = [name for name, text in made.items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert not stale, f"{', '.join(stale)}: run `python -m docs.generators`"


def test_the_references_are_complete(made: dict[str, str]) -> None:
    import typer.main

    from graphopt.cli.commands import app

    for name in set(graphopt.__all__) - {"__version__"}:
        assert f"\n## graphopt.{name}\n" in made["api.md"]
    for name, command in typer.main.get_command(app).commands.items():
        assert command.hidden or f"\n## graphopt {name}" in made["cli.md"]
    assert "| `--opset N` | Convert to this opset first. |" in made["cli.md"]
    assert "`emit(op: str" in made["api.md"]


def test_every_extra_is_on_the_page_of_installing() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = (DOCS / "install.md").read_text(encoding="utf-8")
    assert [name for name in extras if f"`{name}`" not in text] == []


def test_the_site_builds_and_needs_no_network(tmp_path: Path) -> None:
    """Strict: a link or an anchor that leads nowhere, or a page that the navigation lacks, is an error."""
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ".ci/mkdocs.yml", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "tutorial" / "1-first-rule.html").read_text()
    assert "source/rules/README.md.html" in text
    fetched = re.compile(r"<(?:script|img|iframe)[^>]*src=.?(?:https?:)?//|<link[^>]*stylesheet[^>]*href=.?http")
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES)
    assert [page.name for page in pages if fetched.search(page.read_text())] == []


# -- the mechanism


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
        ("a 1.5 b", "a 1.6 b", False),
        ("1.27x", "1.31x", True),
        ("3 x Relu", "4 x Relu", False),
        ("12 kB", "3.5 kB", True),
        ("2 ops", "3 ops", False),
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
