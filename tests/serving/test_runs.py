"""Runs end when they take too long, and tell how they ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from graphopt.serving.runs import RunLimits, Runs

ENDLESS = "import time\nwhile True: time.sleep(1)"
BROKEN = "raise ValueError('what went wrong')"
KILLED = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], dict[str, Any]]:
    """The answer of a run whose process is a program, given the seconds that it may take."""
    start = asyncio.create_subprocess_exec

    def run(program: str, seconds: int) -> dict[str, Any]:
        async def started(python: str, *arguments: str, **options: Any) -> asyncio.subprocess.Process:
            return await start(python, "-c", program, **options)

        async def answered() -> tuple[int, dict[str, Any]]:
            return await Runs(RunLimits(seconds=seconds)).answer({})

        monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
        status, found = asyncio.run(answered())
        assert status == 200
        return found

    return run


def test_a_run_that_does_not_end_is_ended(answer: Callable[[str, int], dict[str, Any]]) -> None:
    assert "ended after 1 s" in answer(ENDLESS, 1)["error"]


def test_how_a_process_ended_is_told(answer: Callable[[str, int], dict[str, Any]]) -> None:
    assert "what went wrong" in answer(BROKEN, 60)["error"]
    assert "signal 11" in answer(KILLED, 60)["error"]
