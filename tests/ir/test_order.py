"""Orders of nodes: effects happen as they were written, and regions stay together where they can."""

from __future__ import annotations

import pytest

from graphopt.errors import InvalidModelError
from graphopt.ir.custom_ops import Added, add
from graphopt.ir.graph import Value
from graphopt.ir.order import by_region, in_order
from graphopt.ir.text import parse

FLOATS = "x: float32[n]\n"


@pytest.fixture(autouse=True)
def acting() -> None:
    add("test::act", Added(function=lambda *arrays: None, effects=True))


def runs(text: str) -> list[tuple[str, str]]:
    """The region and the ops of each run of a graph."""
    made = [
        (region, [n.op for n in nodes if n.op not in ("Input", "Constant")]) for region, nodes in by_region(parse(text))
    ]
    return [(region, " ".join(ops)) for region, ops in made if ops]


def test_nodes_with_effects_keep_their_order_where_rewriting_made_what_they_read_anew() -> None:
    graph = parse(FLOATS + "y = Neg(x)\nreturn y")
    (x,) = graph.inputs
    one = graph.add("test::act", (x,), n_outputs=0).id
    two = graph.add("test::act", (x,), n_outputs=0).id
    graph.update(one, inputs=(Value(graph.add("Relu", (x,)).id),))
    assert [n.id for n in graph.order() if n.op == "test::act"] == [two, one]
    assert [n.id for n in in_order(graph) if n.op == "test::act"] == [one, two]
    read = parse(graph.script())  # text has the order of effects, too
    assert [len(read.producer(n.inputs[0] or x).inputs) for n in in_order(read) if n.op == "test::act"] == [1, 0]


def test_effects_that_wait_for_each_other_are_told_and_shown() -> None:
    graph = parse(FLOATS + "y = test::act(x)\nreturn y")
    first = graph.producer(graph.outputs[0] or graph.inputs[0])
    second = graph.add("test::act", graph.inputs and (graph.inputs[0],))
    graph.update(first.id, inputs=second.outputs)
    with pytest.raises(InvalidModelError, match="has effects, and reads what comes after it"):
        in_order(graph)
    assert graph.script().count("test::act") == 2


def test_a_region_is_one_run_where_what_it_reads_can_come_before() -> None:
    text = "dataflow { a = Relu(x) }\nb = Neg(x)\ndataflow { c = Abs(x) }\nreturn a, b, c"
    assert runs(FLOATS + text) == [("0", "Relu"), ("", "Neg"), ("1", "Abs")]
    graph = parse(FLOATS + "b = Neg(x)\ndataflow { a = Relu(x)\nc = Add(a, b) }\nreturn c")
    late = graph.add("Exp", (graph.inputs[0],))  # made last, and read within the region
    (add_,) = [n for n in graph.nodes() if n.op == "Add"]
    graph.update(add_.id, inputs=(add_.inputs[0], late.outputs[0]))
    assert [(r, [n.op for n in nodes]) for r, nodes in by_region(graph)] == [
        ("", ["Input", "Neg", "Exp"]),
        ("0", ["Relu", "Add"]),
    ]


def test_a_region_with_a_path_through_others_is_several_runs() -> None:
    graph = parse(FLOATS + "dataflow { a = Relu(x)\nb = Neg(a)\nc = Abs(b) }\nreturn c")
    (neg,) = [n for n in graph.nodes() if n.op == "Neg"]
    outside = graph.add("Neg", neg.inputs)
    graph.replace(neg.outputs[0], outside.outputs[0])
    graph.remove(neg.id)
    assert [(r, [n.op for n in nodes]) for r, nodes in by_region(graph)] == [
        ("", ["Input"]),
        ("0", ["Relu"]),
        ("", ["Neg"]),
        ("0", ["Abs"]),
    ]
    assert parse(graph.script()).key() == graph.key()
