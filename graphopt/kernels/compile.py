"""Kernel compilation: object code from the cache, or from several compiler processes.

They may be handed over one by one, as they are written: the first is compiled while the next is made. What
compiled kernels share is found in their code, and compiled with them. Where all is cached, no compiler is imported.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from graphopt.errors import CompilationError
from graphopt.kernels import cache
from graphopt.kernels.kernel import SHARED, Kernel
from graphopt.kernels.workers import CompileTask, Workers, compile_here
from graphopt.runtime import cpu, disk_cache
from graphopt.runtime.bytecode import DRIVER_PARAMS
from graphopt.runtime.objects import SHARED_PREFIX, undefined

CompileListener: TypeAlias = Callable[[int, int], None]
"""Called with how many kernels are compiled and how many there are to compile so far, from any thread."""

_ELF = b"\x7fELF"
"""How object code begins."""
_FEW = 2
_SHORT = 10_000
"""Up to so many kernels of so many characters in all are compiled here: to start a worker would take longer."""
_FIRST = -(1 << 40)
"""The rank of what goes before all kernels."""


def compile_kernels(
    kernels: Sequence[Kernel], *, jobs: int | None = None, listener: CompileListener | None = None
) -> list[bytes]:
    """The object code of each kernel: an ELF file with the function ``int32 entry(int64* args, int64 lo, int64 hi)``,
    or PTX where the target is a GPU. Behind them stands that of what they share.

    Equal kernels are compiled once. ``jobs`` is the number of processes, at most (None: one for each core; 0: none,
    everything is compiled here). Raises ``CompilationError`` for the first kernel that does not compile.
    """
    with Compiling(jobs, listener) as compiling:
        for kernel in sorted(kernels, key=lambda k: -len(k.source)):  # long ones first: none is left over at the end
            compiling.begin(kernel)
        return compiling.objects(kernels)


def native_driver() -> Kernel:
    """The kernel that runs the others (``driver.py``)."""
    return Kernel((Path(__file__).parent / "driver.py").read_text(encoding="utf-8"), DRIVER_PARAMS)


def title(kernel: Kernel) -> str:
    """The title of a kernel: the first line of its docstring."""
    try:
        text = ast.get_docstring(ast.parse(kernel.source))
    except (SyntaxError, ValueError):
        text = None
    return (text or "kernel").splitlines()[0]


class Compiling:
    """Kernels on their way to object code; with it end the processes that compile them."""

    def __init__(self, jobs: int | None = None, listener: CompileListener | None = None) -> None:
        """``jobs`` and ``listener`` are those of ``compile_kernels``."""
        self._jobs, self._listener = jobs, listener
        self._place = cache.folder()
        self._changed = threading.Condition()
        self._found: dict[str, bytes] = {}
        self._missing: dict[str, Kernel] = {}
        self._waiting: list[str] = []
        """Those that nobody compiles yet."""
        self._done = 0
        self._problems: dict[str, str] = {}
        self._error: Exception | None = None
        self._workers: Workers | None = None

    def __enter__(self) -> Compiling:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._workers is not None:
            (self._workers.kill if kind else self._workers.close)()

    def begin(self, kernel: Kernel) -> None:
        """Have a kernel compiled, where it is neither cached nor under way."""
        name = cache.digest(kernel)
        with self._changed:
            if name in self._found or name in self._missing:
                return
            code = disk_cache.read(self._place / f"{name}.o")
            if code is not None:
                self._take(name, code)
                return
            disk_cache.write_plain(self._place / f"{name}.py", kernel.source.encode())
            self._missing[name] = kernel
            self._waiting.append(name)
            if self._workers is None and self._pays():
                self._workers = Workers(cpu.cores() if self._jobs is None else self._jobs)
            while self._workers is not None and self._waiting:
                self._submit(self._workers, self._waiting.pop(0))

    def objects(self, kernels: Sequence[Kernel]) -> list[bytes]:
        """The object code of these kernels, and behind it that of what they share. Raises ``CompilationError`` for the
        first that does not compile."""
        for kernel in kernels:
            self.begin(kernel)
        while (name := self._next()) is not None:
            self._take_back(name, compile_here(self._missing[name], self._place / f"{name}.py"))
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or self._done == len(self._missing))
        if self._error is not None:
            raise self._error
        code = {cache.digest(k): self._object(k) for k in kernels}
        shared: dict[str, bytes] = {}
        waiting = _shared(code.values())
        while waiting:
            shared_objects = {name: self._object(Kernel(name, (SHARED,))) for name in waiting}
            shared |= shared_objects
            waiting = _shared(shared_objects.values()) - shared.keys()
        return [code[cache.digest(k)] for k in kernels] + [shared[name] for name in sorted(shared)]

    def _next(self) -> str | None:
        """One that waits for this process to compile it; workers may take it as well."""
        with self._changed:
            return self._waiting.pop(0) if self._waiting else None

    def _object(self, kernel: Kernel) -> bytes:
        """The object code of a kernel that was compiled."""
        name = cache.digest(kernel)
        if name in self._problems:
            path = self._place / f"{name}.py"
            on = f" for {kernel.target}" if kernel.target else ""
            raise CompilationError(
                f"kernel {title(kernel)!r} does not compile{on}: {self._problems[name]}; its source is kept in {path}"
            )
        return self._found[name]

    def _pays(self) -> bool:
        """Whether there is enough to do for workers to be started."""
        small = len(self._missing) <= _FEW and sum(len(k.source) for k in self._missing.values()) <= _SHORT
        return bool(sys.executable) and self._jobs != 0 and not (self._jobs is None and small)

    def _submit(self, workers: Workers, name: str) -> None:
        """Long kernels go first: none is left over at the end. What they share takes longer than all."""
        kernel = self._missing[name]
        rank = _FIRST if kernel.params == (SHARED,) else -len(kernel.source)
        workers.submit(rank, CompileTask(kernel, self._place / f"{name}.py", partial(self._take_back, name)))

    def _take_back(self, name: str, problem: str | None) -> None:
        """A kernel is compiled, or has a problem."""
        with self._changed:
            code = disk_cache.read(self._place / f"{name}.o") if problem is None else None
            try:
                if code is not None:
                    self._take(name, code)
                else:
                    self._problems[name] = problem or f"{self._place / name}.o cannot be read back"
                self._done += 1
                if self._listener is not None:
                    self._listener(self._done, len(self._missing))
            except Exception as error:  # of this thread, in which nobody would see it
                self._error = error
            self._changed.notify_all()

    def _take(self, name: str, code: bytes) -> None:
        """Keep object code, and have what it shares with others compiled."""
        self._found[name] = code
        for shared in sorted(_shared([code])):
            self.begin(Kernel(shared, (SHARED,)))


def _shared(codes: Iterable[bytes]) -> set[str]:
    """The names of what is called, and compiled for all that call it; PTX calls nothing."""
    objects = {code for code in codes if code.startswith(_ELF)}
    return {name for code in objects for name in undefined(code) if name.startswith(SHARED_PREFIX)}
