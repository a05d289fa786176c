"""The graph keeps its edges, names and order right under every edit."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.graph import Attrs, Graph, Value
from graphopt.ir.types import TensorType


def chain(*ops: str) -> tuple[Graph, list[Value]]:
    graph = Graph()
    values = [graph.add_input("x", TensorType("float32", (2, 3)))]
    for op in ops:
        values.append(Value(graph.add(op, (values[-1],)).id))
    graph.add_output("y", values[-1])
    return graph, values


def test_users_are_found_with_the_position_of_their_input() -> None:
    graph, (x, a) = chain("Relu")
    both = graph.add("Add", (a, a))
    assert graph.users(x) == [(a.node, 0)]
    assert graph.users(a) == [(both.id, 0), (both.id, 1)]
    assert graph.n_uses(a) == 3  # as an output of the graph, too


def test_algorithms_of_networkx_see_nodes_and_edges() -> None:
    graph = Graph()
    x = graph.add_input("x")
    (y,) = graph.add("Relu", (x,)).outputs
    graph.add("Add", (y, x))
    seen = graph.networkx
    assert list(nx.topological_sort(seen)) == [n.id for n in graph.order()]
    assert sorted(seen.in_edges(2, keys=True, data="port")) == [(0, 2, 1, 0), (1, 2, 0, 0)]


def test_replacing_a_value_moves_users_and_outputs() -> None:
    graph, (x, a, b) = chain("Relu", "Relu")
    graph.replace(b, a)
    assert graph.outputs == [a]
    graph.remove(b.node)
    graph.replace(a, x)
    assert graph.outputs == [x]
    assert graph.output_names == ["y"]


def test_what_is_used_cannot_be_removed() -> None:
    graph, (_, a, _) = chain("Relu", "Tanh")
    with pytest.raises(ValueError, match="still used"):
        graph.remove(a.node)


def test_inputs_must_exist() -> None:
    graph, _ = chain("Relu")
    with pytest.raises(ValueError, match="does not exist"):
        graph.add("Relu", (Value(99),))


def test_order_is_that_of_creation_where_edges_leave_a_choice() -> None:
    graph, (x, a, b) = chain("Relu", "Tanh")
    graph.update(a.node, inputs=(x,))
    c = graph.add("Sigmoid", (x,))
    assert [n.id for n in graph.order()] == [x.node, a.node, b.node, c.id]


def test_the_order_is_kept_as_long_as_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    sorts, sort = list[Graph](), Graph._sorted
    monkeypatch.setattr(Graph, "_sorted", lambda graph: sorts.append(graph) or sort(graph))
    graph, (x, a, b) = chain("Relu", "Tanh")
    graph.order()
    for twin in (graph, graph.copy()):
        assert [n.id for n in twin.order()] == [x.node, a.node, b.node]
    new = graph.add("Sigmoid", (x,))
    assert [n.id for n in graph.order()] == [x.node, a.node, b.node, new.id]
    graph.remove(new.id)
    again = graph.add("Neg", (x,))
    graph.remove(graph.add("Exp", (again.outputs[0],)).id)
    assert [n.id for n in graph.order()] == [x.node, a.node, b.node, again.id]
    assert len(sorts) == 1
    graph.update(a.node, inputs=again.outputs)
    assert [n.id for n in graph.order()] == [x.node, again.id, a.node, b.node]
    assert len(sorts) == 2


def test_ids_that_are_free_again_come_last() -> None:
    graph, (x, a) = chain("Relu")
    graph.order()
    first = graph.next_id
    middle = graph.add("Tanh", (x,))
    last = graph.add("Neg", (x,))
    graph.remove(middle.id)
    graph.remove(last.id)
    graph.rewind(first)
    again = graph.add("Exp", (a,))
    assert again.id == middle.id
    assert [n.id for n in graph.order()] == [x.node, a.node, again.id]


def test_nodes_are_copied_where_somebody_writes() -> None:
    graph, (x, a) = chain("Relu")
    twin = graph.copy()
    assert twin._nodes is graph._nodes
    twin.update(a.node, op="Tanh")
    assert (graph.node(a.node).op, twin.node(a.node).op) == ("Relu", "Tanh")
    held = graph._nodes
    graph.add("Neg", (x,))
    assert graph._nodes is held  # nobody else has it any more
    assert [twin.users(x), graph.users(x)] == [[(a.node, 0)], [(a.node, 0), (a.node + 1, 0)]]


def test_a_cycle_is_an_error() -> None:
    graph, (_, a, b) = chain("Relu", "Tanh")
    graph.update(a.node, inputs=(b,))
    with pytest.raises(ValueError, match="cycle"):
        graph.order()


def test_a_copy_is_its_own() -> None:
    graph, (_, a) = chain("Relu")
    twin = graph.copy()
    twin.update(a.node, op="Tanh")
    twin.add("Relu", (a,))
    assert graph.node(a.node).op == "Relu"
    assert len(graph) == 1
    assert graph.key() != twin.key()


def test_equal_structures_have_equal_keys() -> None:
    left, _ = chain("Relu", "Tanh")
    right, (x, *_) = chain("Relu", "Tanh")
    right.names[x] = "x"
    assert left.key() == right.key()
    assert left.key() != chain("Tanh", "Relu")[0].key()


def test_constants_are_nodes() -> None:
    graph, _ = chain("Relu")
    value = graph.add_constant(Constant.of(np.float32(3)))
    found = graph.constant_of(value)
    assert found is not None
    assert found.array == 3
    assert len(graph) == 1


def test_attributes_are_equal_bit_by_bit() -> None:
    assert Attrs(alpha=0.0) != Attrs(alpha=-0.0)
    assert Attrs(alpha=1) != Attrs(alpha=1.0)
    assert Attrs(b=1, a=2) == Attrs(a=2, b=1)
    assert hash(Attrs(b=1, a=2)) == hash(Attrs(a=2, b=1))
    assert Attrs(a=2).with_(a=None, b=3) == Attrs(b=3)


def test_a_call_has_one_form_whatever_is_missing_at_its_end() -> None:
    graph, (x, a) = chain("Relu")
    clip = graph.add("Clip", (a, None, None))
    assert clip.inputs == (a,)
    assert graph.add("Clip", (a, None, x)).inputs == (a, None, x)
    assert graph.add("Loop", (None, x, None, a), captures=1).inputs == (None, x, a)
    assert graph.add("Loop", (None, None, a), captures=1).inputs == (None, None, a)
    assert graph.add("Loop", (x,)).inputs == (x, None)
    graph.update(clip.id, inputs=(x, a, None))
    assert graph.node(clip.id).inputs == (x, a)
    graph.update(clip.id, inputs=(None, None))
    assert graph.node(clip.id).inputs == ()
    assert clip.id not in {user for user, _ in graph.users(a)}
