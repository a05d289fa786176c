"""Programs are kept and found again, and nothing that is stale or damaged is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import graphopt
from graphopt.calibration.store import Setting, Time, TimesDatabase
from graphopt.compile import CompiledModel
from graphopt.errors import ReadError, UsageError
from graphopt.ir import onnx_io
from graphopt.ir.text import parse
from graphopt.kernels import cache
from graphopt.program import program_cache
from graphopt.run.settings import Settings
from graphopt.runtime import disk_cache
from graphopt.runtime.disk_cache import VARIABLE

TEXT = "x: float32[n, 8] w = float32[8, 4]{0.5, ...} b = float32[4]{1.0, ...} y = Relu(Add(MatMul(x, w), b)) return y"
X = np.arange(16, dtype=np.float32).reshape(2, 8)
WANT = X.sum(1, keepdims=True) * 0.5 + np.ones((1, 4))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels of the model, compiled once: what is kept for each test anew are programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(tmp_path_factory.mktemp("kernels")))
        graphopt.compile(onnx_io.to_bytes(parse(TEXT)), cache=False)
        return cache.folder()


@pytest.fixture
def folder(kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    shutil.copytree(kernels, cache.folder(), dirs_exist_ok=True)
    return tmp_path / "cache" / "programs"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx_io.save(parse(TEXT), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def is_warm(made: CompiledModel) -> bool:
    """Whether the program was found; what it computes is right in any case."""
    np.testing.assert_allclose(made(X)["y"], WANT)
    return made.report.steps == ()


def test_how_a_program_was_compared_is_kept_with_it(folder: Path, model: Path) -> None:
    first = graphopt.compile(model).report.verification
    again = graphopt.compile(model)
    assert is_warm(again)
    told = again.report.verification
    assert first.draws == 1
    assert (told.status, told.draws, told.error, told.sizes) == (first.status, 1, first.error, first.sizes)


def test_a_second_start_needs_no_compiler(folder: Path, model: Path) -> None:
    assert not is_warm(graphopt.compile(model))
    script = (
        "import sys, numpy, graphopt; made = graphopt.compile(sys.argv[1], threads=2);"
        "print(made(numpy.ones((1, 8), 'float32'))['y'].tolist(), made.report.calls, made.input_names,"
        "[m for m in ('numba', 'llvmlite', 'onnx', 'egglog', 'lark', 'networkx', 'ml_dtypes') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(model)], capture_output=True, text=True, check=True)
    assert done.stdout == "[[5.0, 5.0, 5.0, 5.0]] 1 ('x',) []\n"


def test_a_model_that_was_written_to_is_not_the_one_whose_place_was_found(folder: Path, model: Path) -> None:
    place, found = program_cache.place_of(model, Settings()), model.stat()
    assert place is not None
    assert place.is_current
    while model.stat().st_ctime_ns == found.st_ctime_ns:  # the size and the time of writing are the same
        model.write_bytes(model.read_bytes())
        os.utime(model, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert not place.is_current


def test_a_program_is_found_by_content_and_settings(folder: Path, model: Path) -> None:
    assert not is_warm(graphopt.compile(model))
    assert is_warm(graphopt.compile(str(model), threads=2, strict=True))
    assert not is_warm(graphopt.compile(model.read_bytes(), optimize=False))
    assert not is_warm(graphopt.compile(model, dims={"n": 2}))
    assert is_warm(graphopt.compile(model, dims={"n": 2}))
    assert not is_warm(graphopt.compile(model, cache=False))
    onnx_io.save(parse(TEXT.replace("0.5", "0.25")), model)
    assert graphopt.compile(model)(X)["y"][0, 0] == X[0].sum() / 4 + 1


def test_bytes_are_found_too(folder: Path, model: Path) -> None:
    assert not is_warm(graphopt.compile(model.read_bytes()))
    assert is_warm(graphopt.compile(model.read_bytes()))


def test_what_is_asked_of_a_found_program_is_made(folder: Path, model: Path, tmp_path: Path) -> None:
    graphopt.compile(model)
    made = graphopt.compile(model)
    assert [row.label for row in made.profile(X)]
    made.save(tmp_path / "saved")
    assert made.report.kernels == len(made.compiled.linked.kernels)
    assert "Relu" in [node.op for node in made.graph.nodes()]
    assert is_warm(made)


def test_the_graph_of_another_file_is_not_shown(folder: Path, model: Path) -> None:
    graphopt.compile(model)
    made = graphopt.compile(model)
    onnx_io.save(parse(TEXT.replace("Relu", "Sigmoid")), model)
    with pytest.raises(ReadError, match="has changed"):
        _ = made.graph
    np.testing.assert_allclose(made(X)["y"], WANT)


FILES = ["manifest.json", "code.*.bin", "constants.*.bin", "report.json"]


@pytest.mark.parametrize("pattern", FILES)
def test_a_damaged_program_is_made_anew(folder: Path, model: Path, pattern: str) -> None:
    graphopt.compile(model)
    (file,) = folder.glob(f"*/{pattern}")
    whole = file.read_bytes()
    for damage in (lambda: file.write_bytes(whole[:-1]), file.unlink):
        damage()
        assert not is_warm(graphopt.compile(model))
        assert file.read_bytes() == whole
        assert is_warm(graphopt.compile(model))


@pytest.mark.parametrize("pattern", FILES)
def test_a_bit_that_flipped_is_found(folder: Path, model: Path, pattern: str) -> None:
    graphopt.compile(model)
    (file,) = folder.glob(f"*/{pattern}")
    whole = file.read_bytes()
    for at in (0, len(whole) // 2, len(whole) // 2 + 1):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert not is_warm(graphopt.compile(model))
        assert file.read_bytes() == whole


def test_what_killed_runs_left_is_removed(folder: Path, model: Path) -> None:
    program_cache.place_of(model, Settings())  # makes the folder
    (folder / ".graphopt.0123456789abcdef" / "program").mkdir(parents=True)
    graphopt.compile(model)
    assert len(list(folder.iterdir())) == 1


def test_what_is_no_program_gives_way_to_one(folder: Path, model: Path, tmp_path: Path) -> None:
    place = program_cache.place_of(model, Settings())
    assert place is not None
    (tmp_path / "elsewhere").mkdir()
    for foreign in (place.folder.touch, lambda: place.folder.symlink_to(tmp_path / "elsewhere"), place.folder.mkdir):
        foreign()
        assert not is_warm(graphopt.compile(model))
        assert is_warm(graphopt.compile(model))
        assert not place.folder.is_symlink()
        shutil.rmtree(place.folder)
    assert (tmp_path / "elsewhere").is_dir()


def test_a_folder_that_others_may_write_into_is_refused(folder: Path, model: Path) -> None:
    graphopt.compile(model)
    folder.chmod(0o770)
    with pytest.raises(UsageError, match=r"must be this user's alone \(mode 0700\)"):
        graphopt.compile(model)


def test_processes_that_compile_the_same_model_at_once_do_not_disturb_each_other(folder: Path, model: Path) -> None:
    shutil.rmtree(cache.folder())
    script = (
        "import sys, numpy, graphopt; print('ready', flush=True); sys.stdin.readline()\n"
        "print(graphopt.compile(sys.argv[1])(numpy.ones((1, 8), 'float32'))['y'].tolist())"
    )
    command = [sys.executable, "-c", script, str(model)]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    assert [process.communicate("\n")[0] for process in both] == ["[[5.0, 5.0, 5.0, 5.0]]\n"] * 2
    assert is_warm(graphopt.compile(model))
    assert len(list(folder.iterdir())) == 1


def test_programs_with_data_files_are_not_kept(folder: Path, tmp_path: Path) -> None:
    import onnx

    graph = parse("x: float32[4096] w = float32[4096]{2.0, ...} y = Add(x, w) return y")
    proto = onnx_io.to_proto(graph)
    del proto.graph.node[:-1], proto.graph.initializer[:]
    proto.graph.node[0].input[1] = "w"
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(4096, dtype=np.float32), "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    for _ in range(2):
        assert graphopt.compile(tmp_path / "m.onnx").report.steps != ()
    assert list(folder.iterdir()) == []


def test_bfloat16_comes_back_as_bfloat16(folder: Path, tmp_path: Path) -> None:
    onnx_io.save(parse("x: bfloat16[4] y = Add(x, x) return y"), tmp_path / "m.onnx")
    for _ in range(2):
        made = graphopt.compile(tmp_path / "m.onnx")
        assert made(np.ones(4, ml_dtypes.bfloat16))["y"].dtype == ml_dtypes.bfloat16
    assert made.report.steps == ()


def test_what_was_used_longest_ago_goes_first(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"{k}.onnx" for k in range(3)]
    for k, path in enumerate(paths):
        onnx_io.save(parse(TEXT.replace("1.0", f"{k}.5")), path)
    for path in paths[:2]:
        graphopt.compile(path)
    for kernel in cache.folder().iterdir():
        disk_cache.use(kernel)
    size = sum(f.stat().st_size for f in folder.parent.rglob("*.*") if f.is_file())
    for age, path in enumerate(paths[:2]):
        place = program_cache.place_of(path, Settings())
        assert place is not None
        os.utime(place.folder, (age, age))
    assert graphopt.compile(paths[0]).report.steps == ()  # used again: now the other is the older one
    monkeypatch.setattr(disk_cache, "LIMIT", size)
    monkeypatch.setattr(disk_cache, "_WHILE", 0.0)
    graphopt.compile(paths[2])
    assert [graphopt.compile(p).report.steps == () for p in (paths[0], paths[2])] == [True, True]
    assert graphopt.compile(paths[1]).report.steps != ()


def test_large_programs_are_not_kept(folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_cache, "LARGEST", 1)
    graphopt.compile(model)
    assert list(folder.iterdir()) == []


def test_another_policy_makes_another_program(folder: Path, model: Path) -> None:
    graphopt.compile(model)
    assert not is_warm(graphopt.compile(model, policy="exact"))
    assert is_warm(graphopt.compile(model, policy="exact"))


def test_other_prices_make_another_program(folder: Path, model: Path, tmp_path: Path) -> None:
    database = tmp_path / "times.sqlite"
    with TimesDatabase(database, write=True) as store:
        store.put(Setting("a machine", "graphopt 0", 1), "a", Time(1.0))
    assert not is_warm(graphopt.compile(model, costs="analytic"))
    assert is_warm(graphopt.compile(model, costs="analytic"))
    first, second = (program_cache.place_of(model, Settings(costs=c)) for c in ("analytic", database))
    assert first != second
    with TimesDatabase(database, write=True) as store:
        store.put(Setting("a machine", "graphopt 0", 1), "b", Time(2.0))
    assert program_cache.place_of(model, Settings(costs=database)) != second
