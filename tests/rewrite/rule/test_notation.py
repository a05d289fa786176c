from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.rewrite.guards.functions import FUNCTIONS
from graphopt.rewrite.reading.parse import parse_expr, parse_rules
from graphopt.rewrite.rule.notation import INFIX, RESERVED, show_expr, show_rule
from graphopt.rewrite.rule.rule import (
    Each,
    Field,
    FunctionCall,
    GuardExpr,
    IndexExpr,
    Lit,
    NameRef,
    Series,
    joined,
    negative,
)

NAMES = st.from_regex(r"[a-z][a-z0-9]{0,3}", fullmatch=True).filter(lambda n: n not in RESERVED)
NUMBERS = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False)
LITS = st.builds(Lit, NUMBERS | st.booleans() | st.none() | st.text(st.characters(codec="utf-8"), max_size=5))
CALLED = [name for name in FUNCTIONS if name not in INFIX and name != "neg"]


def larger(inner: st.SearchStrategy[GuardExpr]) -> st.SearchStrategy[GuardExpr]:
    several = st.lists(inner, max_size=3).map(tuple)
    operators = sorted(set(INFIX) - {"and", "or"})
    return (
        st.builds(Field, inner, st.sampled_from(["rank", "shape"]))
        | st.builds(IndexExpr, inner, inner)
        | st.builds(IndexExpr, inner, st.none() | inner, st.none() | inner, st.just(True))
        | st.builds(Series, several)
        | st.builds(Each, inner)
        | st.builds(FunctionCall, st.sampled_from(operators), st.tuples(inner, inner))
        | st.builds(joined, st.sampled_from(["and", "or"]), st.tuples(inner, inner))
        | st.builds(FunctionCall, st.just("not"), st.tuples(inner))
        | st.builds(FunctionCall, st.just("if"), st.tuples(inner, inner, inner))
        | st.builds(negative, inner)
        | st.builds(FunctionCall, st.sampled_from(CALLED), several)
    )


EXPRS: st.SearchStrategy[GuardExpr] = st.recursive(LITS | st.builds(NameRef, NAMES), larger, max_leaves=12)


@settings(deadline=None)
@given(EXPRS)
def test_printed_expressions_read_back(expr: GuardExpr) -> None:
    assert parse_expr(show_expr(expr)) == expr


def test_printed_rules_read_back() -> None:
    rules = []
    folder = Path(__file__).parents[3] / "rules"
    for file in sorted(folder.glob("*.rules")):
        rules += parse_rules(file.read_text(), file.name, strict=True)
    for rule in rules:
        assert parse_rules(show_rule(rule)) == [rule]


def test_what_is_printed() -> None:
    text = (
        "# a reason that is long enough to be broken: it goes on and on until nobody can read it in one line of\n"
        "# a hundred columns  [H8,K4] reals always for ort\n"
        "name:  Split(Clip(f(x, **r), _, 6.0) as m, [1, -2], axis=k)[1], (Relu(a*) | Exp(a*))"
        "\n    =>  com.microsoft::Gelu(m), Add(x, {(1,) like x})\n"
        "    where (k == 1 or x.rank == 2) and -k ** 2 in (1, 2.0) and not x.is_const and x.dtype not in float\n"
    )
    (rule,) = parse_rules(text)
    assert show_rule(rule) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("(a + b) + c", "a + b + c"),
        ("a + (b + c)", "a + (b + c)"),
        ("(a * b) ** -c", "(a * b) ** -c"),
        ("-(2)", "-2"),
        ("(-2) ** 2", "(-2) ** 2"),
        ("(a == b) == c", "(a == b) == c"),
        ("not (not a)", "not not a"),
        ("(a if b else c) + 1", "(a if b else c) + 1"),
        ("[a, b]", "(a, b)"),
        ("(each a.rank,)", "[each a.rank]"),
        ("f(each a.rank, 1)", "f(each a.rank, 1)"),
        ("'x'", '"x"'),
        ("(1).x", "(1).x"),
    ],
)
def test_expressions_have_no_needless_parentheses(text: str, shown: str) -> None:
    assert show_expr(parse_expr(text)) == shown
