"""Runs under way, each in a process of its own: a few at once, some waiting, each with a time limit.

Processes are forked from one that has imported what they need, so that nobody waits for that.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from threading import Lock
from typing import Any, Final

from graphopt.frozen import dataclass
from graphopt.serving import worker

WAITING: Final = 8
"""Runs that wait; one more is refused."""
PRELOADED: Final = ["graphopt.cli", "graphopt.serving.preload"]
"""What is imported once for all runs."""
_STARTING: Final = Lock()


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What strangers' input may take: bytes of an upload, seconds of a run, runs at once, bytes of a run (None: four
    times those of its model and 1 GiB)."""

    upload: int = 256 << 20
    seconds: int = 120
    at_once: int = 2
    memory: int | None = None


class Runs:
    """Starts runs, and ends them when they take too long and when nobody waits for their answer."""

    def __init__(self, limits: RunLimits, work: Callable[[Connection, Mapping[str, Any]], None] = worker.serve) -> None:
        """``work`` is what a process does with a request; it sends one answer, as JSON."""
        self.limits, self.work = limits, work
        self.waiting = 0
        self._free = asyncio.Semaphore(limits.at_once)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)

    def prepare(self) -> None:
        """Start the process that runs are forked from, where it does not run yet. It imports from where this one does,
        and never from the current folder, which may be a stranger's."""
        with _STARTING:
            before = os.environ.copy()
            os.environ |= {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            try:
                forkserver.ensure_running()
            finally:
                os.environ.clear()
                os.environ |= before

    def _start(self, process: ForkServerProcess) -> None:
        self.prepare()
        process.start()

    async def answer(self, request: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the answer of a run, which ends where this is cancelled."""
        if self.waiting >= WAITING:
            return 429, {"error": "too many runs are waiting: try again when one has ended"}
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        try:
            return 200, await self._run({"seconds": self.limits.seconds, **request, "memory": self.limits.memory})
        finally:
            self._free.release()

    async def _run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        answers, ours = self._context.Pipe(duplex=False)
        process = self._context.Process(target=self.work, args=(ours, request))
        starting = asyncio.ensure_future(asyncio.to_thread(self._start, process))
        reading = None
        try:
            try:
                await asyncio.shield(starting)
            except (OSError, EOFError) as error:
                return {"error": f"no process can be started: {error}"}
            ours.close()  # so that reading ends with the process
            reading = asyncio.ensure_future(asyncio.to_thread(answers.recv_bytes))
            if not (await asyncio.wait({reading}, timeout=request["seconds"]))[0]:
                return {"error": f"the run was ended after {request['seconds']} s, which is as long as a run may take"}
            found: dict[str, Any] = json.loads(reading.result())
            return found
        except EOFError:
            await asyncio.to_thread(process.join)
            return {"error": f"the process of the run ended: {_ending(process.exitcode or 0)}"}
        finally:
            await asyncio.wait({starting})
            await _end(process)
            if reading is not None:
                await asyncio.gather(reading, return_exceptions=True)
            ours.close()
            answers.close()


def _ending(code: int) -> str:
    return f"signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exit code {code}"


async def _end(process: ForkServerProcess) -> None:
    """End a process and all that it started, which are one group."""
    if process.pid is None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    await asyncio.to_thread(process.join)
