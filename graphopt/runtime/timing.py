"""Timings: how long runs take, on arrays that are given or drawn, and the value that says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from graphopt.display import Displayed
from graphopt.errors import UsageError
from graphopt.frozen import dataclass
from graphopt.runtime.arena import ALIGNMENT
from graphopt.runtime.dtypes import OBJECTS
from graphopt.runtime.sizes import evaluate
from graphopt.runtime.steps import Array, Code, HostStep, KernelStep, Launch, LibraryStep


@dataclass(frozen=True, slots=True, repr=False)
class Timing(Displayed):
    """Timing of a program: the seconds of one run, averaged over each of several series.

    ``flops`` are a run's floating-point operations, as far as they can be counted; 0 where they cannot.
    """

    seconds: tuple[float, ...]
    flops: int = 0

    @property
    def best(self) -> float:
        """The minimum of the series' averages."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The median of the series' averages."""
        return median(self.seconds)

    def __repr__(self) -> str:
        return f"<Timing {self}>"

    def __str__(self) -> str:
        rate = f", {self.flops / self.best / 1e9:.1f} GFLOP/s" if self.flops and self.best else ""
        return f"{self.median * 1e6:.2f} us (best {self.best * 1e6:.2f} us{rate})"


def timed(
    call: Callable[[], object],
    number: int,
    repeat: int,
    *,
    flops: int = 0,
    runs: int = 1,
    finish: Callable[[], object] = lambda: None,
) -> Timing:
    """The timing of ``repeat`` series of ``number`` calls, each of ``runs`` runs, after a call to warm up. A series
    ends with ``finish``, which waits for what calls only ask for."""
    check_counts(number, repeat)
    call()
    finish()
    seconds = []
    for _ in range(repeat):
        start = perf_counter()
        for _ in range(number):
            call()
        finish()
        seconds.append((perf_counter() - start) / (number * runs))
    return Timing(tuple(seconds), flops)


def check_counts(number: int, repeat: int) -> None:
    """Raise UsageError where so many runs in so many series are no measurement."""
    if not (isinstance(number, int) and isinstance(repeat, int) and number >= 1 and repeat >= 1):
        raise UsageError(f"{number} runs in {repeat} series are no measurement: both are to be 1 or more")


def drawn(name: str, code: Code, dtypes: Mapping[str, np.dtype[Any]], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Arrays for the inputs of a program, by name, where its open sizes are these.

    Floats are random normal numbers, the same in each call, and all else is 0; inputs with a default keep it. Raises
    UsageError for inputs that are no arrays.
    """
    random = np.random.default_rng(0)
    arrays: dict[str, Array] = {}
    for port in code.inputs:
        buffer = code.buffers[port.buffer]
        if port.buffer in code.constants:
            continue
        if buffer.shape is None or buffer.dtype in OBJECTS:
            raise UsageError(f"{name}: nothing tells what array the input {port.name!r} is: time it on given ones")
        shape, dtype = [evaluate(n, sizes) for n in buffer.shape], dtypes[buffer.dtype]
        is_float = "float" in buffer.dtype and dtype.name == buffer.dtype  # else floats lie in integers here
        array = arrays[port.name] = aligned(shape, dtype)
        array[...] = random.standard_normal(shape) if is_float else 0
    return arrays


def aligned(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array that begins where a program's own buffers do, so that vectors lie within cache lines."""
    size = prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    array: Array = memory[start : start + size].view(dtype).reshape(shape)
    return array


def check_sizes(name: str, symbols: Sequence[str], sizes: Mapping[str, object], needed: Sequence[str]) -> None:
    """Raise UsageError where sizes given by name are none of the ``symbols`` of a program, or no sizes, or where one
    that is ``needed`` is missing."""
    for symbol in needed:
        if symbol not in sizes:
            raise UsageError(f"{name} has the size {symbol}: say what it is, as in {symbol}=64")
    if unknown := [size for size in sizes if size not in symbols]:
        raise UsageError(f"{name} has no size {', '.join(unknown)}: its sizes are {', '.join(symbols) or 'none'}")
    for symbol, size in sizes.items():
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 0:
            raise UsageError(f"{symbol} is a size of {name}, a number from 0 on, and not {size!r}")


def flops_of(code: Code, symbols: Mapping[str, int]) -> int:
    """The floating-point operations of a run; 0 where branches, loops, Python or sizes found out say how many."""
    total = 0
    for step in code.steps:
        if not isinstance(step, KernelStep | LibraryStep | Launch):
            if isinstance(step, HostStep) and step.fills:
                continue  # what a user's function does is not counted
            return 0
        try:
            total += evaluate(step.flops, symbols)
        except KeyError:
            return 0
    return total
