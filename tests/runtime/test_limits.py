"""Limits hold for a while in this process, and in a child for life."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from graphopt.errors import LimitError
from graphopt.runtime.limits import MORE, TIMES, limited, memory_of


def test_the_default_is_a_multiple_of_the_model_and_more() -> None:
    assert memory_of(1000) == TIMES * 1000 + MORE
    assert memory_of(1000, 7) == 7


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what a process may write")
def test_memory_beyond_the_limit_is_a_memory_error_and_afterwards_there_is_more() -> None:
    with limited(memory=64 << 20):
        assert np.ones(16 << 20, np.uint8).all()
        with pytest.raises(MemoryError):
            np.ones(256 << 20, np.uint8)
    assert np.ones(256 << 20, np.uint8).all()


def sleep_in_a_net() -> None:
    try:
        time.sleep(20)
    except LimitError:
        raise ValueError("what a net makes of it") from None


def test_time_beyond_the_limit_is_a_limit_error() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(LimitError, match=r"still running after 0\.1 s: --seconds"), limited(seconds=0.1):
        time.sleep(20)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    with pytest.raises(LimitError, match="--seconds"), limited(seconds=0.1):
        sleep_in_a_net()
    with limited(seconds=20):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


CHILD = (
    "from graphopt.runtime.limits import confine; confine(1 << 20); print(1, flush=True); import time; time.sleep(60)"
)
PARENT = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_parent_that_is_killed_leaves_no_child() -> None:
    done = subprocess.run([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    child = int(done.stdout)
    for _ in range(100):
        if not is_running(child):
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("the child outlived its parent")


def is_running(process: int) -> bool:
    """Whether a process is there, and not only as an entry that nobody has read."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
