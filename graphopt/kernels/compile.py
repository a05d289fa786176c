"""Kernels become object code: looked up in the cache, or compiled by several processes at once.

Each worker is an interpreter of its own that reads kernels, one at a time, and answers with how it
went; what it makes it puts into the cache. So a worker that dies takes one kernel with it, whose name is known,
and nothing of the caller's program is run anew. Where all is cached, no compiler is imported.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeAlias

from graphopt.errors import CompilationError
from graphopt.kernels import cache
from graphopt.kernels.kernel import SHARED, Kernel
from graphopt.runtime import cpu
from graphopt.runtime.objects import SHARED_PREFIX, undefined
from graphopt.runtime.table import DRIVER_PARAMS

Listener: TypeAlias = Callable[[int, int], None]
"""Called with how many kernels are compiled and how many there are to compile, from any thread."""

_FEW = 2
_SHORT = 10_000
"""Up to so many kernels of so many characters in all are compiled here: to start a worker would take longer."""

_WORKER = (
    "import sys, json; sys.path[:] = json.loads(sys.stdin.readline()); import graphopt.kernels.compile as c; c.serve()"
)


def compile_kernels(
    kernels: Sequence[Kernel], *, jobs: int | None = None, listener: Listener | None = None
) -> list[bytes]:
    """The object code of each kernel: an ELF file with the function ``int32 entry(int64* args, int64 lo, int64 hi)``.
    Behind them stands that of what they share.

    Equal kernels are compiled once. ``jobs`` is the number of processes, at most (None: one for each core; 0: none,
    everything is compiled here). Raises ``CompilationError`` for the first kernel that does not compile.
    """
    place = cache.folder()
    names = [cache.digest(k) for k in kernels]
    found = {name: cache.stored(place / f"{name}.o") for name in names}
    missing = {name: k for name, k in zip(names, kernels, strict=True) if found[name] is None}
    for name, kernel in missing.items():
        cache.write(place / f"{name}.py", kernel.source.encode())
    if missing:
        problems = dict(_compiled(missing, place, jobs, listener))
        for name, kernel in missing.items():
            found[name] = cache.stored(place / f"{name}.o")
            problem = problems.get(name) or (None if found[name] else f"{place / name}.o cannot be read back")
            if problem:
                source = place / f"{name}.py"
                raise CompilationError(
                    f"kernel {title(kernel)!r} does not compile: {problem}; its source is kept in {source}"
                )
    made = [code for name in names if (code := found[name]) is not None]
    shared = sorted({f for code in {*found.values()} if code for f in undefined(code) if f.startswith(SHARED_PREFIX)})
    return made + (compile_kernels([Kernel(f, (SHARED,)) for f in shared], jobs=jobs) if shared else [])


def native_driver() -> Kernel:
    """The kernel that runs the others (``driver.py``)."""
    return Kernel((Path(__file__).parent / "driver.py").read_text(encoding="utf-8"), DRIVER_PARAMS)


def title(kernel: Kernel) -> str:
    """What a kernel calls itself: the first line of its docstring."""
    try:
        text = ast.get_docstring(ast.parse(kernel.source))
    except (SyntaxError, ValueError):
        text = None
    return (text or "kernel").splitlines()[0]


def serve() -> None:
    """A worker's life: a kernel on each line of its input, an answer on each line of its output."""
    answers, sys.stdout = sys.stdout, sys.stderr  # a kernel's source must not write among the answers
    for line in sys.stdin:
        params, place = json.loads(line)
        problem = _compile(Kernel(Path(place).read_text(encoding="utf-8"), tuple(params)), Path(place))
        print(json.dumps(problem), file=answers, flush=True)


def _compiled(
    missing: dict[str, Kernel], place: Path, jobs: int | None, listener: Listener | None
) -> Iterator[tuple[str, str | None]]:
    """Compile kernels into the cache; yields each one's name and what was wrong with it, as they are done."""
    tasks: SimpleQueue[str] = SimpleQueue()
    for name in sorted(
        missing, key=lambda n: (-len(missing[n].source), n)
    ):  # long ones first: none is left over at the end
        tasks.put(name)
    done = SimpleQueue[tuple[str, str | None]]()
    workers = min(cpu.cores() if jobs is None else jobs, len(missing))
    small = len(missing) <= _FEW and sum(len(k.source) for k in missing.values()) <= _SHORT
    if workers <= 0 or (jobs is None and small) or not sys.executable:
        for count, (name, kernel) in enumerate(missing.items(), 1):
            yield name, _compile(kernel, place / f"{name}.py")
            if listener is not None:
                listener(count, len(missing))
        return
    running: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(workers, "compile") as threads:
        for _ in range(workers):
            threads.submit(_work, tasks, done, missing, place, running)
        try:
            for count in range(1, len(missing) + 1):
                yield done.get()
                if listener is not None:
                    listener(count, len(missing))
        except BaseException:  # an interrupt does not wait for what nobody wants any more
            while not tasks.empty():
                with suppress(Empty):
                    tasks.get_nowait()
            for worker in running:
                worker.kill()
            raise


def _work(
    tasks: SimpleQueue[str],
    done: SimpleQueue[tuple[str, str | None]],
    kernels: dict[str, Kernel],
    place: Path,
    running: list[subprocess.Popen[str]],
) -> None:
    """Hand kernels to one worker after another until there are no more."""
    worker = None
    try:
        while True:
            try:
                name = tasks.get_nowait()
            except Empty:
                return
            problem: str | None = "its compiler could not be started"
            try:
                if worker is None:
                    worker = _worker()
                    running.append(worker)
                problem = _asked(worker, kernels[name], place / f"{name}.py")
            except OSError as error:
                problem = f"its compiler ended: {error}"
                worker = None
            finally:
                done.put((name, problem))
    finally:
        if worker is not None and worker.stdin is not None:
            worker.stdin.close()
            worker.wait()


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
    worker.stdin.write(json.dumps(sys.path) + "\n")
    return worker


def _asked(worker: subprocess.Popen[str], kernel: Kernel, place: Path) -> str | None:
    """Have a worker compile a kernel; what was wrong with it. Raises ``OSError`` where the worker died."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps([kernel.params, str(place)]) + "\n")
    worker.stdin.flush()
    answer = worker.stdout.readline()
    if not answer:
        raise OSError(f"exit status {worker.wait()}")
    problem = json.loads(answer)
    return None if problem is None else str(problem)


def _compile(kernel: Kernel, place: Path) -> str | None:
    """Compile one kernel into the cache; what was wrong with it, as one line."""
    from graphopt.kernels.codegen import object_code

    try:
        code = object_code(kernel, place)
    except Exception as error:  # whatever is wrong with the source, numba and LLVM have exceptions for it
        place.with_suffix(".txt").write_text(f"{type(error).__name__}: {error}\n", encoding="utf-8")
        return _one_line(error)
    cache.store(place.with_suffix(".o"), code)
    return None


def _one_line(error: Exception) -> str:
    """The lines of a message that say what is wrong and where, without colors."""
    if isinstance(error, CompilationError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not set(line.strip()) <= set("-^~")]
    telling = [line for line in lines if not line.startswith(("Failed in", "During:", "There are", "- Resolution"))]
    return f"{type(error).__name__}: {'; '.join(telling[:3])}"
