"""E-graphs as people can read them: classes, members with prices, why one was chosen, and what another would change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import graphopt
from graphopt.cli import run
from graphopt.display import encoded
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.optimize import candidates, optimize_graph
from graphopt.rewrite.extract.cost import graph_cost
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.ruleset import Ruleset
from graphopt.run.report import Measured, Race, Report
from graphopt.run.steps import OPTIMIZE, Steps
from graphopt.target import ORT, PORTABLE, Target
from graphopt.tools import egraph
from graphopt.tools.egraph import Kept, egraphs

HARD_SWISH = """x: float32[2, 64]
    b = Add(x, 3.0)
    c = Clip(b, 0.0, 6.0)
    d = Mul(x, c)
    y = Div(d, 6.0)
    return y"""
CACHED = """past: float32[1, 2, p, 8]
    new: float32[1, 2, n, 8]
    present = Concat(past, new, axis=2)
    b = Add(present, 3.0)
    c = Clip(b, 0.0, 6.0)
    d = Mul(present, c)
    y = Div(d, 6.0)
    return present, y"""
HARD_SWISH_AGAIN = """
    b{i} = Add({x}, 3.0)
    c{i} = Clip(b{i}, 0.0, 6.0)
    d{i} = Mul({x}, c{i})
    e{i} = Div(d{i}, 6.0)
    y{i} = Sin(e{i})"""


def test_the_members_of_a_class_are_told_with_what_they_cost() -> None:
    (told,) = egraphs(parse(HARD_SWISH), target=ORT)
    (y,) = told.classes
    assert y.name == "y"
    assert y.type == "float32[2, 64]"
    assert y.chosen is not None
    assert y.members[y.chosen].op == "HardSwish"
    assert y.members[y.chosen].rule == "hard-swish"
    assert {m.op for m in y.members} >= {"HardSwish", "Mul", "Div"}
    assert [m.seconds for m in y.members] == sorted(m.seconds for m in y.members)
    assert told.seconds < told.original


def test_another_choice_costs_what_the_model_with_it_does() -> None:
    graph = parse(HARD_SWISH)
    (told,) = egraphs(graph, target=ORT)
    (div,) = (m for m in told.classes[0].members if m.op == "Div")
    assert div.rule == ""
    assert div.instead is not None
    cost = graph_cost(graph, infer(graph), ORT).total.seconds
    assert told.seconds + div.instead.seconds == pytest.approx(cost)
    assert div.instead.gone == ("HardSwish(x)",)
    assert len(div.instead.added) == 4
    assert "more with any other" in told.classes[0].why


def test_what_is_not_needed_and_ties_are_told() -> None:
    text = "# one op [A1] reals\nless: Relu(Neg(x)) => Abs(x)\n# as dear [A1] reals\nmore: Neg(x) => Sub(0.0, x)\n"
    rules = Ruleset(tuple(parse_rules(text, "r")))
    (told,) = egraphs(parse("x: float32[4] a = Neg(x) y = Relu(a) return y"), rules)
    assert any(c.chosen is None and c.why == "nothing that was chosen needs it" for c in told.classes)
    assert egraphs(parse("x: float32[4] y = Sin(x) return y")) == ()


def test_large_graphs_are_told_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egraph, "CLASSES", 2)
    monkeypatch.setattr(egraph, "MEMBERS", 2)
    chain = "".join(HARD_SWISH_AGAIN.format(i=i, x=f"y{i - 1}" if i else "x") for i in range(4))
    told = egraphs(parse(f"x: float32[2, 64]{chain} return y3"))
    assert any(t.choices > 2 for t in told)
    for t in told:
        assert len(t.classes) <= 2
        for c in t.classes:
            assert len(c.members) <= 2
            assert c.chosen is None or c.members[c.chosen].instead is None
            assert {n for m in c.members for n in m.reads if n is not None} <= {
                *t.names,
                *(o.number for o in t.classes),
            }


def test_a_run_can_be_kept_in_passing() -> None:
    kept, calls = Kept({"the result": ORT}), []

    def own(step: object, saturated: object) -> object:
        calls.append(saturated)
        assert callable(step)
        return step(saturated)

    _, report = optimize_graph(parse(HARD_SWISH), target=ORT, step=Steps(None, OPTIMIZE, kept.steps({"choose": own})))
    assert kept.told(report) == egraphs(parse(HARD_SWISH), target=ORT)
    assert calls


def test_a_cache_is_priced_as_it_was_chosen() -> None:
    kept = Kept({"the result": ORT})
    _, report = optimize_graph(parse(CACHED), target=ORT, step=Steps(None, OPTIMIZE, kept.steps()))
    told = kept.told(report)
    assert told
    assert told == egraphs(parse(CACHED), target=ORT)
    assert all(m.instead is None or m.instead.seconds >= 0 for t in told for c in t.classes for m in c.members)


@pytest.mark.parametrize(("winner", "target"), [("the result", ORT), ("portable", PORTABLE), ("original", ORT)])
def test_the_choices_of_the_candidate_that_is_kept_are_told(winner: str, target: Target, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx_io.save(parse(HARD_SWISH), path)
    kept = Kept(candidates(ORT, ORT))

    def measure(step: object, results: dict[str, tuple[Graph, Report]], *_: object) -> tuple[Graph, Report]:
        graph, report = results.get(winner, results["the result"])
        return graph, replace(report, measured=Measured(winner, Race(winner)))

    _, report = graphopt.optimize(
        path, output=tmp_path / "o.onnx", target="ort", measure=0.1, costs="analytic",
        steps=kept.steps({"measure": measure}), return_report=True,
    )  # fmt: skip
    assert len(kept.seen) > len(kept.told(report)) > 0
    assert kept.told(report) == egraphs(path, target=target)


def test_json_has_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx_io.save(parse(HARD_SWISH), path)
    assert run(["egraph", str(path), "--target", "ort", "--json", "-"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content == json.loads(json.dumps(encoded(egraphs(path, target=ORT))))
    assert run(["egraph", str(path), "--target", "ort", "--html", str(tmp_path / "e.html")]) == 0
    assert "HardSwish" in capsys.readouterr().out
    assert (tmp_path / "e.html").read_text().startswith("<!doctype html>")
    assert run(["egraph", str(path), "--html", str(path)]) == 2
