"""Tasks: a model drawn; rules, those in Python too, checked, proved, run, explained; mistakes with their place."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import onnx
import pytest

from graphopt.errors import RuleError
from graphopt.ir import onnx_io
from graphopt.rewrite.checking.check import CheckReport, Depth, check_rule
from graphopt.rewrite.rule.rule import Rule
from graphopt.serving import tasks
from graphopt.serving.app import KNOWN
from graphopt.serving.tasks import FILES, PAGE, RESULT, TASKS, complaint
from tests.web.models import small

pytest.importorskip("fast_sugiyama")

RULES = """# two are one  [A22] exact
mine: Relu(Relu(x)) => Relu(x)
# never here  [A22] exact
other: Relu(Neg(x)) => Neg(x)
"""
CODE = '''from graphopt import ops, rule


@rule(family="A22", exact=True)
def mine(x):
    """Two are one."""
    return ops.Relu(ops.Relu(x)).becomes(ops.Relu(x))
'''


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    onnx_io.save(small(), tmp_path / "m.onnx")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    given = {"model": str(tmp_path / "m.onnx"), "name": "m.onnx", "rules": RULES, "language": "rules", "with": "mine"}
    return {**given, "target": "portable", "policy": "reals", "memory": None, "root": str(tmp_path), "known": {}}


def test_a_model_is_drawn_before_anything_ran(request_: dict[str, Any]) -> None:
    model = TASKS["draw"](request_)["model"]
    [(name, drawing)] = model["graphs"]
    assert name == "main graph"
    assert [box["op"] for box in drawing["boxes"]].count("Relu") == 2
    assert ["inputs", "x: float32[n, 4]"] in model["facts"]


def test_rules_are_checked_one_by_one_and_no_rule_twice(
    request_: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = "\n# the root of a square  [H4] reals\nwrong: Sqrt(Mul(x, x)) => x\n"
    rows = TASKS["check"]({**request_, "rules": RULES + wrong})["checks"]
    assert [(row["rule"], row["line"], row["state"]) for row in rows] == [
        ("mine", 2, "right"),
        ("other", 4, "wrong"),
        ("wrong", 7, "wrong"),
    ]
    assert "the right side -" in rows[2]["problem"]
    known = {row["key"]: {name: row[name] for name in ("state", "compared", "problem")} for row in rows[1:]}
    checked: list[str] = []

    def noted(rule: Rule, depth: Depth) -> CheckReport:
        checked.append(rule.name)
        return check_rule(rule, depth=depth)

    monkeypatch.setattr(tasks, "check_rule", noted)
    again = TASKS["check"]({**request_, "rules": RULES + wrong, "known": known})["checks"]
    assert checked == ["mine"]
    assert again == rows


def test_rules_for_which_there_is_no_time_wait(request_: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "SLICE", -1.0)
    assert [row["state"] for row in TASKS["check"](request_)["checks"]] == ["waiting", "waiting"]


def test_only_so_many_rules_are_checked(request_: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MOST", 1)
    assert [row["state"] for row in TASKS["check"](request_)["checks"]] == ["right", "beyond"]
    assert tasks.MOST < KNOWN


def test_a_run_tells_what_fires_and_why_others_do_not(request_: dict[str, Any]) -> None:
    page = TASKS["run"](request_)["page"]
    mine, other = page["written"]["fired"]
    assert (mine["rule"], mine["line"], mine["kept"]) == ("mine", 2, 1)
    assert mine["misses"] is None
    assert other["kept"] == 0
    assert any("Neg" in why for why, _, _ in other["misses"])
    assert page["title"] == "m.onnx"
    assert [c["rule"] for c in page["rewriting"]["changes"]].count("mine") == 1
    assert page["rewriting"]["verification"]["status"] == "verified"


def test_a_run_leaves_the_model_and_the_page(request_: dict[str, Any]) -> None:
    page = TASKS["run"](request_)["page"]
    assert [node.op_type for node in onnx.load(RESULT).graph.node] == ["Relu", "Identity", "Add"]
    held = re.search(r'id="data">([A-Za-z0-9+/=]*)<', Path(PAGE).read_text(encoding="utf-8"))
    assert held is not None
    assert json.loads(gzip.decompress(b64decode(held[1]))) == page


def test_the_command_of_a_run_does_the_same(request_: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    from graphopt.cli import run

    command = TASKS["run"](request_)["page"]["written"]["command"].split()
    Path("your.rules").write_text(RULES)
    Path("m.onnx").write_bytes(Path(request_["model"]).read_bytes())
    assert command[:2] == ["graphopt", "optimize"]
    assert run([*command[1:], "--quiet"]) == 0, capsys.readouterr().err
    assert Path("m.opt.onnx").read_bytes() == Path(RESULT).read_bytes()


def test_a_rule_is_explained_where_somebody_asks(request_: dict[str, Any]) -> None:
    found = TASKS["explain"]({**request_, "rule": "other"})["misses"]
    assert any("Neg" in why for why, _, _ in found)
    with pytest.raises(RuleError, match="no rule is called 'max-zero' here"):
        TASKS["explain"]({**request_, "rule": "max-zero"})


def test_a_rule_is_proved(request_: dict[str, Any]) -> None:
    pytest.importorskip("z3")
    text = "# larger  [H6] reals\nlarger: Max(x, Neg(x)) => Abs(x)\n    where x.dtype in float\n"
    assert TASKS["prove"]({**request_, "rules": text, "rule": "larger"})["evidence"].startswith("proved ieee")
    wrong = "# root  [H4] reals\nwrong: Sqrt(Mul(x, x)) => x\n    where x.dtype in float\n"
    assert TASKS["prove"]({**request_, "rules": wrong, "rule": "wrong"})["refuted"]


def test_rules_in_python_are_like_others(request_: dict[str, Any]) -> None:
    asked = {**request_, "rules": CODE, "language": "python"}
    assert TASKS["check"](asked)["checks"][0] == {**TASKS["check"](request_)["checks"][0], "line": 4}
    page = TASKS["run"](asked)["page"]
    assert page["written"]["fired"][0]["kept"] == 1
    assert "--rules your_rules.py" in page["written"]["command"]


def test_rules_in_python_import_what_lies_in_the_folder(request_: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "beside_served.py").write_text(CODE)
    asked = {**request_, "rules": "from beside_served import mine\n", "language": "python"}
    assert [row["rule"] for row in TASKS["check"](asked)["checks"]] == ["mine"]


@pytest.mark.parametrize(
    ("language", "text", "line", "column", "said"),
    [
        ("rules", "\nmine: Relu(Relu(x) => Relu(x)", 2, 20, "expected `)`"),
        ("python", "\n\n1 / 0\n", 3, 1, "ZeroDivisionError: division by zero"),
        ("python", "\nimport (\n", 2, 1, "SyntaxError: "),
        ("python", CODE.replace("ops.Relu(x))\n", "ops.Rely(x))\n"), 4, 1, "unknown op Rely"),
    ],
)
def test_mistakes_in_rules_have_a_place(
    request_: dict[str, Any], language: str, text: str, line: int, column: int, said: str
) -> None:
    with pytest.raises(RuleError) as caught:
        TASKS["check"]({**request_, "rules": text, "language": language})
    found = complaint(str(caught.value))
    assert (found["line"], found["column"]) == (line, column), found
    assert said in found["error"]
    assert complaint("something else") == {"error": "something else"}
    assert complaint(f"{FILES[language]}: too deep") == {"error": "too deep"}


def test_words_are_those_of_the_readers(request_: dict[str, Any]) -> None:
    assert "Transpose" in {op["name"] for op in TASKS["words"](request_)["ops"]}
