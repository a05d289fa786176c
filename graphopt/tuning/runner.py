"""Runner of a candidate, and beside it of the default schedule: what happens in the process that may die of it.

It needs numpy and the runtime alone, where it does not run on a device, so that it starts in no time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from math import ceil, prod
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from graphopt.frozen import dataclass
from graphopt.runtime.dtypes import STORAGE
from graphopt.runtime.program import Program
from graphopt.runtime.sizes import evaluate
from graphopt.runtime.state import allocate
from graphopt.runtime.steps import Array, Code
from graphopt.target import HOST, DeviceKind
from graphopt.tuning.processes import limit_memory, wait_for

if TYPE_CHECKING:
    from graphopt.runtime.device_program import DeviceProgram

NUMBER: Final = "number of runs"
"""The input of a program that says how often it does what it does."""
SECONDS: Final = 0.005
"""How long a series of runs takes, at least: hundreds of times what the clock and a call from Python take, and short
enough that some are left alone by whatever else runs on the machine."""
SERIES: Final = 20
"""So many series have a median that some disturbances do not move, and one at least that none did."""
SURE: Final = 4
"""Series that tell that something is hopeless."""
HOPELESS: Final = 2.0
"""What takes so many times as long as what it is compared with is not measured more often than needed to see that."""
FAR: Final = 50.0
"""What takes so many times as long is not waited for,"""
PATIENCE: Final = 0.5
"""unless that is less than so many seconds."""
_FILL: Final = 0x55
"""The byte that results are made of before a run: what is not written shows."""

Arrays: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True)
class RunnerJob:
    """What is to be run: ``code`` on the inputs of ``cases`` in a folder, its results to another; and how long that and
    ``beside`` take, if there is something to compare with."""

    code: Code
    inputs: str
    results: str
    cases: tuple[int, ...]
    beside: Code | None = None
    device: DeviceKind = HOST
    threads: int = 1
    processors: tuple[int, ...] = ()
    limit: float = 10.0


@dataclass(frozen=True)
class Ran:
    """Seconds of one run, in several series. ``is_steady``: the last run gave what the first one did."""

    seconds: tuple[float, ...] = ()
    beside: tuple[float, ...] = ()
    is_steady: bool = True


Running: TypeAlias = Callable[[int], float]
"""Runs so many times; the seconds that it took."""


def input_file(folder: str | Path, case: int, number: int) -> Path:
    """Where the input of that number lies."""
    return Path(folder) / f"{case}-in-{number}.npy"


def output_file(folder: str | Path, case: int, number: int) -> Path:
    """Where the result of that number lies."""
    return Path(folder) / f"{case}-out-{number}.npy"


def answer(job: RunnerJob) -> Ran:
    """What running gave; results are in their folder then."""
    start = perf_counter()
    limit_memory(job.device.is_host)
    if job.processors:
        os.sched_setaffinity(0, job.processors)
    other = _running(_program(job.beside, job), _inputs(job.code, job.inputs, job.cases[0])) if job.beside else None
    program = _program(job.code, job)
    if other is not None:
        run, _ = other
        wait_for(min(PATIENCE + FAR * len(job.cases) * run(1), job.limit))
    results = [_compared(program, job, case) for case in job.cases]
    if other is None:
        return Ran()
    wait_for(job.limit)
    running, out = _running(program, _inputs(job.code, job.inputs, job.cases[0]))
    seconds, beside = _times(running, run, start + job.limit / 2)
    is_steady = all(np.array_equal(_bytes(array), _bytes(results[0][name])) for name, array in out.items())
    return Ran(seconds, beside, is_steady)


def _compared(program: Program | DeviceProgram, job: RunnerJob, case: int) -> Arrays:
    """What one run gives, which is written, too."""
    results: Arrays = program(_told(_inputs(job.code, job.inputs, case), 1), out=_filled(job.code))
    for number, port in enumerate(job.code.outputs):
        np.save(output_file(job.results, case, number), results[port.name])
    return results


def _times(candidate: Running, other: Running, end: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What a run of each takes, series by series in turn; no more of them once it is late."""
    numbers = _number(candidate), _number(other)
    times: tuple[list[float], list[float]] = [], []
    for series in range(SERIES):
        for k in (0, 1) if series % 2 else (1, 0):
            run = (candidate, other)[k]
            run(1)  # the caches hold what the other left
            times[k].append(run(numbers[k]) / numbers[k])
        if perf_counter() > end or (series + 1 >= SURE and min(times[0]) > HOPELESS * min(times[1])):
            break
    return tuple(times[0]), tuple(times[1])


def _number(run: Running) -> int:
    """How many runs make a series."""
    run(1)
    number = 1
    while (spent := run(number)) < SECONDS / 2:
        number = ceil(number * min(SECONDS / max(spent, 1e-9), 100.0))
    return ceil(number * SECONDS / spent) if spent < SECONDS else number


def _program(code: Code, job: RunnerJob) -> Program | DeviceProgram:
    if job.device.is_host:
        return Program(code, threads=job.threads)
    from graphopt.runtime.device_program import DeviceProgram

    if not job.device.has_machine_code:
        from graphopt.kernels.cuda.simulated_device import SimulatedDevice

        return DeviceProgram(code, SimulatedDevice())
    from graphopt.kernels.cuda.cupy_device import CudaDevice

    return DeviceProgram(code, CudaDevice())


def _running(program: Program | DeviceProgram, arrays: Arrays) -> tuple[Running, Arrays]:
    """How to run a program, timed by a device's own clock where it runs on one; and where the host's leaves results."""
    if not isinstance(program, Program):

        def on_device(number: int) -> float:
            return sum(row.seconds for row in program.profile(_told(arrays, number)) if row.is_native)

        return on_device, {}
    out = _filled(program.code)

    def here(number: int) -> float:
        inputs = _told(arrays, number)
        start = perf_counter()
        program(inputs, out=out)
        return perf_counter() - start

    return here, out


def _told(arrays: Arrays, number: int) -> dict[str, Any]:
    return {**arrays, NUMBER: np.array(number, np.int64)}


def _inputs(code: Code, folder: str, case: int) -> Arrays:
    names: Sequence[str] = [port.name for port in code.inputs if port.name != NUMBER]
    arrays = {}
    for number, name in enumerate(names):
        array = np.load(input_file(folder, case, number))
        arrays[name] = _aligned(array.shape, array.dtype)
        arrays[name][...] = array
    return arrays


def _filled(code: Code) -> dict[str, Array]:
    """Arrays for the results, in which nothing is what it should be."""
    arrays = {}
    for port in code.outputs:
        buffer = code.buffers[port.buffer]
        dtype = STORAGE[buffer.dtype]
        arrays[port.name] = _aligned([evaluate(n, {}) for n in buffer.shape or ()], dtype)
        _bytes(arrays[port.name])[...] = 1 if dtype == np.bool_ else _FILL
    return arrays


def _aligned(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array that begins where those within a program do: what numpy hands out begins anywhere, so that vectors lie
    across the lines of caches, or do not, from one machine or script to the next."""
    return allocate(prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)
