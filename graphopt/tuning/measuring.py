"""Measurement of a candidate: built, run, compared and timed in processes that may die of it.

Whatever a candidate does, a line says what was wrong with it and nothing else is lost. It is built while nobody
measures on this machine, and runs while nobody else builds or measures, in a new process, on processors of its own,
in turn with the default schedule.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import lru_cache
from threading import Lock
from typing import Final

from graphopt.errors import UsageError
from graphopt.platforms import platform_of
from graphopt.runtime import cpu
from graphopt.runtime.steps import Code
from graphopt.target import target as target_named
from graphopt.tuning import machine_lock
from graphopt.tuning.building import NOT_BUILT, Order, built
from graphopt.tuning.oracle import PATIENCE, RUNNER, UNCHECKED, WRONG, oracle
from graphopt.tuning.processes import INTERRUPTED, CandidateError, child
from graphopt.tuning.record import Candidate, Outcome
from graphopt.tuning.runner import Ran, RunnerJob
from graphopt.tuning.workload import Workload

LIMIT: Final = 10.0
"""Seconds that a candidate has to be built, and as many again to be run."""


def measure(candidate: Candidate, limit: float = LIMIT) -> Outcome:
    """What a run of the candidate takes on this machine, and of the default schedule beside it, where it computes what
    the workload does; else what is wrong, in a line that begins with the kind of it.

    ``illegal``: its steps do not apply. ``not built``: no program could be made of it in ``limit`` seconds. ``slow``,
    ``crashed``, ``failed``: it did not come to an end in as many, its process died, a step of it could not do its work.
    ``wrong``: its results are others. ``unchecked``: nobody knows what they should be, or the default schedule cannot
    be had. Any process may call this, and several threads at once, which is how candidates are built at once; only one
    is run at a time.
    """
    try:
        return _measured(candidate, limit)
    except CandidateError as error:
        return Outcome(problem=str(error), machine=_machine(candidate))


def prepare(candidates: Iterable[Candidate], jobs: int | None = None, limit: float = LIMIT) -> None:
    """Build candidates so that measuring them takes less time: kernels are kept. ``jobs`` is how many are built at
    once (None: one for each core)."""
    with ThreadPoolExecutor(jobs or cpu.cores(), "prepare") as pool:
        list(pool.map(lambda candidate: _prepared(candidate, limit), candidates))


def _prepared(candidate: Candidate, limit: float) -> None:
    try:
        with machine_lock.building():
            _code(candidate, limit)
    except CandidateError:  # whoever measures it is told
        return


def _measured(candidate: Candidate, limit: float) -> Outcome:
    """Raises CandidateError."""
    device, here = target_named(candidate.target).device, _machine(candidate)
    try:
        processors = machine_lock.processors(candidate.threads)
    except UsageError as error:
        raise CandidateError(NOT_BUILT, str(error)) from None
    with ExitStack() as kept:
        with machine_lock.building():  # an interpreter that starts disturbs who measures, too
            runner = kept.enter_context(child(RUNNER, once=True))
            # first, for it has more time than a candidate: what all share is made with it
            with _once(candidate.workload, candidate.target):
                beside = _default(candidate.workload, candidate.target, limit)
            code = _code(candidate, limit)
            runner.start()
        wanted = oracle(candidate.workload, limit)
        results = kept.enter_context(tempfile.TemporaryDirectory(prefix="graphopt-"))
        inputs = str(wanted.folder)
        job = RunnerJob(code, inputs, results, wanted.cases, beside, device, candidate.threads, processors, limit)
        with machine_lock.measuring():
            ran = runner.ask(job, limit)
        assert isinstance(ran, Ran)
        problem = wanted.problem(results)
    if not (problem or ran.is_steady):
        problem = f"{WRONG}: the same inputs gave other results later"
    return Outcome(problem=problem, machine=here) if problem else Outcome(ran.seconds, ran.beside, machine=here)


def _machine(candidate: Candidate) -> str:
    """What the candidate runs on here."""
    return platform_of(target_named(candidate.target).device).machine()


def _code(candidate: Candidate, limit: float) -> Code:
    return built(Order(candidate.workload, candidate.target, "trace", candidate.trace), limit)


@lru_cache(64)
def _once(workload: Workload, target: str) -> Lock:
    """So that of several threads that want the same default schedule one has it built."""
    return Lock()


@lru_cache(64)
def _default(workload: Workload, target: str, limit: float) -> Code:
    try:
        return built(Order(workload, target), limit * PATIENCE)
    except CandidateError as error:
        if error.kind == INTERRUPTED:
            raise
        raise CandidateError(UNCHECKED, f"the default schedule is {error}") from None
