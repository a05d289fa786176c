"""The benchmark of TENSAT's graphs: what it builds is optimized, by both searches, and stays what it is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from graphopt.ir import infer
from graphopt.ir.evaluate import run
from graphopt.ir.graph import Graph
from graphopt.rewrite.extract.cost import graph_cost
from graphopt.rewrite.ruleset import standard
from graphopt.target import T4
from tests.bench.tensat import bert, greedy, nasrnn, saturated

PAGE = Path(__file__).parents[2] / "docs" / "tensat.md"


def test_every_schema_has_its_rules() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| \d+ \|", line)]
    names = {rule.name for rule in standard().rules}
    assert [int(row.split("|")[1]) for row in rows] == list(range(1, 23))
    for row in rows:
        named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", row))
        assert named
        assert named <= names


@pytest.mark.parametrize(
    "graph", [nasrnn(steps=2, hidden=32), bert(layers=1, length=4, hidden=64)], ids=["rnn", "bert"]
)
def test_both_searches_find_cheaper_graphs(graph: Graph) -> None:
    before = graph_cost(graph, infer.infer(graph), T4).total.seconds
    found = [search(graph, T4)[0] for search in (greedy, saturated)]
    costs = [graph_cost(other, infer.infer(other), T4).total.seconds for other in found]
    assert costs[1] <= costs[0] < before
    random = np.random.default_rng(0)
    shapes = {graph.names[v]: infer.infer(graph)[v].shape or () for v in graph.inputs}
    inputs = {name: random.standard_normal([int(str(n)) for n in s], np.float32) for name, s in shapes.items()}
    want = run(graph, inputs)
    for other in found:
        for name, array in run(other, inputs).items():
            np.testing.assert_allclose(array, want[name], rtol=1e-3, atol=1e-4)
