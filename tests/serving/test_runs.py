"""Runs end when they take too long, and tell how they ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from graphopt.serving.runs import RunLimits, Runs


def endless(answers: Connection, request: Mapping[str, Any]) -> None:
    os.setsid()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(request["child"]).write_text(str(child.pid))
    while True:
        time.sleep(1)


def killed(answers: Connection, request: Mapping[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def ended(answers: Connection, request: Mapping[str, Any]) -> None:
    os._exit(3)


def large(answers: Connection, request: Mapping[str, Any]) -> None:
    answers.send_bytes(b'{"text": "%s"}' % (b"x" * 5_000_000))


def answer(work: Callable[[Connection, Mapping[str, Any]], None], seconds: int = 60, **request: Any) -> dict[str, Any]:
    """The answer of a run whose process does some work, given the seconds that it may take."""
    status, found = asyncio.run(Runs(RunLimits(seconds=seconds), work).answer(request))
    assert status == 200
    return found


def test_a_run_that_does_not_end_is_ended_with_what_it_started(tmp_path: Path) -> None:
    answer(ended)  # the process that others are forked from is there
    assert "ended after 3 s" in answer(endless, 3, child=str(tmp_path / "child"))["error"]
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError("what the run started goes on")


def test_how_a_process_ended_is_told() -> None:
    assert "signal 11" in answer(killed)["error"]
    assert "exit code 3" in answer(ended)["error"]


def test_an_answer_may_be_large() -> None:
    assert len(answer(large)["text"]) == 5_000_000


def test_a_run_that_nobody_waits_for_is_ended(tmp_path: Path) -> None:
    answer(ended)

    async def cancelled() -> None:
        runs = Runs(RunLimits(at_once=1), endless)
        task = asyncio.create_task(runs.answer({"child": str(tmp_path / "child")}))
        while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait({task})
        assert not runs._free.locked()

    asyncio.run(asyncio.wait_for(cancelled(), 60))


def test_where_no_process_can_be_started_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Runs) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(Runs, "prepare", fail)
    assert "no process can be started: [Errno 11]" in answer(ended)["error"]
