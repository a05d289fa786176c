"""Rules learnt from graphs match the place that they were learnt from, whatever the place."""

import random
from pathlib import Path

import onnx
import pytest

from graphopt.errors import RuleError, UsageError
from graphopt.interop.learned import learn_rule, learned, rule_variables, same_terms
from graphopt.ir.graph import CONSTANT, INPUT, Graph
from graphopt.ir.infer import infer
from graphopt.ir.onnx_io import load
from graphopt.ir.text import parse
from graphopt.rewrite.match.matcher import match
from graphopt.rewrite.passes.dead import UNUSED
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.reading.region import between
from graphopt.rewrite.rule.notation import show_term
from graphopt.rewrite.rule.rule import Rule

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
GRAPH = """
x: float32[n, 3]
a = Sub(x, 3.0)
b = Clip(a, 0.0, 6.0)
c = Div(b, 0.5)
d = Mul(c, b)
y = Relu(d)
return y
"""


def sites(rule: Rule, graph: Graph) -> set[tuple[object, ...]]:
    facts = infer(graph)
    return {found.roots for node in graph.nodes() for found in match(rule, graph, facts, node.id)}


def test_a_region_becomes_a_left_side_with_guards_of_a_line_each() -> None:
    found = learn_rule(parse(GRAPH), "a..y", "mine")
    lines = found.text.splitlines()
    assert "mine:  Relu(Mul(Div(Clip(Sub(a, 3.0), 0.0, 6.0) as m, 0.5), m))" in lines
    guards = [line.partition("#")[0].strip() for line in lines if "# seen here" in line]
    assert guards == ['where a.dtype == "float32"', "and a.rank == 2", "and a.shape[1] == 3"]
    assert found.places == 1


def test_the_text_lacks_its_right_side_only() -> None:
    found = learn_rule(parse(GRAPH), "a..y")
    with pytest.raises(RuleError, match=r"mine.rules:\d+:\d+: expected a term"):
        parse_rules(found.text, "mine.rules")
    rule = found.rule("Relu(Mul(a, a))")
    assert rule.reason == "why the right side equals the left one, and what it saves"
    assert len(sites(rule, parse(GRAPH))) == 1


def test_the_rule_rewrites_its_model_once_it_has_a_right_side() -> None:
    graph = parse(GRAPH)
    text = learn_rule(graph, "b..c").written("Clip(input, 0.0, 6.0), Mul(Clip(input, 0.0, 6.0), 2.0)")
    result = simplify(graph, parse_rules(text), (UNUSED,))
    assert [n.op for n in result.order() if n.op not in (INPUT, CONSTANT)] == ["Sub", "Clip", "Mul", "Mul", "Relu"]


def test_values_that_are_read_outside_are_terms_of_their_own() -> None:
    found = learn_rule(parse(GRAPH), "b..c")
    assert [show_term(t) for t in found.terms] == ["Clip(input, 0.0, 6.0) as m", "Div(m, 0.5)"]
    assert "=>  ?  # the right side takes the place of the ?: 2 terms with commas between them" in found.text


def test_open_sizes_of_one_name_are_equal_and_weights_are_constants() -> None:
    graph = parse("x: float32[n, 4]\nz: float32[n, 4]\nw = Transpose(x)\na = MatMul(z, w)\ny = Relu(a)\nreturn y")
    guards = [g.expr for g in learn_rule(graph, "a..y").guards]
    text = learn_rule(graph, "a..y").text
    assert len(guards) == len(set(guards))
    assert "b.shape[1] == a.shape[0]" in text
    assert "one open size, n" in text


def test_names_of_models_cannot_leave_their_comment() -> None:
    graph = parse(GRAPH)
    graph.names[graph.inputs[0]] = "x\nevil: Relu(x) => x  # "
    found = learn_rule(graph, "a", "safe")
    assert len(parse_rules(found.written("Add(a, -3.0)"))) == 1


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("y..a", "a does not depend on y"),
        ("x", "'x' is an input of the model"),
        ("dd", "no node is called 'dd'.*did you mean d"),
        ("a..nonsense", "no node is called 'nonsense'.*inspect MODEL --nodes"),
    ],
)
def test_what_cannot_be_chosen_is_said(nodes: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        learn_rule(parse(GRAPH), nodes)


def test_what_rules_cannot_say_is_said() -> None:
    graph = parse("x: float32[3]\na = Relu(x)\nreturn a")
    for _ in range(70):
        node = graph.add("Relu", (graph.outputs[0],))
        graph.outputs = [node.outputs[0]]
    with pytest.raises(UsageError, match="ops lie one behind the other; a rule takes 64"):
        learn_rule(graph, f"a..%{graph.outputs[0].node}")  # type: ignore[union-attr]


def test_numbers_name_nodes_as_inspect_lists_them() -> None:
    graph = parse(GRAPH)
    node = next(n for n in graph.nodes() if n.op == "Clip")
    assert learn_rule(graph, f"%{node.id}").terms == learn_rule(graph, "b").terms


@pytest.mark.parametrize("name", ["light_densenet121", "light_shufflenet", "light_bvlc_alexnet"])
def test_round_trip_on_regions_of_models(name: str) -> None:
    """With the left side as its right side, the rule matches where it is from, read back from its text."""
    graph = load(LIGHT / f"{name}.onnx")
    draw = random.Random(name)
    work = [n for n in graph.order() if n.op not in (INPUT, CONSTANT)]
    facts = infer(graph)
    for first in draw.sample(work, 6):
        last = first
        for _ in range(draw.choice((0, 1, 3, 6))):
            readers = graph.readers(last.id)
            last = graph.node(draw.choice(readers)) if readers else last
        found = learned(between(graph, [first], [last]))
        rule = found.rule(", ".join(map(show_term, same_terms(found.region, rule_variables(found)))))
        at = found.roots[0].node
        assert found.roots in {m.roots for m in match(rule, graph, facts, at)}
