import pytest

from graphopt.errors import RuleError
from graphopt.rewrite.reading.wellformed import FAMILIES, bound, check, complaint, place, unify
from graphopt.rewrite.rule.rule import ABSENT, Apply, Call, Computed, Field, Lit, Literal, Ref, Rule, Series, Var

X = Var("x")
RELU = Call("Relu", (X,))


def test_there_are_222_families() -> None:
    assert sum(FAMILIES.values()) == 222


def test_a_rule_that_makes_sense_is_kept() -> None:
    rule = Rule("r", (RELU,), (X,))
    assert complaint(rule) is None
    assert check(rule) == rule


def test_the_first_thing_that_is_wrong() -> None:
    wrong = Rule("r", (RELU,), (Var("y"),), source="my.py:3")
    found = complaint(wrong)
    assert found is not None
    assert found.part == Var("y")
    with pytest.raises(RuleError, match=r"my\.py:3: r: `y` is not bound on the left; it binds x"):
        check(wrong)
    assert complaint(Rule("r", (RELU,), (X,)), strict=True) is not None


def test_marks_spread_over_both_sides() -> None:
    several = Var("a", starred=True)
    rule = unify(Rule("r", (Call("Sum", (Var("a"),)),), (Call("Sum", (several,)),)))
    assert rule.lhs == rule.rhs == (Call("Sum", (several,)),)


def test_what_a_pattern_binds() -> None:
    pattern = Call("f", (Call("Conv", (X, ABSENT), (("group", Ref("g")),), "rest", name="m"), Var("a", starred=True)))
    names = bound((pattern,))
    assert (names.operands, names.attrs) == ({"x", "m", "a"}, {"g"})
    assert (names.heads, names.rests, names.starred) == ({"f"}, {"rest"}, {"a"})


def test_inputs_by_name() -> None:
    def clip(**named: object) -> Call:
        return place(Call("Clip", (X,), tuple(named.items())))  # type: ignore[arg-type]

    assert clip(max=Lit(6.0)) == Call("Clip", (X, ABSENT, Literal(6.0)))
    assert clip(min=Ref("l")) == Call("Clip", (X, Var("l")))
    high = Field(Ref("x"), "high")
    assert clip(max=high, min=Lit(0.0)) == Call("Clip", (X, Literal(0.0), Computed(high)))
    ones = Series((Lit(1), Lit(2)))
    assert place(Call("Squeeze", (X,), (("axes", ones),))) == Call("Squeeze", (X, Literal((1, 2))))
    made = Apply("neg", (Ref("k"),))
    assert place(Call("Concat", (X,), (("axis", made),))) == Call("Concat", (X,), (("axis", made),))
    with pytest.raises(RuleError, match="input 1 is given twice"):
        place(Call("Clip", (X, Literal(0.0)), (("min", Lit(1.0)),)))
