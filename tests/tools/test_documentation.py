"""The pages of the standard rules say what the rules say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphopt.proof.evidence import evidence_of
from graphopt.rewrite.rule.rule import RuleStage
from graphopt.rewrite.ruleset import standard
from graphopt.tools.documentation import pages, write

DOCS = Path(__file__).parents[2] / "docs" / "rules"


def test_every_rule_has_a_section() -> None:
    text = "\n".join(pages().values())
    for rule in standard().rules:
        assert f"\n### {rule.name}\n" in text


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


def section(name: str, page: str) -> str:
    text = pages()[page]
    return text[text.index(f"\n### {name}\n") :].split("\n#", 2)[1]


def test_an_entry_says_why_how_equal_and_what() -> None:
    assert section("div-constant", "elementwise.md") == (
        "## div-constant\n\n"
        "Dividing by a constant is multiplying by its reciprocal. `reals`, proved.\n\n"
        "    Div(x, c)  =>  Mul(x, Reciprocal(c))\n"
    )


def test_rules_that_are_longer_than_a_line_are_left_to_their_files() -> None:
    assert section("blocked-conv", "blocked.md") == (
        "## blocked-conv\n\nA convolution of many channels in the blocked layout. `reals`, for cpu.\n"
    )
    assert max(map(len, re.findall(r"^    .*$", "\n".join(pages().values()), re.MULTILINE))) > 100
    assert "](../../rules/blocked.rules)" in pages()["blocked.md"]


def test_what_holds_for_some_rules_only_is_said_of_them() -> None:
    rules = standard().rules
    kept = [evidence_of(rule) for rule in rules]
    text = "\n".join(pages().values())
    for mark, number in {
        "unguarded": sum(not rule.where for rule in rules),
        "always": sum(rule.stage is RuleStage.ALWAYS for rule in rules),
        "proved": sum(evidence is not None and evidence.is_proof for evidence in kept),
    }.items():
        assert len(re.findall(rf"`(?:exact|finite|reals|approx)`[^`\n]*, {mark}\b", text)) == number
    bounded = sum(evidence is not None and evidence.is_proof and not evidence.is_of_all_sizes for evidence in kept)
    assert len(re.findall(r"`, proved \(rank \d", text)) == bounded > 0
    assert ", for cpu." in section("blocked-conv", "blocked.md")
    assert section("zeros-integer", "elementwise.md").splitlines()[2].endswith(", always, H16.")


def test_rules_of_a_family_stand_under_its_name() -> None:
    page = pages()["elementwise.md"]
    division = page[page.index("\n## Division\n") :]
    assert division.startswith("\n## Division\n\nH2, also in ONNX Runtime, XLA.\n\n### ")
    assert "\n### div-constant\n" in division[: division.index("\n## ", 1)]


def test_what_guards_call_is_explained_once() -> None:
    values, _, conditions = pages()["README.md"].partition("\nThese are true if:\n")
    assert "\n* `fill`: `n` times the same element\n" in values
    assert conditions.count("\n* `has_step`: quantizing by ") == 1
