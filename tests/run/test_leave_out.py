"""A rule that makes a result wrong is found, named and left out, and the others stay."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import graphopt
from graphopt.errors import UsageError, VerificationError
from graphopt.ir.text import parse
from graphopt.run import leave_out, write_result
from graphopt.run.derivation import Derivation
from graphopt.run.local_checks import LocalCheck
from graphopt.verify.verification import Verification
from tests.run.test_write_result import ops, proto


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A rule that is not true, of an op beside which others are rewritten rightly."""
    pytest.importorskip("onnxruntime")
    path = tmp_path / "wrong.rules"
    path.write_text("# not true      [C1] exact always\nwrong:  Relu(x)  =>  Abs(x)\n")
    return path


def model(folder: Path) -> Path:
    """A Relu that the rule makes wrong, behind what the standard rules make shorter."""
    net = proto()
    net.graph.node[0].op_type = net.graph.node[1].op_type = "Neg"
    net.graph.node.insert(2, onnx.helper.make_node("Relu", ["b"], ["r"]))
    net.graph.node[3].input[0] = "r"
    onnx.save(net, folder / "in.onnx")
    return folder / "in.onnx"


def test_the_wrong_rule_is_left_out_and_the_rest_written(tmp_path: Path, wrong: Path) -> None:
    output = tmp_path / "out.onnx"
    _, report = graphopt.optimize(model(tmp_path), output=output, rules=wrong, return_report=True)
    assert ops(output) == ["Relu", "MatMul"]
    assert [gone.rule for gone in report.left_out] == ["wrong"]
    assert report.verification.is_verified
    assert {rewrite.rule for rewrite in report.rewrites} == {"neg-neg"}
    assert any("wrong at r" in line and "left out" in line for line in report.warnings)
    assert report.ops_after == {"Relu": 1, "MatMul": 1}


def test_where_no_place_shows_it_the_journal_is_bisected(
    tmp_path: Path, wrong: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(graph: object, derivation: Derivation, *_: object) -> dict[int, LocalCheck]:
        return {e.id: LocalCheck("unchecked") for e in derivation.rewrites}

    monkeypatch.setattr(leave_out, "check_places", blind)
    output = tmp_path / "out.onnx"
    _, report = graphopt.optimize(model(tmp_path), output=output, rules=wrong, return_report=True)
    assert ops(output) == ["Relu", "MatMul"]
    assert [gone.rule for gone in report.left_out] == ["wrong"]
    assert "makes the result wrong" in report.left_out[0].why


@pytest.mark.parametrize("how", [{"on_mismatch": "refuse"}, {"verify": "require"}])
def test_a_refused_result_is_not_written_and_the_rule_is_named(
    tmp_path: Path, wrong: Path, how: dict[str, str]
) -> None:
    with pytest.raises(VerificationError, match=r"the result is wrong: .*; the rewrite wrong at r"):
        graphopt.optimize(model(tmp_path), output=tmp_path / "out.onnx", rules=wrong, **how)
    assert not (tmp_path / "out.onnx").exists()


def test_what_outputs_do_not_tell_places_do(tmp_path: Path) -> None:
    """Where any output may be rounding, the two sides of a rule that claims equal bits still have to be equal."""
    pytest.importorskip("onnxruntime")
    rules = tmp_path / "wrong.rules"
    rules.write_text("# not true      [C1] exact always\nwrong:  Sin(x)  =>  Cos(x)\n")
    _, report = graphopt.optimize(
        parse("x: float32[4, 16] y = Sin(Mul(x, 1e9)) return y"), rules=rules, return_report=True
    )
    assert [gone.rule for gone in report.left_out] == ["wrong"]
    assert report.ops_after == {"Mul": 1, "Sin": 1}


@pytest.mark.parametrize("status", ["inconclusive", "unverified"])
def test_where_comparison_settles_nothing_each_rewrite_is_checked(
    status: str, tmp_path: Path, wrong: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_result, "verify_as_asked", lambda *_: Verification(status, "it settles nothing"))
    output = tmp_path / "out.onnx"
    with pytest.raises(VerificationError, match="wrong"):
        graphopt.optimize(model(tmp_path), output=output, rules=wrong, on_mismatch="refuse")
    assert not output.exists()
    _, report = graphopt.optimize(model(tmp_path), output=output, rules=wrong, return_report=True)
    assert [gone.rule for gone in report.left_out] == ["wrong"]


def test_other_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="on_mismatch='ask': expected leave-out or refuse"):
        graphopt.optimize(proto(), on_mismatch="ask")
