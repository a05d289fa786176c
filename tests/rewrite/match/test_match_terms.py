"""Terms bind what they stand for, in every way there is."""

from __future__ import annotations

import re

from graphopt.ir.graph import Value
from graphopt.ir.text import parse
from graphopt.rewrite.guards.bindings import Bindings
from graphopt.rewrite.match.match_terms import TermMatcher, call_names, starred_names
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Term


def pattern(text: str) -> Term:
    right = re.sub(r" as \w+", "", text)
    return parse_rules(f"# why [A1] exact\nr: {text} => {right}")[0].lhs[0]


def ways(text: str, source: str) -> list[dict[str, object]]:
    """All ways in which the pattern is the graph's output, with values by name."""
    space = Workspace(parse(source))
    names = space.graph.names

    def shown(bound: object) -> object:
        if isinstance(bound, Value):
            return names.get(bound, "?")
        return tuple(map(shown, bound)) if isinstance(bound, tuple) else bound

    found = TermMatcher(space).term(pattern(text), space.graph.outputs[0], Bindings(), None)
    return [{n: shown(v) for n, v in bound.values.items()} for bound in found]


def test_every_order_of_a_commutative_variadic_op() -> None:
    source = "x: float32[2] y: float32[2] z: float32[2] s = Sum(x, y, z) return s"
    assert [w["b"] for w in ways("Sum(a*, b)", source)] == ["x", "y", "z"]
    assert len(ways("Sum(a, b, c)", source)) == 6
    assert ways("Sum(a, b)", source) == []


def test_every_cut_between_two_stars() -> None:
    source = "x: float32[2] y: float32[2] c = Concat(x, y, axis=0) return c"
    assert ways("Concat(a*, b*, axis=0)", source) == [
        {"a": (), "b": ("x", "y")},
        {"a": ("x",), "b": ("y",)},
        {"a": ("x", "y"), "b": ()},
    ]


def test_a_repeated_star_is_the_same_values() -> None:
    text = "Add(Concat(a*, axis=0), Neg(Concat(a*, axis=0)))"
    source = "x: float32[2] y: float32[2] o = Add(Concat(x, y, axis=0), Neg(Concat({}, axis=0))) return o"
    assert ways(text, source.format("x, y")) == [{"a": ("x", "y")}]
    assert ways(text, source.format("y, x")) == []


def test_names_of_members() -> None:
    text = "Concat(Mul(a*, Sigmoid(a*) as s), axis=0)"
    assert starred_names(pattern(text.replace("Concat(", "").removesuffix(", axis=0)"))) == ["a", "s"]
    assert call_names((pattern(text),)) == ["s"]
    source = """x: float32[2] y: float32[2] p = Sigmoid(x) q = Sigmoid(y)
        o = Concat(Mul(x, p), Mul(q, y), axis=0) return o"""
    assert ways(text, source) == [{"a": ("x", "y"), "s": ("p", "q")}]
    assert ways(text, source.replace("Mul(q, y)", "Mul(q, x)")) == []


def test_equal_constants_are_the_same_value() -> None:
    source = "x: float32[100] o = Add(Mul(x, float32[100]{{1.0, ...}}), float32[100]{{{}, ...}}) return o"
    assert ways("Add(Mul(x, c), c)", source.format("1.0")) == [{"x": "x", "c": "?"}]
    assert ways("Add(Mul(x, c), c)", source.format("2.0")) == []
