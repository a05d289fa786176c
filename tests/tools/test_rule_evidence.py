from dataclasses import replace

import pytest

import graphopt
from graphopt import ops, rule
from graphopt.errors import UsageError
from graphopt.rewrite.rule.rule import Rule


@rule(family="H6", reals=True)
def magnitude(x):  # type: ignore[no-untyped-def]
    """The larger of a number and its negative is its magnitude."""
    return ops.Max(x, ops.Neg(x)).becomes(ops.Abs(x), when=x.dtype.in_("float"))


@rule(family="H4", reals=True)
def root_of_square(x):  # type: ignore[no-untyped-def]
    """The root of a square is the number itself, one would think."""
    return ops.Sqrt(ops.Mul(x, x)).becomes(x)


def test_a_right_rule_agrees_and_a_wrong_one_has_a_counterexample() -> None:
    right, wrong = graphopt.check(magnitude, seconds=5), graphopt.check(root_of_square)
    assert right.problem is None
    assert right.compared > 20
    assert str(right).startswith("magnitude agrees, on ")
    assert wrong.problem is not None
    assert str(wrong).endswith(wrong.problem)


def test_deep_checks_try_more_graphs() -> None:
    assert graphopt.check(magnitude, deep=True).fired > graphopt.check(magnitude).fired


def test_no_time_is_told() -> None:
    assert graphopt.check(replace(magnitude, name="other"), seconds=0).is_late


def test_proofs_are_those_of_the_command_line() -> None:
    pytest.importorskip("z3")
    assert str(graphopt.prove(magnitude)) == "magnitude: proved ieee (float16, float32)"
    refuted = graphopt.prove(root_of_square)
    assert refuted.evidence is None
    assert refuted.counterexample
    assert str(refuted).startswith("root-of-square: refuted\n")


@pytest.mark.parametrize("function", [graphopt.check, graphopt.prove])
def test_what_is_no_rule_is_told(function) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match="expected a rule"):
        function("max-zero")
    assert isinstance(magnitude, Rule)
