"""State of a program on a device: its memory there, and how its steps are run.

Apart from ``device_program``, its only user, for length.

Kernels and library calls run on the device; branches, loops and host steps on the host, which reads back what these
need. What the program keeps on the device stays where it is from call to call, unless a larger one needs more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from graphopt.errors import DeviceMemoryError
from graphopt.runtime.binding import Binder, Binding
from graphopt.runtime.device import ALIGNMENT, Allocation, Device, Resident
from graphopt.runtime.device_timing import DeviceTiming
from graphopt.runtime.dtypes import OBJECTS
from graphopt.runtime.executor import Walker
from graphopt.runtime.graph_capture import Stretch
from graphopt.runtime.host import HostFunction, failure
from graphopt.runtime.layout import CodeLayout, Native
from graphopt.runtime.library_calls import function_of
from graphopt.runtime.signature import is_row_major
from graphopt.runtime.sizes import evaluate
from graphopt.runtime.steps import Array, Code, Launch, LibraryStep
from graphopt.runtime.thread_pool import words


class Rooms:
    """Memory that a program keeps on a device, by what it is for: it stays where it is until more is needed."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._rooms: dict[tuple[str, int], tuple[int, Allocation]] = {}

    def has(self, kind: str, number: int) -> bool:
        """Whether there is memory for this."""
        return (kind, number) in self._rooms

    def of(self, kind: str, number: int, size: int) -> int:
        """The address of at least so many bytes; raises ``DeviceMemoryError``."""
        key = kind, number
        if key in self._rooms and self._rooms[key][0] < size:
            del self._rooms[key]  # the old one goes first
        if key not in self._rooms:
            self._rooms[key] = size, self._device.allocate(size)
        return self._rooms[key][1].address


