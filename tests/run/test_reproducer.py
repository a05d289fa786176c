"""A wrong rewrite is reduced to its left side, on which its rule alone is wrong."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

import graphopt
from graphopt.cli import run
from graphopt.errors import VerificationError
from graphopt.ir import onnx_io
from graphopt.ir.graph import CONSTANT, INPUT, Graph
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.run.reproducer import difference_at, part

MODEL = """x: float32[n, 4]
a = Exp(x)
w = Sub(Mul(a, 2.0), a)
r = Relu(w)
s = Sigmoid(r)
y = Neg(s)
return y"""

HEAD = "# not true      [C1] reals always\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    onnx_io.save(parse(MODEL), "m.onnx")
    Path("wrong.rules").write_text(
        "# not true      [C1] reals always\nwrong:  Sigmoid(Relu(x))  =>  Sigmoid(Add(x, 1.0))\n"
    )


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.order() if node.op not in (INPUT, CONSTANT)]


def test_the_left_side_alone_is_written_and_named_with_what_to_run_next() -> None:
    with pytest.raises(VerificationError) as error:
        graphopt.optimize(
            "m.onnx", output="o.onnx", rules="wrong.rules", on_mismatch="refuse", reproducer="o.reproducer.onnx"
        )
    rewrite = error.value.rewrite
    assert rewrite is not None
    assert (rewrite.rule, rewrite.site, rewrite.source) == ("wrong", "s", "wrong.rules:2")
    small = onnx_io.load("o.reproducer.onnx")
    assert ops(small) == ["Relu", "Sigmoid"]
    assert small.output_names == ["s"]
    assert [line.split()[0] for line in error.value.__notes__] == ["rule", "reproducer", "next"]
    assert run(shlex.split(rewrite.command)[1:]) == VerificationError.exit_code
    assert not Path("o.onnx").exists()


def test_where_the_rule_needs_what_leads_there_all_of_that_is_kept() -> None:
    """Only where x is at least 0 does the guard hold, which the left side alone does not show."""
    Path("wrong.rules").write_text(
        "# not true      [C1] reals always\nwrong:  Sigmoid(x)  =>  Abs(Sigmoid(Neg(x)))\n    where x.low >= 0\n"
    )
    _, report = graphopt.optimize(
        "m.onnx", output="o.onnx", rules="wrong.rules", return_report=True, reproducer="small.onnx"
    )
    (gone,) = report.left_out
    assert gone.reproducer == "small.onnx"
    assert ops(onnx_io.load("small.onnx"))[-2:] == ["Relu", "Sigmoid"]


def test_without_a_place_for_it_nothing_is_written() -> None:
    _, report = graphopt.optimize("m.onnx", output="o.onnx", rules="wrong.rules", return_report=True)
    (gone,) = report.left_out
    assert (gone.reproducer, gone.command) == ("", "graphopt rules check wrong.rules")
    assert sorted(p.name for p in Path.cwd().iterdir()) == ["m.onnx", "o.onnx", "wrong.rules"]


def test_a_part_reads_what_is_outside_of_it_and_keeps_constants() -> None:
    graph = parse(MODEL)
    product = next(node for node in graph.nodes() if node.op == "Mul")
    sub = next(node for node in graph.nodes() if node.op == "Sub")
    cut = part(graph, {product.id, sub.id}, sub.outputs, "w")
    assert cut is not None
    assert ops(cut) == ["Mul", "Sub"]
    assert (len(cut.inputs), cut.output_names) == (1, ["w"])
    (value,) = filter(None, cut.outputs)
    assert infer(cut)[value].dtype == "float32"
    whole = part(graph, None, sub.outputs, "w")
    assert whole is not None
    assert ops(whole) == ["Exp", "Mul", "Sub"]


@pytest.mark.parametrize(("right", "differs"), [("Sigmoid(Add(x, 1.0))", True), ("Sigmoid(Max(x, 0.0))", False)])
def test_both_sides_are_compared_at_one_node(right: str, differs: bool) -> None:
    (rule,) = parse_rules(f"# a rule      [C1] reals\nr:  Sigmoid(Relu(x))  =>  {right}\n", "r.rules")
    graph = parse(MODEL)
    sides = list[tuple[Graph, Graph]]()

    def differ(before: Graph, after: Graph) -> str:
        sides.append((before, after))
        feeds = {"x": np.array([[-2.0, -0.5, 0.5, 2.0]], "float32") - 3}
        (a,), (b,) = (graphopt.compile(side)(feeds).values() for side in (before, after))
        return "" if np.allclose(a, b) else "differ"

    node = {node.op: node.id for node in graph.nodes()}
    assert difference_at(rule, graph, node["Sigmoid"], differ) == ("differ" if differs else "")
    assert ops(sides[0][0])[-1] == "Sigmoid"
    assert difference_at(rule, graph, node["Exp"], differ) is None
