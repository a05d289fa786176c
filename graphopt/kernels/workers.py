"""Compiler processes: each compiles one kernel at a time into the cache.

Each is an interpreter of its own that reads kernels and answers with how it went. So one that dies takes one kernel
with it, whose name is known, and nothing of the caller's program is run anew.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import inf
from pathlib import Path
from queue import PriorityQueue

from graphopt.errors import CompilationError, GraphoptError
from graphopt.frozen import dataclass
from graphopt.kernels.kernel import Kernel
from graphopt.runtime import disk_cache

_WORKER = (
    "import sys, json; sys.path[:] = json.loads(sys.stdin.readline()); import graphopt.kernels.workers as w; w.serve()"
)


@dataclass(frozen=True, slots=True)
class CompileTask:
    """A kernel to compile, whose source is in the file ``place``."""

    kernel: Kernel
    path: Path
    then: Callable[[str | None], None]
    """What is called, in some thread, with what was wrong with it."""


def serve() -> None:
    """A worker's life: a kernel on each line of its input, an answer on each line of its output."""
    answers, sys.stdout = sys.stdout, sys.stderr  # a kernel's source must not write among the answers
    for line in sys.stdin:
        path, params, *options = json.loads(line)
        try:
            problem = compile_here(Kernel(Path(path).read_text(encoding="utf-8"), tuple(params), *options), Path(path))
        except GraphoptError as error:  # what was made cannot be kept
            problem = str(error)
        print(json.dumps(problem), file=answers, flush=True)


def compile_here(kernel: Kernel, path: Path) -> str | None:
    """Compile one kernel into the cache; what was wrong with it, as one line."""
    try:
        code = _code(kernel, path)
    except Exception as error:  # whatever is wrong with the source, numba and LLVM have exceptions for it
        path.with_suffix(".txt").write_text(f"{type(error).__name__}: {error}\n", encoding="utf-8")
        return _one_line(error)
    disk_cache.write(path.with_suffix(".o"), code)
    return None


def _code(kernel: Kernel, path: Path) -> bytes:
    """The code that the kernel's target runs."""
    if kernel.target:
        from graphopt.kernels.cuda.codegen import ptx_code

        return ptx_code(kernel, path)
    from graphopt.kernels.codegen import object_code

    return object_code(kernel, path)


class Workers:
    """So many processes, each started when there is work for it."""

    def __init__(self, count: int) -> None:
        self._count, self._numbers = count, itertools.count()
        self._tasks: PriorityQueue[tuple[float, int, CompileTask | None]] = PriorityQueue()
        self._running: list[subprocess.Popen[str]] = []
        self._is_ended, self._lock = False, threading.Lock()
        self._threads = ThreadPoolExecutor(count, "compile")
        for _ in range(count):
            self._threads.submit(self._work)

    def submit(self, rank: float, task: CompileTask) -> None:
        """Have a kernel compiled, before those of higher rank that wait."""
        self._tasks.put((rank, next(self._numbers), task))

    def close(self) -> None:
        """Wait until all is compiled, and end the processes."""
        self._end(inf)

    def kill(self) -> None:
        """End the processes at once: an interrupt does not wait for what nobody wants any more."""
        with self._lock:
            self._is_ended = True
            for worker in self._running:
                worker.kill()
        self._end(-inf)

    def _end(self, rank: float) -> None:
        for _ in range(self._count):
            self._tasks.put((rank, next(self._numbers), None))
        self._threads.shutdown()

    def _work(self) -> None:
        """Hand kernels to one worker after another until there are no more."""
        worker = None
        while (task := self._tasks.get()[2]) is not None and not self._is_ended:
            problem: str | None = "its compiler could not be started"
            try:
                if worker is None or worker.poll() is not None:  # one may die while it has nothing to do
                    worker = self._started()
                problem = _asked(worker, task)
            except Exception as error:  # whatever it is, those who wait are told, and the next kernel has its chance
                problem = f"its compiler ended: {error}"
                if worker is not None:
                    worker.kill()
                    _end(worker)
                    worker = None
            finally:
                task.then(problem)
        if worker is not None:
            _end(worker)

    def _started(self) -> subprocess.Popen[str]:
        """A new worker. Raises ``OSError`` where none can be started, or all are to end."""
        with self._lock:  # else one that is being started would not be ended with the others
            if self._is_ended:
                raise OSError("interrupted")
            worker = _worker()
            self._running.append(worker)
            return worker


def _worker() -> subprocess.Popen[str]:
    """A new worker, to which no interrupt comes from the terminal: it is this process that ends it."""
    worker = subprocess.Popen(
        [sys.executable, "-P", "-c", _WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        process_group=0,
    )
    assert worker.stdin is not None
    worker.stdin.write(json.dumps([str(folder) for folder in sys.path]) + "\n")
    return worker


def _end(worker: subprocess.Popen[str]) -> None:
    """Let a worker that has nothing to do come to its end, and leave nothing of it."""
    for stream in (worker.stdin, worker.stdout):
        if stream is not None:
            with suppress(OSError):  # it may have gone, with lines left that nobody reads
                stream.close()
    worker.wait()


def _asked(worker: subprocess.Popen[str], task: CompileTask) -> str | None:
    """Have a worker compile a kernel; what was wrong with it. Raises ``OSError`` where the worker died."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    kernel = task.kernel
    options = [kernel.target, kernel.noalias, kernel.contract]
    worker.stdin.write(json.dumps([str(task.path), kernel.params, *options]) + "\n")
    worker.stdin.flush()
    answer = worker.stdout.readline()
    if not answer:
        raise OSError(f"exit status {worker.wait()}")
    problem = json.loads(answer)
    return None if problem is None else str(problem)


def _one_line(error: Exception) -> str:
    """The lines of a message that say what is wrong and where, without colors."""
    if isinstance(error, CompilationError):
        return str(error)
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # numba colors its messages where colorama is installed
    lines = [line.strip() for line in text.splitlines() if line.strip() and not set(line.strip()) <= set("-^~")]
    telling = [line for line in lines if not line.startswith(("Failed in", "During:", "There are", "- Resolution"))]
    return f"{type(error).__name__}: {'; '.join(telling[:3])}"
