"""What was chosen is reached by rule instances one by one; what was chosen as it was stays as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph, Origin, Value
from graphopt.rewrite.derivations.derive import derive
from graphopt.rewrite.derivations.replay import replay
from graphopt.rewrite.egraph.egraph_snapshot import ENode, Saturated
from graphopt.rewrite.egraph.saturate import saturate
from graphopt.rewrite.match.journal import Action, Journal
from graphopt.rewrite.match.multi_version_graph import Alternatives
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.rule import Rule
from tests.rewrite.small_graphs import ALGEBRA, Maker, rules


def choose(saturated: Saturated, *ops: str) -> dict[int, ENode]:
    """The original e-nodes, but one with one of these ops where there is one."""
    return {
        c: next((n for n in nodes if n.op in ops), saturated.originals.get(c, nodes[0]))
        for c, nodes in saturated.classes.items()
    }


def derived(
    saturated: Saturated, choice: Mapping[int, ENode], used: Sequence[Rule], journal: Journal | None = None
) -> Graph:
    """The chosen graph, reached by a derivation that replays."""
    journal = Journal() if journal is None else journal
    graph, by_name = saturated.graph, {r.name: r for r in used}
    mark = journal.open()
    space = Workspace(graph.copy())
    assert derive(saturated, choice, by_name, Alternatives(space), journal) == []
    journal.close(mark, space.edits > 0)
    again = replay(graph, journal, by_name, {})
    assert again.lost == ()
    assert list(again.graph.nodes()) == list((space.graph if space.edits else graph).nodes())
    return space.graph if space.edits else graph


def factored() -> tuple[Graph, Value]:
    """(a*b + a*c), named, with a named operand above and below it."""
    m = Maker()
    a, b, c = (m.input(n, 2) for n in "abc")
    total = m("Add", m("Mul", a, m("Exp", b)), m("Mul", a, c))
    top = m("Neg", total)
    m.graph.names |= {total: "total", top: "top"}
    m.graph.update(top.node, origin=Origin("last"))
    return m.done(top), total


def test_nodes_that_were_not_rewritten_stay() -> None:
    graph, total = factored()
    before = list(graph.nodes())
    rebuilt = derived(
        saturate(graph, None, rules(ALGEBRA)), choose(saturate(graph, None, rules(ALGEBRA)), "Mul"), rules(ALGEBRA)
    )
    assert list(graph.nodes()) == before
    (top,) = (n for n in rebuilt.nodes() if n.op == "Neg")
    assert (top.id, top.origin.name) == (graph.outputs[0].node, "last")  # type: ignore[union-attr]
    assert rebuilt.names[top.inputs[0]] == "total"  # type: ignore[index]
    assert total.node not in rebuilt
    assert [n.op for n in rebuilt.order()].count("Mul") == 1
    assert (rebuilt.output_names, rebuilt.inputs) == (graph.output_names, graph.inputs)


def test_new_values_have_types() -> None:
    graph, _ = factored()
    saturated = saturate(graph, None, rules(ALGEBRA))
    rebuilt = derived(saturated, choose(saturated, "Mul"), rules(ALGEBRA))
    new = [v for n in rebuilt.nodes() if n.id not in graph for v in n.outputs]
    assert all(str(rebuilt.types[v]) == "float32[2]" for v in new)


def test_equal_nodes_are_shared() -> None:
    m = Maker()
    x = m.input("x", 2)
    graph = m.done(m("Add", m("Exp", x), m("Exp", x)))
    saturated = saturate(graph, None, [])
    rebuilt = derived(saturated, saturated.originals, rules(ALGEBRA))
    assert [n.op for n in rebuilt.nodes()] == ["Input", "Exp", "Add"]


def test_an_output_may_become_an_input_of_the_graph() -> None:
    m = Maker()
    x = m.input("x", 2)
    graph = m.done(m("Neg", m("Neg", x)), x)
    saturated = saturate(graph, None, rules(ALGEBRA))
    rebuilt = derived(saturated, saturated.originals, rules(ALGEBRA))
    assert rebuilt.outputs == [x, x]
    assert rebuilt.output_names == ["y0", "y1"]
    assert rebuilt.names == {x: "x"}


def test_inputs_nobody_reads_stay() -> None:
    m = Maker()
    x, unused = m.input("x", 2), m.input("unused", 2)
    saturated = saturate(m.done(m("Neg", x)), None, [])
    assert derived(saturated, saturated.originals, rules(ALGEBRA)).inputs == [x, unused]


def test_bodies_and_what_they_capture_stay() -> None:
    body = Maker()
    inner = body.done(body("Neg", body.input("captured", 2)))
    m = Maker()
    condition = m.input("c", dtype="bool")
    x = m.input("x", 2)
    twice = m("Neg", m("Neg", x))
    node = m.graph.add(
        "If",
        (condition, twice),
        m.graph.node(x.node).attrs.with_(then_branch=inner, else_branch=inner),
        captures=1,
    )
    graph = m.done(Value(node.id))
    saturated = saturate(graph, None, rules(ALGEBRA))
    rebuilt = derived(saturated, saturated.originals, rules(ALGEBRA))
    assert rebuilt.node(node.id).inputs == (condition, x)
    assert rebuilt.node(node.id).bodies == node.bodies


def test_a_node_with_several_outputs_is_made_once() -> None:
    m = Maker()
    x = m.input("x", 4)
    sizes = m.graph.add_constant(Constant.of(np.array([2, 2])))
    split = m.graph.add("Split", (m("Relu", m("Relu", x)), sizes), n_outputs=2)
    graph = m.done(m("Add", *split.outputs))
    saturated = saturate(graph, None, rules(ALGEBRA))
    rebuilt = derived(saturated, saturated.originals, rules(ALGEBRA))
    assert [n.op for n in rebuilt.nodes() if n.op not in ("Input", "Constant")] == ["Relu", "Split", "Add"]


def test_a_choice_with_a_cycle_is_refused() -> None:
    m = Maker()
    x = m.input("x", 2)
    inner = m("Relu", x)
    outer = m("Relu", inner)
    side = Alternatives(Workspace(m.done(outer)))
    side.unite(inner, outer)
    side.unite(inner, x)
    with pytest.raises(ValueError, match="cycle"):
        side.choose([outer])


def test_what_was_applied_is_told_with_both_sides() -> None:
    graph, _ = factored()
    saturated = saturate(graph, None, rules(ALGEBRA))
    journal = Journal()
    derived(saturated, choose(saturated, "Mul"), rules(ALGEBRA), journal)
    (applied,) = journal.rewrites
    assert (applied.rule, applied.site, applied.action) == ("factor", "total", Action.EQUAL)
    assert applied.before == "Add(Mul(a, %3), Mul(a, c))"
    assert applied.after == "Mul(a, Add(%3, c))"
    assert applied.nodes == (3, 2)


def test_nothing_is_applied_where_the_graph_itself_was_chosen() -> None:
    graph, _ = factored()
    saturated = saturate(graph, None, rules(ALGEBRA))
    journal = Journal()
    assert derived(saturated, saturated.originals, rules(ALGEBRA), journal) is graph
    assert list(journal) == []


def test_rewrites_that_only_joined_values_of_the_graph_are_told_too() -> None:
    m = Maker()
    graph = m.done(m("Exp", m("Neg", m("Neg", m.input("x", 2)))))
    saturated = saturate(graph, None, rules(ALGEBRA))
    journal = Journal()
    derived(saturated, saturated.originals, rules(ALGEBRA), journal)
    assert [e.rule for e in journal.rewrites] == ["double-neg"]


def test_the_nodes_that_were_made_say_by_what() -> None:
    graph, _ = factored()
    saturated = saturate(graph, None, rules(ALGEBRA))
    made = derived(saturated, choose(saturated, "Mul"), rules(ALGEBRA))
    assert [n.origin.metadata for n in made.nodes() if n.op == "Mul"] == [(("graphopt", "factor #1"),)]
