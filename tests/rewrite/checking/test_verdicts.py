"""Verdicts are kept by a rule's content, and found again."""

from __future__ import annotations

from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from graphopt.rewrite.checking.verdicts import Verdicts
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Soundness
from graphopt.rewrite.rule.rule_digest import content

RULE = parse_rules("# twice negated [C11] exact\ntwice: Neg(Neg(x)) => x")[0]
WRONG = parse_rules("# nonsense [C11] exact\nwrong: Neg(x) => x")[0]


def test_a_verdict_is_reached_once(tmp_path: Path) -> None:
    verdicts = Verdicts(tmp_path / "cache" / "checks.sqlite")
    first = [verdicts.check(RULE), verdicts.check(WRONG)]
    assert verdicts.hits == 0
    verdicts.close()
    again = Verdicts(tmp_path / "cache" / "checks.sqlite")
    assert [again.check(RULE), again.check(WRONG)] == first
    assert again.hits == 2
    assert first[1].problem is not None
    assert again.check(RULE, seed=1).problem is None
    assert again.hits == 2
    again.close()


def test_content_is_what_a_rule_claims() -> None:
    assert content(RULE) == content(replace(RULE, name="other", reason="because", family="A1"))
    assert content(RULE) != content(replace(RULE, soundness=Soundness.REALS))
    assert content(RULE) != content(WRONG)


def test_a_file_that_cannot_be_used_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "broken.sqlite").write_bytes(b"no database at all" * 100)
    for file in (tmp_path / "broken.sqlite", tmp_path):
        verdicts = Verdicts(file)
        assert verdicts.check(RULE).problem is None
        assert verdicts.check(RULE).problem is None
        verdicts.close()


def _check(file: Path) -> bool:
    verdicts = Verdicts(file)
    found = [verdicts.check(RULE, seed).problem is None for seed in range(3)]
    verdicts.close()
    return all(found)


def test_two_processes_at_once(tmp_path: Path) -> None:
    with get_context("spawn").Pool(2) as pool:
        assert all(pool.map(_check, [tmp_path / "checks.sqlite"] * 2))
