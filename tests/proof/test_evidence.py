"""Every standard rule ships with evidence of what it says now, and with none that contradicts its class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphopt.proof.evidence import KINDS, Evidence, evidence_of, kept, read, written
from graphopt.proof.prove import find_evidence
from graphopt.rewrite.rule.rule import Rule, Soundness
from graphopt.rewrite.rule.rule_digest import content
from graphopt.rewrite.ruleset import standard


def test_the_evidence_is_current() -> None:
    lacking = [rule.name for rule in standard().rules if evidence_of(rule) is None]
    assert not lacking, f"no evidence of {', '.join(lacking)}: run `graphopt rules prove --update`"
    contents = {content(rule) for rule in standard().rules}
    gone = [key for key in kept() if key not in contents]
    assert not gone, f"evidence of {len(gone)} rules that are gone: run `graphopt rules prove --update`"


def test_no_evidence_contradicts_a_class() -> None:
    for rule in standard().rules:
        evidence = evidence_of(rule)
        assert evidence is None or evidence.kind in KINDS, rule.name
        # what is claimed bit by bit is not proved over the reals alone
        is_exact = rule.soundness in (Soundness.EXACT, Soundness.FINITE)
        assert evidence is None or evidence.kind != "reals" or not is_exact, rule.name


def test_what_changes_a_rule_makes_its_evidence_void() -> None:
    rule = next(r for r in standard().rules if evidence_of(r) is not None)
    assert evidence_of(replace(rule, reason="another", name="other")) == evidence_of(rule)
    assert evidence_of(replace(rule, rhs=rule.lhs)) is None


def test_evidence_reads_back(tmp_path: Path) -> None:
    rules = standard().rules[:3]
    found = [Evidence("ieee", "float16, float32"), Evidence("index", "rank <= 3"), Evidence("checked")]
    (tmp_path / "evidence.json").write_text(written(zip(rules, found, strict=True)))
    again = read(tmp_path / "evidence.json")
    assert [again[content(r)] for r in rules] == found
    assert [str(e) for e in found] == ["proved ieee (float16, float32)", "proved index (rank <= 3)", "checked"]


@pytest.mark.slow
@pytest.mark.parametrize("rule", standard().rules, ids=lambda rule: rule.name)
def test_the_evidence_is_found_again(rule: Rule) -> None:
    """From nothing: neither what is kept nor what earlier checks found is taken."""
    pytest.importorskip("z3")
    found = find_evidence(rule)
    assert found.evidence == evidence_of(rule), (
        f"{found.counterexample or found.why}: run `graphopt rules prove --update`"
    )
