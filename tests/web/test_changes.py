"""Which nodes a rewrite took and made, and what became of each node."""

from __future__ import annotations

from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph
from graphopt.target import CPU, PORTABLE, Target
from graphopt.web.changes import Sides, marks, scope_name, scopes, sides
from tests.web.models import network, small


def traced(graph: Graph, target: Target = PORTABLE) -> tuple[Graph, Graph, dict[str, Sides]]:
    _, report = optimize_graph(graph, target=target)
    assert report.graphs is not None
    assert report.derivation is not None
    found = sides(report.derivation.entries, scopes(*report.graphs))
    rules = {r.id: r.rule for r in report.rewrites}
    return *report.graphs, {rules[id]: side for id, side in found.items()}


def ops_of(graph: Graph, ids: tuple[int, ...]) -> list[str]:
    return [graph.node(id).op for id in ids]


HARD_SWISH = "x: float32[8] a = Add(x, 3.0) b = Clip(a, 0.0, 6.0) c = Mul(x, b) y = Div(c, 6.0) return y"


def test_a_rewrite_is_found_on_both_sides() -> None:
    before, after, found = traced(parse(HARD_SWISH))
    for rule in ("hard-swish-div", "hard-swish"):  # the one matches what the other made
        assert ops_of(before, found[rule].before) == ["Div", "Mul", "Clip", "Add"]
        assert ops_of(after, found[rule].after) == ["HardSwish"]
    assert list(marks(before, after).values()) == ["kept", *["other"] * 4]
    assert list(marks(after, before).values()) == ["kept", "other"]


def test_a_rewrite_is_followed_where_another_spells_what_it_made_anew() -> None:
    before, after, found = traced(network(blocks=1), CPU)  # HardSwish(Unblock(x)), for the one that was made
    assert ops_of(before, found["hard-swish-div"].before) == ["Div", "Mul", "Clip", "Add"]
    assert "HardSwish" in ops_of(after, found["hard-swish-div"].after)


def test_a_pass_over_the_whole_graph_is_found_on_both_sides() -> None:
    text = "x: float32[2, 3, 4] a = Transpose(x, perm=[1, 2, 0]) b = Transpose(a, perm=[1, 0, 2]) return b"
    before, after, found = traced(parse(text))
    assert ops_of(before, found["axis-orders"].before) == ["Transpose", "Transpose"]
    assert ops_of(after, found["axis-orders"].after) == ["Transpose"]


def test_what_only_goes_is_told_by_what_is_left_around_it() -> None:
    before, after, found = traced(small())
    for side in found.values():
        assert side.before
        assert set(side.before) <= {n.id for n in before.nodes()}
        assert set(side.after) | set(side.around) <= {n.id for n in after.nodes()}
        assert side.after or side.around


def test_bodies_are_graphs_of_their_own() -> None:
    body = "then_branch={a: ? b = Relu(a) d = Relu(b) return d}, else_branch={q: ? r = Neg(q) return r}"
    graph = parse(f"c: bool[] x: float32[2] y = If(c | x, {body}) return y")
    _, report = optimize_graph(graph)
    assert report.graphs is not None
    assert report.derivation is not None
    found = scopes(*report.graphs)
    names = [scope_name(report.graphs[0], scope) for scope in found]
    assert names == ["main graph", "If y, else_branch", "If y, then_branch"]
    inside = [s for s in sides(report.derivation.entries, found).values() if s.scope[1:] == ("then_branch",)]
    assert inside
    assert all(s.before for s in inside)
