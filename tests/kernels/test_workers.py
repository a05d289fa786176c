"""Processes compile what they are handed, and say what was wrong with it."""

from __future__ import annotations

import json
import sys
import threading
from io import StringIO
from pathlib import Path

import pytest

from graphopt.errors import ReadError
from graphopt.kernels import workers
from graphopt.kernels.kernel import Kernel
from graphopt.kernels.workers import CompileTask, Workers

NOTHING = "def kernel(a, lo, hi):\n    return 0\n"


def task(place: Path, source: str, answers: list[tuple[str, str | None]]) -> CompileTask:
    place.write_text(source)
    return CompileTask(Kernel(source, ("float32",)), place, lambda problem: answers.append((place.stem, problem)))


def test_what_has_the_lowest_rank_goes_first_and_those_after_one_that_dies_are_compiled(tmp_path: Path) -> None:
    answers: list[tuple[str, str | None]] = []
    workers, is_begun, may_go_on = Workers(1), threading.Event(), threading.Event()
    held = task(tmp_path / "held.py", NOTHING, answers)

    def hold(problem: str | None) -> None:
        held.then(problem)
        is_begun.set()
        may_go_on.wait(60)

    workers.submit(0, CompileTask(held.kernel, held.path, hold))
    assert is_begun.wait(60)
    sources = {"good": NOTHING, "deadly": "import os\nos._exit(3)\n", "wrong": NOTHING.replace("0", "b")}
    for rank, (name, source) in enumerate(sources.items()):
        workers.submit(-rank, task(tmp_path / f"{name}.py", source, answers))
    may_go_on.set()
    workers.close()
    assert [name for name, _ in answers] == ["held", "wrong", "deadly", "good"]
    assert [problem is None for _, problem in answers] == [True, False, False, True]
    assert "its compiler ended" in str(answers[2][1])
    assert "NameError" in str(answers[1][1]) or "Untyped global name" in str(answers[1][1])
    assert (tmp_path / "good.o").exists()


def test_answers_that_are_none_are_told_and_the_next_kernel_has_its_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("elsewhere")])  # Python takes it, JSON does not
    answers: list[tuple[str, str | None]] = []
    workers = Workers(1)
    for rank, (name, source) in enumerate({"rubbish": "import os\nos.write(1, b'{')\n", "good": NOTHING}.items()):
        workers.submit(rank, task(tmp_path / f"{name}.py", source + NOTHING, answers))
    workers.close()
    assert [(name, problem is None) for name, problem in answers] == [("rubbish", False), ("good", True)]


def test_nothing_that_waits_is_compiled_once_all_are_ended(tmp_path: Path) -> None:
    answers: list[tuple[str, str | None]] = []
    workers = Workers(1)
    slow = "import time\ntime.sleep(60)\n"
    for k in range(3):
        workers.submit(k, task(tmp_path / f"k{k}.py", slow, answers))
    workers.kill()
    assert len(answers) <= 1
    assert not list(tmp_path.glob("*.o"))


def test_what_cannot_be_kept_is_said_and_the_worker_lives_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(place: Path, code: bytes) -> None:
        raise ReadError("no room")

    monkeypatch.setattr(workers.disk_cache, "write", full)
    monkeypatch.setattr(workers, "_code", lambda kernel, place: b"code")
    (tmp_path / "k.py").write_text(NOTHING)
    line = json.dumps([str(tmp_path / "k.py"), ["float32"], "", False])
    monkeypatch.setattr(sys, "stdin", StringIO(f"{line}\n{line}\n"))
    answers = sys.stdout
    workers.serve()
    sys.stdout = answers
    assert capsys.readouterr().out.splitlines() == ['"no room"'] * 2
