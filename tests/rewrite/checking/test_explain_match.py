from pathlib import Path

import pytest

from graphopt.cli import run
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.rewrite.checking.explain_match import Trial, attempt, find_node
from graphopt.rewrite.reading.parse import parse_rules

GRAPH = """
x: float32[2, 3]
a = Sub(x, 3.0)
b = Clip(a, 0.0, 6.0)
c = Div(b, 0.5)
y = Relu(c)
return y
"""
RULE = """
# why  [H8] reals
example: Div(Clip(Sub(x, k), low, high), s) => Mul(Clip(Sub(x, k), low, high), {1.0 / s.scalar like s})
    where x.dtype in float and not (k.size == 1 and s.scalar > 1.0) and low.scalar < high.scalar
"""


def trial(rule: str, graph: Graph, name: str) -> Trial:
    node = find_node(graph, name)
    assert node is not None
    return attempt(parse_rules(rule)[0], graph, infer(graph), node.id)


def test_every_guard_is_told_with_its_values() -> None:
    found = trial(RULE, parse(GRAPH), "c")
    (fit,) = found.attempts
    assert dict(fit.bindings)["x"] == "x"
    assert [asked.reason for asked in fit.guards] == ["", "", ""]
    assert [asked.values for asked in fit.guards] == [
        (("x.dtype", "float32"),),
        (("k.size", "1"), ("s.scalar", "0.5")),
        (("low.scalar", "0.0"), ("high.scalar", "6.0")),
    ]
    assert fit.applies
    assert (1, "x is an input of the graph, the rule wants Clip") not in found.misfits


def test_guards_after_the_first_that_fails_are_told_too() -> None:
    found = trial(RULE.replace("x.dtype in float", "x.rank == 3"), parse(GRAPH), "c")
    (fit,) = found.attempts
    assert fit.guards[0].reason == "`x` has rank 2, the rule wants 3"
    assert fit.guards[2].values == (("low.scalar", "0.0"), ("high.scalar", "6.0"))
    assert not fit.applies


def test_functions_are_told_with_the_facts_that_they_are_computed_from() -> None:
    (fit,) = trial(RULE.replace("x.dtype in float", "per_channel(k.shape, x.rank)"), parse(GRAPH), "c").attempts
    assert fit.guards[0].values == (("per_channel(k.shape, x.rank)", "true"), ("k.shape", "()"), ("x.rank", "2"))


def test_operands_that_do_not_fit_are_told_in_order() -> None:
    found = trial(RULE, parse(GRAPH), "y")
    assert found.misfits == [(0, "y is Relu, the rule wants Div")]
    assert not found.attempts


def test_facts_that_are_not_known_are_told() -> None:
    graph = parse("x: float32[n, 3]\ny = Relu(x)\nreturn y")
    rule = "# why  [C1] exact\na: Relu(x) => x where x.scalar == 1.0"
    (fit,) = trial(rule, graph, "y").attempts
    assert fit.guards[0].values == (("x.scalar", "not known: `x` is not a constant"),)


def test_a_right_side_that_does_not_fit_says_why() -> None:
    graph = parse("x: float32[2, 3]\ny = Transpose(x, perm=[1, 0])\nreturn y")
    (fit,) = trial("# why  [C1] exact\na: Transpose(x, perm=p) => x", graph, "y").attempts
    assert fit.refused
    assert not fit.applies
    assert len(graph) == len(parse("x: float32[2, 3]\ny = Transpose(x, perm=[1, 0])\nreturn y"))


def test_nodes_are_found_by_name_value_and_number() -> None:
    graph = parse(GRAPH)
    node = find_node(graph, "b")
    assert node is not None
    assert find_node(graph, f"%{node.id}") == node
    assert find_node(graph, "nowhere") is None
    assert find_node(graph, "") is None


def test_the_command_takes_rules_by_name_and_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, rules = tmp_path / "m.onnx", tmp_path / "my.rules"
    onnx_io.save(parse(GRAPH), model)
    rules.write_text(RULE)
    assert run(["rules", "try", str(rules), str(model), "c"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("example: applies\n")
    assert "    yes x.dtype in float  (x.dtype = float32)" in out
    assert "the right side fits" in out
    assert "both sides agree there on random inputs" in out
    assert run(["rules", "try", "relu-clip", str(model), "y"]) == 0
    assert "does not apply" in capsys.readouterr().out
    assert run(["rules", "try", "relu-clip", str(model), "nowhere"]) == 2
    assert "no node is called 'nowhere'" in capsys.readouterr().err
