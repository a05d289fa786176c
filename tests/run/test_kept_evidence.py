"""Evidence of a user's rules is kept beside their file, and counts as long as the rule is the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import graphopt
from graphopt.cli import run
from graphopt.errors import ReadError
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.proof import evidence
from graphopt.proof.evidence import Evidence
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.ruleset import standard, standard_folder
from graphopt.run.kept_evidence import evidence_of, file_of, kept_beside, kept_in, kept_with

RULE = (
    "# that is its negative part      [H4] reals\nmy-min:  Neg(Relu(Neg(x)))  =>  Min(x, 0.0)\n"
    "    where x.dtype in float\n"
)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = Path("mine.rules")
    file.write_text(RULE)
    return file


def test_what_is_kept_beside_a_file_is_that_of_its_rules(mine: Path) -> None:
    (rule,) = parse_rules(RULE, str(mine))
    assert (file_of(rule), kept_with(rule)) == (mine, Path("mine.evidence.json"))
    assert evidence_of(rule) is None
    kept_beside(mine).write_text(evidence.written([(rule, Evidence("reals", "float32"))], "4"))
    assert evidence_of(rule) == Evidence("reals", "float32")
    (changed,) = parse_rules(RULE.replace("0.0", "0.5"), str(mine))
    assert evidence_of(changed) is None
    (elsewhere,) = parse_rules(RULE, "journal")
    assert (file_of(elsewhere), kept_with(elsewhere), evidence_of(elsewhere)) == (None, None, None)
    assert evidence_of(elsewhere, [kept_beside(mine)]) == Evidence("reals", "float32")
    kept_beside(mine).write_text("[]")
    with pytest.raises(ReadError, match=r"mine\.evidence\.json: is not evidence"):
        evidence_of(rule)
    kept_beside(mine).unlink()
    assert kept_in(kept_beside(mine)) == {}


def test_standard_rules_have_theirs_with_all_standard_rules(mine: Path) -> None:
    rule = standard().rules[0]
    assert (file_of(rule), kept_with(rule)) == (None, standard_folder() / evidence.FILE)
    assert evidence_of(rule) == evidence.evidence_of(rule) is not None


def test_proved_once_a_rule_of_mine_is_no_longer_without_evidence(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("z3")
    onnx_io.save(parse("x: float32[2, 3]\ny = Neg(Relu(Neg(x)))\nreturn y"), "m.onnx")
    given = [
        "optimize",
        "m.onnx",
        "-o",
        "o.onnx",
        "--rules",
        "mine.rules",
        "--verify",
        "off",
        "--certificate",
        "c.json",
    ]
    assert run(given) == 0
    assert "without evidence of their rule" in capsys.readouterr().out
    assert run(["rules", "prove", "mine.rules", "--update"]) == 0
    assert "my-min: reals, proved" in capsys.readouterr().out
    (entry,) = json.loads(kept_beside(mine).read_text())["rules"].values()
    assert entry["rule"] == "my-min"
    assert run(given) == 0
    printed = capsys.readouterr().out
    assert "without evidence" not in printed
    assert "1 rewrite: 1 by rules proved" in printed
    assert run(["rules", "show", "mine.rules"]) == 0
    assert "# evidence: proved" in capsys.readouterr().out
    assert run(["certify", "m.onnx", "o.onnx", "c.json"]) == 14
    assert "is it a rule of yours? --rules names its file" in capsys.readouterr().err
    assert run(["certify", "m.onnx", "o.onnx", "c.json", "--rules", "mine.rules"]) == 0
    mine.write_text(RULE.replace("negative part", "part below 0"))
    assert run([*given, "--quiet"]) == 0
    mine.write_text(RULE.replace("in float", "in float and x.rank == 2"))
    assert run(given) == 0
    assert "without evidence of their rule" in capsys.readouterr().out


def test_update_needs_one_place(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("z3")
    Path("other.rules").write_text(RULE.replace("my-min", "other-root"))
    assert run(["rules", "prove", "mine.rules", "other.rules", "--update"]) == 2
    assert "--update keeps evidence beside" in capsys.readouterr().err
    assert not list(Path.cwd().glob("*.json"))
    assert run(["certify", "a", "b", "c", "--rules", "mine.rules"]) == 2
    assert "there is no mine.evidence.json" in capsys.readouterr().err


def test_reports_in_python_read_it_too(mine: Path) -> None:
    (rule,) = parse_rules(RULE, str(mine))
    kept_beside(mine).write_text(evidence.written([(rule, Evidence("reals", "float32"))], "4"))
    _, report = graphopt.optimize(
        parse("x: float32[2, 3]\ny = Neg(Relu(Neg(x)))\nreturn y"), rules=mine, verify="off", return_report=True
    )
    assert report.certificate.kinds == {"reals": 1}
