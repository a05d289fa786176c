"""Runs under way, each in a process of its own: a few at once, some waiting, each with a time limit."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

WAITING: Final = 8
"""Runs that wait; one more is refused."""


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

    def __init__(self, limits: RunLimits) -> None:
        self.limits = limits
        self.waiting = 0
        self._free = asyncio.Semaphore(limits.at_once)

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
            return 200, await self._run({**request, "seconds": self.limits.seconds, "memory": self.limits.memory})
        finally:
            self._free.release()

    async def _run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "graphopt.serving.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            given = json.dumps(request).encode()
            out, errors = await asyncio.wait_for(process.communicate(given), self.limits.seconds)
        except TimeoutError:
            return {"error": f"the run was ended after {self.limits.seconds} s, which is as long as a run may take"}
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            last = errors.decode(errors="replace").strip().rpartition("\n")[2]
            return {"error": f"the process of the run ended: {last or f'signal {-process.returncode}'}"}
        answer: dict[str, Any] = json.loads(out)
        return answer
