"""Times schedules by hand beside TVM's: the same steps on the same programs, one thread, in turns.

    python tests/bench/ladder.py [NAME ...] [--tvm PYTHON] [--count N]

Names are beginnings of those of exercises (``ladder_steps.py``) or of their levels. ``--tvm`` is a Python that has TVM
(``pip install apache-tvm``); without one only our own times are told. A row has milliseconds of a run, the least of
series that take turns, their ratio (below 1: ours is faster) and the rate of ours. Series have as many runs in a row
as take some milliseconds, on arrays of one's own that begin at multiples of 64 bytes; what counts is the time of the
processor, so that it does not matter what else a machine does in between.
"""

from __future__ import annotations

import argparse
import math
import subprocess
from functools import partial
from pathlib import Path
from time import thread_time
from typing import Any

import ladder_steps
import numpy as np
from llvmlite.binding import get_host_cpu_name
from turns import Table, geometric_mean, least

import graphopt
from graphopt.errors import ScheduleError
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from graphopt.program.nest_function import NestFunction
from graphopt.runtime import cpu
from graphopt.runtime.timing import aligned

SECONDS, ROUNDS = 0.004, 20
"""How long a series takes, at least, and how many there are: short ones fit between what else a machine does."""
LONG = 0.5
"""Seconds of runs of which fewer series are enough."""
TABLE = Table("", 38, "TVM:10.3f ours:10.3f ratio:8.2f GFLOP/s:10.1f")
PROGRAMS = {
    "product": """
@program
def product(A: Buffer[({n}, {n}), "float32"], B: Buffer[({n}, {n}), "float32"], Y: Buffer[({n}, {n}), "float32"]):
    for i, j, k in grid({n}, {n}, {n}):
        with block("Y"):
            v0, v1, v2 = axis.remap("SSR", [i, j, k])
            with init():
                Y[v0, v1] = 0.0
            Y[v0, v1] = Y[v0, v1] + A[v0, v2] * B[v2, v1]
""",
    "batched": """
@program
def batched(A: Buffer[({m}, {n}, {n}), "float32"], B: Buffer[({m}, {n}, {n}), "float32"],
            C: Buffer[({m}, {n}, {n}), "float32"]):
    Y = alloc(({m}, {n}, {n}), "float32")
    for m, i, j, k in grid({m}, {n}, {n}, {n}):
        with block("Y"):
            v, v0, v1, v2 = axis.remap("SSSR", [m, i, j, k])
            with init():
                Y[v, v0, v1] = 0.0
            Y[v, v0, v1] = Y[v, v0, v1] + A[v, v0, v2] * B[v, v2, v1]
    for m, i, j in grid({m}, {n}, {n}):
        with block("C"):
            v, v0, v1 = axis.remap("SSS", [m, i, j])
            C[v, v0, v1] = max(Y[v, v0, v1], 0.0)
""",
    "convolution": """
@program
def convolution(A: Buffer[(1, {c}, {p}, {p}), "float32"], W: Buffer[({f}, {c}, 3, 3), "float32"],
                Y: Buffer[(1, {f}, {n}, {n}), "float32"]):
    for m, f, i, j, c, y, x in grid(1, {f}, {n}, {n}, {c}, 3, 3):
        with block("Y"):
            vm, vf, vi, vj, vc, vy, vx = axis.remap("SSSSRRR", [m, f, i, j, c, y, x])
            with init():
                Y[vm, vf, vi, vj] = 0.0
            Y[vm, vf, vi, vj] = Y[vm, vf, vi, vj] + A[vm, vc, vi + vy, vj + vx] * W[vf, vc, vy, vx]
""",
}
SIZES = {"product": "n", "batched": "mn", "convolution": "cfn"}


