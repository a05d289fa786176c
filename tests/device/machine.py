"""What the bench measures on: a GPU, by its own clock, or the simulated one, to try the bench itself."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from graphopt.kernels.cuda.simulated_device import SimulatedDevice, packed
from graphopt.kernels.kernel import Kernel
from graphopt.platforms import gpu
from graphopt.runtime.device_program import DeviceProgram

Call = Callable[[], object]
ROUNDS = 9
"""How often each call has its turn; of these the median counts."""
BURST = 0.004
"""Seconds of a turn, about: of as many calls as fit."""


_LANES = {(7, 5): 64, (8, 0): 64}
"""Operations that a multiprocessor begins in a cycle, where these are not 128 (CUDA C++ Programming Guide)."""


class Machine(Protocol):
    """Where programs run, and how long they take there."""

    name: str
    target: str
    device: Any
    peak: float
    """Operations on float32 in a second at the highest clock, without tensor cores."""

    def code_of(self, kernel: Kernel) -> bytes:
        """What the device loads."""

    def random(self, shape: tuple[int, ...], dtype: str) -> Any:
        """An array there, of numbers around 0."""

    def array(self, values: Any) -> Any:
        """An array there."""

    def seconds(self, *calls: Call) -> list[float]:
        """The median seconds of each call by the device's clock, of bursts that take turns."""

    def walls(self, *calls: Call) -> list[float]:
        """The same by the host's clock: each call is waited for."""


class Gpu:
    """The first GPU."""

    target = "cuda"

    def __init__(self) -> None:
        from graphopt.kernels.cuda.compile import assemble, ptx
        from graphopt.kernels.cuda.driver import cupy

        self._cupy, self.device = cupy, gpu()
        self.name = self.device.name
        known, number = self._cupy.cuda.runtime, self.device.number
        units = known.deviceGetAttribute(known.cudaDevAttrMultiProcessorCount, number)
        clock = known.deviceGetAttribute(known.cudaDevAttrClockRate, number) * 1e3
        lanes = _LANES.get(self.device.capability, 128)
        self.peak = 2.0 * units * lanes * clock
        capability = self.device.capability
        self.code_of = lambda kernel: assemble([ptx(kernel, capability)], capability)[0].code

    def random(self, shape: tuple[int, ...], dtype: str) -> Any:
        values = np.random.default_rng(0).standard_normal(min(int(np.prod(shape)), 1 << 20), np.float32)
        return self._cupy.resize(self._cupy.asarray(values.astype(dtype)), shape)

    def array(self, values: Any) -> Any:
        return self._cupy.asarray(values)

    def seconds(self, *calls: Call) -> list[float]:
        return _medians([partial(self._burst, call, self._often(call)) for call in calls])

    def _often(self, call: Call) -> int:
        for _ in range(4):  # the second captures, the third replays what it has of memory and caches
            call()
        return max(1, min(1000, int(BURST / max(self._burst(call, 3), 1e-6))))

    def _burst(self, call: Call, often: int) -> float:
        begin, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        begin.record()
        for _ in range(often):
            call()
        end.record()
        end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(begin, end)) / 1e3 / often

    def walls(self, *calls: Call) -> list[float]:
        return _walls(self._cupy.cuda.runtime.deviceSynchronize, *calls)


class Simulated:
    """No GPU at all: what is measured means nothing."""

    name, target, peak = "simulated", "simulated", 1e12

    def __init__(self) -> None:
        self.device = SimulatedDevice()
        self.code_of = packed

    def random(self, shape: tuple[int, ...], dtype: str) -> Any:
        return np.random.default_rng(0).standard_normal(shape).astype(dtype)

    def array(self, values: Any) -> Any:
        return np.array(values)

    def seconds(self, *calls: Call) -> list[float]:
        return self.walls(*calls)

    def walls(self, *calls: Call) -> list[float]:
        return _walls(lambda: None, *calls, rounds=1)


def run(program: DeviceProgram, inputs: dict[str, Any], out: dict[str, Any]) -> Call:
    """A call of a program with arrays that stay where they are."""
    return lambda: program(inputs, out=out)


def _walls(wait: Call, *calls: Call, rounds: int = ROUNDS) -> list[float]:
    def timed(call: Call) -> float:
        begin = time.perf_counter()
        call()
        wait()
        return time.perf_counter() - begin

    for call in calls:
        for _ in range(4 if rounds > 1 else 1):
            call()
        wait()
    return _medians([partial(timed, call) for call in calls], 3 * rounds if rounds > 1 else 1)


def _medians(timers: list[Callable[[], float]], rounds: int = ROUNDS) -> list[float]:
    found: list[list[float]] = [[] for _ in timers]
    for _ in range(rounds):
        for times, timer in zip(found, timers, strict=True):
            times.append(timer())
    return [statistics.median(times) for times in found]
