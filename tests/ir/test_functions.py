from __future__ import annotations

import pytest

from graphopt.errors import InvalidModelError, LimitError
from graphopt.ir.functions import bodies_of, callee, calls, check_calls, expanded_size
from graphopt.ir.graph import Attrs, Function, Graph


def body(*ops: str) -> Graph:
    graph = Graph()
    value = graph.add_input("x")
    for op in ops:
        value = graph.add(op, (value,)).outputs[0]
    graph.add_output("y", value)
    return graph


def with_functions(graph: Graph, **bodies: Graph) -> Graph:
    for name, inner in bodies.items():
        graph.functions[f"l::{name}", ""] = Function("l", name, "", inner)
    return graph


def test_nodes_are_counted_as_if_expanded() -> None:
    graph = with_functions(body("Neg", "l::f", "l::f"), f=body("Abs", "l::g"), g=body("Neg", "Neg", "Neg"))
    assert expanded_size(graph) == 1 + 2 * (1 + 3)
    assert expanded_size(body("Neg")) == 1
    assert expanded_size(graph, 9) == 9
    with pytest.raises(LimitError, match="9 nodes, at most 8"):
        expanded_size(graph, 8)


def test_bodies_are_counted() -> None:
    graph = body("Neg")
    graph.add("If", attrs=Attrs(then_branch=body("Abs", "l::f"), more=(body("Neg"), body("Neg"))))
    with_functions(graph, f=body("Abs", "Neg"))
    assert expanded_size(graph) == 2 + 1 + 2 + 2
    assert [n.op for n in calls(graph)] == ["Neg", "If", "Neg", "Neg", "Abs", "l::f"]
    (if_,) = [n for n in graph.nodes() if n.op == "If"]
    assert len(list(bodies_of(if_))) == 3


def test_functions_that_call_themselves() -> None:
    for bodies in ({"f": body("l::f")}, {"f": body("l::g"), "g": body("Neg", "l::f")}):
        graph = with_functions(body("l::f"), **bodies)
        with pytest.raises(InvalidModelError, match="calls itself"):
            expanded_size(graph)
        unused = with_functions(body("Neg"), **bodies)
        assert expanded_size(unused) == 1
        with pytest.raises(InvalidModelError, match="there: function"):
            check_calls(unused, "there")


def test_depth_is_no_problem() -> None:
    bodies = {f"f{i}": body(f"l::f{i + 1}") for i in range(3000)}
    graph = with_functions(body("l::f0"), **bodies, f3000=body("Neg"))
    assert expanded_size(graph) == 1
    check_calls(graph, "there")


def test_who_is_called() -> None:
    graph = with_functions(body("l::f"), f=body("Neg"))
    (call,) = [n for n in graph.nodes() if n.op == "l::f"]
    assert callee(call, graph.functions) is graph.functions["l::f", ""]
    assert callee(graph.node(0), graph.functions) is None
