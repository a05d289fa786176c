"""The pages of the standard rules say what the rules say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphopt.rewrite.ruleset import standard
from graphopt.tools.documentation import pages, write

DOCS = Path(__file__).parents[2] / "docs" / "rules"


def test_every_rule_has_a_section() -> None:
    text = "\n".join(pages().values())
    for rule in standard().rules:
        assert f"\n## {rule.name}\n" in text


@pytest.mark.skipif(not DOCS.is_dir(), reason="the documentation is in a checkout only")
def test_the_pages_are_current() -> None:
    made = pages()
    kept = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")}
    stale = sorted(name for name in {*made, *kept} if made.get(name) != kept.get(name))
    assert not stale, f"{', '.join(stale)}: run `graphopt rules docs`"


def test_writing_takes_away_pages_that_are_gone(tmp_path: Path) -> None:
    (tmp_path / "gone.md").write_text("old")
    written = write(tmp_path)
    assert tmp_path / "README.md" in written
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in written)


def test_a_section_says_all_there_is_to_say() -> None:
    page = pages()["elementwise.md"]
    section = page[page.index("## div-constant") :]
    section = section[: section.index("\n## ")]
    assert "Div(x, c)\n  =>\nMul(x, Reciprocal(c))" in section
    assert "`x`: floats, not constant" in section
    assert "`c`: constant" in section
    assert re.search(r"^H\d+; explored.*; `reals`, (proved|checked)", section, re.MULTILINE)
    assert "onnx" in page[: page.index("\n## ")]


def test_what_guards_call_is_explained_once() -> None:
    made = pages()
    assert made["README.md"].count("\n| `has_step` | Whether ") == 1
    assert "`has_step(s.value)`" in made["quantization.md"]
    assert "Whether quantizing by this scale" not in made["quantization.md"]


def test_conditions_on_one_variable_stand_together() -> None:
    assert "\nWhere `y`: read once; `w`, `b`, `s`, `o`, `m`, `v`: constant; `" in pages()["convolutions.md"]
