"""Saturation proves what rules say, within its budget, the same in every run."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphopt.ir.evaluate import run
from graphopt.ir.graph import Graph, Value
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType, symbol
from graphopt.progress import Event
from graphopt.rewrite.egraph import saturate as module
from graphopt.rewrite.egraph.egraph_snapshot import ENode, Saturated
from graphopt.rewrite.egraph.saturate import SaturationBudget, saturate
from graphopt.rewrite.match.build import constant_of
from tests.rewrite.derivations.test_derive import derived
from tests.rewrite.small_graphs import ALGEBRA, Maker, random_graph, rules

SHARED = """
shared: MatMul(x, a*) => Split(MatMul(x, Concat(a*, axis=1)), {[each a.shape[1]]}, axis=-1)
    where a.is_const and a.rank == 2
"""


def ops_of(saturated: Saturated, value: Value) -> set[str]:
    return {e.op for e in saturated.classes[saturated.values[value]]}


def random_choice(saturated: Saturated, seed: int) -> dict[int, ENode]:
    """Some e-node for each class, without a cycle."""
    pick = random.Random(seed)
    chosen: dict[int, ENode] = {}
    while len(chosen) < len(saturated.classes):
        for name, nodes in saturated.classes.items():
            ready = [n for n in nodes if all(c is None or c in chosen for c in n.children)]
            if name not in chosen and ready and pick.random() < 0.5:
                chosen[name] = pick.choice(ready)
    return chosen


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_chosen_computes_the_same(seed: int) -> None:
    graph = random_graph(seed)
    saturated = saturate(graph, None, rules(ALGEBRA), SaturationBudget(nodes=300))
    given = {f"x{i}": np.random.default_rng(i).standard_normal((3, 3)).astype(np.float32) for i in range(3)}
    wanted = run(graph, given)
    for other in range(4):
        rebuilt = derived(saturated, random_choice(saturated, other), rules(ALGEBRA))
        assert rebuilt.output_names == graph.output_names
        for name, array in run(rebuilt, given).items():
            np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-4)


def test_both_sides_live_on() -> None:
    m = Maker()
    a, b, c = (m.input(n, 2) for n in "abc")
    y = m("Add", m("Mul", a, b), m("Mul", c, a))
    saturated = saturate(m.done(y), None, rules(ALGEBRA))
    assert ops_of(saturated, y) == {"Add", "Mul"}
    assert saturated.stop == "saturated"
    assert saturated.reproducible
    assert saturated.statistics["factor"].fired == 1


def test_a_rule_may_give_back_what_it_was_given() -> None:
    m = Maker()
    x = m.input("x", 2)
    y = m("Neg", m("Neg", x))
    graph = m.done(y)
    saturated = saturate(graph, None, rules(ALGEBRA))
    assert saturated.values[y] == saturated.values[x]
    assert list(derived(saturated, saturated.originals, rules(ALGEBRA)).nodes()) == list(graph.nodes())[:1]


def test_congruence_reaches_what_is_above() -> None:
    m = Maker()
    x = m.input("x", 2)
    left, right = m("Exp", m("Neg", m("Neg", x))), m("Exp", x)
    saturated = saturate(m.done(left, right), None, rules(ALGEBRA))
    assert saturated.values[left] == saturated.values[right]


def test_choosing_the_originals_gives_the_graph_itself() -> None:
    m = Maker()
    x = m.input("x", 2)
    graph = m.done(m("Add", m("Exp", x), x))
    assert derived(saturate(graph, None, []), saturate(graph, None, []).originals, []) is graph


@pytest.mark.parametrize("limit", [20, 33, 50])
def test_the_budget_of_nodes_is_never_exceeded(limit: int) -> None:
    m = Maker()
    y = m.input("x0", 2)
    for i in range(1, 8):
        y = m("Add", y, m.input(f"x{i}", 2))
    before = len(list(m.done(y).nodes()))
    saturated = saturate(m.graph, None, rules(ALGEBRA), SaturationBudget(nodes=limit - before))
    assert saturated.stop == "nodes"
    assert limit - 2 <= saturated.nodes <= limit  # what a match makes is made whole or not at all


def test_the_budget_of_rounds_is_exact() -> None:
    m = Maker()
    y = m.input("x", 2)
    for _ in range(9):
        y = m("Add", y, m.graph.inputs[0])
    graph = m.done(y)
    saturated = saturate(graph, None, rules(ALGEBRA), SaturationBudget(iters=2))
    assert (saturated.stop, saturated.iterations) == ("iterations", 2)


def test_the_clock_is_a_stop_that_cannot_be_reproduced() -> None:
    m = Maker()
    y = m("Neg", m("Neg", m.input("x", 2)))
    saturated = saturate(m.done(y), None, rules(ALGEBRA), SaturationBudget(seconds=0))
    assert saturated.stop == "seconds"
    assert not saturated.reproducible


def test_rules_that_match_often_sit_out_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    m = Maker()
    y = m.input("x0", 2)
    for i in range(1, 5):
        y = m("Add", y, m.input(f"x{i}", 2))
    graph = m.done(m("Relu", m("Relu", y)))
    whole = saturate(graph, None, rules(ALGEBRA), SaturationBudget(iters=100))
    monkeypatch.setattr(module, "OFTEN", 1)
    monkeypatch.setattr(module, "EACH", 0)
    patient = saturate(graph, None, rules(ALGEBRA), SaturationBudget(iters=100))
    assert patient.stop == whole.stop == "saturated"
    assert patient.iterations > whole.iterations
    assert patient.nodes == whole.nodes


def sum_of(n: int) -> Graph:
    m = Maker()
    y = m.input("x0", 2)
    for i in range(1, n):
        y = m("Add", y, m.input(f"x{i}", 2))
    return m.done(y)


def test_a_rule_gives_a_class_no_more_than_so_many_terms() -> None:
    regroup = rules("regroup: Add(Add(a, b), c) => Add(a, Add(b, c))")
    whole = saturate(sum_of(6), None, regroup, SaturationBudget(iters=100, members=64))
    assert (whole.stop, whole.put_off) == ("saturated", {})
    assert max(map(len, whole.classes.values())) == 2**5 - 1
    some = saturate(sum_of(6), None, regroup, SaturationBudget(iters=100, members=10))
    assert some.stop == "put off"
    assert some.put_off["regroup"] > 0
    assert max(map(len, some.classes.values())) < 2**5 - 1


def test_a_rule_that_fires_very_often_gives_each_class_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY", 40)
    regroup, budget = rules("regroup: Add(Add(a, b), c) => Add(a, Add(b, c))"), SaturationBudget(members=64)
    assert saturate(sum_of(5), None, regroup, budget).put_off == {}  # at most 15 terms a class
    assert saturate(sum_of(6), None, regroup, budget).put_off


def test_builds_of_a_rule_and_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    regroup = rules("regroup: Add(Add(a, b), c) => Add(a, Add(b, c))")
    few = saturate(sum_of(6), None, regroup, SaturationBudget(builds=7))
    assert (few.stop, few.statistics["regroup"].fired) == ("put off", 7)
    assert few.put_off["regroup"] > 0
    monkeypatch.setattr(module, "TERMS", 1)
    short = saturate(sum_of(6), None, regroup, SaturationBudget(rows=1))  # six inputs, five sums, what is absent
    assert (short.stop, short.statistics["regroup"].tried) == ("rows", 12)
    assert short.reproducible


def test_whether_a_term_is_new_is_seen_from_what_it_reads() -> None:
    """A sum of products by constants is one product in very many ways: not each is compared with all of them."""

    def compared(n: int) -> tuple[int, int]:
        m = Maker()
        y = None
        for i in range(n):
            product = m("MatMul", m.input(f"x{i}", 2, 3), m.constant(np.full((3, 2), i)))
            y = product if y is None else m("Add", y, product)
        text = "sum: Add(MatMul(x, a), MatMul(y, b)) => MatMul(Concat(x, y, axis=-1), Concat(a, b, axis=0))"
        graph = m.done(y) if y is not None else m.done()
        run = module._Run(graph, infer(graph), rules(text), SaturationBudget(), None)
        run.run()
        return run.classes.looked_at, run.statistics["sum"].tried

    for n in (6, 12):
        looked_at, built = compared(n)
        assert built >= n - 1
        assert looked_at <= 8 * built


@pytest.mark.parametrize("n", [6, 24])
def test_whether_a_term_is_new_is_seen_from_its_class_where_many_read_the_same(n: int) -> None:
    m = Maker()
    turned = m("Neg", m.input("x", 2))
    graph = m.done(*[m("Mul", turned, m.constant(np.full(2, i + 2.0))) for i in range(n)])
    run = module._Run(graph, infer(graph), rules("out: Mul(Neg(x), c) => Neg(Mul(x, c))"), SaturationBudget(), None)
    run.run()
    assert run.statistics["out"].fired == n
    assert run.classes.looked_at <= 3 * n


def test_terms_of_constants_are_left_alone() -> None:
    m = Maker()
    c = m.constant([1.0, 2.0])
    y = m("Add", m.input("x", 2), m("Neg", m("Neg", c)))
    saturated = saturate(m.done(y), None, rules(ALGEBRA))
    assert saturated.statistics["double-neg"].fired == 0


def test_ways_to_combine_constants_are_not_explored() -> None:
    m = Maker()
    y = m.input("x", 2)
    for i in range(6):
        y = m("Mul", y, m.constant([i + 2.0, 0.5]))
    given = rules("regroup: Mul(Mul(x, a), b) => Mul(x, Mul(a, b)) where a.is_const and b.is_const")
    saturated = saturate(m.done(y), None, given)
    assert saturated.stop == "saturated"
    assert max(map(len, saturated.classes.values())) <= 6


def test_rules_that_count_readers_are_not_for_the_egraph() -> None:
    m = Maker()
    y = m("Neg", m("Neg", m.input("x", 2)))
    given = rules("once: Neg(Neg(x)) => x where x.uses == 1")
    assert "once" not in saturate(m.done(y), None, given).statistics


def test_a_guard_is_asked_again_when_more_is_known() -> None:
    m = Maker()
    x = m.graph.add_input("x", TensorType("float32", (symbol("n"), 2)))
    same = m("Transpose", m("Transpose", x))
    known = m("Relu", same)
    given = rules(
        "a: Transpose(Transpose(x)) => x\nb: Relu(x) => Abs(x) where x.low >= 0\nc: Abs(x) => x where x.low >= 0"
    )
    saturated = saturate(m.done(known, m("Relu", m("Abs", x))), None, given)
    assert saturated.stop == "saturated"
    assert saturated.statistics["b"].fired == 1


def test_literals_match_constants_of_any_rank_and_spelling() -> None:
    m = Maker()
    x = m.input("x", 2)
    outputs = [m("Mul", x, m.constant(c)) for c in (1.0, [1.0], [[1.0]], 2.0)]
    saturated = saturate(m.done(*outputs), None, rules("one: Mul(x, 1.0) => x"))
    assert [saturated.values[v] == saturated.values[x] for v in outputs] == [True, True, False, False]


def test_refusals_are_counted_by_reason() -> None:
    m = Maker()
    y = m("Add", m.input("x", 2), m.input("z", 2))
    saturated = saturate(m.done(y), None, rules("r: Add(x, z) => x where x.rank == 3"))
    (reason,) = saturated.statistics["r"].refused
    assert "rank" in reason
    assert saturated.statistics["r"].refused[reason] == saturated.statistics["r"].tried == 2


# -- several roots


def test_a_rule_is_left_out_where_it_fails_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module.replacements

    def fails(rule: Any, bindings: Any, roots: Any, builder: Any) -> Any:
        builder.make_constant(constant_of(7.0, "float32"))  # half of a right side
        if rule.name == "sub":
            raise KeyError("q")
        return made(rule, bindings, roots, builder)

    monkeypatch.setattr(module, "replacements", fails)
    graph = parse("x: float32[2] y: float32[2] a = Sub(x, y) b = Add(x, y) return a, b")
    wanted = rules("sub: Sub(x, y) => Add(x, Neg(y))\nadd: Add(x, y) => Sub(x, Neg(y))\n")
    found = saturate(graph, None, wanted)
    assert found.statistics["add"].fired
    assert not found.statistics["sub"].fired
    assert found.statistics["sub"].failed == "sub was left out, since it failed at node 'a' (Sub): KeyError ('q')"
    assert not any(node.attrs.get("value") for nodes in found.classes.values() for node in nodes)


def test_all_calls_of_a_kind_become_one() -> None:
    m = Maker()
    x = m.input("x", 4, 8)
    products = [m("MatMul", x, m.constant(np.ones((8, n)) * n)) for n in (3, 5, 7)]
    other = m("MatMul", x, m.input("w", 8, 2))
    graph = m.done(*products, other)
    saturated = saturate(graph, None, rules(SHARED))
    assert saturated.stop == "saturated"
    assert [ops_of(saturated, p) for p in (*products, other)] == [{"MatMul", "<output>"}] * 3 + [{"MatMul"}]
    rebuilt = derived(saturated, {c: n[-1] for c, n in saturated.classes.items()}, rules(SHARED))
    assert [n.op for n in rebuilt.nodes() if n.op in ("MatMul", "Split")] == ["MatMul", "MatMul", "Split"]
    given = {"x": np.ones((4, 8), np.float32), "w": np.ones((8, 2), np.float32)}
    wanted = run(graph, given)
    for name, array in run(rebuilt, given).items():
        np.testing.assert_allclose(array, wanted[name])


def test_one_call_alone_is_no_family() -> None:
    m = Maker()
    y = m("MatMul", m.input("x", 4, 8), m.constant(np.ones((8, 3))))
    saturated = saturate(m.done(y), None, rules(SHARED))
    assert saturated.statistics["shared"].fired == 0


def test_roots_that_rest_on_each_other_stay() -> None:
    m = Maker()
    x = m.input("x", 4, 4)
    first = m("MatMul", x, m.input("w", 4, 4))
    second = m("MatMul", x, first)
    given = rules("any: MatMul(x, a*) => Split(MatMul(x, Concat(a*, axis=1)), {[each a.shape[1]]}, axis=-1)")
    saturated = saturate(m.done(first, second), None, given)
    assert saturated.statistics["any"].fired == 0


def test_two_roots_apply_once_to_terms_of_the_graph() -> None:
    m = Maker()
    x = m.input("x", 2)
    up, down = m("Exp", x), m("Neg", x)
    given = rules("pair: Exp(x), Neg(x) => Exp(Abs(x)), Neg(Abs(x))")
    saturated = saturate(m.done(up, down), None, given)
    assert saturated.stop == "saturated"
    assert saturated.statistics["pair"].fired == 1
    assert len(saturated.classes[saturated.values[up]]) == 2


# -- the same in every run

SCRIPT = """
from tests.rewrite.derivations.test_derive import derived
from tests.rewrite.small_graphs import *
from graphopt.rewrite.egraph.saturate import *
saturated = saturate(random_graph(3), None, rules(ALGEBRA), SaturationBudget(nodes=200))
print(saturated.classes, saturated.stop, saturated.nodes, sorted(saturated.statistics))
print([step for es in saturated.classes.values() for e in es for step in saturated.provenance.explain(es[0].id, e.id)])
"""


def test_hash_seeds_and_threads_change_nothing() -> None:
    def outcome(seed: str, threads: str) -> bytes:
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "RAYON_NUM_THREADS": threads,
        }
        return subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=environment,
            capture_output=True,
            check=True,
            cwd=Path(__file__).parents[3],
        ).stdout

    assert outcome("1", "1") == outcome("2", "4")


def test_listeners_hear_of_every_round() -> None:
    heard: list[Event] = []
    m = Maker()
    y = m("Neg", m("Neg", m.input("x", 2)))
    saturated = saturate(m.done(y), None, rules(ALGEBRA), listener=heard.append)
    assert [e.iteration for e in heard] == list(range(1, saturated.iterations + 1))
