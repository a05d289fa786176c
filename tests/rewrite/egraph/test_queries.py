"""Patterns become queries over the forms that occur."""

from __future__ import annotations

import pytest

from graphopt.rewrite.egraph.queries import ARRANGEMENTS, NOBODY, WIDEST, OpForm, Query, form, queries
from graphopt.rewrite.rule.rule import Literal
from tests.rewrite.small_graphs import rules


def written(text: str, *forms: OpForm) -> list[Query]:
    (rule,) = rules(f"r: {text}")
    return list(queries(rule, forms, {}))


def test_ops_of_fixed_arity_have_one_form() -> None:
    assert form("Clip", 1, 1) == form("Clip", 3, 1) == OpForm("Clip", 3)
    assert form("Concat", 2, 1) != form("Concat", 3, 1)
    assert form("Split", 2, 2) == OpForm("Split", 2, True)
    assert form("my::Op", 2, 1) == OpForm("my::Op", 2)


def test_names_of_models_do_not_reach_egglog() -> None:
    assert '"' not in OpForm('"); import os #', 1).table


@pytest.mark.parametrize("text", ["Relu(Neg(x)) => x", "Relu(x), Neg(x) => x, x"])
def test_rules_whose_ops_do_not_occur_cost_nothing(text: str) -> None:
    assert written(text, OpForm("Relu", 1)) == []
    assert len(written(text, OpForm("Relu", 1), OpForm("Neg", 1))) == 1


def test_roots_that_share_nothing_are_not_looked_for() -> None:
    assert written("Relu(x), Neg(y) => x, y", OpForm("Relu", 1), OpForm("Neg", 1)) == []


def test_one_row_for_each_call() -> None:
    (query,) = written("Relu(Neg(x)) => x", OpForm("Relu", 1), OpForm("Neg", 1))
    assert [m.form.op for m in query.calls] == ["Relu", "Neg"]
    assert len(query.atoms) == 2
    assert query.columns[0] == query.roots[0]


def test_inputs_left_out_are_absent() -> None:
    (query,) = written("Clip(x, lo) => x", OpForm("Clip", 3))
    assert query.calls[0].children[2] == NOBODY
    assert len(query.required) == 2


@pytest.mark.parametrize(("n", "count"), [(2, 1), (3, 3), (4, 4)])
def test_single_terms_stand_anywhere_where_order_does_not_matter(n: int, count: int) -> None:
    assert len(written("Max(Relu(x), a*) => x", OpForm("Max", n), OpForm("Relu", 1))) == count


def test_starred_variables_share_what_is_left() -> None:
    found = written("Concat(a*, Relu(x), b*, axis=k) => x", OpForm("Concat", 3), OpForm("Relu", 1))
    sizes = [tuple(len(v) for n, v in q.values if n in "ab") for q in found]
    assert sizes == [(0, 2), (1, 1), (2, 0)]


def test_families_have_a_row_for_each_member() -> None:
    (query,) = written("Concat(Relu(a*), axis=k) => Concat(a*, axis=k)", OpForm("Concat", 3), OpForm("Relu", 1))
    assert [m.form.op for m in query.calls] == ["Concat", "Relu", "Relu", "Relu"]
    assert len(dict(query.values)["a"]) == 3


def test_arrangements_are_limited() -> None:
    assert len(written("Concat(a*, b*, c*, axis=k) => Concat(a*, axis=k)", OpForm("Concat", 40))) == ARRANGEMENTS


def test_very_wide_calls_are_left_alone() -> None:
    pattern = "Concat(a*, axis=k) => Concat(a*, axis=k)"
    assert len(written(pattern, OpForm("Concat", WIDEST))) == 1
    assert written(pattern, OpForm("Concat", WIDEST + 1)) == []


def test_op_variables_stand_for_the_ops_that_occur() -> None:
    forms = [OpForm("Relu", 1), OpForm("Exp", 1), OpForm("Add", 2), OpForm("RandomNormal", 1)]
    assert [q.calls[0].form.op for q in written("f(x) => x where f in unary", *forms)] == ["Exp", "Relu"]


def test_an_op_variable_stands_for_one_op() -> None:
    found = written("Add(f(x), f(y)) => x where f in unary", OpForm("Add", 2), OpForm("Relu", 1), OpForm("Exp", 1))
    assert [[m.form.op for m in q.calls] for q in found] == [["Add", "Exp", "Exp"], ["Add", "Relu", "Relu"]]


def test_outputs_of_several_are_reached_through_their_node() -> None:
    (query,) = written("Relu(Split(x, s)[1]) => x", OpForm("Relu", 1), OpForm("Split", 2, True))
    assert [a.arguments[0] for a in query.atoms if a.table == "output"] == [1]
    assert written("Relu(Split(x, s)[1]) => x", OpForm("Relu", 1), OpForm("Split", 2)) == []


def test_equal_literals_have_one_number() -> None:
    (rule,) = rules("r: Add(Mul(x, 2.0), 2.0) => x")
    literals = {Literal(1.0): 0}
    (query,) = queries(rule, [OpForm("Add", 2), OpForm("Mul", 2)], literals)
    assert literals[Literal(2.0)] == 1
    assert [a.arguments[0] for a in query.atoms if a.table == "literal"] == [1, 1]


def test_op_variables_among_named_ops_look_for_no_others() -> None:
    (rule,) = rules('one-of: f(x, y) => f(y, x) where f in ("Add", "Mul")')
    found = list(queries(rule, [form("Add", 2, 1), form("Mul", 2, 1), form("Sub", 2, 1)], {}))
    assert {m.form.op for q in found for m in q.calls} == {"Add", "Mul"}
