"""Thread pools: teams of threads that wait inside native code for work, one for each size, shared by all programs.

A team serves one call at a time. A call that finds its team at work runs on its own thread alone: the
processors are busy already. Teams end when the last program that holds them is closed, or with the interpreter.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from graphopt.runtime import bytecode, cpu

Driver = Callable[[int, int, int], int]
"""The native driver: the address of its arguments, ``lo``, ``hi``."""

_MICROSECONDS_OF_SPINNING = 30
_SPINS = 25 * _MICROSECONDS_OF_SPINNING
"""Looks at a word before sleeping; one with its pause takes about 40 ns on current processors."""

ELEMENTS = object.__basicsize__
"""Bytes from the start of numpy's object of an array to the word that says where its elements are: behind what all
objects of Python begin with, as numpy's C interface has it."""

_library = ctypes.PyDLL(None)
"""The C library, called without letting other Python threads run meanwhile: what it does here takes less than that."""
_teams: dict[tuple[int, int], Team] = {}
"""By process and number of threads: a child that was forked has none of its parent's threads."""
_lock = threading.RLock()  # a program may end, and leave its team, wherever memory is collected


def words(count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Zeroed int64 words that begin on a cache line."""
    memory = np.zeros(count + 8, np.int64)
    skip = -address(memory) % 64 // 8
    return memory[skip : skip + count]


def address(array: np.ndarray[Any, Any]) -> int:
    """Where an array's elements are."""
    # numpy itself makes a dictionary of all that it knows of an array, which takes longer than a step of a program
    return ctypes.c_int64.from_address(id(array) + ELEMENTS).value


class Team:
    """``threads`` threads, the caller's among them, that run parts of kernels; a call holds ``busy`` meanwhile."""

    def __init__(self, threads: int, driver: Driver, keep: object) -> None:
        """``driver`` must stay where it is as long as ``keep`` lives."""
        self.busy = threading.Lock()
        self.programs = 0
        self.has_ended = False
        self.process, self.threads = os.getpid(), threads
        self._keep = keep
        self._words = words(bytecode.BEGUN + bytecode.LINE * threads)
        self.address = address(self._words)
        self._words[bytecode.MEMBERS] = threads
        self._words[bytecode.SPINS] = _SPINS if threads <= cpu.cores() else 0
        self._block = words(len(bytecode.DRIVER_PARAMS))
        self._block[[3, 6]] = self.address, bytecode.SERVE
        self._driver = driver
        self._members = [
            threading.Thread(target=driver, args=(address(self._block), n, 0), name=f"graphopt-{n}", daemon=True)
            for n in range(1, threads)
        ]
        for thread in self._members:
            thread.start()
        self._processors = os.sched_getaffinity(0)
        self._caller = -1

    def claim(self) -> bool:
        """Hold the team for a call; False where another call has it, or its threads are gone."""
        if not self.busy.acquire(blocking=False):
            return False
        if self.has_ended:
            self.busy.release()
            return False
        if (here := _processor()) != self._caller:
            self._leave_alone(here)
        return True

    def _leave_alone(self, processor: int) -> None:
        """Keep the members from the processor of the caller: where processors share no cache, Linux wakes a thread on
        that of the one who wakes it, and both stay there for as long as a call takes."""
        self._caller = processor
        others = self._processors - {processor}
        if len(self._processors) < self.threads:
            return
        for member in (thread.native_id for thread in self._members):
            if member is not None:
                with suppress(OSError):  # it may be forbidden, and processors may have been taken away
                    os.sched_setaffinity(member, others)

    def end(self) -> None:
        """Let the threads go, once no call needs them."""
        with self.busy:
            if self.has_ended:
                return
            self.has_ended = True
            self._words[bytecode.STOPPED] = 1
            word = ctypes.c_int64.from_address(self.address + 8 * bytecode.GENERATION)
            word.value += 1
            _wake(self.address + 8 * bytecode.GENERATION)
            for thread in self._members:
                thread.join()


def join(threads: int, driver: Driver, keep: object) -> Team:
    """The team of so many threads, made where there is none; give it back with ``leave``."""
    with _lock:
        atexit.unregister(_end_all)
        atexit.register(_end_all)
        key = os.getpid(), threads
        team = _teams.get(key)
        if team is None:
            team = _teams[key] = Team(threads, driver, keep)
        team.programs += 1
        return team


def leave(team: Team) -> None:
    """Say that a program no longer needs a team."""
    with _lock:
        if team.process != os.getpid():
            return
        team.programs -= 1
        if team.programs or _teams.pop((team.process, team.threads), None) is None:
            return
    team.end()


def _end_all() -> None:
    with _lock:
        teams = [team for team in _teams.values() if team.process == os.getpid()]
        _teams.clear()
    for team in teams:
        team.end()


def _processor() -> int:
    """The number of the processor that this thread runs on."""
    number: int = _library.sched_getcpu()
    return number


def _wake(word: int) -> None:
    """Wake all threads that wait for a word in memory (Linux's futex)."""
    ctypes.CDLL(None).syscall(
        ctypes.c_long(202),
        ctypes.c_void_p(word),
        ctypes.c_int(129),
        ctypes.c_int(2**31 - 1),
        None,
        None,
        ctypes.c_int(0),
    )
