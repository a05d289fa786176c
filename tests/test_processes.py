"""Threads, forked workers and processes optimize and compile at once, give the same, leave nothing behind and end."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from hashlib import sha256
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np
import pytest

import graphopt
from graphopt.ir import onnx_io
from graphopt.ir.text import parse

TEXT = "x: float32[4, 8] w: float32[8, 8] y = Relu(MatMul(Add(Add(x, 0.0), 1.0), w)) return y"
FEEDS = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8), "w": np.eye(8, dtype=np.float32)}


def work(folder: Path, name: str) -> tuple[str, str]:
    """Digests of what optimizing gives and of what the compiled program does."""
    graphopt.optimize(folder / "m.onnx", output=folder / f"{name}.onnx", verify="off")
    outputs = graphopt.compile(folder / "m.onnx", verify="off")(FEEDS)
    written = (folder / f"{name}.onnx").read_bytes()
    return sha256(written).hexdigest(), sha256(outputs["y"].tobytes()).hexdigest()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPHOPT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "models").mkdir()
    onnx_io.save(parse(TEXT), tmp_path / "models" / "m.onnx")
    return tmp_path / "models"


def assert_nothing_is_left(folder: Path, names: list[str]) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(["m.onnx", *(f"{name}.onnx" for name in names)])


def test_threads(folder: Path) -> None:
    names, found = [f"t{i}" for i in range(4)], list[tuple[str, str]]()
    threads = [threading.Thread(target=lambda name=name: found.append(work(folder, name))) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(found) == len(names)
    assert len(set(found)) == 1
    assert_nothing_is_left(folder, names)


def forked(folder: Path, queue: Queue[tuple[str, str]], name: str) -> None:
    queue.put(work(folder, name))


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_that_are_forked_after_the_parent_optimized(folder: Path) -> None:
    """As servers do that load before they fork."""
    first, names = work(folder, "parent"), ["a", "b"]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=forked, args=(folder, queue, name)) for name in names]
    for worker in workers:
        worker.start()
    assert {queue.get(timeout=120) for _ in names} == {first}
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert_nothing_is_left(folder, ["parent", *names])


@pytest.mark.slow
def test_twenty_processes_on_one_cold_cache(folder: Path) -> None:
    names = [f"p{i}" for i in range(20)]
    program = "import sys, pathlib, tests.test_processes as t; print(*t.work(pathlib.Path(sys.argv[1]), sys.argv[2]))"
    root = Path(__file__).resolve().parents[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(folder), name], cwd=root, stdout=subprocess.PIPE, text=True
        )
        for name in names
    ]
    said = {process.communicate(timeout=600)[0] for process in processes}
    assert [process.returncode for process in processes] == [0] * len(names)
    assert len(said) == 1
    assert_nothing_is_left(folder, names)
