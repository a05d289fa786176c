"""Timing of one nest, compiled as it stands, and run without Python between the runs.

It stands apart from the lowering steps: it compiles and runs what they give, and users import it from here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import ml_dtypes
import numpy as np

from graphopt.errors import UsageError
from graphopt.ir.constants import Array
from graphopt.kernels.compile import compile_kernels, native_driver
from graphopt.lowering.analysis.flops import flops
from graphopt.lowering.link.options import BY_RULE
from graphopt.lowering.link.passes import planner_of
from graphopt.lowering.loops.expressions import Var
from graphopt.lowering.loops.nest import Buffer as NestBuffer
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.sizes import size_of
from graphopt.lowering.lower.embedded_programs import inputs_of
from graphopt.runtime.arena import ALIGNMENT
from graphopt.runtime.program import Program
from graphopt.runtime.sizes import Size, evaluate
from graphopt.runtime.steps import Code, Port, ProgramBuffer


@dataclass(frozen=True, slots=True)
class NestTiming:
    """Seconds of one run, averaged over each of several series; ``flops`` are a run's floating-point operations, as far
    as they can be counted."""

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

    def __str__(self) -> str:
        rate = f", {self.flops / self.best / 1e9:.1f} GFLOP/s" if self.flops else ""
        return f"{self.median * 1e6:.2f} us (best {self.best * 1e6:.2f} us{rate})"


def time_nest(nest: Nest, number: int = 10, repeat: int = 3, *, threads: int = 1, **sizes: int) -> NestTiming:
    """Times a nest: ``repeat`` series of ``number`` runs, after a warm-up run.

    It is compiled as it is scheduled. ``sizes`` are what its sizes are, by name. Floats that it reads are random
    numbers, integers 0. Raises UsageError where a size is missing or is no size, and CompilationError where it does
    not compile.
    """
    if number < 1 or repeat < 1:
        raise UsageError(f"{number} runs in {repeat} series are no measurement: both are to be 1 or more")
    given, values = sizes, dict[Var, Size]()
    for var in nest.sizes:
        if var.name not in given:
            raise UsageError(
                f"{nest.name} has the size {var.name}: say what it is, as in time_nest(nest, {var.name}=64)"
            )
        size = values[var] = given.pop(var.name)
        if not isinstance(size, int) or size < 0:
            raise UsageError(f"{var.name} is a size of {nest.name}, a number from 0 on, and not {size!r}")
    if given:
        there = ", ".join(var.name for var in nest.sizes) or "none"
        raise UsageError(f"{nest.name} has no size {', '.join(given)}: its sizes are {there}")
    with _program(nest, values, number, threads) as program:
        arrays = {p.name: _array(program, p) for p in program.code.inputs}
        out = {p.name: _array(program, p) for p in program.code.outputs}
        program(arrays, out=out)
        spent = []
        for _ in range(repeat):
            start = perf_counter()
            program(arrays, out=out)
            spent.append((perf_counter() - start) / number)
    return NestTiming(tuple(spent), evaluate(flops(nest, values), {}))


def _program(nest: Nest, sizes: Mapping[Var, Size], number: int, threads: int) -> Program:
    """The nest so many times in a row."""
    planner = planner_of(nest, BY_RULE, is_ready=True)
    ports: dict[bool, list[Port]] = {False: [], True: []}
    buffers: dict[NestBuffer, int] = {}
    read = set(inputs_of(nest))
    for buffer in nest.buffers:
        shape = tuple(size_of(e, sizes) for e in buffer.shape)
        buffers[buffer] = planner.add(ProgramBuffer(buffer.dtype, shape, "input" if buffer in read else "output"))
        ports[buffer in read].append(Port(buffer.name, buffers[buffer]))
    calls = tuple(planner.calls(nest, buffers, sizes, nest.name, (), is_ready=True))
    driver, *kernels = compile_kernels((native_driver(), *planner.kernels))
    steps = calls * number
    code = Code(tuple(ports[True]), tuple(ports[False]), tuple(planner.buffers), steps, tuple(kernels), driver)
    return Program(code, dtypes={"bfloat16": np.dtype(ml_dtypes.bfloat16)}, threads=threads)


def _array(program: Program, port: Port) -> Array:
    buffer = program.code.buffers[port.buffer]
    shape = [evaluate(n, {}) for n in buffer.shape or ()]
    dtype = np.dtype(getattr(ml_dtypes, buffer.dtype, buffer.dtype))
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT  # where a program's own buffers begin: vectors lie within cache lines
    array = memory[start : start + size].view(dtype).reshape(shape)
    array[...] = np.random.default_rng(0).standard_normal(shape) if "float" in buffer.dtype else 0
    return array