class OwnScheduling:
    """A schedule of ours."""

    def __init__(self, s: graphopt.Schedule) -> None:
        self.s = s

    def block(self, name: str) -> Any:
        """The block of that name."""
        return self.s.get_block(name)

    def written_apart(self, block: Any) -> Any:
        """The block that copies out what a block writes from then on."""
        return self.s.cache_write(block, "global")

    def in_panels(self, block: Any) -> Any:
        """The block that copies the second operand of a block into panels of columns before it."""
        copy, width = self.s.cache_read(block, "B", "global"), ladder_steps.PANEL
        self.s.transform_layout(copy, "B_global", lambda k, j: (j // width, k, j % width), pad=True)
        return copy


def scheduled(exercise: str, level: str) -> Nest:
    """The program of an exercise with the schedule of a level."""
    kind, sizes, levels = ladder_steps.EXERCISES[exercise]
    given = dict(zip(SIZES[kind], sizes, strict=True))
    s = graphopt.Schedule(read(PROGRAMS[kind].format(**given, p=given["n"] + 2)))
    levels[level](OwnScheduling(s))
    return s.nest


class Tvm:
    """A process that times TVM's programs as it is asked to."""

    def __init__(self, python: str) -> None:
        script = Path(__file__).with_name("ladder_tvm.py")
        command = [python, str(script), cpu.level() or get_host_cpu_name()]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self.ask("")

    def ask(self, line: str) -> str:
        """The answer to a line; the first one, to none."""
        inputs, outputs = self.process.stdin, self.process.stdout
        assert inputs is not None
        assert outputs is not None
        if line:
            inputs.write(line + "\n")
            inputs.flush()
        return outputs.readline().strip()

    def seconds(self, exercise: str, level: str, number: int) -> float:
        """Seconds of a run. Raises RuntimeError where TVM has none."""
        answer = self.ask(f"{exercise}/{level}/{number}")
        try:
            return float(answer)
        except ValueError:
            raise RuntimeError(answer) from None


class Ours:
    """A program of ours, compiled, with arrays of its own."""

    def __init__(self, nest: Nest) -> None:
        self.function = NestFunction(nest)
        sizes = ((b, [int(e.value) for e in b.shape if isinstance(e, Const)]) for b in nest.buffers)
        self.arrays = [aligned(shape, np.dtype(b.dtype)) for b, shape in sizes]
        for array in self.arrays:
            array[...] = np.random.default_rng(0).standard_normal(array.shape)
        self.flops = self.function.time(*self.arrays, number=1, repeat=1).flops

    def seconds(self, number: int) -> float:
        """Seconds of a run, of so many without Python between them."""
        program = self.function._for(number, ())
        start = thread_time()
        program(*self.arrays)
        return (thread_time() - start) / number


def row(exercise: str, level: str, tvm: Tvm | None, count: int) -> tuple[str, float]:
    """A line of the table, and the ratio."""
    ours = Ours(scheduled(exercise, level))
    ours.seconds(1)
    once = ours.seconds(1)
    number = max(1, math.ceil(SECONDS / once))
    timers = [partial(ours.seconds, number)]
    if tvm is not None:
        timers.append(partial(tvm.seconds, exercise, level, number))
    seconds, *others = least(*timers, rounds=count if once < LONG else -(-count // 5))
    theirs = others[0] if others else math.nan
    line = TABLE.line(f"{exercise}: {level}", theirs * 1e3, seconds * 1e3, seconds / theirs, ours.flops / seconds / 1e9)
    return line, seconds / theirs


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginnings of exercises or levels")
    parser.add_argument("--tvm", metavar="PYTHON", help="a Python that has TVM")
    parser.add_argument("--count", type=int, default=ROUNDS, help="how often each has its turn")
    given = parser.parse_args()
    tvm = Tvm(given.tvm) if given.tvm else None
    if tvm is not None:
        print(f"TVM {tvm.version}")
    print(TABLE.heading)
    ratios = []
    for exercise, (_, _, levels) in ladder_steps.EXERCISES.items():
        for level in levels:
            if given.names and not f"{exercise}: {level}".startswith(tuple(given.names)):
                continue
            try:
                line, ratio = row(exercise, level, tvm, given.count)
                ratios.append(ratio)
            except (ScheduleError, RuntimeError) as failed:
                line = f"{exercise}: {level:24} failed: {type(failed).__name__}: {str(failed)[:200]}"
            print(line, flush=True)
    print(geometric_mean(ratios))


if __name__ == "__main__":
    main()
