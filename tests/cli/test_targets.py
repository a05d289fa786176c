"""Targets are listed, shown and checked from the command line, wherever a name stands a file may, and prices are
measured."""

from pathlib import Path

import onnx
import onnx.parser
import pytest

from graphopt.calibration.store import Setting, Time, TimesDatabase
from graphopt.cli import names, run
from graphopt.ir.onnx_io import save
from graphopt.ir.text import parse
from graphopt.target import TARGETS
from tests.cli.test_results import check

FIVE = "[prices]\nsource = 'data sheet'\nnode = 3e-6\nflops = 2e12\nbandwidth = [400e9, 60e9]\ncache = 2e6\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (float[2,3] y)
        { a = Neg(x)  b = Neg(a)  y = Relu(b) }"""
    )
    onnx.save(proto, tmp_path / "m.onnx")
    (tmp_path / "mine.toml").write_text(FIVE)
    (tmp_path / "ours.toml").write_text(FIVE + "[ops]\nlike = 'cpu'\n")
    (tmp_path / "wrong.toml").write_text(FIVE + "flopps = 1\nlanes = 'many'\n")
    return tmp_path


def test_targets_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["target", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(TARGETS)
    assert run(["target", "show", "ort"]) == 0
    said = capsys.readouterr().out
    assert "tests.bench.quantized_formats" in next(line for line in said.splitlines() if "signed" in line)
    assert "data sheet: NVIDIA T4" in (run(["target", "show", "cuda"]), capsys.readouterr().out)[1]


def test_each_mistake_is_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["target", "check", "mine.toml"]) == 0
    assert capsys.readouterr().out == "mine.toml: ok\n"
    assert run(["target", "check", "wrong.toml"]) == 3
    assert capsys.readouterr().out.splitlines() == [
        "wrong.toml: prices.flopps: expected a known key; did you mean flops?",
        "wrong.toml: prices.lanes: expected a whole number from 1 to 1048576, not 'many'",
    ]
    assert run(["target", "check", "none.toml"]) == 3
    assert "none.toml: there is no such file" in capsys.readouterr().err
    assert run(["optimize", "m.onnx", "-o", "o.onnx", "--target", "wrong.toml"]) == 3
    assert "and 1 more: graphopt target check wrong.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["optimize", "m.onnx", "-o", "o.onnx", "--target", "mine.toml"],
        ["explain", "m.onnx", "--rule", "neg-neg", "--target", "mine.toml"],
        ["rules", "coverage", "m.onnx", "--target", "mine.toml"],
        ["explain", "m.onnx", "--choices", "--target", "ours.toml"],
        ["show", "m.onnx", "--target", "ours.toml"],
        ["compile", "m.onnx", "-o", "program", "--target", "./ours.toml"],
        ["run", "m.onnx", "--input", "x=random", "--target", "ours.toml"],
    ],
    ids=" ".join,
)
def test_a_file_stands_where_a_name_does(folder: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = run(command)
    assert code == 0, capsys.readouterr().err


def test_names_and_files_complete(folder: Path) -> None:
    assert names.targets("or") == ["ort", "ort-cuda"]
    assert names.targets("m") == ["mine.toml"]


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
    told = model.with_name("told.json")
    assert run(["calibrate", str(model), "--database", str(database), "--json", str(told)]) == 0
    check(told.read_text(), "calibrate")
    assert "1 measured" in capsys.readouterr().out
    assert run(["calibrate", "--show", "--database", str(database), "--json", "-"]) == 0
    check(capsys.readouterr().out, "calibrate --show")
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
    with TimesDatabase(database, write=True) as store:
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compile", "m.onnx", "-o", "out", "--capability", "99"], "--capability is of a GPU: leave it out for the"),
        (
            ["run", "m.onnx", "--input", "x=random", "--target", "ort"],
            "the target ort makes ONNX models, no programs: use graphopt optimize",
        ),
    ],
)
def test_what_would_be_ignored_is_refused(
    arguments: list[str], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert said in capsys.readouterr().err
    assert not (folder / "out").exists()
