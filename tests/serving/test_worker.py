"""A run: rules and a model in, what fired and the page out; mistakes with their line and column."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graphopt.errors import RuleError
from graphopt.ir import onnx_io
from graphopt.serving.worker import complaint, run
from tests.web.models import small

RULES = """# two are one  [A22] exact
mine: Relu(Relu(x)) => Relu(x)
# never here  [A22] exact
other: Relu(Neg(x)) => Neg(x)
"""


@pytest.fixture
def request_(tmp_path: Path) -> dict[str, object]:
    onnx_io.save(small(), tmp_path / "m.onnx")
    given = {"model": str(tmp_path / "m.onnx"), "name": "m.onnx", "rules": RULES, "with": "mine", "target": "portable"}
    return {**given, "policy": "reals", "seconds": 60}


def test_a_run_tells_what_fires_and_why_others_do_not(request_: dict[str, object]) -> None:
    found = run(request_)
    mine, other = found["fired"]
    assert (mine["rule"], mine["kept"]) == ("mine", 1)
    assert other["kept"] == 0
    assert any("Neg" in why for why, _, _ in other["misses"])
    assert found["page"]["title"] == "m.onnx"
    assert [c["rule"] for c in found["page"]["rewriting"]["changes"]].count("mine") == 1


def test_mistakes_in_rules_have_a_place(request_: dict[str, object]) -> None:
    with pytest.raises(RuleError) as caught:
        run({**request_, "rules": "\nmine: Relu(Relu(x) => Relu(x)"})
    found = complaint(str(caught.value))
    assert found["line"] == 2
    assert found["column"] == 20
    assert "your.rules" not in found["error"]
    assert complaint("something else") == {"error": "something else"}


def answer(request: dict[str, object]) -> dict[str, Any]:
    """What the process says to a request."""
    command = [sys.executable, "-m", "graphopt.serving.worker"]
    done = subprocess.run(command, input=json.dumps(request).encode(), capture_output=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_the_process_answers_on_stdout_alone(request_: dict[str, object]) -> None:
    assert answer(request_)["fired"][0]["kept"] == 1


def test_errors_call_a_model_what_it_is_called(request_: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\xff no model")
    error = answer({**request_, "name": "uploaded: <b>"})["error"]
    assert "uploaded: <b>" in error
    assert str(tmp_path) not in error
