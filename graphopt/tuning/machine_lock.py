"""Locks of a machine: who measures is alone on it, and others that measure or build wait."""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from graphopt.errors import UsageError
from graphopt.runtime import cpu, disk_cache


@contextmanager
def building() -> Iterator[None]:
    """While nobody measures."""
    with _held("turns", fcntl.LOCK_SH):
        yield


@contextmanager
def measuring() -> Iterator[None]:
    """While nobody else builds or measures."""
    with _held("turns", fcntl.LOCK_EX):
        yield


@contextmanager
def alone(name: str) -> Iterator[None]:
    """While nobody else does what is called so."""
    with _held(name, fcntl.LOCK_EX):
        yield


@contextmanager
def _held(name: str, kind: int) -> Iterator[None]:
    # the folder may be one of many machines, each of which has turns of its own; a lock ends with its process
    with open(disk_cache.folder("locks") / f"{name}-{platform.node()}.lock", "wb") as file:
        fcntl.flock(file, kind)
        yield


def processors(threads: int) -> tuple[int, ...]:
    """So many processors of those that this process may use, each of another core as long as there are more. Raises
    UsageError where there are fewer."""
    if not 1 <= threads <= cpu.cores():
        raise UsageError(f"{threads} threads cannot be measured where there are processors for {cpu.cores()}")
    return tuple(sorted(_in_order(frozenset(os.sched_getaffinity(0)))[-threads:]))


def _in_order(usable: frozenset[int]) -> list[int]:
    """The processors, those last that are the first of their core: the system itself favours the very first one."""
    return sorted(usable, key=lambda n: (min(_siblings(n) & usable, default=n) == n, n))


@cache
def _siblings(processor: int) -> frozenset[int]:
    """The processors of the same core."""
    path = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    try:
        parts = [part.split("-") for part in path.read_text(encoding="ascii").split(",")]
        return frozenset(n for part in parts for n in range(int(part[0]), int(part[-1]) + 1))
    except (OSError, ValueError):
        return frozenset({processor})
