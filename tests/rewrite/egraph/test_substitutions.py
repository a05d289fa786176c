"""Rows are read to bindings, with the reason where attributes do not fit; members of a family are joined."""

from __future__ import annotations

import pytest

from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.rewrite.egraph.classes import Classes
from graphopt.rewrite.egraph.matching import Matching
from graphopt.rewrite.egraph.substitutions import Instance, alone, independent, joined, shared
from tests.rewrite.small_graphs import Maker, rules


def read(graph: Graph, text: str) -> tuple[Classes, list[Instance | str]]:
    """What the rows of one rule say."""
    classes = Classes(graph, infer(graph), 100)
    matching = Matching(classes, rules(f"r: {text}"))
    matching.search([0])
    return classes, [f.reader.read(row, classes) for f in matching.relations[0] for row in f.waiting]


def turned(*perms: tuple[int, ...]) -> Graph:
    m = Maker()
    y = m.input("x", 2, 3, 4)
    for perm in perms:
        y = m("Transpose", y, perm=perm)
    return m.done(y)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Transpose(x) => x", "attribute perm of Transpose is (0, 2, 1), the rule wants its default"),
        ("Transpose(x, perm=[0, 1, 2]) => x", "attribute perm of Transpose is (0, 2, 1), the rule wants (0, 1, 2)"),
        ("Transpose(x, perm=[0, 2, 1]) => x", None),
        ("Transpose(x, perm=p) => x", (0, 2, 1)),
        ("Transpose(x, **p) => x", {"perm": (0, 2, 1)}),
        ("f(x) => x where f in movement", None),
    ],
)
def test_attributes_bind_or_say_why_not(text: str, outcome: object) -> None:
    _, (found,) = read(turned((0, 2, 1)), text)
    if isinstance(outcome, str):
        assert found == outcome
    else:
        assert isinstance(found, Instance)
        bound = found.bindings.attrs.get("p")
        assert (dict(bound) if isinstance(outcome, dict) else bound) == outcome  # type: ignore[call-overload]


def test_defaults_that_depend_on_the_rank_are_known() -> None:
    _, (found,) = read(turned((2, 1, 0)), "Transpose(x, perm=p) => x")
    assert isinstance(found, Instance)
    assert found.bindings.attrs["p"] == (2, 1, 0)


@pytest.mark.parametrize(("second", "fits"), [((1, 0, 2), True), ((2, 0, 1), False)])
def test_one_name_is_one_attribute(second: tuple[int, ...], fits: bool) -> None:
    _, (found,) = read(turned((1, 0, 2), second), "Transpose(Transpose(x, perm=p), perm=p) => x")
    assert isinstance(found, Instance) == fits


def test_an_op_variable_stands_for_attributes_too() -> None:
    m = Maker()
    x, y = m.input("x", 2), m.input("y", 2)
    total = m("Add", m("LeakyRelu", x, alpha=0.5), m("LeakyRelu", y, alpha=0.25))
    _, found = read(m.done(total), "Add(f(x), f(y)) => x where f in unary")
    assert set(found) == {"LeakyRelu is not the same op as f"}


def test_absent_inputs_bind_to_none_where_they_may() -> None:
    m = Maker()
    graph = m.done(m("Clip", m.input("x", 2), None, m.constant(6)))
    _, (found,) = read(graph, "Clip(x, lo?, hi?) => x")
    assert isinstance(found, Instance)
    assert found.bindings.values["lo"] is None
    assert read(graph, "Clip(x, lo, hi) => x")[1] == ["an input that the rule wants is absent"]


def test_members_of_a_family_are_joined() -> None:
    m = Maker()
    x = m.input("x", 4, 4)
    products = [m("MatMul", x, m.input(f"w{i}", 4, 4)) for i in range(3)]
    classes, found = read(m.done(*products), "MatMul(x, a*) as r => x")
    members = [f for f in found if isinstance(f, Instance)]
    assert len({shared(member) for member in members}) == 1
    assert alone(members[0]).values["r"] == members[0].roots[0]
    whole = joined(members)
    assert whole.bindings.values["a"] == tuple(classes.values[m.graph.inputs[i]] for i in (1, 2, 3))
    assert whole.bindings.values["x"] == classes.values[x]
    assert whole.roots == whole.bindings.values["r"] == tuple(classes.values[p] for p in products)
    assert independent(whole, classes)


def test_roots_that_are_computed_from_another_are_not_independent() -> None:
    m = Maker()
    x = m.input("x", 4, 4)
    first = m("MatMul", x, m.input("w", 4, 4))
    classes, found = read(m.done(m("MatMul", x, m("Neg", first))), "MatMul(x, a*) => x")
    assert not independent(joined([f for f in found if isinstance(f, Instance)]), classes)
