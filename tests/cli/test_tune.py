"""``graphopt tune``: what it finds on a small model, and what bad input gets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import graphopt.benchmark.active_measurement
import graphopt.benchmark.tune
from graphopt.benchmark.tune import Tuning
from graphopt.cli import run
from graphopt.ir.onnx_io import save
from graphopt.ir.text import parse
from graphopt.tuning.session import Progress, Task, TuningReport
from tests.benchmark.test_active_measurement import by_layout, pointwise
from tests.cli.test_results import check
from tests.tuning.made_up import MadeUp
from tests.tuning.test_database import FEW


@pytest.fixture
def model(tmp_path: Path) -> str:
    graph = parse("x: float32[16, 24]\nw = float32[24, 40]{0.25, ...}\ny = Relu(MatMul(x, w))\nreturn y")
    save(graph, tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def test_tune(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = str(tmp_path / "t.sqlite")
    given = ["--trials", "1", "--search", "random", "--database", database]
    assert run(["tune", model, *given, "--json", str(tmp_path / "tuned.json")]) == 0
    check((tmp_path / "tuned.json").read_text(), "tune")
    printed = capsys.readouterr().out
    assert "1 measured in" in printed
    assert "all trials are done" in printed
    assert "x as fast as with default schedules" in printed
    assert database in printed.replace("\n", "")
    assert run(["db", "list", "--database", database, "--json", str(tmp_path / "list.json")]) == 0
    assert '"measured": 2' in (tmp_path / "list.json").read_text()  # the default schedule, too
    assert run(["run", model, "--input", "x=random", "--tuned", "require", "--database", database]) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--search", "evolutoin"], 2, "no search is called 'evolutoin'"),
        (["--search", "random", "--node", "nothing"], 2, "no nest computes a node 'nothing'"),
        (["--search", "random", "--seconds", "-1"], 2, "--seconds"),
        (["--choices", "--node", "y"], 2, "--choices are those of the whole model"),
        (["--choices", "--seed", "3", "--search", "random"], 2, "leave --search and --seed out"),
        (["--choices", "--target", "cuda"], 2, "--choices are measured on the CPU"),
        (["--target", "tpu", "--search", "random"], 2, "tpu"),
        (["--choices", "--executor", "here"], 2, "expected dask://HOST:PORT"),
        (["--search", "random", "--executor", "here"], 2, "expected dask://HOST:PORT"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], code: int, line: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "t.sqlite"
    assert run(["tune", model, "--trials", "1", "--database", str(database), *arguments]) == code
    captured = capsys.readouterr()
    assert line in captured.err
    assert captured.out == ""


def test_without_lightgbm_nothing_is_begun(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    database = tmp_path / "t.sqlite"
    assert run(["tune", model, "--trials", "1", "--database", str(database)]) == 8
    assert "pip install 'graphopt[tune]', or search at random" in capsys.readouterr().err.replace("\n", " ")
    assert not database.exists()


def test_what_was_measured_before_an_interruption_is_told(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "t.sqlite"
    found = Tuning(TuningReport((Progress(Task(FEW, 1, ("[bold]a\x1b[31m",))),), "interrupted", 1.0), (), ())
    monkeypatch.setattr(graphopt.benchmark.tune, "tune_model", lambda *args, **kwargs: found)
    assert run(["tune", model, "--search", "random", "--database", str(database)]) == 130
    printed = capsys.readouterr()
    assert printed.err == f"graphopt: interrupted; what was measured is kept in {database}\n"
    assert "[bold]a\\x1b[31m" in printed.out
    assert "(interrupted)" in printed.out


@pytest.mark.parametrize("is_begun", [False, True])
def test_an_interruption_does_not_deny_what_is_kept(
    is_begun: bool, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "t.sqlite"

    def interrupted(*args: object, **kwargs: object) -> Tuning:
        if is_begun:
            database.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(graphopt.benchmark.tune, "tune_model", interrupted)
    assert run(["tune", model, "--search", "random", "--database", str(database)]) == 130
    kept = f"what was measured is kept in {database}" if is_begun else "nothing was written"
    assert capsys.readouterr().err == f"graphopt: interrupted; {kept}\n"


def test_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    executor = MadeUp(by_layout(plain=1e-6, blocked=1.0))
    monkeypatch.setattr(graphopt.benchmark.active_measurement, "executor_named", lambda name: executor)
    model, database = tmp_path / "m.onnx", tmp_path / "t.sqlite"
    model.write_bytes(pointwise())
    given = ["--choices", "--quiet", "--trials", "1", "--database", str(database)]
    assert run(["tune", str(model), *given, "--json", str(tmp_path / "asked.json")]) == 0
    check((tmp_path / "asked.json").read_text(), "tune --choices")
    assert capsys.readouterr().out == ""
    assert run(["tune", str(model), "--choices", "--database", str(database)]) == 0
    printed = capsys.readouterr().out
    assert "3 measured in" in printed
    assert "nothing else would change a choice" in printed
    assert "no longer: 1 x graphopt::BlockedConv(" in printed
    assert "in their place: 1 x Conv(float32[1,64,28,28], float32[64,64,1,1])" in printed.replace("\n", " ")
    assert run(["tune", str(model), "--choices", "--database", str(database)]) == 0
    printed = capsys.readouterr().out
    assert "0 measured in" in printed
    assert "the choices stay as they are" in printed
