"""Candidates are handed to whoever measures, and none is lost with those who do."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import Any

import pytest

from graphopt.calibration.machine import machine
from graphopt.errors import ExecutionError, MissingDependencyError, UsageError
from graphopt.tuning import executors
from graphopt.tuning.executors import TRIES, Here, Measure, executor_named, outcomes
from graphopt.tuning.measuring import measure
from graphopt.tuning.processes import CandidateError, child
from graphopt.tuning.record import Candidate, Outcome
from tests.tuning.products import as_written, by_rows, product

LIMIT = 60.0


def numbered(count: int) -> list[Candidate]:
    return [Candidate(product(), str(number)) for number in range(count)]


def quick(candidate: Candidate, limit: float) -> Outcome:
    return Outcome((limit,), (float(candidate.trace),), machine=str(os.getpid()))


class Unlucky(Executor):
    """Calls at once, and loses those whose number it is told, so often."""

    def __init__(self, lost: dict[str, int], calls: int = 1000) -> None:
        self.lost, self.calls = lost, calls

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.calls == 0:
            raise BrokenExecutor("all workers are gone")
        self.calls -= 1
        future: Future[Any] = Future()
        name = args[0].trace
        if self.lost.get(name, 0):
            self.lost[name] -= 1
            future.set_exception(BrokenExecutor("a worker is gone"))
        else:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)
        return future


def told(found: Iterator[tuple[Candidate, Outcome]]) -> dict[str, str]:
    return {candidate.trace: outcome.problem for candidate, outcome in found}


def test_what_a_lost_worker_was_at_is_done_by_another() -> None:
    found = told(outcomes(Unlucky({"1": TRIES - 1, "2": TRIES}), numbered(4), measuring=quick))
    assert found == {"0": "", "1": "", "2": "lost: BrokenExecutor: a worker is gone", "3": ""}


def test_the_end_of_all_workers_is_an_error_after_what_is_done_is_told() -> None:
    found = outcomes(Unlucky({}, calls=2), numbered(4), measuring=quick)
    assert {next(found)[0].trace, next(found)[0].trace} == {"0", "1"}
    with pytest.raises(ExecutionError, match="no more candidates can be measured: BrokenExecutor: all workers are"):
        next(found)


def refusing(candidate: Candidate, limit: float) -> Outcome:
    if candidate.trace == "1":
        raise UsageError("the cache is everybody's")
    return quick(candidate, limit)


def test_what_no_candidate_causes_is_raised() -> None:
    found = outcomes(Unlucky({}), numbered(3), measuring=refusing)
    assert {next(found)[0].trace, next(found)[0].trace} == {"0", "2"}
    with pytest.raises(UsageError, match="the cache is everybody's"):
        next(found)


def test_an_interrupt_cancels_what_waits_and_tells_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done: Future[Outcome] = Future()
    waiting: Future[Outcome] = Future()
    futures = [done, waiting]

    class Slow(Unlucky):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            return futures[int(args[0].trace)]

    def interrupted(*args: object, **kwargs: object) -> None:
        done.set_result(Outcome((1.0,), (2.0,)))
        raise KeyboardInterrupt

    monkeypatch.setattr(executors.futures, "wait", interrupted)
    found = outcomes(Slow({}), numbered(2), measuring=quick)
    candidate, outcome = next(found)
    assert (candidate.trace, outcome.speedup) == ("0", 2)
    with pytest.raises(KeyboardInterrupt):
        next(found)
    assert waiting.cancelled()


def test_this_machine_measures_several() -> None:
    garbage = Candidate(product(), "garbage")
    with executor_named() as here:
        assert isinstance(here, Here)
    with Here(1) as here:  # a process that builds is enough here
        found = dict(outcomes(here, [by_rows(product()), garbage, as_written(product())], LIMIT))
    assert [c for c, o in found.items() if o.problem] == [garbage]
    assert len(found) == 3
    assert {outcome.machine for outcome in found.values()} == {machine()}


def asked(module: str) -> None:
    """Ask a process for something that takes long."""
    with child(module) as one:
        one.ask(1000.0, 1000.0)


def test_what_is_under_way_here_ends_with_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "graphopt_sleeps_for_a_test.py").write_text("from time import sleep as answer")
    monkeypatch.syspath_prepend(tmp_path)
    here = Here(1)
    under_way, waiting = (here.submit(asked, "graphopt_sleeps_for_a_test") for _ in range(2))
    while not under_way.running():
        time.sleep(0.01)
    here.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert waiting.cancelled()
    with pytest.raises(CandidateError, match=r"^interrupted: its process died of SIGKILL$"):
        under_way.result(0)


@pytest.mark.parametrize("text", ["dask://nowhere", "dask://:80", "ray://there:80", "there:80", ""])
def test_an_executor_nobody_knows_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected dask://HOST:PORT"):
        executor_named(text)


def test_without_dask_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'graphopt\[dask\]'"):
        executor_named("dask://localhost:8786")


def test_a_cluster_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "_PATIENCE", "0.1s")
    with pytest.raises(UsageError, match=r"^no scheduler of a dask cluster answers at tcp://127.0.0.1:9: .*$"):
        executor_named("dask://127.0.0.1:9")


def slowly(candidate: Candidate, limit: float) -> Outcome:
    """Tells who measures, and takes its time."""
    Path(candidate.trace).with_suffix(f".{os.getpid()}").touch()
    time.sleep(0.3)
    return quick(Candidate(candidate.workload, "1"), limit)


def measured(candidate: Candidate, limit: float) -> Outcome:
    """Tells who measures, and does."""
    slowly(candidate, limit)
    return measure(by_rows(product()), limit)


@pytest.mark.parametrize("measuring", [slowly, pytest.param(measured, marks=pytest.mark.slow)])
def test_a_cluster_loses_a_worker_and_nothing_else(measuring: Measure, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    candidates = [Candidate(product(), str(tmp_path / f"{number}")) for number in range(8)]
    with distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        address = cluster.scheduler_address.removeprefix("tcp://")
        with executor_named(f"dask://{address}") as executor:
            found = outcomes(executor, candidates, LIMIT, measuring)
            done = dict([next(found)])
            begun = {place.stem: int(place.suffix[1:]) for place in tmp_path.iterdir()}
            under_way = [pid for stem, pid in begun.items() if all(c.trace != str(tmp_path / stem) for c in done)]
            os.kill(under_way[0], signal.SIGKILL)
            done |= dict(found)
            assert set(done) == set(candidates)
            assert [o.problem for o in done.values()] == [""] * len(candidates)
            assert measuring is slowly or {o.machine for o in done.values()} == {machine()}
            cluster.close()
            with pytest.raises(ExecutionError, match=r"no more candidates can be measured: .* is gone$"):
                list(outcomes(executor, candidates, LIMIT, measuring))
