"""Device programs: called as those of the host are, with arrays of the host or with those that are on the device.

One call runs at a time; what follows from the sizes of the inputs is worked out once for each binding of the symbols.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from graphopt.errors import InputError
from graphopt.runtime.arena import up
from graphopt.runtime.binding import Binder, Binding
from graphopt.runtime.device import ALIGNMENT, APART, Allocation, Device, Resident
from graphopt.runtime.device_state import DeviceState
from graphopt.runtime.device_timing import DeviceTiming
from graphopt.runtime.host import HostFunction
from graphopt.runtime.interface import Interface, check_apart, check_out
from graphopt.runtime.layout import lay_out
from graphopt.runtime.profile import Profile, ProfileRow
from graphopt.runtime.steps import Array, Code
from graphopt.runtime.timing import Timing, timed


class DeviceProgram(Interface):
    """A model compiled for a device. Call it with arrays by name or in order; results come by name.

    ``functions`` and ``dtypes`` are as for a ``Program``. Constants go to the device once, when the program is made:
    that raises ``DeviceError`` where a kernel cannot be had there, ``DeviceMemoryError`` where there is no room.
    """

    def __init__(
        self,
        code: Code,
        device: Device,
        functions: Mapping[str, HostFunction] | None = None,
        dtypes: Mapping[str, np.dtype[Any]] | None = None,
    ) -> None:
        super().__init__(code, functions, dtypes, lay_out(code, is_driven=False))
        self.device = device
        self._returned = {p.name: p.buffer for p in code.outputs}
        with device.call():
            kernels = device.load(code.objects)
            self._weights, constants = self._uploaded()
            self._binder = Binder(code, self._layout, constants, APART)
            self._state = DeviceState(
                code, self._layout, self._binder, device, kernels, constants, self._functions, self._dtypes
            )

    def _uploaded(self) -> tuple[Allocation, dict[int, int]]:
        """Memory with all constants that the device uses, and the address of each by buffer."""
        used = {w.root for w in self._layout.words} & self.code.constants.keys()
        offsets, total = {}, 0
        for n in sorted(n for n in used if n is not None and self.code.buffers[n].place == "constant"):
            offsets[n] = total
            total += up(self.code.constants[n].nbytes, APART)
        memory = self.device.allocate(total)
        for n, offset in offsets.items():
            self.device.upload(self.code.constants[n], memory.address + offset)
        return memory, {n: memory.address + offset for n, offset in offsets.items()}

    def __call__(self, *inputs: Any, out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The outputs by name: fresh arrays, or those of ``out`` where it has one.

        Inputs are arrays in order, or one mapping or sequence of them. Those in the device's memory (of cupy, torch:
        whatever has ``__cuda_array_interface__`` or DLPack) are used in place where they are row-major and begin at a
        multiple of 16 bytes, and are copied there where not; all others are sent there. The outputs stay there where
        any input is there, and are numpy's where none is. Arrays of ``out`` may be in either memory.

        Raises ``InputError`` for arrays that do not fit before it runs, ``ExecutionError`` where a step fails,
        ``DeviceMemoryError`` (a ``MemoryError``) saying how much was wanted. The program can be called again then.
        """
        with self.device.call():
            values, binding = self._accepted(inputs)
            return self._run(values, binding, self._targets(out or {}, binding))

    def profile(self, *inputs: Any) -> Profile:
        """What the steps of one call took by the device's clock, in the order in which they began. They are asked for
        one by one, so that each waits for the host if it is short: a call that is not profiled takes less."""
        rows: list[ProfileRow] = []
        with self.device.call():
            self._run(*self._accepted(inputs), {}, rows)
        return Profile(rows)

    def timed(self, inputs: Sequence[Any], number: int, repeat: int, *, runs: int = 1) -> Timing:
        """The timing of ``repeat`` series of ``number`` calls with these inputs, until the device has done them. They
        are sent there once, before."""
        with self.device.call():
            there = [self._placed(v) for v in self._accepted(tuple(inputs))[0]]
        call = partial(self._called, there)
        return timed(call, number, repeat, runs=runs, finish=self._finish)

    def _called(self, values: Sequence[Any]) -> None:
        with self.device.call():
            values, binding = self._accepted(tuple(values))
            self._run(values, binding, {})

    def _finish(self) -> None:
        with self.device.call():
            self.device.synchronize()

    def _placed(self, value: Any) -> Any:
        """An array of the host in the device's memory; what is there, or never can be, as it is."""
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            return value
        resident = self.device.empty(value.shape, value.dtype)
        self.device.upload(value, resident.address)
        return Resident(resident.address, value.shape, value.dtype, resident.owner)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the program into a folder, for ``graphopt.platforms.load``, where there is such a device."""
        from graphopt.runtime.saved import save

        save(self, folder)

    def close(self) -> None:
        """Give the device's memory back. The program cannot be called again."""
        if not self._closed:
            super().close()
            with self.device.call():
                self.device.synchronize()
                self._state.release()
                del self._weights

    # -- a call

    def _taken(self, values: Sequence[Any]) -> Sequence[Any]:
        return [v if type(v) is np.ndarray else self._adopted(v) for v in values]

    def _adopted(self, value: Any) -> Any:
        if isinstance(value, Resident):
            return value
        resident = self.device.adopt(value)
        return value if resident is None else resident

    def _run(
        self,
        values: Sequence[Any],
        binding: Binding,
        targets: Mapping[str, Array | Resident],
        rows: list[ProfileRow] | None = None,
    ) -> dict[str, Any]:
        self.device.follow()  # the caller's arrays have been taken, or copied, by now
        direct = self._direct(targets, values)
        is_resident = any(isinstance(v, Resident) for v in values)
        timing = None if rows is None else DeviceTiming(self.device)
        try:
            self._state.run(binding, values, direct, is_resident, timing)
            if timing is not None and rows is not None:
                rows += timing.rows(self._layout, self._state.symbols)
            return self._results(targets, is_resident)
        finally:
            self._state.end()

    def _direct(self, targets: Mapping[str, Array | Resident], values: Sequence[Any]) -> dict[int, Resident]:
        """The caller's arrays that outputs are computed in, by buffer; others are copied to in the end."""
        residents: dict[int, Resident] = {}
        if not targets:
            return residents
        given = [v for v in values if isinstance(v, Resident)]
        for port in self.code.outputs:
            target, n = targets.get(port.name), port.buffer
            if not isinstance(target, Resident) or target.address % ALIGNMENT or n in residents:
                continue
            is_own = self.code.buffers[n].place == "output" and self._layout.ages[n] == 0
            if is_own and not any(overlap(target, v) for v in given):
                residents[n] = target
        return residents

    # -- results

    def _targets(self, out: Mapping[str, Any], binding: Binding) -> dict[str, Array | Resident]:
        """The caller's arrays for outputs by name, as far as their shapes are known yet; raises ``InputError``."""
        if not isinstance(out, Mapping):
            raise InputError(f"out is a mapping of names to arrays, not {type(out).__name__}")
        arrays: dict[str, Array | Resident] = {}
        for name, array in out.items():
            n = self._returned.get(name)
            if n is None:
                names = ", ".join(map(repr, self._returned))
                raise InputError(f"there is no output {name!r} to write into: the outputs are {names}")
            buffer = self.code.buffers[n]
            if buffer.dtype == "object":
                raise InputError(f"output {name!r} is no array, and cannot be written into one")
            target = arrays[name] = self._target(name, array)
            if self._is_checked_before(n):
                check_out(name, target, self._binder.shape(n, binding.symbols), self._dtypes[buffer.dtype])
        if len(arrays) > 1:
            self._check_apart(arrays)
        return arrays

    def _is_checked_before(self, n: int) -> bool:
        """Whether the shape of an output is known before anything runs."""
        return self._layout.ages[n] == 0 and self.code.buffers[n].shape is not None

    @staticmethod
    def _check_apart(targets: Mapping[str, Array | Resident]) -> None:
        check_apart({name: a for name, a in targets.items() if isinstance(a, np.ndarray)})
        there = [(name, a) for name, a in targets.items() if isinstance(a, Resident)]
        for (one, a), (other, b) in combinations(there, 2):
            if overlap(a, b):
                raise InputError(f"the arrays for the outputs {one!r} and {other!r} share memory")

    def _target(self, name: str, array: Any) -> Array | Resident:
        if isinstance(array, np.ndarray):
            if not array.flags.writeable:
                raise InputError(f"the array for output {name!r} is read-only")
            return array
        resident = self.device.adopt(array)
        if resident is None or resident.is_copy:
            raise InputError(
                f"output {name!r} can be written into numpy arrays and into row-major arrays in the device's memory, "
                "and nothing else"
            )
        return Resident(resident.address, resident.shape, resident.dtype, array)

    def _results(self, targets: Mapping[str, Array | Resident], is_resident: bool) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for port in self.code.outputs:
            n, target = port.buffer, targets.get(port.name)
            dtype, shape = self._dtypes[self.code.buffers[n].dtype], self._state.shape
            if self.code.buffers[n].dtype == "object":
                results[port.name] = copy(self._state.on_host(n))
                continue
            if target is not None:
                if not self._is_checked_before(n):
                    check_out(port.name, target, shape(n), dtype)
            elif not is_resident or dtype.hasobject:
                target = np.empty(shape(n), dtype)
            else:
                target = self._state.given(n, results.values()) or self.device.empty(shape(n), dtype)
            self._state.deliver(n, target)
            results[port.name] = target.owner if isinstance(target, Resident) else target
        return results


def overlap(a: Resident, b: Resident) -> bool:
    """Whether two arrays in a device's memory share some of it."""
    return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes
