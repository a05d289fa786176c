"""Limits of memory and time: what a model may take by default, of this process for a while, and of a child for life."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from graphopt.errors import LimitError

TIMES, MORE = 4, 1 << 30
"""By default a run may take so many times the bytes of its model, and so many more."""
OUT_OF_TIME = -getattr(signal, "SIGPROF", 27)
"""The exit status of a process that ``end_after`` ended."""
_DIES_WITH_PARENT = 1
"""Linux's number (``PR_SET_PDEATHSIG``) of the request to end a process with the thread that started it."""


def memory_of(model_bytes: int, asked: int | None = None) -> int:
    """How many bytes a run of a model may take: what is asked for, or the default."""
    return TIMES * model_bytes + MORE if asked is None else asked


@contextmanager
def limited(memory: int | None = None, seconds: float | None = None) -> Iterator[None]:
    """Within it this process may take so many bytes more than it has, beyond which allocations fail with MemoryError,
    and so many seconds, after which it is a LimitError. Time is for the main thread alone."""
    with _limited_memory(memory), _limited_time(seconds):
        yield


@contextmanager
def _limited_memory(memory: int | None) -> Iterator[None]:
    import resource

    if memory is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    _limit_data(memory)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _limit_data(memory: int) -> None:
    """Let this process have so many bytes of memory of its own beyond those that it has."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = _data_bytes() + memory
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _data_bytes() -> int:
    """The bytes that count as this process's own: what it may write, whether it has been written or not."""
    with suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    return 1 << 30  # not Linux: about what libraries reserve


@contextmanager
def _limited_time(seconds: float | None) -> Iterator[None]:
    if seconds is None:
        yield
        return

    late: list[LimitError] = []

    def stop(number: int, frame: FrameType | None) -> None:
        late.append(LimitError(f"it was still running after {seconds:g} s: --seconds allows more"))
        raise late[0]

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except Exception:
        if late:  # whatever was made of it on the way
            raise late[0] from None
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def end_after(seconds: float | None) -> None:
    """Let this process, a child, end by SIGPROF once it took so many seconds of processors more; with None, never."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds or 0)


def confine(memory: int | None = None, seconds: int | None = None) -> None:
    """Let this process, a child, end with who started it, have so many bytes beyond what it has, and so many seconds of
    each processor; it leaves no core file."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory is not None:
            _limit_data(memory)
        if seconds is not None:
            cores = os.cpu_count() or 1
            resource.setrlimit(resource.RLIMIT_CPU, (seconds * cores, seconds * cores + 5))
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