class DeviceState(Walker):
    """The arguments, memory and arrays of a program's calls, one at a time. ``kernels`` are the device's functions by
    number, ``constants`` the addresses of constants by buffer, ``dtypes`` numpy's types for elements by name."""

    def __init__(
        self,
        code: Code,
        layout: CodeLayout,
        binder: Binder,
        device: Device,
        kernels: Sequence[Any],
        constants: Mapping[int, int],
        functions: Mapping[str, HostFunction],
        dtypes: Mapping[str, np.dtype[Any]],
    ) -> None:
        super().__init__(code, layout, binder, functions, dtypes)
        self._device, self._constants = device, constants
        self._rooms = Rooms(device)
        self._args, self._bases = words(len(layout.words)), words(binder.bases)
        self._known: tuple[object, ...] = ()
        self._version = 0
        self._needed = {w.root for w in layout.words}
        self._runs = [self._prepared(at, step, kernels) for at, step in layout.launches.items()]
        self._stretches: dict[int, Stretch] = {}
        self._checked = [at for at, step in layout.launches.items() if isinstance(step, Launch) and step.messages]
        self._status_words = [self._end_of(at) for at in self._checked]
        self._residents: dict[int, Resident] = {}
        self._is_resident = False
        self._timing: DeviceTiming | None = None

    # -- a call

    def run(
        self,
        binding: Binding,
        inputs: Sequence[Any],
        direct: Mapping[int, Resident],
        is_resident: bool,
        timing: DeviceTiming | None = None,
    ) -> None:
        """Run the program: ``direct`` are arrays by buffer that outputs are to be in; where ``is_resident``, the others
        are made for the caller. Raises ``ExecutionError`` where a step fails."""
        self._is_resident = is_resident
        self._clock = self._timing = timing
        self._residents.update(direct)
        self._bound = [None] * len(self._bound)
        for port, value in zip(self._code.inputs, inputs, strict=True):
            self._take(port.buffer, value)
        self._know(0, binding)
        self._run(self._layout.stages)
        self._check()

    def end(self) -> None:
        """Let go of the call's arrays."""
        self._arrays, self._residents = {}, {}
        self._clock = self._timing = None

    def release(self) -> None:
        """Give all memory back, what was captured with its addresses, and the kernels. Nothing runs any more then."""
        self._rooms, self._stretches, self._known, self._runs = Rooms(self._device), {}, (), []

    def _take(self, n: int, value: Any) -> None:
        """Let an input be where kernels find it."""
        if not isinstance(value, Resident):
            self._arrays[n] = value
            if n in self._needed:
                self._put(n, value)
            return
        if value.address % ALIGNMENT:
            size = prod(value.shape) * value.dtype.itemsize
            address = self._rooms.of("buffer", n, size)
            self._device.copy(value.address, address, size)
            value = Resident(address, value.shape, value.dtype, value.owner)
        self._residents[n] = value
        self._bases[self._binder.slots[n]] = value.address

    def _put(self, n: int, array: Array) -> None:
        """Copy a buffer's array to the device, to memory of its own."""
        address = self._rooms.of("buffer", n, array.nbytes)
        self._device.upload(array, address)
        self._bases[self._binder.slots[n]] = address

    def _know(self, level: int, binding: Binding) -> None:
        try:
            self._bases[1 + level] = self._rooms.of("arena", level, binding.arena_bytes)
        except DeviceMemoryError as error:
            wanted = self._binder.no_memory(level, binding.symbols, binding.arena_bytes)
            raise DeviceMemoryError(f"{wanted}; {error}") from None
        for n, shape in binding.outputs.items():
            if n not in self._residents:
                self._residents[n] = self._output(n, shape)
            self._bases[self._binder.slots[n]] = self._residents[n].address
        self._bound[level] = binding
        self.symbols = binding.symbols
        self._fill()

    def _fill(self) -> None:
        """Make all arguments that are known what they are by now; their version says whether they are as they were."""
        inputs = *self._bound, self._bases.tobytes()
        if inputs == self._known:
            return
        self._known = inputs
        self._version += 1
        for level, binding in zip(self._binder.levels, self._bound, strict=True):
            if binding is not None:
                self._args[level.words] = self._bases[level.bases] + binding.offsets
        if self._checked:
            self._args[self._status_words] = self._statuses() + 4 * np.arange(len(self._checked))

    def _output(self, n: int, shape: tuple[int, ...]) -> Resident:
        dtype = self._dtype(n)
        if self._is_resident:
            return self._device.empty(shape, dtype)
        return Resident(self._rooms.of("buffer", n, prod(shape) * dtype.itemsize), shape, dtype, None)

    # -- errors of kernels

    def _statuses(self) -> int:
        """The address of the words in which kernels say that they could not do their work; they are zero before."""
        size = 4 * len(self._checked)
        is_new = not self._rooms.has("status", 0)
        address = self._rooms.of("status", 0, size)
        if is_new:
            self._device.clear(address, size)
        return address

    def _check(self) -> None:
        """Raise ``ExecutionError`` where a kernel that ran could not do its work."""
        if not self._checked:
            return
        statuses, address = np.empty(len(self._checked), np.int32), self._statuses()
        self._device.download(address, statuses)
        failed = np.flatnonzero(statuses)
        if len(failed):
            self._device.clear(address, statuses.nbytes)
            at = self._checked[failed[0]]
            step = self._layout.launches[at]
            assert isinstance(step, Launch)
            raise failure(step, at, int(statuses[failed[0]]))

    # -- steps

    def _prepared(self, at: int, step: Launch | LibraryStep, kernels: Sequence[Any]) -> Any:
        first, end = self._layout.instructions[at][2], self._end_of(at)
        if isinstance(step, LibraryStep):
            return self._device.library(function_of(step), self._args[first:end])
        end += 1 if step.messages else 0
        args, grid = self._args[first:end], self._args[end : end + 3]
        return self._device.kernel(kernels[step.kernel], step.block, args, grid)

    def _end_of(self, at: int) -> int:
        """The number of the word after the arguments of a step."""
        return self._layout.instructions[at][2] + len(self._layout.launches[at].args)

    def _stretch(self, stage: Native) -> None:
        if self._timing is not None:
            for at in range(stage.begin, stage.end):
                with self._timing.of(at):
                    self._runs[at]()
            return
        stretch = self._stretches.get(stage.begin)
        if stretch is None:
            rows = self._layout.instructions
            end = rows[stage.end][2] if stage.end < len(rows) else len(self._args)
            stretch = Stretch(self._device, self._runs[stage.begin : stage.end], self._args[rows[stage.begin][2] : end])
            self._stretches[stage.begin] = stretch
        stretch.run(self._version)

    def _to_fill(self, n: int) -> Array:
        return np.empty(self._binder.shape(n, self.symbols), self._dtype(n))

    def _filled(self, n: int, array: Array) -> None:
        if self._code.buffers[n].place == "host":
            self._keep(n, array)
        else:
            self._write(n, array)

    def _forget(self, n: int) -> None:
        self._residents.pop(n, None)

    # -- memory

    def _keep(self, n: int, array: Array) -> None:
        self._arrays[n] = array
        if n in self._needed:
            self._put(n, array)
            self._fill()

    def on_device(self, n: int) -> Resident:
        """Where a buffer is on the device, if it is there."""
        root, address = self._layout.roots[n], evaluate(self._layout.shifts[n], self.symbols)
        kind = self._code.buffers[root].place
        if kind == "constant":
            address += self._constants[root]
        elif kind == "arena":
            level = self._layout.ages[root]
            bound = self._bound[level]
            assert bound is not None
            address += int(self._bases[1 + level]) + bound.places[root]
        else:
            address += int(self._bases[self._binder.slots[root]])
        shape = self.shape(n)
        return Resident(address, shape, self._dtype(n), None)

    def shape(self, n: int) -> tuple[int, ...]:
        """The shape that a buffer has in this call."""
        if self._code.buffers[n].shape is None:
            shape: tuple[int, ...] = self._residents.get(n, self._arrays.get(n)).shape  # type: ignore[union-attr]
            return shape
        return self._binder.shape(n, self.symbols)

    def given(self, n: int, used: Iterable[Any]) -> Resident | None:
        """The array that a buffer is in, where it was made for the caller and is not among those taken."""
        resident = self._residents.get(n) if self._code.buffers[n].place == "output" else None
        is_free = resident is not None and resident.owner is not None and not any(resident.owner is t for t in used)
        return resident if is_free else None

    def deliver(self, n: int, target: Array | Resident) -> None:
        """Copy a buffer to a caller's array, unless that is where it is."""
        if target is self._residents.get(n):
            return
        on_host = self.on_host(n)
        if isinstance(target, Resident):
            if on_host is not None:
                self._device.upload(np.ascontiguousarray(on_host), target.address)
            elif (source := self.on_device(n)).address != target.address:
                self._device.copy(source.address, target.address, source.nbytes)
        elif on_host is not None or not is_row_major(target):
            target[...] = self.read(n)
        else:
            self._device.download(self.on_device(n).address, target)

    def read(self, n: int) -> Any:
        """A buffer's array on the host, a copy of what the device has."""
        held = self.on_host(n)
        if held is not None or self._code.buffers[n].dtype in OBJECTS:
            return held
        self._check()
        resident = self.on_device(n)
        array = np.empty(resident.shape, resident.dtype)
        self._device.download(resident.address, array)
        return array

    def _write(self, n: int, array: Array | np.int64) -> None:
        self._device.upload(np.ascontiguousarray(array), self.on_device(n).address)
