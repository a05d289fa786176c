"""Targets are listed, shown and checked from the command line, and a file stands wherever a name does."""

from pathlib import Path

import onnx
import onnx.parser
import pytest

from graphopt.cli import names, run
from graphopt.target import TARGETS

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
