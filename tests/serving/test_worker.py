"""A worker answers whatever comes, within limits, and calls a model what its user does."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from graphopt.ir import onnx_io
from graphopt.serving import tasks, worker
from tests.web.models import small


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    onnx_io.save(small(), tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)  # which is put back
    given = {"task": "draw", "model": str(tmp_path / "m.onnx"), "name": "uploaded: <b>", "folder": str(tmp_path)}
    return {**given, "memory": None, "seconds": 60}


def test_a_process_sends_one_answer_and_prints_nothing(
    request_: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    context = multiprocessing.get_context("fork")
    answers, theirs = context.Pipe(duplex=False)
    process = context.Process(target=worker.serve, args=(theirs, request_))
    process.start()
    assert answers.poll(60)
    assert json.loads(answers.recv_bytes())["model"]["graphs"]
    process.join()
    assert process.exitcode == 0
    assert capfd.readouterr() == ("", "")


def test_errors_call_a_model_what_it_is_called(request_: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\xff no model")
    error = worker.answer(request_)["error"]
    assert "uploaded: <b>" in error
    assert str(tmp_path) not in error


@pytest.mark.parametrize(
    ("raised", "said"),
    [(MemoryError(), "does not fit the memory"), (ValueError("odd\nname"), "ValueError: odd name")],
)
def test_whatever_fails_is_told(
    request_: dict[str, Any], raised: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(request: object) -> dict[str, Any]:
        raise raised

    monkeypatch.setattr(tasks, "TASKS", {"draw": fail})
    assert said in worker.answer(request_)["error"]
