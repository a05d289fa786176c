"""Where nodes come from, where rules act, which rewrite is to blame, and the result without it: also as commands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import graphopt
from graphopt.cli import run
from graphopt.errors import InvalidModelError, UsageError
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.run.derivation import journal_path, read_derivation
from graphopt.target import target
from graphopt.tools.explanation import bisect, explain_node, explain_rule, revert

SWISH = """x: float32[2, 4]
    a = Relu(Relu(x))
    b = Add(a, 3.0)
    c = Clip(b, 0.0, 6.0)
    d = Mul(a, c)
    y = Div(d, 6.0)
    z = Abs(x)
    w = Div(x, 6.0)
    return y, z, w"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "in.onnx"
    onnx_io.save(parse(SWISH), path)
    return path


@pytest.fixture
def result(model: Path) -> Path:
    path = model.with_name("out.onnx")
    assert run(["optimize", str(model), "-o", str(path), "-q"]) == 0
    return path


def ops(path: Path) -> list[str]:
    return sorted(n.op for n in onnx_io.load(path).nodes() if n.op not in ("Input", "Constant"))


def blames(op: str, tmp_path: Path) -> str:
    """A command that fails on models with the op."""
    script = tmp_path / "check.py"
    script.write_text(
        f"import sys, onnx\nsys.exit(any(n.op_type == {op!r} for n in onnx.load(sys.argv[1]).graph.node))\n"
    )
    return f"{sys.executable} {script} {{}}"


def test_a_node_is_traced_back_to_the_original(result: Path) -> None:
    origins = explain_node(result, "y")
    assert origins.op == "HardSwish"
    assert [e.rule for e in origins.chain][-1].startswith("hard-swish")
    assert all(n.id in {e.id for e in origins.chain} for e in origins.chain for n in origins.chain if n.id in e.needs)
    assert explain_node(result, "z").chain == ()


def test_what_is_not_there_is_said(result: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no node is called 'nowhere'"):
        explain_node(result, "nowhere")
    other = tmp_path / "other.onnx"
    onnx_io.save(parse("x: float32[4] y = Neg(Neg(x)) z = Relu(x) return y, z"), other)
    graphopt.optimize(other, output=tmp_path / "o.onnx", verify="off", journal=tmp_path / "other.json")
    with pytest.raises(InvalidModelError, match=r"which the journal other\.onnx lacks"):
        explain_node(result, "y", tmp_path / "other.json")


def test_a_rule_tells_where_it_acts_and_what_it_lacks(model: Path) -> None:
    found = explain_rule(model, "hard-swish-div", target=target("ort"))
    assert [e.site for e in found.fired] == ["y"]
    reasons = {why: sites for why, sites in found.misses.items() if "w" in sites}
    assert reasons


def test_a_rule_that_is_not_on_says_so(model: Path) -> None:
    found = explain_rule(model, "winograd")
    assert "not on for target portable" in next(iter(found.misses))


def test_the_rewrite_to_blame_is_found(model: Path, tmp_path: Path) -> None:
    culprit = bisect(model, blames("HardSwish", tmp_path))
    assert culprit.entry.rule.startswith("hard-swish")
    with pytest.raises(UsageError, match=r"fails on .* itself"):
        bisect(model, blames("Clip", tmp_path))
    with pytest.raises(UsageError, match="nothing to find"):
        bisect(model, blames("Conv", tmp_path))


def test_a_rewrite_is_taken_back(model: Path, result: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    number = explain_node(result, "y").chain[-1].id
    again = tmp_path / "again.onnx"
    done = revert(model, result, [f"#{number}"], again, verify="require")
    assert done.verification.status == "verified"
    assert "HardSwish" not in ops(again)
    assert ops(again).count("Relu") == 1
    assert number in read_derivation(journal_path(again)).without
    assert run(["revert", str(model), str(again), "relu-holds", "-o", str(tmp_path / "more.onnx"), "-q"]) == 0
    assert ops(tmp_path / "more.onnx").count("Relu") == 2


def test_the_commands_print_entries(
    model: Path, result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", str(result), "y"]) == 0
    assert "hard-swish" in capsys.readouterr().out
    assert run(["explain", str(result), "z"]) == 0
    assert "as it was in the original" in capsys.readouterr().out
    assert run(["explain", str(model), "--rule", "relu-holds"]) == 0
    assert "acts at 1 place\n" in capsys.readouterr().out
    assert run(["bisect", str(model), "--check", blames("HardSwish", tmp_path), "-q"]) == 0
    assert "begins to fail" in capsys.readouterr().out
    assert run(["explain", str(result)]) == 2
    assert run(["explain", str(model), "y"]) == 0
    journal_path(result).unlink()
    assert run(["explain", str(result), "y"]) == 3
    assert "graphopt optimize writes one beside its result" in capsys.readouterr().err
