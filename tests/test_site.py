"""What of the documentation is made from the code is current, and the site builds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import graphopt
from tests.pages import DOCS, ROOT, pages

SEARCHES = (
    "dynamic shapes",
    "visualize the e-graph",
    "fuse attention",
    "why did my rule not fire",
    "troubleshooting",
)
"""What people search for: the site has a section with all words of each."""

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="the documentation is in a checkout only")


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
    assert "\n* `--opset N`: Convert to this opset first.\n" in made["cli.md"]
    assert " Exits with 6 where outputs differ. Takes `A.onnx B.onnx`.\n" in made["cli.md"]
    assert made["cli.md"].count("`--dim NAME=N`") == 1, "what several commands take is explained once"
    assert "`emit(op, inputs=(), attrs=None, *, n_outputs=1, name='')`: Adds an ONNX op" in made["api.md"]
    assert "\noptimize(\n    model, *, output=None, rules=None, only=(), " in made["api.md"]
    assert "* `SiLU`, `silu(x)`: x * sigmoid(x).\n" in made["api.md"], "what computes the same is on one line"


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
    sections = json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    texts = [f"{section['title']} {section['text']}".lower() for section in sections]
    for query in SEARCHES:
        assert any(all(word in text for word in query.split()) for text in texts), query
    fetched = re.compile(r"<(?:script|img|iframe)[^>]*src=.?(?:https?:)?//|<link[^>]*stylesheet[^>]*href=.?http")
    built = list(tmp_path.rglob("*.html"))
    assert len(built) > len(pages())
    assert [page.name for page in built if fetched.search(page.read_text())] == []


def test_the_map_of_the_readme_names_what_there_is() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = {path.rstrip("/") for path in re.findall(r"`([\w./-]+/[\w./-]*)`", text.partition("\n## The map\n")[2])}
    assert [path for path in named if not (ROOT / path).exists()] == []
    packages = {f"graphopt/{path.parent.name}" for path in ROOT.glob("graphopt/*/__init__.py")}
    assert packages - named == set()
    assert len(text.splitlines()) <= 150
