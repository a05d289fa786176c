"""Profiler of our own programs, a runtime in which the prices of ops are measured.

Apart from calibration, its only user, for length.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from graphopt.compile import CompiledModel, compile
from graphopt.errors import GraphoptError
from graphopt.frozen import dataclass
from graphopt.verify.runtimes import EngineError, ProfiledKernel

RUNTIME = "graphopt"


@dataclass(frozen=True)
class ProgramProfiler:
    """Programs in which every op has kernels of its own, as they would compute it among others."""

    threads: int = 1

    @property
    def runtime(self) -> str:
        """``graphopt 1.0.0``."""
        return f"{RUNTIME} {version('graphopt')}"

    def profile(
        self, model: bytes, feeds: Mapping[str, Any], seconds: float, runs: tuple[int, int], warm: int
    ) -> list[list[ProfiledKernel]]:
        """See ``Profiler``. An op that only the reference evaluator computes is refused."""
        try:
            with compile(model, pipeline="zero", threads=self.threads, strict=True, jobs=0) as program:
                return _profiled(program, feeds, seconds, runs, warm)
        except GraphoptError as error:
            raise EngineError(str(error)) from None


def _profiled(
    program: CompiledModel, feeds: Mapping[str, Any], seconds: float, runs: tuple[int, int], warm: int
) -> list[list[ProfiledKernel]]:
    """The kernels of each run after the first few."""
    for _ in range(warm):
        program(feeds)
    kernels_by_run: list[list[ProfiledKernel]] = []
    start = time.perf_counter()
    while len(kernels_by_run) < runs[1] and (len(kernels_by_run) < runs[0] or time.perf_counter() - start < seconds):
        rows = program.profile(feeds)
        kernels_by_run.append(
            [ProfiledKernel(row.nodes[0] if row.nodes else "", row.label, row.seconds) for row in rows]
        )
    return kernels_by_run
