"""Shells complete commands, options and names, by asking the command line itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from graphopt.cli import COMPLETE, names, run

GRAPHOPT = "import sys; from graphopt.cli import main; main(sys.argv[1:])"


def completed(line: str) -> list[str]:
    """What bash is given for a line whose last word is being typed."""
    asked = {**os.environ, COMPLETE: "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = subprocess.run([sys.executable, "-c", GRAPHOPT], env=asked, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "among"),
    [
        ("graphopt opti", {"optimize"}),
        ("graphopt rules pr", {"prove"}),
        ("graphopt optimize --pol", {"--policy"}),
        ("graphopt rules show hard-sw", {"hard-swish"}),
        ("graphopt completion f", {"fish"}),
    ],
)
def test_what_may_come_next(line: str, among: set[str]) -> None:
    found = completed(line)
    assert among <= set(found)
    assert all(word.startswith(line.rsplit(" ", 1)[1]) for word in found)


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
