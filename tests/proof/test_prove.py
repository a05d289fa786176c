"""The strongest evidence is found, and a rule that is false gets none."""

from __future__ import annotations

import pytest

pytest.importorskip("z3")

from graphopt.proof.evidence import Evidence, evidence_of
from graphopt.proof.prove import ARITHMETIC, figures, find_evidence, is_arithmetic
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule
from graphopt.rewrite.ruleset import standard


def rule(text: str, soundness: str) -> Rule:
    return parse_rules(f"# why [A1] {soundness}\nr: {text}")[0]


@pytest.mark.parametrize(
    ("text", "soundness", "kind"),
    [
        ("Neg(Neg(x)) => x", "exact", "ieee"),
        ("Add(x, 0.0) => x", "reals", "reals"),
        ("Flatten(Flatten(x, axis=j), axis=k) as y => Reshape(x, {target(y.shape)})", "exact", "index"),
        ("LRN(Neg(Neg(x)), **rest) => LRN(x, **rest)", "exact", "checked"),
    ],
)
def test_evidence(text: str, soundness: str, kind: str) -> None:
    found = find_evidence(rule(text, soundness), 2000)
    assert (found.evidence and found.evidence.kind) == kind, found.why


def test_a_false_rule_gets_a_counterexample() -> None:
    found = find_evidence(rule("Max(x, 0.0) => Abs(x)", "reals"))
    assert found.evidence is None
    assert found.counterexample is not None
    assert "return" in found.counterexample
    found = find_evidence(rule("Softmax(x, axis=k) => Softmax(x, axis=0)", "reals"))
    assert found.evidence is None
    assert "the right side" in str(found.counterexample)


def test_enough_rules_of_arithmetic_are_proved() -> None:
    found = [(r, evidence_of(r)) for r in standard().rules if is_arithmetic(r)]
    assert len(found) > 40
    proved = [r.name for r, e in found if e is not None and e.is_proof]
    assert len(proved) >= 0.6 * len(found), figures(found)


def test_figures() -> None:
    pairs = [(rule("Neg(Neg(x)) => x", "exact"), Evidence("ieee")), (rule("Exp(x) => Exp(x)", "exact"), None)]
    assert figures(pairs).startswith("1 of 1 rules of arithmetic")
    assert figures(pairs).endswith("1 of all 2")
    assert "Exp" not in ARITHMETIC


@pytest.mark.parametrize(
    ("text", "soundness"),
    [
        ("Where(c, o, z) as y => Cast(c, to=code(y.dtype)) where o.is_const and z.is_const and o.size == 1 "
         "and z.size == 1 and o.scalar == 1 and z.scalar == 0 and o.rank <= c.rank and z.rank <= c.rank", "exact"),
        ("Max(Min(x, hi), lo) => Clip(x, Squeeze(lo), Squeeze(hi)) where lo.is_const and hi.is_const and lo.size == 1 "
         "and hi.size == 1 and lo.scalar <= hi.scalar", "finite"),
    ],
)  # fmt: skip
def test_what_proofs_found_wrong_with_rules_that_passed_their_check(text: str, soundness: str) -> None:
    found = find_evidence(rule(text, soundness))
    assert found.evidence is None or not found.evidence.is_proof
