import json

import pytest

from graphopt.cli import run
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph


@pytest.fixture
def graph() -> Graph:
    return parse(
        "x: float32[2, 3]\na = Ceil(x)\nb = Ceil(a)\nc = Add(b, 3.0)\nd = Clip(c, 0.0, 6.0)\n"
        "e = Mul(b, d)\nf = Div(e, 6.0)\ny = Relu(f)\ndead = Exp(x)\nreturn y"
    )


def test_every_rule_is_counted_in_every_stage(graph: Graph) -> None:
    _, report = optimize_graph(graph)
    by_name = {use.rule: use for use in report.rules}
    assert [use.seconds for use in report.rules] == sorted((use.seconds for use in report.rules), reverse=True)
    assert sum(use.kept for use in report.rules) == sum(rewrite.rule != "fold-constants" for rewrite in report.rewrites)
    twice = by_name["idempotent"]
    assert (twice.family, twice.stage) == ("A22", "always")
    assert twice.tried >= twice.fired >= twice.kept >= 1
    native = by_name["unused-node"]
    assert (native.stage, native.tried, native.kept >= 1) == ("native", 0, True)
    explored = [use for use in report.rules if use.stage == "explore" and use.kept]
    assert explored
    assert all(use.seconds > 0 for use in explored)
    assert any(use.reasons and use.refused >= use.reasons[0][1] for use in report.rules)


def test_the_command_prints_them_and_the_json_has_them(
    graph: Graph, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("uses")
    onnx_io.save(graph, folder / "m.onnx")
    options = ["--verify", "off", "--stats", "--json", str(folder / "r.json")]
    assert run(["optimize", str(folder / "m.onnx"), *options]) == 0
    out = capsys.readouterr().out
    assert "most often refused because" in out
    assert "idempotent" in out
    content = json.loads((folder / "r.json").read_text())
    assert {"rule", "family", "tried", "fired", "kept", "seconds", "refused"} <= set(content["rules"][0])
