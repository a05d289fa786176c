"""Classes keep congruence, facts and an exact count while rules build, take back and join terms."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs, Graph, Value
from graphopt.ir.infer import infer
from graphopt.ir.types import TensorType, symbol
from graphopt.rewrite.egraph.classes import Classes, Contradiction, Full, contradiction
from graphopt.rewrite.egraph.provenance import Applied
from tests.rewrite.small_graphs import Maker

FLOAT = Fact(TensorType("float32", (2,)))


def classes_of(graph: Graph, room: int = 100) -> Classes:
    return Classes(graph, infer(graph), room)


def join(classes: Classes, a: int, b: int) -> bool:
    return classes.union(a, b, Applied("rule", 0, a, b))


def test_equal_nodes_are_one_term_whatever_the_order_of_operands() -> None:
    m = Maker()
    x, y = m.input("x", 2), m.input("y", 2)
    sums = m("Add", x, y), m("Add", y, x), m("Sub", x, y), m("Sub", y, x)
    classes = classes_of(m.done(*sums))
    first, second, third, fourth = (classes.values[v] for v in sums)
    assert first == second
    assert third != fourth
    assert classes.size == 5


def test_nodes_with_effects_and_bodies_are_equal_to_nothing_else() -> None:
    m = Maker()
    x = m.input("x", 2)
    noise = m("RandomNormalLike", x), m("RandomNormalLike", x)
    classes = classes_of(m.done(*noise))
    assert classes.values[noise[0]] != classes.values[noise[1]]


def test_joining_children_joins_what_is_made_from_them() -> None:
    m = Maker()
    x, y = m.input("x", 2), m.input("y", 2)
    tops = m("Exp", m("Neg", x)), m("Exp", m("Neg", y))
    classes = classes_of(m.done(*tops))
    size = classes.size
    assert join(classes, classes.values[x], classes.values[y])
    assert classes.find(classes.values[tops[0]]) == classes.find(classes.values[tops[1]])
    assert classes.size == size - 2
    assert not join(classes, classes.values[x], classes.values[y])


def test_outputs_of_joined_nodes_are_joined() -> None:
    m = Maker()
    x, y = m.input("x", 2), m.input("y", 2)
    sizes = m.graph.add_constant(Constant.of(np.array([1, 1])))
    for value in (x, y):
        m("Split", value, sizes, n_outputs=2, axis=0)
    classes = classes_of(m.graph)
    join(classes, classes.values[x], classes.values[y])
    first, second = (n.id for n in m.graph.nodes() if n.op == "Split")
    for port in (0, 1):
        a, b = classes.values[Value(first, port)], classes.values[Value(second, port)]
        assert classes.find(a) == classes.find(b)


def test_what_is_taken_back_was_never_there() -> None:
    m = Maker()
    x = m.input("x", 2)
    classes = classes_of(m.done(m("Neg", x)))
    before = classes.size, len(classes.terms), classes.values[x]
    mark = classes.begin()
    (made,) = classes.call("Exp", [classes.values[x]], Attrs(), [FLOAT])
    classes.call("Split", [made], Attrs(num_outputs=2), [FLOAT, FLOAT])
    assert classes.size == before[0] + 2
    classes.undo(mark)
    assert (classes.size, len(classes.terms), classes.values[x]) == before
    assert classes.call("Exp", [classes.values[x]], Attrs(), [FLOAT]) == (made,)


def test_there_is_room_for_so_many_terms() -> None:
    m = Maker()
    x = m.input("x", 2)
    classes = classes_of(m.done(m("Neg", x)), room=1)
    classes.call("Neg", [classes.values[x]], Attrs(), [FLOAT])
    classes.call("Exp", [classes.values[x]], Attrs(), [FLOAT])
    with pytest.raises(Full):
        classes.call("Sqrt", [classes.values[x]], Attrs(), [FLOAT])


def test_what_cannot_be_equal_is_not_joined() -> None:
    m = Maker()
    x, y = m.input("x", 2), m.input("y", 3)
    classes = classes_of(m.done(x, y))
    with pytest.raises(Contradiction, match=r"float32\[2\].*float32\[3\]"):
        join(classes, classes.values[x], classes.values[y])
    assert classes.find(classes.values[y]) == classes.values[y]


@pytest.mark.parametrize(
    ("a", "b", "possible"),
    [
        (TensorType("float32", (2,)), TensorType("float32", (symbol("n"),)), True),
        (TensorType("float32", (2,)), TensorType("float16", (2,)), False),
        (TensorType("float32", (2,)), TensorType("float32", (2, 1)), False),
        (TensorType("float32", (2, symbol("n"))), TensorType("float32", (3, 4)), False),
        (None, TensorType("float32", ()), True),
    ],
)
def test_contradictions(a: TensorType | None, b: TensorType | None, possible: bool) -> None:
    assert (contradiction(Fact(a), Fact(b)) is None) == possible


def test_what_is_learned_by_joining_reaches_what_is_above() -> None:
    m = Maker()
    x = m.graph.add_input("x", TensorType("float32", (symbol("n"), 2)))
    y = m.input("y", 3, 2)
    top = m("Relu", m("Neg", x))
    classes = classes_of(m.done(top, y))
    join(classes, classes.values[x], classes.values[y])
    assert classes.fact(classes.values[top]).shape == (3, 2)
    assert classes.find(classes.values[top]) in classes.improved


def test_small_constants_are_computed_when_asked_for() -> None:
    m = Maker()
    c = m("Neg", m("Add", m.constant([1.0, 2.0]), m.constant([3.0, 4.0])))
    classes = classes_of(m.done(m("Add", m.input("x", 2), c)))
    found = classes.constant(classes.values[c])
    assert found is not None
    assert found.array.tolist() == [-4.0, -6.0]
    assert classes.constant(classes.values[m.graph.inputs[0]]) is None


def test_equal_constants_are_one_term() -> None:
    m = Maker()
    a, b = m.constant([1.0, 2.0]), m.constant([1.0, 2.0])
    classes = classes_of(m.done(m("Add", a, b)))
    assert classes.values[a] == classes.values[b]
    assert classes.make_constant(Constant.of(np.array([1, 2], np.float32))) == classes.values[a]


def test_terms_alike_but_for_constants_are_known() -> None:
    m = Maker()
    x, y = m.input("x", 2), m.input("y", 2)
    product = m("Relu", m("Mul", x, m.constant([1.0, 2.0])))
    classes = classes_of(m.done(product, y))

    def alike(operand: Value, constant: list[float]) -> bool:
        mark = classes.begin()
        c = classes.make_constant(Constant.of(np.array(constant, np.float32)))
        (inner,) = classes.call("Mul", [classes.values[operand], c], Attrs(), [FLOAT])
        (made,) = classes.call("Relu", [inner], Attrs(), [FLOAT])
        found = classes.has_alike(classes.values[product], made, mark)
        classes.undo(mark)
        return found

    assert alike(x, [5.0, 6.0])
    assert not alike(y, [5.0, 6.0])
    assert not alike(x, [5.0])
