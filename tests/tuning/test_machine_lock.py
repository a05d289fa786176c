"""Measuring is done alone; threads have processors of their own."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event

import pytest

from graphopt.errors import UsageError
from graphopt.tuning import machine_lock


@pytest.mark.parametrize(
    ("first", "second", "waits"),
    [
        (machine_lock.building, machine_lock.building, False),
        (machine_lock.building, machine_lock.measuring, True),
        (machine_lock.measuring, machine_lock.building, True),
        (machine_lock.measuring, machine_lock.measuring, True),
    ],
)
def test_who_waits_for_whom(
    first: "type[AbstractContextManager[None]]",
    second: "type[AbstractContextManager[None]]",
    waits: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRAPHOPT_CACHE", str(tmp_path / "cache"))
    entered = Event()

    def other() -> None:
        with second():
            entered.set()

    with ThreadPoolExecutor(1) as pool:
        with first():
            pool.submit(other)
            assert entered.wait(0.2 if waits else 20) is not waits
        assert entered.wait(20)


def test_threads_have_processors_of_their_own() -> None:
    usable = os.sched_getaffinity(0)
    for threads in range(1, len(usable) + 1):
        found = machine_lock.processors(threads)
        assert len(set(found)) == threads
        assert usable >= set(found)
    with pytest.raises(UsageError, match="threads cannot be measured where there are processors"):
        machine_lock.processors(len(usable) + 1)


def test_cores_come_before_their_second_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_lock, "_siblings", lambda n: frozenset({n % 4, n % 4 + 4}))
    assert machine_lock._in_order(frozenset(range(8))) == [4, 5, 6, 7, 0, 1, 2, 3]
    assert machine_lock._in_order(frozenset({1, 5, 6})) == [5, 1, 6]
