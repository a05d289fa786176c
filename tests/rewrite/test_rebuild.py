"""What was chosen as it was stays as it was; the rest is new, and nothing else is touched."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph, Origin, Value
from graphopt.rewrite.rebuild import to_graph
from graphopt.rewrite.saturate import saturate
from graphopt.rewrite.saturated import ENode, Saturated
from tests.rewrite.small_graphs import ALGEBRA, Maker, rules


def choose(saturated: Saturated, *ops: str) -> dict[int, ENode]:
    """The original e-nodes, but one with one of these ops where there is one."""
    return {
        c: next((n for n in nodes if n.op in ops), saturated.originals.get(c, nodes[0]))
        for c, nodes in saturated.classes.items()
    }


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
    rebuilt = to_graph(saturate(graph, None, rules(ALGEBRA)), choose(saturate(graph, None, rules(ALGEBRA)), "Mul"))
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
    rebuilt = to_graph(saturated, choose(saturated, "Mul"))
    new = [v for n in rebuilt.nodes() if n.id not in graph for v in n.outputs]
    assert all(str(rebuilt.types[v]) == "float32[2]" for v in new)


def test_equal_nodes_are_shared() -> None:
    m = Maker()
    x = m.input("x", 2)
    graph = m.done(m("Add", m("Exp", x), m("Exp", x)))
    saturated = saturate(graph, None, [])
    rebuilt = to_graph(saturated, saturated.originals)
    assert [n.op for n in rebuilt.nodes()] == ["Input", "Exp", "Add"]


def test_an_output_may_become_an_input_of_the_graph() -> None:
    m = Maker()
    x = m.input("x", 2)
    graph = m.done(m("Neg", m("Neg", x)), x)
    saturated = saturate(graph, None, rules(ALGEBRA))
    rebuilt = to_graph(saturated, saturated.originals)
    assert rebuilt.outputs == [x, x]
    assert rebuilt.output_names == ["y0", "y1"]
    assert rebuilt.names == {x: "x"}


def test_inputs_nobody_reads_stay() -> None:
    m = Maker()
    x, unused = m.input("x", 2), m.input("unused", 2)
    saturated = saturate(m.done(m("Neg", x)), None, [])
    assert to_graph(saturated, saturated.originals).inputs == [x, unused]


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
    rebuilt = to_graph(saturated, saturated.originals)
    assert rebuilt.node(node.id).inputs == (condition, x)
    assert rebuilt.node(node.id).bodies == node.bodies


def test_a_node_with_several_outputs_is_made_once() -> None:
    m = Maker()
    x = m.input("x", 4)
    sizes = m.graph.add_constant(Constant.of(np.array([2, 2])))
    split = m.graph.add("Split", (m("Relu", m("Relu", x)), sizes), n_outputs=2)
    graph = m.done(m("Add", *split.outputs))
    saturated = saturate(graph, None, rules(ALGEBRA))
    rebuilt = to_graph(saturated, saturated.originals)
    assert [n.op for n in rebuilt.nodes() if n.op not in ("Input", "Constant")] == ["Relu", "Split", "Add"]


def test_a_choice_with_a_cycle_is_refused() -> None:
    m = Maker()
    y = m("Relu", m("Relu", m.input("x", 2)))
    saturated = saturate(m.done(y), None, rules(ALGEBRA))
    circular = {c: nodes[-1] for c, nodes in saturated.classes.items()}
    with pytest.raises(ValueError, match="cycle"):
        to_graph(saturated, circular)


def test_what_was_applied_is_told_with_both_sides() -> None:
    graph, _ = factored()
    saturated = saturate(graph, None, rules(ALGEBRA))
    (applied,) = saturated.applied(choose(saturated, "Mul"))
    assert (applied.rule, applied.site) == ("factor", "total")
    assert applied.before == "Add(Mul(a, Exp(b)), Mul(a, c))"
    assert applied.after == "Mul(a, Add(Exp(b), c))"
    assert saturated.applied(saturated.originals) == []


def test_rewrites_that_only_joined_values_of_the_graph_are_told_too() -> None:
    m = Maker()
    graph = m.done(m("Exp", m("Neg", m("Neg", m.input("x", 2)))))
    saturated = saturate(graph, None, rules(ALGEBRA))
    assert [a.rule for a in saturated.applied(saturated.originals)] == ["double-neg"]
