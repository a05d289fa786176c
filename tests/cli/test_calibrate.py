"""``graphopt calibrate``: what it says, and its exit codes."""

from pathlib import Path

import pytest

from graphopt.calibration.store import Setting, Store, Time
from graphopt.cli import run
from graphopt.ir.onnx_io import save
from graphopt.ir.text import parse


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "times.sqlite"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    save(parse("x: float32[4, 8]\ny = Tanh(x)\nreturn y"), path)
    return path


def test_a_model_is_calibrated_shown_used_and_forgotten(
    model: Path, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    assert run(["calibrate", str(model), "--database", str(database)]) == 0
    assert "1 measured" in capsys.readouterr().out
    assert run(["calibrate", "--show", "--database", str(database)]) == 0
    shown = capsys.readouterr().out
    assert "Tanh" in shown
    assert "ONNX Runtime" in shown
    assert run(["optimize", str(model), "--target", "ort", "--costs", str(database), "--no-journal"]) == 0
    assert "prices      measured: 1 times" in capsys.readouterr().out
    assert run(["calibrate", "--clear", "--database", str(database)]) == 0
    assert run(["calibrate", "--show", "--database", str(database)]) == 0
    assert "no times yet" in capsys.readouterr().out


def test_prices_that_are_not_there_are_one_line(
    model: Path, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["optimize", str(model), "--target", "ort", "--costs", str(database), "--no-journal"]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    with Store(database, write=True) as store:
        store.put(Setting("another machine", "ONNX Runtime 0.1", 1), "x", Time(1.0))
    assert run(["optimize", str(model), "--target", "ort", "--costs", str(database), "--no-journal"]) == 2
    assert "run graphopt calibrate" in capsys.readouterr().err


def test_a_damaged_database_is_one_line(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database.write_bytes(b"garbage" * 999)
    assert run(["calibrate", "--show", "--database", str(database)]) == 3
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--show", "--clear"], ["--target", "portable"], ["--target", "nothing"], ["/nowhere.onnx"]]
)
def test_wrong_usage_is_told(arguments: list[str], database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", *arguments, "--database", str(database)]) in (2, 3)
    assert capsys.readouterr().err.count("\n") == 1


def test_without_a_runtime_there_is_nothing_to_measure(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    assert run(["calibrate", "--database", str(database)]) == 8
    assert "pip install" in capsys.readouterr().err
