"""Child processes that answer one request at a time and may die of it: fresh interpreters, with a time limit.

They are never forked: after a parallel region a forked child dies at its next one. A child ends by itself when its
parent is gone, or when a request takes much too long.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

_CHILD = (
    "import sys, json; sys.path[:] = json.loads(sys.stdin.buffer.readline()); "
    "from importlib import import_module; from graphopt.tuning.processes import serve; "
    "serve(import_module({module!r}).answer)"
)
_START: Final = 60.0
"""Seconds that a process has to start: interpreters take one, where much else is going on several."""
_GRACE: Final = 1.0
"""Seconds after its time that a process ends itself, if nobody else does."""
_QUESTIONS: Final = 256
"""After so many questions another process takes over: compilers leave some memory behind each time."""

INTERRUPTED: Final = "interrupted"


class CandidateError(Exception):
    """Why a candidate does not count, in one line that begins with what ``kind`` of reason it is."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message = kind, message


class Child:
    """A process that answers questions by the function ``answer`` of a module."""

    def __init__(self, module: str) -> None:
        self.asked, self._owner = 0, os.getpid()
        self._is_started = self._is_interrupted = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # it is kept as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CHILD.format(module=module)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # threads of numpy's own would only take time to start
            process_group=0,
        )
        with _lock:
            _running.add(self)
            atexit.unregister(kill_all)
            atexit.register(kill_all)
        with suppress(OSError):  # where it is dead already, the first question tells
            self._write(json.dumps([str(path) for path in sys.path]).encode() + b"\n")

    def ask(self, question: object, limit: float) -> Any:
        """The answer. Raises CandidateError: ``slow`` where there is none in so many seconds, ``crashed`` where the
        process died, ``interrupted`` where ``kill_all`` ended it (it is gone in all these cases), ``failed`` for an
        error of the function's; and what the function raises itself."""
        self.start()
        self.asked += 1
        kind, value = self._answer(limit, pickle.dumps((question, limit + _GRACE)))
        if kind:
            raise CandidateError(kind, value)
        return value

    def start(self) -> None:
        """Wait until it can be asked. Raises CandidateError where it cannot."""
        if not self._is_started:
            self._answer(_START)
            self._is_started = True

    def _answer(self, limit: float, question: bytes = b"") -> tuple[str, Any]:
        """What it answers to a question, or without one. Raises CandidateError; the process is gone then."""
        assert self._process.stdout is not None
        poll = select.poll()
        try:
            self._write(question)
            poll.register(self._process.stdout, select.POLLIN)
            if limit <= 0 or not poll.poll(limit * 1000):
                raise CandidateError("slow", f"no answer after {limit:g} s")
            kind, value = pickle.load(self._process.stdout)
            return kind, value
        except (OSError, EOFError, pickle.UnpicklingError):
            raise self._ending() from None
        except BaseException:
            self.kill()
            raise

    def can_answer(self) -> bool:
        """Whether it is still there."""
        return not self._is_interrupted and self._process.poll() is None

    def interrupt(self) -> None:
        """End it, whoever waits for an answer."""
        self._is_interrupted = True
        self._signal()

    def kill(self) -> None:
        """End the process, and all that it has started, at once; a fork of the one that started it cannot."""
        if self._owner != os.getpid():
            return
        self._signal()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._process.wait()
        with _lock:
            _running.discard(self)

    def _signal(self) -> None:
        if self._owner == os.getpid() and self._process.returncode is None:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _write(self, content: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(content)
        self._process.stdin.flush()

    def _ending(self) -> CandidateError:
        """What is to be said of a process that gives no answers any more."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        status, message = self._process.poll(), ""
        with suppress(OSError, ValueError):
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").split("\n")
            message = next((f" ({line.strip()})" for line in reversed(lines) if line.strip()), "")
        self.kill()
        if status == -signal.SIGALRM:
            return CandidateError("slow", "it was not waited for")
        kind = INTERRUPTED if self._is_interrupted else "crashed"
        if status is not None and status < 0:
            return CandidateError(kind, f"its process died of {signal.Signals(-status).name}{message}")
        return CandidateError(kind, f"its process ended with status {status}{message}")


_running: set[Child] = set()
_idle: dict[tuple[int, str], list[Child]] = {}
"""Those that wait for a question, by the process that may ask them (forked ones have none of its children)."""
_lock = threading.RLock()


@contextmanager
def child(module: str, once: bool = False) -> Iterator[Child]:
    """A process that answers by a module, and is kept for the next who wants one, if it still can.

    ``once``: it answers one question in its life.
    """
    key = os.getpid(), module
    with _lock:
        waiting = [one for one in _idle.pop(key, []) if one.can_answer()]
        started = waiting.pop() if waiting else None
        _idle[key] = waiting
    if started is None:
        started = Child(module)
    try:
        yield started
    finally:
        with _lock:
            is_good = started.can_answer() and started.asked < (1 if once else _QUESTIONS)
            if is_good:
                _idle.setdefault(key, []).append(started)
        if not is_good:
            started.kill()


def kill_all() -> None:
    """End all processes that answer this one: what is asked of them is ``interrupted``."""
    with _lock:
        idle = [one for waiting in _idle.values() for one in waiting]
        _idle.clear()
        busy = _running.difference(idle)
    for one in idle:
        one.kill()
    for one in busy:
        one.interrupt()


def serve(answer: Callable[[Any], Any]) -> None:
    """A child's life: questions from its input, each with its seconds; answers to its output, of which the first says
    that it is there."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what code prints must not stand among the answers
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    reply = pickle.dumps(("", None))
    while True:
        answers.write(reply)
        answers.flush()
        wait_for(0)
        try:
            question, limit = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        wait_for(limit)
        try:
            reply = pickle.dumps(("", answer(question)))
        except CandidateError as error:
            reply = pickle.dumps((error.kind, error.message))
        except Exception as error:  # whatever is wrong with a candidate, that is the answer
            reply = pickle.dumps(("failed", f"{type(error).__name__}: {one_line(error)}"))


def one_line(error: Exception) -> str:
    """An error's message, in one line."""
    return " ".join(str(error).split())


def limit_memory(is_limited: bool = True) -> None:
    """Let this process have half of the machine's memory, or as much as there is: drivers of devices reserve more
    addresses than there is memory."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if is_limited else resource.RLIM_INFINITY
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def wait_for(seconds: float) -> None:
    """Have this process die after so many seconds from now, unless it is told otherwise by then; never for 0."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
