"""Programs: compiled models that are called with arrays.

A program is made of :class:`Code`, which does not change. What a call works in is a state of its own, taken from
those that are free, so that several threads may call at once; what follows from the sizes of the inputs is
worked out once for each binding of the symbols.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import prod
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.errors import InputError, UsageError
from graphopt.runtime import bytecode, cpu
from graphopt.runtime.binding import Binder, Binding
from graphopt.runtime.dtypes import OBJECTS
from graphopt.runtime.host import HostFunction
from graphopt.runtime.interface import Interface, Memory, check_apart, check_out
from graphopt.runtime.layout import lay_out
from graphopt.runtime.objects import Image
from graphopt.runtime.profile import Profile, ProfileRow
from graphopt.runtime.signature import is_row_major
from graphopt.runtime.sizes import Size, evaluate
from graphopt.runtime.state import State, fresh
from graphopt.runtime.steps import (
    Array,
    Bind,
    Branch,
    BufferRef,
    Code,
    HostStep,
    KernelStep,
    LoopStep,
    Port,
    ProgramBuffer,
    Step,
)
from graphopt.runtime.thread_pool import Team, address, join, leave

if TYPE_CHECKING:
    from graphopt.runtime.bound_state import BoundState

__all__ = [
    "Bind",
    "Branch",
    "ProgramBuffer",
    "KernelStep",
    "Code",
    "HostStep",
    "LoopStep",
    "Memory",
    "Port",
    "Program",
    "BufferRef",
    "ProfileRow",
    "Size",
    "Step",
]

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_NOTHING: Mapping[int, Array] = {}


class Program(Interface):
    """A compiled model. Call it with arrays by name or in order; results come by name.

    ``functions`` are those of its host steps; ``dtypes`` the numpy types of elements that numpy itself does not know
    (ml_dtypes'), which are else seen as integers of the same width; ``threads`` how many run large kernels (None: one
    for each core). Programs that run at the same time share one team of threads: a call that finds the team at work
    runs on its own thread alone. Results do not depend on the number of threads.
    """

    def __init__(
        self,
        code: Code,
        functions: Mapping[str, HostFunction] | None = None,
        dtypes: Mapping[str, np.dtype[Any]] | None = None,
        threads: int | None = None,
    ) -> None:
        if threads is not None and not (isinstance(threads, int) and 1 <= threads <= cpu.MOST):
            raise InputError(f"a program runs on 1 to {cpu.MOST} threads, not on {threads!r}")
        self.threads = threads or cpu.cores()
        super().__init__(code, functions, dtypes, lay_out(code), self.threads)
        self._binder = Binder(code, self._layout)
        self._image = Image([code.driver, *code.objects])
        self._driver = _ENTRY(self._image.entries[0])
        rows = [
            [op, self._image.entries[1 + a], *rest] if op == bytecode.CALL else [op, a, *rest]
            for op, a, *rest in self._layout.instructions
        ]
        self._instructions = np.array(rows, np.int64).reshape(len(rows), bytecode.WIDTH)
        level = self._binder.levels[0]
        self._outputs = [(n, self._dtypes[self.code.buffers[n].dtype]) for n in level.outputs]
        self._returned = {p.name: p.buffer for p in code.outputs}
        places = [code.buffers[n].place for n in self._returned.values()]
        self._are_fresh = set(places) <= {"output"} and len(set(self._returned.values())) == len(places)
        self._free: deque[State] = deque()
        self._is_parallel = self.threads > 1 and any(c.parallel for c in self._layout.calls.values())
        self._lock = threading.Lock()
        self._team: Team | None = None
        self._leave: Callable[[], object] = lambda: None

    def __call__(self, *inputs: Any, out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """The outputs by name: fresh arrays, or those of ``out`` where it has one.

        Inputs are arrays in order, or one mapping or sequence of them: numpy's, or what speaks DLPack or numpy's array
        interface. They are copied only where they are not row-major. Raises ``InputError`` for arrays that do not fit
        before it runs, ``ExecutionError`` where a step fails, ``MemoryError`` saying how much was wanted. The program
        can be called again after each.
        """
        values, binding = self._accepted(inputs)
        return self._run(values, binding, _NOTHING) if out is None else self._into(values, binding, out)

    def profile(self, *inputs: Any) -> Profile:
        """What the steps of one call took, in the order in which they began."""
        rows: list[ProfileRow] = []
        self._run(*self._accepted(inputs), _NOTHING, rows)
        return Profile(rows)

    def bind_state(self, sizes: Mapping[str, int] | None = None) -> BoundState:
        """The program with the states that it was compiled to keep, to be called without them; ``sizes`` are those of
        states that no other input tells. UsageError where it keeps none."""
        from graphopt.runtime.bound_state import BoundState

        if not self.code.states:
            raise UsageError("this program keeps no state: bind it to the compiled model before that is saved")
        return BoundState(self, sizes)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the program into a folder, for ``graphopt.runtime.load``."""
        from graphopt.runtime.saved import save

        save(self, folder)

    def close(self) -> None:
        """Give memory back, and the threads where no other program needs them. The program cannot be called again."""
        super().close()
        self._free.clear()
        self._leave()

    # -- a call

    def _run(
        self,
        values: Sequence[Any],
        binding: Binding,
        targets: Mapping[int, Array],
        rows: list[ProfileRow] | None = None,
    ) -> dict[str, Array]:
        """The outputs by name; ``targets`` are arrays by buffer that they are to be in."""
        arrays: dict[int, Array] = dict(zip(self._binder.arrays, values, strict=False))
        try:
            for n, dtype in self._outputs:
                arrays[n] = targets[n] if n in targets else fresh(binding.outputs[n], dtype)
        except MemoryError:
            wanted = prod(binding.outputs[n]) * dtype.itemsize
            raise self._binder.no_memory(0, binding.symbols, wanted) from None
        try:
            state = self._free.pop()
        except IndexError:
            state = self._state()
        team = self._claimed() if self._is_parallel else None
        try:
            address_of_team = 0 if team is None else team.address
            if rows is None:
                filled = state.run(binding, arrays, address_of_team)
            else:
                filled = self._timed(state, binding, arrays, address_of_team, rows)
            if self._are_fresh:
                return {name: filled[n] for name, n in self._returned.items()}
            return self._results(state, filled)
        finally:
            if team is not None:
                team.busy.release()
            state.end()
            if not self._closed:
                self._free.append(state)

    def _state(self) -> State:
        start = address(self._instructions)
        return State(
            self.code, self._layout, self._binder, start, self._image.entries[0], self._functions, self._dtypes
        )

    def _claimed(self) -> Team | None:
        """The team of threads, held for a call; None where another call has it."""
        team = self._team
        if team is None or team.process != os.getpid():
            with self._lock:
                team = self._team
                if team is None or team.process != os.getpid():
                    team = self._team = join(self.threads, self._driver, self._image)
                    self._leave = weakref.finalize(self, leave, team)
        return team if team.claim() else None

    def _results(self, state: State, arrays: Mapping[int, Array]) -> dict[str, Array]:
        """The outputs by name. What is not the caller's own is copied, so that the next call does not change it."""
        results: dict[str, Array] = {}
        returned: set[int] = set()
        for port in self.code.outputs:
            n = port.buffer
            kind = self.code.buffers[n].place
            is_own = kind == "output" or (kind == "host" and _is_own(arrays[n], self.code.buffers[n].dtype))
            if is_own and n not in returned:
                results[port.name] = arrays[n]
            elif self.code.buffers[n].dtype in OBJECTS:
                results[port.name] = copy(state.read(n))
            else:
                results[port.name] = state.read(n).copy()
            returned.add(n)
        return results

    def _into(self, values: Sequence[Any], binding: Binding, out: Mapping[str, Array]) -> dict[str, Array]:
        """A call whose results go into the caller's arrays, directly where that is safe."""
        if not isinstance(out, Mapping):
            raise InputError(f"out is a mapping of names to arrays, not {type(out).__name__}")
        direct: dict[int, Array] = {}
        for name, array in out.items():
            n = self._returned.get(name)
            if n is None:
                names = ", ".join(map(repr, self._returned))
                raise InputError(f"there is no output {name!r} to write into: the outputs are {names}")
            if not isinstance(array, np.ndarray) or not array.flags.writeable:
                raise InputError(
                    f"output {name!r} can be written into numpy arrays that are not read-only, and nothing else"
                )
            buffer = self.code.buffers[n]
            if buffer.dtype == "object":
                raise InputError(f"output {name!r} is no array, and cannot be written into one")
            if self._layout.ages[n] == 0 and buffer.shape is not None:
                shape = binding.outputs[n] if n in binding.outputs else self._binder.shape(n, binding.symbols)
                check_out(name, array, shape, self._dtypes[buffer.dtype])
            if n in binding.outputs and is_row_major(array) and not any(_may_share(array, a) for a in values):
                direct[n] = array
        if len(out) > 1:
            check_apart(out)
        results = self._run(values, binding, direct)
        for name, array in out.items():
            if results[name] is not array:
                check_out(name, array, results[name].shape, results[name].dtype)
                array[...] = results[name]
                results[name] = array
        return results

    # -- profiles

    def _timed(
        self,
        state: State,
        binding: Binding,
        arrays: dict[int, Array],
        team: int,
        rows: list[ProfileRow],
    ) -> dict[int, Array]:
        stamps = state.profile(len(self._instructions))
        begin = perf_counter_ns()
        filled = state.run(binding, arrays, team)
        for at, call in self._layout.calls.items():
            start, spent, runs = (int(v) for v in stamps[at])
            if runs:
                work = runs * evaluate(call.flops, state.symbols), runs * evaluate(call.bytes, state.symbols)
                rows.append(ProfileRow(call.label, call.nodes, spent / 1e9, *work, (start - begin) / 1e9, runs))
        for step, start, spent in state.spans.found:
            label, nodes = (step.label or step.function, step.nodes) if isinstance(step, HostStep) else ("bind", ())
            rows.append(ProfileRow(label, nodes, spent / 1e9, 0, 0, (start - begin) / 1e9, is_native=False))
        rows.sort(key=lambda row: row.start)
        return filled


def _is_own(array: Any, dtype: str) -> bool:
    """Whether what the host has is an array with memory of its own. An object may be an input, handed on."""
    return dtype != "object" and isinstance(array, np.ndarray) and array.base is None


def _may_share(array: Array, other: Any) -> bool:
    return isinstance(other, np.ndarray) and np.may_share_memory(array, other)
