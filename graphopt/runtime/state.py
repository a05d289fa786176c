"""State of a call in progress: the memory that it works in, and how its steps are run.

A state serves one call at a time; programs keep those that are free. Within native stretches nothing of Python
runs; what Python does in between works on views of the same memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from time import perf_counter_ns
from typing import Any

import numpy as np

from graphopt.errors import ExecutionError
from graphopt.runtime import arena, bytecode
from graphopt.runtime.binding import Binder, Binding
from graphopt.runtime.executor import Walker
from graphopt.runtime.host import HostFunction, failure, view_of
from graphopt.runtime.layout import CodeLayout, Native
from graphopt.runtime.steps import Array, Bind, Code, HostStep, Words
from graphopt.runtime.thread_pool import ELEMENTS, address, words

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32)
"""The driver, called with what is C's already: ctypes would look at each argument again, which takes longer than the
call."""


class Spans:
    """The steps that Python did, when each began and how long it took, in nanoseconds."""

    def __init__(self) -> None:
        self.found: list[tuple[HostStep | Bind, int, int]] = []

    @contextmanager
    def of(self, step: HostStep | Bind) -> Iterator[None]:
        """Take the time of what is done within."""
        begin = perf_counter_ns()
        yield
        self.found.append((step, begin, perf_counter_ns() - begin))


class State(Walker):
    """The arguments, arenas and arrays of a call. ``entry`` is the address of the native driver; ``dtypes`` are numpy's
    types for elements, by name."""

    def __init__(
        self,
        code: Code,
        layout: CodeLayout,
        binder: Binder,
        instructions: int,
        entry: int,
        functions: Mapping[str, HostFunction],
        dtypes: Mapping[str, np.dtype[Any]],
    ) -> None:
        super().__init__(code, layout, binder, functions, dtypes)
        self._driver = _ENTRY(entry)
        self._args = words(len(layout.words))
        self._bases = words(binder.bases)
        self._report = words(2)
        self._objects = words(len(binder.arrays))
        self._addresses = self._objects.data
        self._places = self._placed()
        self._block = words(len(bytecode.DRIVER_PARAMS))
        args, places, objects = address(self._args), address(self._places), address(self._objects)
        rest = places, len(self._places), objects, ELEMENTS
        self._block[:] = instructions, args, args, 0, address(self._report), 0, bytecode.WALK, *rest
        self._start = ctypes.c_void_p(address(self._block))
        self._arenas: list[Array] = [_no_memory()] * len(layout.levels)
        self._fixed: dict[int, tuple[Binding, Words]] = {}
        """By the identity of bindings, those and the arguments of their level, as long as arenas stay where they are;
        those that count from arrays of a call may be another call's."""
        self._views: list[dict[int, Array]] = [{} for _ in layout.levels]
        """By level, arrays of what lies in an arena, as long as that stays where it is."""
        for k, empty in enumerate(self._arenas):
            self._move(k, empty)
        self._host_words: dict[int, list[tuple[int, int, int]]] = {}
        """For each host buffer the words that are addresses in it: the number, the level, and the place therein."""
        for k, level in enumerate(binder.levels):
            for at, n in enumerate(level.words):
                root = layout.words[n].root
                if root is not None and code.buffers[root].place == "host":
                    self._host_words.setdefault(root, []).append((int(n), k, at))
        self._stamps: Array | None = None
        self._team = 0
        self.spans = Spans()
        """What Python did in a call that is profiled."""

    def _placed(self) -> Array:
        """The driver's rows for arguments that lie in the arrays of a call; how far from their starts is not known."""
        numbers = {n: k for k, n in enumerate(self._binder.arrays)}
        entries = [
            (n, numbers[w.root], 0) for n, w in enumerate(self._layout.words) if not w.level and w.root in numbers
        ]
        rows = words(len(entries) * bytecode.PLACE_WIDTH).reshape(-1, bytecode.PLACE_WIDTH)
        rows[:] = np.array(entries, np.int64).reshape(rows.shape)
        return rows

    # -- a call

    def run(self, binding: Binding, arrays: dict[int, Array], team: int) -> dict[int, Array]:
        """Run the program on arrays by buffer, in the order of ``Binder.arrays``; gives all arrays, those of host steps
        too.

        Raises ``ExecutionError`` where a step fails.
        """
        self._arrays = arrays
        for k, array in enumerate(arrays.values()):
            self._addresses[k] = id(array)
        if team != self._team:
            self._block[3] = self._team = team
        if len(self._bound) > 1:
            for n, array in arrays.items():
                if isinstance(array, np.ndarray):
                    self._bases[self._binder.slots[n]] = address(array)
        if self._bound[0] is not binding:
            self._bound = [None] * len(self._bound)
            self._know(0, binding)
        self.symbols = binding.symbols
        self._run(self._layout.stages)
        return self._arrays

    def profile(self, size: int) -> Array:
        """From here on instructions are timed, ``size`` of them; gives their rows of ``table.STAMP_WIDTH`` words."""
        self._stamps = words(size * bytecode.STAMP_WIDTH)
        self._block[5] = address(self._stamps)
        self._clock = self.spans = Spans()
        return self._stamps.reshape(size, bytecode.STAMP_WIDTH)

    def end(self) -> None:
        """Let go of the call's arrays, and of its profile."""
        self._arrays = {}
        if self._stamps is not None:
            self._stamps = self._clock = None
            self._block[5] = 0

    def _know(self, level: int, binding: Binding) -> None:
        if binding is self._bound[level]:  # but for arrays of this call all is as it was
            self._make_outputs(binding)
            for at, word, base in self._binder.levels[level].moving:
                self._args[word] = self._bases.item(base) + binding.offsets.item(at)
            self.symbols = binding.symbols
            return
        for views in self._views[level:]:
            views.clear()
        if self._arenas[level].nbytes < binding.arena_bytes:
            self._bound[level] = None
            self._move(level, _no_memory())  # the old one goes first
            try:
                self._move(level, allocate(binding.arena_bytes))
            except MemoryError:
                raise self._binder.no_memory(level, binding.symbols, binding.arena_bytes) from None
        self._make_outputs(binding)
        of_level = self._binder.levels[level]
        if len(of_level.words):
            fixed = self._fixed.get(id(binding))
            if fixed is None:
                if len(self._fixed) >= Binder.KEPT:
                    self._fixed.clear()
                fixed = self._fixed[id(binding)] = binding, self._bases[of_level.bases] + binding.offsets
            self._args[of_level.words] = fixed[1]
            for at, word, base in of_level.moving:
                self._args[word] = self._bases.item(base) + binding.offsets.item(at)
        if level == 0:
            self._places[:, 2] = binding.offsets[np.searchsorted(of_level.words, self._places[:, 0])]
        self._bound[level] = binding
        self.symbols = binding.symbols

    def _move(self, level: int, memory: Array) -> None:
        """Let this be a level's arena."""
        self._fixed.clear()
        self._arenas[level] = memory
        self._bases[1 + level] = address(memory)

    def _make_outputs(self, binding: Binding) -> None:
        """Arrays for the outputs of a level that have none yet."""
        for n, shape in binding.outputs.items():
            if n not in self._arrays:
                array = self._arrays[n] = fresh(shape, self._dtype(n))
                self._bases[self._binder.slots[n]] = address(array)

    # -- steps

    def _stretch(self, stage: Native) -> None:
        if outcome := self._driver(self._start, *stage.bounds):
            self._go_on(outcome, stage)

    def _go_on(self, outcome: int, stage: Native) -> None:
        """Run the rest of a stage that paused, for Python to see to signals in between."""
        while outcome == bytecode.PAUSED:
            outcome = self._driver(self._start, ctypes.c_int64(int(self._report[0])), stage.bounds[1])
        if outcome != bytecode.DONE:
            raise self._failure()

    def _failure(self) -> ExecutionError:
        at, status = (int(v) for v in self._report)
        return failure(self._layout.calls[at], at, status)

    def _to_fill(self, n: int) -> Array:
        if self._code.buffers[n].place == "host":
            self._keep(n, np.empty(self._region(n)[1], self._dtype(n)))
        array: Array = self.read(n)
        return array

    def _filled(self, n: int, array: Array) -> None:
        """It is the buffer's own memory."""

    def _forget(self, n: int) -> None:
        self._arrays.pop(n, None)

    # -- memory

    def _keep(self, n: int, array: Array) -> None:
        self._arrays[n] = array
        start = self._bases[self._binder.slots[n]] = address(array)
        for word, level, at in self._host_words.get(n, ()):
            bound = self._bound[level]
            if bound is not None:
                self._args[word] = start + bound.offsets.item(at)

    def _write(self, n: int, array: Array | np.int64) -> None:
        self.read(n)[...] = array

    def _cell(self, n: int) -> Array | None:
        is_fixed = self._layout.ages[n] == 0 and self._code.buffers[self._layout.roots[n]].place == "arena"
        cell: Array | None = self.read(n) if is_fixed else None
        return cell

    def read(self, n: int) -> Any:
        """A buffer as an array, without a copy."""
        views = self._views[self._layout.ages[n]]
        if (view := views.get(n)) is not None:
            return view
        root = self._layout.roots[n]
        if self._code.buffers[root].place != "arena":
            return self.on_host(n)
        level = self._layout.ages[root]
        bound = self._bound[level]
        assert bound is not None
        start, shape = self._region(n)
        views[n] = view_of(self._arenas[level], bound.places[root] + start, shape, self._dtype(n))
        return views[n]


LARGE = 1 << 12
"""Bytes of an array from which on it matters where it begins."""


def _no_memory() -> Array:
    return np.empty(0, np.uint8)


def allocate(size: int) -> Array:
    """So many bytes that begin on a cache line."""
    memory = np.empty(size + arena.ALIGNMENT, np.uint8)
    skip = -address(memory) % arena.ALIGNMENT
    return memory[skip : skip + size]


def fresh(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array for a caller; a large one begins on a cache line, so that no vector written to it lies in two."""
    size = prod(shape) * dtype.itemsize
    if size < LARGE or dtype.hasobject:
        return np.empty(shape, dtype)
    memory = np.empty(size + arena.ALIGNMENT, np.uint8)
    return view_of(memory, -address(memory) % arena.ALIGNMENT, shape, dtype)
