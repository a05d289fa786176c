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
from graphopt.runtime.host import HostFunction, perform, result_of, view_of
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
    def _write(self, n: int, array: Array) -> None:
        """Copy an array to where a buffer is."""

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
        for stage in stages:
            match stage:
                case Native():
                    self._stretch(stage)
                case Pause():
                    self._pause(stage)
                case HostBranch():
                    self._run(stage.then if self.read(stage.step.condition).item() else stage.otherwise)
                case HostLoop():
                    self._repeat(stage)

    def _repeat(self, stage: HostLoop) -> None:
        step, done = stage.step, 0
        limit = None if step.count is None else self._limit(step.count)
        while True:
            self._write(step.counter, np.array(done, np.int64))
            if limit is not None and done >= limit:
                return
            if step.condition is not None and not self.read(step.condition).item():
                return
            self._run(stage.body)
            done += 1

    def _limit(self, count: BufferRef | Size) -> int:
        if not isinstance(count, BufferRef):
            return int(evaluate(count, self.symbols))
        whole = self.read(count.buffer).reshape(-1)
        return int(whole[evaluate(count.offset, self.symbols) // whole.itemsize])

    def _pause(self, stage: Pause) -> None:
        if self._clock is None:
            self._do(stage.step, stage.level)
        else:
            with self._clock.of(stage.step):
                self._do(stage.step, stage.level)

    def _do(self, step: HostStep | Bind, level: int | None) -> None:
        if isinstance(step, HostStep):
            self._call(step, level)
        else:
            values = [int(v) for v in self.read(step.buffer).reshape(-1)[: len(step.symbols)]]
            self._open(level, dict(zip(step.symbols, values, strict=True)))

    def _open(self, level: int | None, sizes: Mapping[str, int]) -> None:
        """Bind the symbols of a level."""
        if level is None:
            return
        places = {n: at for b in self._bound[:level] if b is not None for n, at in b.places.items()}
        for n in self._binder.levels[level].outputs:
            self._forget(n)
        self._know(level, self._binder.bind(level, {**self.symbols, **sizes}, places))

    # -- what Python does

    def _call(self, step: HostStep, level: int | None) -> None:
        given = [None if n is None else self.read(n) for n in step.inputs]
        to_fill = list(map(self._to_fill, step.outputs)) if step.fills else []
        results = perform(step, self._functions[step.function], given, to_fill)
        if step.binds:
            self._open(level, {s: int(np.shape(results[output])[axis]) for s, output, axis in step.binds})
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
        shape = None if buffer.shape is None else self._binder.shape(n, self.symbols)
        array = result_of(step, result, self._dtype(n), shape)
        if buffer.place != "host":
            self._write(n, array)
            return
        shared = any(isinstance(g, np.ndarray) and np.may_share_memory(array, g) for g in given)
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
        start = evaluate(self._layout.shifts[n], self.symbols)
        return view_of(memory, start, self._binder.shape(n, self.symbols), self._dtype(n))
