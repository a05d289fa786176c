"""Graphs with a cache are priced in decode and in prefill."""

from __future__ import annotations

import pytest

import graphopt
from graphopt.ir.graph import Attrs, Graph
from graphopt.ir.infer import infer
from graphopt.ir.types import Size, TensorType, symbol
from graphopt.rewrite.extract.cost import CostModel, graph_cost, shape_profiles
from graphopt.rewrite.extract.profiles import NEW, PAST, phases
from graphopt.target import ORT

OPEN: tuple[Size, ...] = (symbol("batch"), 2, symbol("seq"), 8)


def cached(past: Size, new: tuple[Size, ...] = OPEN) -> Graph:
    """Keys with those of the past before them, and how they compare with queries."""
    graph = Graph()
    before = graph.add_input("past", TensorType("float32", (new[0], 2, past, 8)))
    keys = graph.add_input("keys", TensorType("float32", new))
    present = graph.add("Concat", (before, keys), Attrs(axis=2)).outputs[0]
    turned = graph.add("Transpose", (present,), Attrs(perm=(0, 1, 3, 2))).outputs[0]
    graph.add_output("scores", graph.add("MatMul", (keys, turned)).outputs[0])
    graph.add_output("present", present)
    return graph


def test_a_cache_has_two_phases() -> None:
    assert phases(cached(symbol("past"))) == ({"past": PAST, "seq": 1}, {"past": 0, "seq": NEW})


def test_what_is_stated_says_which_phase_is_meant() -> None:
    assert phases(cached(512)) == ({"seq": 1},)
    assert phases(cached(0)) == ({"seq": NEW},)
    assert phases(cached(symbol("past"), (1, 2, 1, 8))) == ({"past": PAST},)
    assert phases(cached(symbol("past"), (1, 2, 7, 8))) == ({"past": 0},)
    assert phases(cached(16, (1, 2, 1, 8))) == ()


def test_sizes_that_are_called_as_sums_are_these_sums() -> None:
    graph = cached(symbol("past"))
    graph.add_input("mask", TensorType("int64", (symbol("batch"), symbol("past+seq"))))
    assert [phase["past+seq"] for phase in phases(graph)] == [PAST + 1, NEW]


def test_other_graphs_have_none() -> None:
    graph = Graph()
    x, y = (graph.add_input(n, TensorType("float32", (symbol(n), 4))) for n in ("x", "y"))
    graph.add_output("z", graph.add("Relu", graph.add("Concat", (x, y), Attrs(axis=0)).outputs).outputs[0])
    assert phases(graph) == ()
    assert shape_profiles(graph, ORT) == ()


def test_both_phases_count_alike() -> None:
    graph = cached(symbol("past"))
    facts, profiles = infer(graph), shape_profiles(graph, ORT)
    shares = [weight * graph_cost(graph, facts, ORT, sizes).total.seconds for sizes, weight in profiles]
    assert shares[0] == pytest.approx(shares[1])
    assert graph_cost(graph, facts, ORT, profiles=profiles).total.seconds == pytest.approx(sum(shares), rel=0.01)
    model = CostModel(ORT, profiles=profiles)
    node = next(n for n in graph.nodes() if n.op == "MatMul")
    inputs, outputs = ([facts[v] for v in values if v] for values in (node.inputs, node.outputs))
    each = [CostModel(ORT, sizes).cost("MatMul", node.attrs, inputs, outputs).seconds for sizes, _ in profiles]
    expected = sum(weight * seconds for (_, weight), seconds in zip(profiles, each, strict=True))
    assert model.cost("MatMul", node.attrs, inputs, outputs).seconds == pytest.approx(expected)


def test_the_report_says_at_which_sizes() -> None:
    _, report = graphopt.optimize(cached(symbol("past")), target="ort", return_report=True)
    assert report.priced_at == "batch=1; past=1024, seq=1 or past=0, seq=128"
