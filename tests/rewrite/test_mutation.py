"""Rules with one thing wrong are seen to be wrong, in nearly all cases; what came of each is kept beside this file.

``python -m tests.rewrite.mutation --write`` judges the rules that changed since.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule
from tests.rewrite.mutation import (
    chosen_mutants,
    figures,
    judge,
    main,
    mutants,
    rules_by_name,
    share_killed,
    stored,
)


def rule(text: str, soundness: str = "exact") -> Rule:
    return parse_rules(f"# why [A1] {soundness}\nr: {text}")[0]


def changes(text: str) -> set[str]:
    return {m.change for m in mutants(rule(text))}


def test_guards_numbers_operands_and_attributes_are_changed() -> None:
    assert changes("Add(x, 0.0) => x where x.rank < 3") == {
        "without `x.rank < 3`", "`x.rank <= 3` as guard 1", "`x.rank < 4` as guard 1", "1.0 for 0.0 on the left",
    }  # fmt: skip
    assert "Sub(y, x) for Sub(x, y) on the right" in changes("Neg(Sub(y, x)) => Sub(x, y)")
    assert "Transpose without perm on the right" in changes("Transpose(Neg(x), perm=p) => Neg(Transpose(x, perm=p))")
    text = "Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=compose(p, q))"
    assert "Transpose with perm=compose(q, p) on the right" in changes(text)


def test_the_same_mutants_are_chosen_every_time() -> None:
    for some in list(rules_by_name().values())[:20]:
        assert [m.rule for m in chosen_mutants(some)] == [m.rule for m in chosen_mutants(some)]


@pytest.mark.parametrize(
    ("text", "soundness", "killed"),
    [
        ("Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=compose(p, q))", "exact", 2),
        ("Div(x, y) => Mul(x, Reciprocal(y)) where x.dtype in float", "reals", 1),
        ("Clip(Relu(x), lo, hi) => Clip(x, Max(lo, 0.0), hi)", "exact", 2),
    ],
)
def test_wrong_rules_are_killed(text: str, soundness: str, killed: int) -> None:
    right = rule(text, soundness)
    fates = [judge(right, m) for m in mutants(right)]
    assert sum(o.fate == "killed" for o in fates) >= killed
    assert all(o.why for o in fates)


def test_nearly_all_mutants_are_killed_and_the_others_are_told() -> None:
    data = stored()
    assert share_killed(data) >= 0.95, figures(data)
    assert all(why for entry in data.values() for why in entry["equivalent"].values())


def test_too_few_that_are_killed_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rules are judged from nothing where the file is another, and none that is judged is judged again."""
    data = tmp_path / "mutation.json"
    for _ in range(2):
        with pytest.raises(SystemExit, match=r"100.0 % of the mutants are killed, and 101 % have to be"):
            main(["bool-choice-not", "--data", str(data), "--write", "--least", "1.01"])
        assert list(stored(data)) == ["bool-choice-not"]
        assert "mutants of 1 rules" in capsys.readouterr().out
    main(["bool-choice-not", "--data", str(data), "--least", "0.95"])
