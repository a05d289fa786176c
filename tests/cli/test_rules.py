import shutil
from pathlib import Path

import onnx
import onnx.parser
import pytest

from graphopt.cli import run
from graphopt.proof import evidence, prove
from graphopt.rewrite.rule.rule import Rule
from graphopt.rewrite.ruleset import Ruleset, standard, standard_folder


def save(path: Path, body: str) -> str:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g (float[n,3] x) {body}'), path)
    return str(path)


def test_a_pair_of_models_is_written_checked_and_applied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = save(tmp_path / "relu-relu.onnx", "=> (float[n,3] y) { a = Relu(x)  y = Relu(a) }")
    right = save(tmp_path / "relu.onnx", "=> (float[n,3] y) { y = Relu(x) }")
    rules = str(tmp_path / "pair.rules")
    assert run(["rules", "pair", left, right, "--soundness", "exact", "--family", "A22", "--always", "-o", rules]) == 0
    assert run(["rules", "check", rules, "--no-cache"]) == 0
    out = str(tmp_path / "out.onnx")
    assert run(["optimize", left, "-o", out, "--rules", rules, "--only", "relu_relu", "-q"]) == 0
    assert len(onnx.load(out).graph.node) == 1
    assert run(["rules", "pair", left, right, "--soundness", "exact"]) == 0
    assert "relu_relu:  Relu(Relu(x))  =>  Relu(x)" in capsys.readouterr().out


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = save(tmp_path / "l.onnx", "=> (float[n,3] y) { y = Relu(x) }")
    right = save(tmp_path / "r.onnx", "=> (float[n,3] y, float[n,3] z) { y = Relu(x)  z = Neg(x) }")
    assert run(["rules", "pair", left, right, "--soundness", "exact"]) == 7
    assert "the sides have 1 and 2 outputs" in capsys.readouterr().err


def test_an_interrupt_keeps_the_evidence_of_rules_that_were_not_proved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = standard().rules[:3]
    shutil.copy(standard_folder() / evidence.FILE, tmp_path / evidence.FILE)
    monkeypatch.setattr("graphopt.rewrite.ruleset.standard", lambda: Ruleset((first, second, third)))
    monkeypatch.setattr("graphopt.rewrite.ruleset.standard_folder", lambda: tmp_path)
    known = evidence.read(tmp_path / evidence.FILE)

    def found(rule: Rule, *_: object) -> prove.ProofResult:
        if rule is second:
            raise KeyboardInterrupt
        return prove.ProofResult(rule, known[evidence.key(rule)])

    monkeypatch.setattr(prove, "find_evidence", found)
    assert run(["rules", "prove", "--update", "--no-cache", "-q"]) == 130
    assert set(evidence.read(tmp_path / evidence.FILE)) == {evidence.key(r) for r in (first, second, third)}
