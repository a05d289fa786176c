"""Shells complete commands, options and names, by asking the command line itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from graphopt.cli import COMPLETE, names, run
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.target import TARGETS

GRAPHOPT = "import sys; from graphopt.cli import main; main(sys.argv[1:])"


def asked(line: str) -> dict[str, str]:
    """The environment in which bash asks what may come next, where the last word of a line is being typed."""
    return {COMPLETE: "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}


def completed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What bash is given for a line."""
    for name, value in asked(line).items():
        monkeypatch.setenv(name, value)
    with suppress(SystemExit):
        run([])
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out.split()


@pytest.mark.parametrize(
    ("line", "among"),
    [
        ("graphopt rules pr", {"prove"}),
        ("graphopt optimize --pol", {"--policy"}),
        ("graphopt rules show hard-sw", {"hard-swish"}),
        ("graphopt completion f", {"fish"}),
    ],
)
def test_what_may_come_next(
    line: str, among: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = completed(line, monkeypatch, capsys)
    assert among <= set(found)
    assert all(word.startswith(line.rsplit(" ", 1)[1]) for word in found)


def test_a_process_of_its_own_answers() -> None:
    env = {**os.environ, **asked("graphopt opti")}
    done = subprocess.run([sys.executable, "-c", GRAPHOPT], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["optimize"], "")


@pytest.mark.parametrize(
    "command", ["explain {} ", "rules try hard-swish {} ", "show {} --loops ", "extract {} --inputs "]
)
def test_nodes_of_the_model_at_hand(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx_io.save(
        parse("x: float32[4]\nhidden = Relu(x)\nhigh = Neg(hidden)\nlow = Exp(high)\nreturn low"), tmp_path / "m.onnx"
    )
    line = "graphopt " + command.format(tmp_path / "m.onnx")
    assert completed(line + "h", monkeypatch, capsys) == ["hidden", "high"]
    assert completed(line.replace("m.onnx", "none.onnx") + "h", monkeypatch, capsys) == []


@pytest.mark.parametrize("shell", names.SHELLS)
def test_the_script_is_one_of_the_shell(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert script.startswith(f"# {names.SHELLS[shell]}\n")
    assert f"{COMPLETE}=complete_{shell}" in script
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "csh"]) == 2
    assert "there is no completion for 'csh': expected bash, zsh, fish" in capsys.readouterr().err


def test_names() -> None:
    assert "hard-swish-div" in names.rules("hard-swish")
    assert names.rules("no-such-rule") == []
    assert "portable" in names.targets("po")
    assert names.shells("") == ["bash", "zsh", "fish"]


def test_help_errors_completion_and_pages_know_the_same_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What lists targets without ``graphopt.target``, which would take long to import, agrees with it."""
    assert names.target_names() == tuple(TARGETS)
    models = [t.name for t in TARGETS.values() if t.makes_models]
    programs = [t.name for t in TARGETS.values() if not t.makes_models]
    onnx_io.save(parse("x: float32[2]\ny = Relu(x)\nreturn y"), tmp_path / "m.onnx")
    for command, there in (("optimize", models), ("compile", programs), ("bench", programs)):
        assert run([command, "--help"]) == 0
        assert f"--target {'|'.join(there)}|FILE.toml" in capsys.readouterr().out
        output = [] if command == "bench" else ["-o", str(tmp_path / "out")]
        assert run([command, str(tmp_path / "m.onnx"), *output, "--target", "zzz"]) == 2
        assert f"no target is called 'zzz'; there are {', '.join(there)}\n" in capsys.readouterr().err
        assert completed(f"graphopt {command} m.onnx --target ", monkeypatch, capsys) == there
        monkeypatch.delenv(COMPLETE)
    served = pytest.importorskip("graphopt.serving.app")
    assert list(served.targets()) == models
    assert run(["bench", str(tmp_path / "m.onnx"), "--target", "ort"]) == 2
    assert "the target ort makes ONNX models, no programs" in capsys.readouterr().err
