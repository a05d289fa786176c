import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphopt.runtime
from graphopt.errors import CompilationError, ReadError
from graphopt.runtime import cpu, saved
from graphopt.runtime.program import Branch, Buffer, Call, Code, Host, Loop, Program, Ref
from graphopt.runtime.steps import Condition
from tests.runtime.programs import ADD, LESS, NUMBERS, chain, code, floats, scale

VALUES = np.arange(6, dtype=np.float32)


def everything() -> Code:
    """Constants of several sizes, a branch and a loop."""
    buffers = [
        floats("input", 6),
        floats("constant", 2, 3),
        Buffer("int64", (), "constant"),
        Buffer("bool", (), "arena"),
        Buffer("int64", (), "arena"),
        floats("output", 6),
        floats("constant", 0),
        Buffer("bfloat16", (3,), "constant"),
        Buffer("bfloat16", (3,), "output"),
    ]
    steps = [
        Call(NUMBERS[ADD], (Ref(0), Ref(1), Ref(5)), 6, label="add", nodes=("Add_0",)),
        Loop((scale(5, 5, 2, 1, 6),), counter=4, count=Ref(2)),
        Call(NUMBERS[LESS], (Ref(5), Ref(3), 6, 1000)),
        Branch(3, (scale(5, 5, 1, 1, 6),), (scale(5, 5, 1, 2, ("*", 2, 3)),)),
    ]
    constants = {
        1: np.ones((2, 3), np.float32),
        2: np.array(3),
        6: np.empty(0, np.float32),
        7: np.arange(3, dtype=np.uint16),
    }
    made = code(buffers, steps, {"x": 0}, {"y": 5, "half": 7}, constants)
    return replace(made, conditions=(Condition(("<=", ("+", 1, 2), 3), "few"),))


def want() -> Any:
    y = VALUES + 1
    for _ in range(3):
        y = y * 2 + 1
    return y + 1 if y.sum() < 1000 else y + 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Program(everything(), threads=1).save(tmp_path / "p")
    return tmp_path / "p"


def test_a_saved_program_computes_the_same(folder: Path) -> None:
    program = graphopt.runtime.load(folder, threads=1)
    found = program([VALUES])
    assert np.array_equal(found["y"], want())
    assert found["half"].dtype == np.uint16
    assert found["half"].tolist() == [0, 1, 2]
    assert program.profile([VALUES])[0].nodes == ("Add_0",)


def test_a_saved_program_keeps_its_conditions(folder: Path) -> None:
    assert graphopt.runtime.load(folder).code.conditions == everything().conditions


def test_saving_again_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    saved.load(folder).save(tmp_path / "again")
    for name in (saved.MANIFEST, saved.OBJECTS_FILE, saved.CONSTANTS_FILE):
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    saved.load(folder).save(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["code.bin", "constants.bin", "manifest.json"]


def test_numpy_alone_is_needed(folder: Path) -> None:
    text = f"""
import sys
sys.path.insert(0, {os.getcwd()!r})
allowed = {{"numpy", "graphopt"}}
class Door:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in allowed and top not in sys.stdlib_module_names:
            raise ImportError(f"{{name}} is not installed here")
sys.meta_path.insert(0, Door())
import numpy as np
from graphopt.runtime import load
program = load({str(folder)!r}, threads=2)
print(program([np.arange(6, dtype=np.float32)])["y"].tolist())
ours = {{m.split(".")[1] for m in sys.modules if m.startswith("graphopt.")}}
assert ours == {{"display", "errors", "runtime", "saving"}}, ours
"""
    done = subprocess.run([sys.executable, "-c", text], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == f"{want().tolist()}\n"


def test_another_processor_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = cpu.features()
    gone = sorted(here)[0]
    monkeypatch.setattr(cpu, "features", lambda: here - {gone})
    with pytest.raises(ReadError, match=f"was compiled for a processor with {gone}, which this one does not have"):
        saved.load(folder)


def test_another_machine_is_refused_by_its_name_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "features", lambda: frozenset())
    with pytest.raises(ReadError, match=r"with [\w, ]+ and \d+ more, which this one does not have"):
        saved.load(folder)
    monkeypatch.setattr(saved.platform, "machine", lambda: "aarch64")
    with pytest.raises(ReadError, match="for a processor with x86_64, which this one does not have"):
        saved.load(folder)


@pytest.mark.parametrize("changed", [{"cpu": 3}, {"sizes": [1]}, {"objects": []}, {"steps": [{"is": "Nothing"}]}])
def test_a_manifest_of_another_make_is_refused(folder: Path, changed: dict[str, Any]) -> None:
    text = {**json.loads((folder / saved.MANIFEST).read_text()), **changed}
    del text["digest"]
    (folder / saved.MANIFEST).write_text(json.dumps({"digest": saved._digest(text), **text}))
    with pytest.raises(ReadError, match="is damaged, or of another version of graphopt"):
        saved.load(folder)


def test_a_save_that_fails_leaves_what_was_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}

    def full(text: object, **options: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saved.json, "dumps", full)
    monkeypatch.setattr(saved, "_digest", lambda text: "")
    for place in (folder, folder / "new"):
        with pytest.raises(ReadError, match="cannot be written: No space left on device"):
            Program(chain()).save(place)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_later_format_is_refused(folder: Path) -> None:
    text = json.loads((folder / saved.MANIFEST).read_text())
    (folder / saved.MANIFEST).write_text(json.dumps({**text, "format": saved.FORMAT + 1}))
    with pytest.raises(ReadError, match="was written by a later version of graphopt"):
        saved.load(folder)


@pytest.mark.parametrize("name", [saved.MANIFEST, saved.OBJECTS_FILE, saved.CONSTANTS_FILE])
def test_damage_is_found(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    for wrong in (whole[: len(whole) // 2], b"", whole + b"0"):
        (folder / name).write_bytes(wrong)
        with pytest.raises(ReadError, match=f"{name} is damaged"):
            saved.load(folder)
    if name != saved.CONSTANTS_FILE:
        (folder / name).write_bytes(whole.replace(b"6", b"7", 1))
        with pytest.raises(ReadError, match=f"{name} is damaged"):
            saved.load(folder)
    (folder / name).unlink()
    wanted = "no program is saved there" if name == saved.MANIFEST else f"{name} cannot be read: No such file"
    with pytest.raises(ReadError, match=wanted):
        saved.load(folder)


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": "1"}', '{"format": 0}', "\0\xff", "nul"])
def test_a_manifest_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / saved.MANIFEST).write_text(text)
    with pytest.raises(ReadError, match=r"manifest.json is damaged"):
        saved.load(folder)


def test_programs_that_need_python_are_not_saved(tmp_path: Path) -> None:
    step = Host("f", (0,), (1,), label="NonZero_7")
    program = Program(code([floats("input", 1), floats("output", 1)], [step], {"x": 0}, {"y": 1}), {"f": np.copy})
    with pytest.raises(CompilationError, match=r"cannot be saved, for Python runs some of its steps: NonZero_7; run"):
        program.save(tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReadError, match="cannot be written: Not a directory"):
        Program(chain()).save(tmp_path / "file" / "p")


def test_a_program_for_another_driver_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved.table, "digest", lambda: "another")
    with pytest.raises(ReadError, match="written by another version of graphopt"):
        saved.load(folder)


def test_files_have_the_permissions_that_the_user_wants(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        Program(chain()).save(tmp_path / "p")
        assert {stat.S_IMODE(f.stat().st_mode) for f in (tmp_path / "p").iterdir()} == {0o640}
    finally:
        assert os.umask(before) == 0o027
