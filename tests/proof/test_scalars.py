"""What is true of all numbers is proved, and what is not is refuted by numbers that show it."""

from __future__ import annotations

import pytest

pytest.importorskip("z3")

import z3

from graphopt.proof.prove import demonstrate
from graphopt.proof.scalars import prove
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule
from graphopt.rewrite.ruleset import standard


def rule(text: str, soundness: str) -> Rule:
    return parse_rules(f"# why [A1] {soundness}\nr: {text}")[0]


@pytest.mark.parametrize(
    ("text", "soundness", "kind"),
    [
        ("Neg(Neg(x)) => x", "exact", "ieee"),
        ("Sub(x, 0.0) => x", "exact", "ieee"),
        ("Add(x, Neg(y)) => Sub(x, y)", "exact", "ieee"),
        ("Add(x, 0.0) => x", "reals", "reals"),
        ("Not(Less(x, y)) => GreaterOrEqual(x, y)", "finite", "ieee"),
        ("Max(Max(x, c), d) => Max(x, Max(c, d))", "exact", "ieee"),
        ("f(f(x)) => f(x) where f in (\"Relu\", \"Ceil\", \"Round\", \"Sign\", \"Abs\")", "exact", "ieee"),
        ("f(Identity(x)) => f(x) where f in unary", "exact", "ieee"),
        ("Add(Mul(x, 2), y) => Add(Add(x, x), y) where x.dtype in int", "exact", "ieee"),
        ("Not(And(x, y)) => Or(Not(x), Not(y))", "exact", "ieee"),
        ("BitwiseNot(BitwiseAnd(x, y)) => BitwiseOr(BitwiseNot(x), BitwiseNot(y))", "exact", "ieee"),
        ("Relu(x) => x where x.low >= 0", "reals", "reals"),
        # a number however often, and guards once the op is known
        ("And(x, c) as z => Expand(false, {target(z.shape)}) where c.is_const and not any(flat(c.value))", "exact",
         "ieee"),
        ('f(x, y) as z => Expand(true, {target(z.shape)}) where f in ("Less", "Greater") and x.dtype in int '
         'and (f == "Less" and x.high < y.low or f == "Greater" and x.low > y.high)', "exact", "ieee"),
        ("Clip(x, lo, hi) => x where x.low >= lo.value and x.high <= hi.value", "reals", "reals"),
        ("Where(c, x, y) => x where all(flat(c.value))", "exact", "ieee"),
        ("Mul(Exp(x), Exp(y)) => Exp(Add(x, y))", "reals", "reals"),
        ("Div(1.0, Add(Exp(Neg(x)), 1.0)) => Sigmoid(x)", "reals", "reals"),
        ("Mul(Mul(x, Add(Erf(Div(x, 1.4142135)), 1.0)), 0.5) => Gelu(x)", "reals", "reals"),
        ("Clip(x, lo?, hi?) => Clip(Clip(x, lo, hi), lo, hi)", "reals", "ieee"),
    ],
)  # fmt: skip
def test_proofs(text: str, soundness: str, kind: str) -> None:
    found = prove(rule(text, soundness))
    assert found.kind == kind, found.why


@pytest.mark.parametrize(
    ("text", "soundness"),
    [
        ("Add(x, 0.0) => x", "exact"),
        ("Mul(x, 0.0) => Sub(x, x)", "finite"),
        ("Max(x, 0.0) => Abs(x)", "reals"),
        ("Not(Less(x, y)) => Greater(x, y)", "reals"),
        ("Div(x, y) => Mul(x, Reciprocal(y)) where x.dtype in float", "exact"),
        ("Div(Mul(x, 2), 2) => x where x.dtype in int", "exact"),
        ("Clip(x, lo, hi) => Max(x, lo) where lo.scalar <= hi.scalar", "reals"),
        ("Log(Mul(x, y)) => Add(Log(x), Log(y))", "reals"),
    ],
)
def test_counterexamples_are_shown_as_a_model_and_inputs(text: str, soundness: str) -> None:
    claim = rule(text, soundness)
    found = prove(claim)
    assert found.kind is None
    assert found.counterexample is not None
    shown = demonstrate(claim, found.counterexample)
    assert shown is not None
    assert "return" in shown
    assert "the right side" in shown


@pytest.mark.parametrize(
    ("text", "soundness"),
    [
        ("And(x, c) as z => Expand(true, {target(z.shape)}) where c.is_const and not any(flat(c.value))", "exact"),
        ('f(x, y) as z => Expand(true, {target(z.shape)}) where f in ("Less", "Greater") and x.dtype in int '
         'and (x.high < y.low or f == "Greater" and x.low > y.high)', "exact"),
        # of a negation no part is left out, which would make it stronger
        ("Max(x, 0.0) => x where not (x.low < 0 and x.rank == 3)", "reals"),
    ],
)  # fmt: skip
def test_a_guard_is_read_for_no_more_than_it_says(text: str, soundness: str) -> None:
    assert prove(rule(text, soundness)).kind is None


@pytest.mark.parametrize(
    ("text", "soundness", "inputs"),
    [
        ("Max(x, 0.0) => Abs(x)", "reals", "x = -1. gives"),
        ("Div(x, y) => Mul(x, Reciprocal(y)) where x.dtype in float", "exact", "x = 3., y = 5. gives"),
        ("Add(x, 0.0) => x", "exact", "x = -0. gives"),
        ("BitwiseNot(x) => Neg(x) where x.dtype in int", "exact", "x = 1 gives"),
        ("Or(x, y) => And(x, y)", "exact", "x = True, y = False gives"),
    ],
)
def test_counterexamples_are_the_simplest_whatever_the_solver_was_asked_before(
    text: str, soundness: str, inputs: str
) -> None:
    claim = rule(text, soundness)
    shown = set()
    for asked in range(12):  # each question leaves its terms in the context that all solvers of a process share
        a, b = z3.Ints(f"a{asked} b{asked}")
        other = z3.Solver()
        other.add(a * b == asked + 7, a > 1)
        assert other.check() == z3.sat
        counterexample = prove(claim).counterexample
        assert counterexample is not None
        shown.add(demonstrate(claim, counterexample))
    (text,) = shown
    assert f"with {inputs}" in text


def test_what_has_no_translation_is_not_proved() -> None:
    assert "does not act on each element" in prove(rule("MatMul(x, y) => MatMul(x, y)", "exact")).why
    assert prove(rule("Exp(Log(x)) => x", "exact")).kind is None


def test_guards_that_never_hold_prove_nothing() -> None:
    assert prove(rule("Relu(x) => Abs(x) where x.low > 1 and x.high < 0", "reals")).kind is None
    assert prove(rule('Relu(x) => Abs(x) where x.dtype == "string"', "reals")).kind is None


def test_what_was_asked_before_does_not_change_what_is_found() -> None:
    masks = next(r for r in standard().rules if r.name == "softmax-masks")
    alone = prove(masks)
    for other in [r for r in standard().rules if r.name in ("add-zero", "gelu-first", "mod-of-small", "clip-clip")]:
        prove(other)
    assert prove(masks) == alone


def test_work_is_counted_in_steps_and_not_in_time() -> None:
    one = rule("Max(Max(x, c), d) => Max(x, Max(c, d))", "exact")
    assert prove(one).work == prove(one).work > 0
