"""What a call of a program costs apart from its kernels: run as a script, prints microseconds."""

from __future__ import annotations

from timeit import repeat

import numpy as np

from graphopt.runtime.program import BufferRef, Code, KernelStep, Port, Program, ProgramBuffer
from tests.runtime.programs import EMPTY, NUMBERS, objects


def program(calls: int, inputs: int = 1, extent: int = 1, threads: int = 1) -> Program:
    """A program that calls a kernel that does nothing."""
    buffers = [*[ProgramBuffer("float32", ("n",), "input")] * inputs, ProgramBuffer("float32", ("n",), "output")]
    step = KernelStep(NUMBERS[EMPTY], (BufferRef(0),), extent, parallel=threads > 1)
    driver, *kernels = objects()
    ports = tuple(Port(f"x{k}", k) for k in range(inputs))
    code = Code(ports, (Port("y", inputs),), tuple(buffers), (step,) * calls, tuple(kernels), driver)
    return Program(code, threads=threads)


def microseconds(made: Program, inputs: int = 1) -> float:
    """The best of several measurements of one call."""
    values = {f"x{k}": np.zeros(16, np.float32) for k in range(inputs)}
    made(values)
    count = 2000
    best = min(repeat(lambda: made(values), number=count, repeat=7))
    made.close()
    return best / count * 1e6


if __name__ == "__main__":
    for title, shape in {
        "no kernel": (0,),
        "no kernel, 8 inputs": (0, 8),
        "100 kernels": (100,),
        "1000 kernels": (1000,),
        "100 kernels, each shared out to 2 threads": (100, 1, 2, 2),
    }.items():
        inputs = shape[1] if len(shape) > 1 else 1
        print(f"{microseconds(program(*shape), inputs):9.2f}  {title}")
