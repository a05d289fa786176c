"""The pages of the standard rules say what the rules say."""

from __future__ import annotations

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
    assert "`x` holds floats" in section
    assert "`c` is a constant" in section
    assert "`x` is no constant" in section
    assert "(`reals`); evidence: " in section
    assert "onnx" in section.lower()
