import pytest

from graphopt.errors import RuleError
from graphopt.rewrite.reading.wellformed import FAMILIES, bound, check, complaint, place, unify
from graphopt.rewrite.rule.rule import (
    ABSENT,
    CallPattern,
    Computed,
    Field,
    FunctionCall,
    Lit,
    Literal,
    NameRef,
    Rule,
    Series,
    VarPattern,
)

X = VarPattern("x")
RELU = CallPattern("Relu", (X,))


def test_there_are_222_families() -> None:
    assert sum(FAMILIES.values()) == 222


def test_a_rule_that_makes_sense_is_kept() -> None:
    rule = Rule("r", (RELU,), (X,))
    assert complaint(rule) is None
    assert check(rule) == rule


def test_the_first_thing_that_is_wrong() -> None:
    wrong = Rule("r", (RELU,), (VarPattern("y"),), source="my.py:3")
    found = complaint(wrong)
    assert found is not None
    assert found.part == VarPattern("y")
    with pytest.raises(RuleError, match=r"my\.py:3: r: `y` is not bound on the left; it binds x"):
        check(wrong)
    assert complaint(Rule("r", (RELU,), (X,)), strict=True) is not None


def test_marks_spread_over_both_sides() -> None:
    several = VarPattern("a", starred=True)
    rule = unify(Rule("r", (CallPattern("Sum", (VarPattern("a"),)),), (CallPattern("Sum", (several,)),)))
    assert rule.lhs == rule.rhs == (CallPattern("Sum", (several,)),)


def test_what_a_pattern_binds() -> None:
    pattern = CallPattern(
        "f",
        (CallPattern("Conv", (X, ABSENT), (("group", NameRef("g")),), "rest", name="m"), VarPattern("a", starred=True)),
    )
    names = bound((pattern,))
    assert (names.operands, names.attrs) == ({"x", "m", "a"}, {"g"})
    assert (names.heads, names.rests, names.starred) == ({"f"}, {"rest"}, {"a"})


def test_inputs_by_name() -> None:
    def clip(**named: object) -> CallPattern:
        return place(CallPattern("Clip", (X,), tuple(named.items())))  # type: ignore[arg-type]

    assert clip(max=Lit(6.0)) == CallPattern("Clip", (X, ABSENT, Literal(6.0)))
    assert clip(min=NameRef("l")) == CallPattern("Clip", (X, VarPattern("l")))
    high = Field(NameRef("x"), "high")
    assert clip(max=high, min=Lit(0.0)) == CallPattern("Clip", (X, Literal(0.0), Computed(high)))
    ones = Series((Lit(1), Lit(2)))
    assert place(CallPattern("Squeeze", (X,), (("axes", ones),))) == CallPattern("Squeeze", (X, Literal((1, 2))))
    made = FunctionCall("neg", (NameRef("k"),))
    assert place(CallPattern("Concat", (X,), (("axis", made),))) == CallPattern("Concat", (X,), (("axis", made),))
    with pytest.raises(RuleError, match="input 1 is given twice"):
        place(CallPattern("Clip", (X, Literal(0.0)), (("min", Lit(1.0)),)))
