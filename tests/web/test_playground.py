"""The playground's part of pages: the model with its bodies, and what rules did, by line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphopt.ir.text import parse
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.ruleset import Ruleset
from graphopt.tools.explanation import explain_rule
from graphopt.web.playground import REASONS, SITES, drawn_model, fired, line_of, misses
from tests.web.models import optimized, small

pytest.importorskip("fast_sugiyama")

BODIES = """
c: bool[]
x: float32[2]
y = If(c | x, else_branch={ q: ? r = Neg(q) return r }, then_branch={ q: ? return q })
return y
"""


def test_bodies_are_drawn_beside_the_main_graph() -> None:
    model = drawn_model(parse(BODIES))
    drawn = {name: [box.op for box in drawing.boxes] for name, drawing in model.graphs}
    assert drawn == {
        "main graph": ["Input", "Input", "If"],
        "If y, else_branch": ["Input", "Neg"],
        "If y, then_branch": ["Input"],
    }
    assert dict(model.facts)["inputs"] == "c: bool[], x: float32[2]"


def test_rules_know_their_lines() -> None:
    [rule] = parse_rules("\n\n# r  [A22] exact\nr: Relu(Relu(x)) => Relu(x)", "a:b.rules")
    assert line_of(rule) == 4
    assert line_of(replace(rule, source="")) is None


def test_what_rules_did_is_counted() -> None:
    rules = parse_rules("# r  [A22] exact\nr: Relu(Relu(x)) => Relu(x)\n# n  [A22] exact\nn: Neg(Neg(x)) => x")
    report = optimized(small(), rules=Ruleset(tuple(rules)))
    one, none = fired(rules, report)
    assert (one.rule, one.line, one.kept, one.sites) == ("r", 2, 1, ("a",))
    assert (none.rule, none.tried, none.fired, none.kept, none.sites) == ("n", 0, 0, 0, ())


def test_reasons_of_most_places_come_first_and_few_are_named() -> None:
    lines = [f"a{k} = Neg(x)\nb{k} = Abs(a{k})" for k in range(SITES + 2)]
    outputs = ", ".join(f"b{k}" for k in range(SITES + 2))
    graph = parse("x: float32[4]\n" + "\n".join(lines) + f"\nr = Relu(x)\nz = Abs(r)\nreturn {outputs}, z")
    [rule] = parse_rules("# r  [A22] exact\nr: Abs(Abs(x)) => Abs(x)")
    found = misses(explain_rule(graph, "r", Ruleset((rule,))))
    assert len(found) <= REASONS
    assert found[0].places == SITES + 2
    assert len(found[0].sites) == SITES
    assert [m.places for m in found] == sorted((m.places for m in found), reverse=True)
