import json
import os
import re
import shutil
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
from graphopt.runtime.program import Branch, BufferRef, Code, HostStep, KernelStep, LoopStep, Program, ProgramBuffer
from graphopt.runtime.steps import Condition
from tests.killed import killed
from tests.runtime.programs import ADD, LESS, NUMBERS, chain, code, floats, scale
from tests.test_saving import full

VALUES = np.arange(6, dtype=np.float32)


def everything() -> Code:
    """Constants of several sizes, a branch and a loop."""
    buffers = [
        floats("input", 6),
        floats("constant", 2, 3),
        ProgramBuffer("int64", (), "constant"),
        ProgramBuffer("bool", (), "arena"),
        ProgramBuffer("int64", (), "arena"),
        floats("output", 6),
        floats("constant", 0),
        ProgramBuffer("bfloat16", (3,), "constant"),
        ProgramBuffer("bfloat16", (3,), "output"),
    ]
    steps = [
        KernelStep(NUMBERS[ADD], (BufferRef(0), BufferRef(1), BufferRef(5)), 6, label="add", nodes=("Add_0",)),
        LoopStep((scale(5, 5, 2, 1, 6),), counter=4, count=BufferRef(2)),
        KernelStep(NUMBERS[LESS], (BufferRef(5), BufferRef(3), 6, 1000)),
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


def other(folder: Path) -> None:
    """Save another program, which has other code and other constants."""
    buffers = [floats("input", 6), floats("constant", 6), floats("output", 6)]
    steps = [KernelStep(NUMBERS[ADD], (BufferRef(0), BufferRef(1), BufferRef(2)), 6)]
    made = code(buffers, steps, {"x": 0}, {"y": 2}, {1: np.full(6, 2, np.float32)})
    Program(replace(made, objects=made.objects[:2]), threads=1).save(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """What lies in a folder."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


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
    before = contents(folder)
    assert contents(tmp_path / "again") == before
    saved.load(folder).save(folder)
    assert contents(folder) == before


def test_files_are_named_by_what_is_in_them(folder: Path) -> None:
    code, constants, manifest = sorted(contents(folder))
    assert re.fullmatch(r"code\.[0-9a-f]{16}\.bin", code)
    assert re.fullmatch(r"constants\.[0-9a-f]{16}\.bin", constants)
    assert manifest == saved.MANIFEST
    assert saved.constants_file(folder) == folder / constants
    other(folder)
    assert set(contents(folder)) & {code, constants} == set()
    assert len(contents(folder)) == 3


def test_a_program_is_whole_wherever_a_save_over_it_is_killed(folder: Path, tmp_path: Path) -> None:
    other(tmp_path / "other")
    old, new = contents(folder), contents(tmp_path / "other")
    before = f"from graphopt.runtime import saved; new = saved.load({str(tmp_path / 'other')!r})"
    place, seen, done = tmp_path / "place", list[bool](), False
    with killed(before, f"new.save({str(place)!r})") as is_done:
        while not done:
            saved.load(folder).save(place)
            assert contents(place) == old  # what the killed one before left is gone
            done = is_done(len(seen))
            found = saved.load(place, threads=1)([VALUES])
            seen.append("half" not in found)
            assert np.array_equal(found["y"], VALUES + 2 if seen[-1] else want())
            assert (new if seen[-1] else old).items() <= contents(place).items()
    assert contents(place) == new
    assert seen == sorted(seen)  # from the rename of the manifest on it is the new one
    assert set(seen) == {False, True}


def test_a_first_save_that_is_killed_leaves_no_program_and_what_the_next_one_removes(
    folder: Path, tmp_path: Path
) -> None:
    before = f"from graphopt.runtime import saved; new = saved.load({str(folder)!r})"
    other(tmp_path / "other")
    place, moment, done = tmp_path / "place", 0, False
    with killed(before, f"new.save({str(place)!r})") as is_done:
        while not done:
            done = is_done(moment)
            assert all(saved.is_part(name) for name in contents(place))
            if (place / saved.MANIFEST).exists():
                assert contents(place) == contents(folder)
            else:
                with pytest.raises(ReadError, match="no program is saved there"):
                    saved.load(place)
                other(place)
                assert contents(place) == contents(tmp_path / "other")
            shutil.rmtree(place)
            moment += 1


def test_a_program_that_is_saved_over_runs_on(folder: Path) -> None:
    """Its constants are mapped, and stay what they were."""
    program = saved.load(folder, threads=1)
    other(folder)
    assert np.array_equal(program([VALUES])["y"], want())
    assert np.array_equal(saved.load(folder, threads=1)([VALUES])["y"], VALUES + 2)


@pytest.mark.parametrize("reader", ["_bytes", "_constants"])
def test_a_program_that_is_saved_over_while_it_is_read_is_the_old_or_the_new_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    read, left = getattr(saved, reader), [1]

    def late(*arguments: Any) -> Any:
        if left:
            left.pop()
            other(folder)
        return read(*arguments)

    monkeypatch.setattr(saved, reader, late)
    assert np.array_equal(saved.load(folder, threads=1)([VALUES])["y"], VALUES + 2)


def test_many_may_save_and_load_at_once(folder: Path, tmp_path: Path) -> None:
    other(tmp_path / "other")
    text = """
import sys
from graphopt.runtime import saved
program = saved.load(sys.argv[1], threads=1)
for _ in range(30):
    program.save(sys.argv[2])
"""
    place = tmp_path / "place"
    saved.load(folder).save(place)
    commands = [[sys.executable, "-c", text, str(p), str(place)] for p in (folder, tmp_path / "other", folder)]
    writers = [subprocess.Popen(command) for command in commands]
    while any(w.poll() is None for w in writers):
        found = saved.load(place, threads=1)([VALUES])
        assert np.array_equal(found["y"], want() if "half" in found else VALUES + 2)
    assert [w.returncode for w in writers] == [0, 0, 0]
    assert contents(place) in (contents(folder), contents(tmp_path / "other"))


def test_a_program_of_the_format_before_is_read_and_replaced(folder: Path) -> None:
    text = json.loads((folder / saved.MANIFEST).read_text())
    for name, file in text["files"].items():
        (folder / file).rename(folder / f"{name}.bin")
    del text["digest"], text["files"]
    text["format"] = 3
    (folder / saved.MANIFEST).write_text(json.dumps({"digest": saved._digest(text), **text}))
    assert np.array_equal(saved.load(folder, threads=1)([VALUES])["y"], want())
    other(folder)
    assert np.array_equal(saved.load(folder, threads=1)([VALUES])["y"], VALUES + 2)
    assert len(contents(folder)) == 3


@pytest.mark.parametrize("format_", [2, saved.FORMAT + 1])
def test_other_formats_are_not_read(folder: Path, format_: int) -> None:
    text = json.loads((folder / saved.MANIFEST).read_text())
    del text["digest"]
    text["format"] = format_
    (folder / saved.MANIFEST).write_text(json.dumps({"digest": saved._digest(text), **text}))
    with pytest.raises(ReadError, match=rf"is damaged|was written by a later version of graphopt \(format {format_}\)"):
        saved.load(folder)


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
assert ours == {{"display", "errors", "frozen", "runtime", "saving"}}, ours
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
    monkeypatch.setattr(saved, "_FEW", 1)
    with pytest.raises(ReadError, match=r"with \w+ and \d+ more, which this one does not have"):
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


def test_a_save_that_fails_leaves_what_was_there(folder: Path) -> None:
    before = contents(folder)
    for place in (folder, folder / "new"):
        with full(), pytest.raises(ReadError, match=r"cannot write there \(File too large\)$"):
            Program(chain()).save(place)
    assert contents(folder) == before


def test_a_later_format_is_refused(folder: Path) -> None:
    text = json.loads((folder / saved.MANIFEST).read_text())
    (folder / saved.MANIFEST).write_text(json.dumps({**text, "format": saved.FORMAT + 1}))
    with pytest.raises(ReadError, match="was written by a later version of graphopt"):
        saved.load(folder)


@pytest.mark.parametrize("start", ["manifest", "code", "constants"])
def test_damage_is_found(folder: Path, start: str) -> None:
    (name,) = (file for file in contents(folder) if file.startswith(start))
    whole = (folder / name).read_bytes()
    for wrong in (whole[: len(whole) // 2], b"", whole + b"0"):
        (folder / name).write_bytes(wrong)
        with pytest.raises(ReadError, match=f"{name} is damaged"):
            saved.load(folder)
    if start != "constants":
        (folder / name).write_bytes(whole.replace(b"6", b"7", 1))
        with pytest.raises(ReadError, match=f"{name} is damaged"):
            saved.load(folder)
    (folder / name).unlink()
    wanted = "no program is saved there" if start == "manifest" else f"{name} cannot be read: No such file"
    with pytest.raises(ReadError, match=wanted):
        saved.load(folder)


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": "1"}', '{"format": 0}', "\0\xff", "nul"])
def test_a_manifest_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / saved.MANIFEST).write_text(text)
    with pytest.raises(ReadError, match=r"manifest.json is damaged"):
        saved.load(folder)


def test_programs_that_need_python_are_not_saved(tmp_path: Path) -> None:
    step = HostStep("f", (0,), (1,), label="NonZero_7")
    program = Program(code([floats("input", 1), floats("output", 1)], [step], {"x": 0}, {"y": 1}), {"f": np.copy})
    with pytest.raises(CompilationError, match=r"cannot be saved, for Python runs some of its steps: NonZero_7; run"):
        program.save(tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReadError, match=r"cannot write there \(Not a directory\)"):
        Program(chain()).save(tmp_path / "file" / "p")


def test_a_program_for_another_driver_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved.bytecode, "digest", lambda: "another")
    with pytest.raises(ReadError, match="written by another version of graphopt"):
        saved.load(folder)


def test_files_have_the_permissions_that_the_user_wants(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        Program(chain()).save(tmp_path / "p")
        assert {stat.S_IMODE(f.stat().st_mode) for f in (tmp_path / "p").iterdir()} == {0o640}
    finally:
        assert os.umask(before) == 0o027
