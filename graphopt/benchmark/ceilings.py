"""Ceilings of this machine: multiply-adds and bytes in a second at most, measured by loops of our own.

They are the ceilings of a roofline (Williams, Waterman, Patterson, 2009): a kernel that does ``f`` operations on ``b``
bytes takes no less than ``max(f / flops, b / bytes)`` seconds. Bytes come faster from near caches than from memory, so
there are two numbers for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from graphopt.frozen import dataclass
from graphopt.kernels.host import lanes
from graphopt.kernels.product_form import BESIDE
from graphopt.lowering.loops.script import read
from graphopt.program.nest_function import time_nest

if TYPE_CHECKING:
    from graphopt.lowering.loops.nest import Nest
    from graphopt.runtime.profile import ProfileRow

NEAR: Final = 1 << 18
"""Bytes that a core has near it, on any machine."""
FAR: Final = 1 << 27
"""Bytes that no cache holds."""
CHAINS: Final = 12
"""Multiply-adds under way at once: enough to fill two units of a latency of six."""
STEPS: Final = 1 << 14
SERIES: Final = 5


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Operations and bytes in a second with some number of threads: of float32 multiplications and additions, of what
    is read and written in memory, and in caches near the cores."""

    flops: float
    bytes: float
    near_bytes: float
    threads: int

    def bandwidth(self, moved: int) -> float:
        """How many bytes a second may bring that a kernel reads and writes ``moved`` of."""
        return self.near_bytes if moved <= NEAR * self.threads else self.bytes

    def least(self, rows: Iterable[ProfileRow]) -> float:
        """Seconds that the machine needs at the least for what some rows of a profile did."""
        return sum(max(r.flops / self.flops, r.bytes / self.bandwidth(r.bytes // r.runs)) for r in rows)

    def share(self, rows: Iterable[ProfileRow], seconds: float) -> float:
        """The part of some seconds that the machine needs at the least for what the rows did: 1 at the most, also where
        what was measured of the machine falls short of what it did just then."""
        return min(self.least(rows) / seconds, 1.0)


def measure(threads: int = 1) -> Ceilings:
    """The ceilings of this machine for a number of threads, by the best of short series: within a second."""
    tasks = 4 * threads
    near, far = NEAR // 8, FAR // 8 // tasks  # elements of float32, read and written
    return Ceilings(
        peak(threads),
        FAR / time_nest(_copies(tasks, far), 1, SERIES, threads=threads).best,
        NEAR * threads / time_nest(_copies(threads, near), 100, SERIES, threads=threads).best,
        threads,
    )


def peak(threads: int = 1) -> float:
    """Multiplications and additions of float32 in a second, by the best of short series: within milliseconds."""
    tasks = 4 * threads
    sums = 2 * tasks * STEPS * CHAINS * lanes("float32")
    return sums / time_nest(_multiply_adds(tasks), 1, SERIES, threads=threads).best


def read_bandwidth(threads: int = 1) -> float:
    """Bytes of memory that are read in a second, and not written, by the best of short series: what programs that go
    through weights once are bounded by."""
    tasks = 4 * threads
    rows = FAR // 4 // tasks // (CHAINS * lanes("float32"))
    read_bytes = 4 * tasks * rows * CHAINS * lanes("float32")
    return read_bytes / time_nest(_sums(tasks, rows), 1, SERIES, threads=threads).best


def _sums(tasks: int, rows: int) -> Nest:
    """Sums of the columns of arrays, by parts: several series of addresses, which processors read ahead more of than of
    one."""
    width = lanes("float32")
    row = f"{CHAINS // BESIDE}, {width}"
    return read(
        f"""
@program
def sums(x: Buffer[({tasks}, {BESIDE}, {rows}, {row}), "float32"], y: Buffer[({tasks}, {BESIDE}, {row}), "float32"]):
    t = alloc(({BESIDE}, {row}), "float32", scope="local")
    for i in parallel({tasks}):
        for s in unrolled({BESIDE}):
            for q in unrolled({CHAINS // BESIDE}):
                for c in vectorized({width}):
                    t[s, q, c] = 0.0
        for r in serial({rows}):
            for s in unrolled({BESIDE}):
                for q in unrolled({CHAINS // BESIDE}):
                    for c in vectorized({width}):
                        t[s, q, c] = t[s, q, c] + x[i, s, r, q, c]
        for s in unrolled({BESIDE}):
            for q in unrolled({CHAINS // BESIDE}):
                for c in vectorized({width}):
                    y[i, s, q, c] = t[s, q, c]
"""
    )


def _multiply_adds(tasks: int) -> Nest:
    """Sums in registers that depend on nothing but themselves."""
    width = lanes("float32")
    return read(
        f"""
@program
def multiply_adds(x: Buffer[({width},), "float32"], y: Buffer[({tasks}, {width}), "float32"]):
    t = alloc(({CHAINS}, {width}), "float32", scope="local")
    for i in parallel({tasks}):
        for q in unrolled({CHAINS}):
            for c in vectorized({width}):
                t[q, c] = x[c]
        for k in serial({STEPS}):
            for q in unrolled({CHAINS}):
                for c in vectorized({width}):
                    t[q, c] = t[q, c] * 0.5 + t[q, c]
        for c in vectorized({width}):
            y[i, c] = 0.0
        for q in unrolled({CHAINS}):
            for c in vectorized({width}):
                y[i, c] = y[i, c] + t[q, c]
"""
    )


def _copies(tasks: int, elements: int) -> Nest:
    """An array copied, by parts."""
    shape = f'Buffer[({tasks}, {elements}), "float32"]'
    return read(
        f"""
@program
def copies(x: {shape}, y: {shape}):
    for i in parallel({tasks}):
        for c in vectorized({elements}):
            y[i, c] = x[i, c]
"""
    )
