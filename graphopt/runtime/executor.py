"""Executor of a program's steps in order: native stretches, branches and loops, and host steps in between.

It is the same wherever a program runs. States of programs say what runs a stretch, and where memory is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from graphopt.runtime.binding import Binder, Binding
from graphopt.runtime.host import BUILT_IN, HostFunction, perform, result_of, view_of
from graphopt.runtime.layout import CodeLayout, HostBranch, HostLoop, Native, Pause, Stage
from graphopt.runtime.sizes import Size, evaluate
from graphopt.runtime.steps import Array, Bind, BufferRef, Code, HostStep


class Clock(Protocol):
    """Takes the time of steps."""

    def of(self, step: HostStep | Bind) -> AbstractContextManager[None]:
        """Take the time of what is done within."""


class Walker(ABC):
    """Goes through the stages of a program, one call at a time. ``functions`` are those of host steps, ``dtypes``
    numpy's types for elements by name."""

    def __init__(
        self,
        code: Code,
        layout: CodeLayout,
        binder: Binder,
        functions: Mapping[str, HostFunction],
        dtypes: Mapping[str, np.dtype[Any]],
    ) -> None:
        self._code, self._layout, self._binder = code, layout, binder
        self._functions, self._dtypes = functions, dtypes
        self._bound: list[Binding | None] = [None] * len(layout.levels)
        self._unbound: tuple[None, ...] = (None,) * len(layout.levels)
        self._followed: dict[tuple[int, ...], tuple[Mapping[str, int], Binding]] = {}
        """By the identity of the symbols that were known, a level and its sizes: those symbols, and the binding."""
        self._sizes: list[tuple[int, ...]] = [()] * len(layout.levels)
        """What the symbols of each level are with its binding."""
        self._arrays: dict[int, Any] = {}
        """What the host has of buffers, by number."""
        self._clock: Clock | None = None
        self.symbols: Mapping[str, int] = {}
        """All symbols that are known by now."""

    # -- what states say

    @abstractmethod
    def _stretch(self, stage: Native) -> None:
        """Run instructions."""

    @abstractmethod
    def _know(self, level: int, binding: Binding) -> None:
        """Make memory and arguments of a level what they are with a binding."""

    @abstractmethod
    def read(self, n: int) -> Any:
        """A buffer as an array of the host's: its own memory, where that is the host's, else a copy."""

    @abstractmethod
    def _write(self, n: int, array: Array | np.int64) -> None:
        """Copy an array to where a buffer is."""

    def _cell(self, n: int) -> Array | None:
        """The memory of a buffer, where that is the host's and stays where it is during a call."""
        return None

    @abstractmethod
    def _keep(self, n: int, array: Array) -> None:
        """Let an array be that of a host buffer."""

    @abstractmethod
    def _forget(self, n: int) -> None:
        """Let go of an output that an earlier iteration made."""

    @abstractmethod
    def _to_fill(self, n: int) -> Array:
        """The array that a step fills for a buffer."""

    @abstractmethod
    def _filled(self, n: int, array: Array) -> None:
        """Let what a step filled be that buffer's."""

    # -- steps

    def _run(self, stages: Sequence[Stage]) -> None:
        clock = self._clock
        for stage in stages:
            match stage:
                case Native():
                    self._stretch(stage)
                case Pause() if clock is None:
                    self._do(stage.step, stage.level)
                case Pause():
                    assert clock is not None
                    with clock.of(stage.step):
                        self._do(stage.step, stage.level)
                case HostBranch():
                    self._run(stage.then if self.read(stage.step.condition).item() else stage.otherwise)
                case HostLoop():
                    self._repeat(stage)

    def _repeat(self, stage: HostLoop) -> None:
        step, done = stage.step, 0
        limit = None if step.count is None else self._limit(step.count)
        counter = self._cell(step.counter)
        condition = None if step.condition is None else self._cell(step.condition)
        while True:
            if counter is None:
                self._write(step.counter, np.int64(done))
            else:
                counter.fill(done)
            if limit is not None and done >= limit:
                return
            if step.condition is not None:
                goes_on = self.read(step.condition) if condition is None else condition
                if not goes_on.item():
                    return
            self._run(stage.body)
            done += 1

    def _limit(self, count: BufferRef | Size) -> int:
        if not isinstance(count, BufferRef):
            return int(evaluate(count, self.symbols))
        whole = self.read(count.buffer).reshape(-1)
        return int(whole[evaluate(count.offset, self.symbols) // whole.itemsize])

    def _do(self, step: HostStep | Bind, level: int | None) -> None:
        if isinstance(step, Bind):
            self._open(level, step.symbols, tuple(self.read(step.buffer).reshape(-1)[: len(step.symbols)].tolist()))
        elif step.function in BUILT_IN:
            self._hand_on(step, level)
        else:
            self._call(step, level)

    def _open(self, level: int | None, symbols: Sequence[str], sizes: tuple[int, ...]) -> None:
        """Bind the symbols of a level."""
        if level is None:
            return
        for n in self._binder.levels[level].outputs:
            self._forget(n)
        binding = self._bound[level]
        if binding is None or self._sizes[level] != sizes:
            binding = self._next(level, symbols, sizes)
            self._bound[level:] = self._unbound[level:]  # what is known later may rest on these
            self._sizes[level] = sizes
        self._know(level, binding)

    def _next(self, level: int, symbols: Sequence[str], sizes: tuple[int, ...]) -> Binding:
        """The binding of a level with other sizes. Those that follow upon the same symbols are kept at hand: a loop
        goes through the same ones in each call."""
        before = self.symbols
        key = (id(before), level, *sizes)
        found = self._followed.get(key)
        if found is not None and found[0] is before:
            return found[1]
        known = {**before, **dict(zip(symbols, sizes, strict=True))}
        binding = self._binder.bind(level, known, self._bound)
        if len(self._followed) >= Binder.KEPT:
            self._followed.clear()
        self._followed[key] = before, binding
        return binding

    # -- what Python does

    def _hand_on(self, step: HostStep, level: int | None) -> None:
        """Call a function that every program has: what it gives is one array that is nobody else's, or a list."""
        result = BUILT_IN[step.function](*[self.read(n) for n in step.inputs if n is not None])
        (n,) = step.outputs
        if self._code.buffers[n].dtype == "object":
            self._arrays[n] = result
            return
        if step.binds:
            sizes = tuple([result.shape[axis] for *_, axis in step.binds])
            self._open(level, self._layout.levels[level] if level is not None else (), sizes)
        self._receive(step, n, result, ())

    def _call(self, step: HostStep, level: int | None) -> None:
        given = [None if n is None else self.read(n) for n in step.inputs]
        to_fill = list(map(self._to_fill, step.outputs)) if step.fills else []
        results = perform(step, self._functions[step.function], given, to_fill)
        if step.binds:
            sizes = tuple([int(np.shape(results[output])[axis]) for _, output, axis in step.binds])
            self._open(level, [s for s, *_ in step.binds], sizes)
        for n, result in zip(step.outputs, results, strict=True):
            if step.fills:
                self._filled(n, result)
            else:
                self._receive(step, n, result, given)

    def _receive(self, step: HostStep, n: int, result: Any, given: Sequence[Any]) -> None:
        """Put one result of a host step where it belongs."""
        buffer = self._code.buffers[n]
        if buffer.dtype == "object":
            self._arrays[n] = result
            return
        shape = None if buffer.shape is None else self._region(n)[1]
        array = result_of(step, result, self._dtype(n), shape)
        if buffer.place != "host":
            self._write(n, array)
            return
        shared = any(_share(array, g) for g in given)
        self._keep(n, array.copy(order="C") if shared or not array.flags.c_contiguous else array)

    # -- memory

    def _dtype(self, n: int) -> np.dtype[Any]:
        return self._dtypes[self._code.buffers[n].dtype]

    def on_host(self, n: int) -> Any:
        """What the host has of a buffer, without a copy; None where its memory is elsewhere."""
        root = self._layout.roots[n]
        is_constant = self._code.buffers[root].place == "constant"
        memory = self._code.constants[root] if is_constant else self._arrays.get(root)
        if n == root or memory is None:
            return memory
        start, shape = self._region(n)
        return view_of(memory, start, shape, self._dtype(n))

    def _region(self, n: int) -> tuple[int, tuple[int, ...]]:
        """Where a buffer begins in the memory of its root, and its shape."""
        bound = self._bound[self._layout.ages[n]]
        assert bound is not None
        region = bound.regions.get(n)
        if region is None:
            start = evaluate(self._layout.shifts[n], self.symbols)
            region = bound.regions[n] = start, self._binder.shape(n, self.symbols)
        return region


def _share(array: Array, other: Any) -> bool:
    """Whether two arrays may share memory, as far as that is known at once."""
    if not isinstance(other, np.ndarray):
        return False
    if array.base is None:  # it owns its memory, which others see only as parts of it
        return other is array or other.base is array
    return np.may_share_memory(array, other)
