"""What the last version wrote and named is read by this one.

``tests/compatibility/last`` is what ``tests/compatibility/write.py`` wrote with the last version.
"""

import importlib.util
import json
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphopt
import graphopt.runtime
from graphopt import cli
from graphopt.runtime import cpu

HERE = Path(__file__).parent / "compatibility"
LAST = HERE / "last"
NAMES: dict[str, list[str] | None] = json.loads((LAST / "names.json").read_text(encoding="utf-8"))


def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("written_by_the_last_version", HERE / "write.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def resolved(name: str) -> Any:
    """What a dotted name stands for: the longest module of it, and attributes of that."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            thing: Any = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            thing = getattr(thing, part)
        return thing
    raise ModuleNotFoundError(name)


class Command:
    """Commands of graphopt, which succeed: what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object) -> str:
        code = cli.run([*map(str, words)])
        printed = self._capsys.readouterr()
        assert code == 0, printed.err
        return printed.out


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_public_names_are_there_with_their_parameters() -> None:
    module, missing = writer(), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name, parameters in NAMES.items():
            try:
                left = set(parameters or ()) - set(module.parameters(resolved(name)) or ())
            except (ImportError, AttributeError) as error:
                missing[name] = str(error)
            else:
                missing |= {name: f"no parameter {', '.join(sorted(left))}"} if left else {}
    assert len(NAMES) > 300
    assert missing == {}


@pytest.mark.parametrize("old", sorted(graphopt._MOVED))
def test_moved_modules_are_the_same_ones_and_say_where_they_are(old: str) -> None:
    package, _, name = old.rpartition(".")
    program = f"""
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from {package} import {name}
    import {old}
import {graphopt._MOVED[old]} as new
assert {name} is new is {old}, {name}
assert new.__name__ == new.__spec__.name == {graphopt._MOVED[old]!r}
print(*(w.filename for w in caught), *(w.message for w in caught))"""
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert said == f"<string> {old} is {graphopt._MOVED[old]} now, and its old name will go\n"


def test_journals_explain_nodes(run: Command) -> None:
    assert "matmul-bias" in run("explain", LAST / "optimized.onnx", "sum")


def test_journals_replay_what_was_left(run: Command, tmp_path: Path) -> None:
    run("revert", LAST / "model.onnx", LAST / "optimized.onnx", "matmul-bias", "-o", tmp_path / "less.onnx")
    x = np.load(LAST / "values.npz")["x"]
    assert "MatMul" in run("inspect", tmp_path / "less.onnx")
    found = graphopt.compile(str(tmp_path / "less.onnx"))(x)["y"]
    np.testing.assert_allclose(found, np.load(LAST / "values.npz")["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not cpu.runs_programs(), reason="programs are machine code for x86-64 and Linux")
def test_saved_programs_run() -> None:
    values = np.load(LAST / "values.npz")
    found = graphopt.runtime.load(LAST / "program")(values["x"])
    np.testing.assert_allclose(found["y"], values["y"], rtol=1e-5, atol=1e-6)


def test_tuned_schedules_are_read_and_imported(run: Command, tmp_path: Path) -> None:
    listed = run("db", "list", "--database", LAST / "tuned.sqlite")
    assert "gemm" in listed or "kernel" in listed
    run("db", "import", LAST / "tuned.jsonl", "--database", tmp_path / "new.sqlite")
    assert run("db", "list", "--database", tmp_path / "new.sqlite") == listed


def test_measured_prices_are_read(run: Command) -> None:
    assert "MatMul" in run("calibrate", "--show", "--database", LAST / "measured.sqlite")
