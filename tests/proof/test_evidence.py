"""Every standard rule ships with evidence of what it says now, and with none that contradicts its class."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from graphopt.errors import ReadError
from graphopt.proof import evidence
from graphopt.proof.evidence import KINDS, Evidence, digest, evidence_of, kept, key, read, solver_of, sources, written
from graphopt.rewrite.guards import weights
from graphopt.rewrite.guards.functions import FUNCTIONS
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule, Soundness
from graphopt.rewrite.ruleset import standard, standard_folder

CHEAP = 200
"""Work of proofs that are made again in any case,"""
EACH = 16
"""and of the others, one in so many."""
DEAR = 1200
"""Work of proofs that only the slow tests make again."""


def rule(text: str, soundness: str = "exact") -> Rule:
    return parse_rules(f"# why [A1] {soundness}\nr: {text}")[0]


def test_the_evidence_is_current() -> None:
    lacking = [rule.name for rule in standard().rules if evidence_of(rule) is None]
    assert not lacking, f"no evidence of {', '.join(lacking)}: run `graphopt rules prove --update`"
    keys = {key(rule) for rule in standard().rules}
    gone = [k for k in kept() if k not in keys]
    assert not gone, f"evidence of {len(gone)} rules that are gone: run `graphopt rules prove --update`"


def test_no_evidence_contradicts_a_class() -> None:
    for rule in standard().rules:
        found = evidence_of(rule)
        assert found is None or found.kind in KINDS, rule.name
        # what is claimed bit by bit is not proved over the reals alone
        is_exact = rule.soundness in (Soundness.EXACT, Soundness.FINITE)
        assert found is None or found.kind != "reals" or not is_exact, rule.name


def test_what_changes_a_rule_makes_its_evidence_void() -> None:
    rule = next(r for r in standard().rules if evidence_of(r) is not None)
    assert evidence_of(replace(rule, reason="another", name="other")) == evidence_of(rule)
    assert evidence_of(replace(rule, rhs=rule.lhs)) is None


def test_what_changes_a_function_that_a_guard_calls_makes_evidence_void(monkeypatch: pytest.MonkeyPatch) -> None:
    calling = rule("Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=compose(p, q))")
    other = rule("Neg(Neg(x)) => x")
    before = key(calling), key(other)
    monkeypatch.setitem(FUNCTIONS, "compose", weights.lossless)  # type: ignore[index]
    assert key(calling) != before[0]
    assert key(other) == before[1]


def test_a_function_counts_with_what_it_calls_and_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sources(_calling)
    sources.cache_clear()
    assert sources(_calling) == before
    monkeypatch.setattr("graphopt.proof.evidence._is_own", lambda value: True)
    monkeypatch.setitem(globals(), "_LIMIT", 4)
    sources.cache_clear()
    changed = sources(_calling)
    monkeypatch.setitem(globals(), "_LIMIT", 5)
    sources.cache_clear()
    assert sources(_calling) != changed
    monkeypatch.setitem(globals(), "_called", _other)
    sources.cache_clear()
    assert sources(_calling) != changed
    sources.cache_clear()


_LIMIT = 3


def _called(n: int) -> bool:
    return n < _LIMIT


def _other(n: int) -> bool:
    return n <= _LIMIT


def _calling(n: int) -> bool:
    return _called(n + 1)


def test_what_changes_the_prover_makes_evidence_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proof").mkdir()
    (tmp_path / "proof" / "a.py").write_text("x = 1")
    (tmp_path / "b.py").write_text("y = 1")
    before = digest(tmp_path, ["proof", "b.py"])
    assert digest(tmp_path, ["proof", "b.py"]) == before
    (tmp_path / "b.py").write_text("y = 2")
    assert digest(tmp_path, ["proof", "b.py"]) != before
    (tmp_path / "b.py").write_text("y = 1")
    (tmp_path / "proof" / "c.py").write_text("")
    assert digest(tmp_path, ["proof", "b.py"]) != before
    one = key(rule("Neg(Neg(x)) => x"))
    monkeypatch.setattr(evidence, "_prover", lambda: before)
    assert key(rule("Neg(Neg(x)) => x")) != one


def test_a_part_of_the_prover_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="not there"):
        digest(tmp_path, ["gone.py"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReadError, match="not there"):
        digest(tmp_path, ["empty"])


def test_evidence_reads_back(tmp_path: Path) -> None:
    rules = standard().rules[:4]
    found = [
        Evidence("ieee", "float16, float32", 3), Evidence("index", "rank <= 3"), Evidence("checked", "16 graphs"),
        Evidence("reals", "all sizes, rank <= 4"),
    ]  # fmt: skip
    file = tmp_path / "evidence.json"
    file.write_text(written(zip(rules, found, strict=True), "4.0"))
    again = read(file)
    assert [again[key(r)] for r in rules] == found
    assert again[key(rules[0])].work == 3
    assert solver_of(file) == "4.0"
    assert [str(e) for e in found] == [
        "proved ieee (float16, float32)", "proved index (rank <= 3)", "checked (16 graphs)",
        "proved reals (all sizes, rank <= 4)",
    ]  # fmt: skip
    assert [e.is_of_all_sizes for e in found] == [True, False, False, True]


# -- made again


def is_due(rule: Rule, found: Evidence) -> bool:
    """Whether the default tests make a proof again: where it is cheap, and of the others some."""
    return found.is_proof and (found.work <= CHEAP or (found.work <= DEAR and int(key(rule), 16) % EACH == 0))


def forged(rules: list[Rule]) -> list[str]:
    """The rules whose evidence is not found again."""
    from graphopt.proof.prove import proof_of

    return [r.name for r in rules if proof_of(r).evidence != evidence_of(r)]


def test_the_proofs_that_take_little_are_found_again() -> None:
    solver = pytest.importorskip("graphopt.proof.solver", exc_type=ImportError)
    if solver.version() != solver_of(standard_folder() / evidence.FILE):
        pytest.skip("evidence was found with another version of z3")
    due = [r for r in standard().rules if (found := evidence_of(r)) is not None and is_due(r, found)]
    assert len(due) > 80
    assert not forged(due), "run `graphopt rules prove --update`"


def test_forged_evidence_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("z3")
    wrong = rule("Add(x, 1.0) => x", "reals")
    monkeypatch.setattr(evidence, "kept", lambda: {key(wrong): Evidence("ieee", "float16, float32", 1)})
    found = evidence_of(wrong)
    assert found is not None
    assert is_due(wrong, found)
    assert forged([wrong]) == ["r"]


@pytest.mark.slow
@pytest.mark.parametrize("rule", standard().rules, ids=lambda rule: rule.name)
def test_the_evidence_is_found_again(rule: Rule) -> None:
    """From nothing: neither what is kept nor what earlier checks found is taken."""
    pytest.importorskip("z3")
    from graphopt.proof.prove import find_evidence

    found = find_evidence(rule)
    assert found.evidence == evidence_of(rule), (
        f"{found.counterexample or found.why}: run `graphopt rules prove --update`"
    )


def test_the_file_names_each_rule_and_the_solver() -> None:
    stored = json.loads((standard_folder() / evidence.FILE).read_text(encoding="utf-8"))
    assert set(stored) == {"z3", "rules"}
    assert sorted(e["rule"] for e in stored["rules"].values()) == sorted(r.name for r in standard().rules)
