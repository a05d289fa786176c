"""What is too wide for egglog is joined here, and gives the same rows."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph, Value
from graphopt.ir.infer import infer
from graphopt.rewrite.egraph import joins, matching
from graphopt.rewrite.egraph.saturate import SaturationBudget, _Run
from tests.rewrite.egraph.test_matching import RULES
from tests.rewrite.egraph.test_matching import graph as any_graph
from tests.rewrite.small_graphs import Maker, rules

COUNTS = (3, 16, 17, 60, 200)
VARIADIC = """
joined: Concat(Relu(a*), axis=k) => Relu(Concat(a*, axis=k))
pairs: Sum(Mul(a*, b*)) => ReduceSum(Mul(Concat(a*, axis=0), Concat(b*, axis=0)), keepdims=0) where len(a) == 0
found: Slice(Concat(a*, y, b*, axis=k) as m, s, e, x) => y
    where x.value[0] == k and s.value[0] == sum(each a.shape[k]) and e.value[0] == s.value[0] + y.shape[k]
flat: Concat(a*, Concat(b*, axis=j), c*, axis=k) => Concat(a*, b*, c*, axis=k) where j == k
shared: MatMul(x, a*) => Split(MatMul(x, Concat(a*, axis=1)), {[each a.shape[1]]}, axis=-1)
    where a.is_const and a.rank == 2
"""


def ints(m: Maker, *numbers: int) -> list[Value]:
    return [m.graph.add_constant(Constant.of(np.asarray([n], np.int64))) for n in numbers]


def variadic(n: int) -> Graph:
    """``n`` relus put together twice, one inside, a slice that is one of them, and products of one input."""
    m = Maker()
    values = [m("Relu", m.input(f"x{i}", 2)) for i in range(n)]
    whole = m("Concat", *values, axis=0)
    part = m("Slice", whole, *ints(m, 2, 4, 0))
    nested = m("Concat", whole, m("Neg", values[0]), axis=0)
    x = m.input("x", 3, 4)
    products = [m("MatMul", x, m.constant(np.full((4, 1), i))) for i in range(n)]
    return m.done(nested, part, *products)


def run(graph: Graph, text: str = VARIADIC) -> _Run:
    found = _Run(graph, infer(graph), rules(text), SaturationBudget(), None)
    found.run()
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("name", "value"), [("SQUARES", 0), ("WIDE", 1), ("DECLARING", 50), ("DECLARING", 500)])
def test_rows_are_those_of_egglog(seed: int, name: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> list[object]:
        graph = any_graph(seed)
        classes = matching.Classes(graph, infer(graph), 10_000)
        found = matching.Matching(classes, RULES)
        found.search(range(len(RULES)))
        return [(f.query.rule.name, f.query.columns, f.waiting) for fs in found.relations for f in fs]

    monkeypatch.setattr(matching, "DECLARING", 0)
    by_egglog = rows()
    monkeypatch.setattr(matching, name, value)
    assert rows() == by_egglog


def test_egglog_is_told_of_what_takes_longer_to_join_than_to_tell() -> None:
    def declared(n: int) -> set[bool]:
        m = Maker()
        values = [m("Add", m("Mul", m.input(f"x{i}", 2), m.input(f"y{i}", 2)), m.input(f"z{i}", 2)) for i in range(n)]
        found = run(m.done(*values), "apart: Add(Mul(x, y), z) => Add(z, Mul(y, x))")
        return {f.left is None for fs in found.matching.relations for f in fs}

    assert declared(2) == {False}
    assert declared(1000) == {True}


@pytest.mark.parametrize("n", COUNTS)
def test_variadic_rules_apply_however_many_inputs_there_are(n: int) -> None:
    found = run(variadic(n))
    assert {r: found.statistics[r].fired for r in ("found", "flat", "shared")} == {"found": 1, "flat": 1, "shared": 1}
    assert found.statistics["joined"].fired >= 1
    assert not found.matching.put_off


def test_what_is_declared_to_egglog_does_not_grow_with_the_square_of_inputs() -> None:
    declared = [run(variadic(n)).matching.squares for n in (60, 200)]
    assert declared[0] == declared[1] < matching.SQUARES


def test_tables_and_queries_together_stay_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "SQUARES", 600)
    found = run(variadic(9))
    assert found.statistics["found"].fired == found.statistics["flat"].fired == 1
    assert {f.is_narrow for fs in found.matching.relations for f in fs} == {True, False}


def test_a_join_that_has_no_end_is_put_off_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "EACH", 5_000)
    m = Maker()
    sides = [m("Concat", *(m("Relu", m.input(f"{s}{i}", 2)) for i in range(30)), axis=0) for s in "ab"]
    graph = m.done(*sides)
    classes = matching.Classes(graph, infer(graph), 10_000)
    given = rules(VARIADIC)
    found = matching.Matching(classes, given)
    relus = [t for t in range(len(classes.terms)) if classes.form(t).op == "Relu"]
    for a, b in zip(relus[:30], relus[30:], strict=True):  # each class has two relus: 2 ** 30 ways
        classes.union(a, b, "given")  # type: ignore[arg-type]
    found.search(range(len(given)))
    assert found.put_off == {"joined"}
    (rows,) = [f.waiting for f in found.relations[0]]
    assert rows == sorted(rows)
    assert 1 <= len(rows) <= 5_000
