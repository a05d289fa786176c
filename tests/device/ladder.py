"""The steps of the ladder of products in docs/cuda.md, as nests and programs, and how they do on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from graphopt.kernels.kernel import Kernel
from graphopt.lowering.cuda.card import CARD
from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.loops.nest import Buffer as NestBuffer
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.sizes import size_of
from graphopt.runtime.device_program import DeviceProgram
from graphopt.runtime.steps import BufferRef, Code, Launch, Port, ProgramBuffer, Step
from tests.device.machine import Machine, Simulated, run
from tests.device.products import direct
from tests.device.table import Line, time_of
from tests.pages import DOCS, follow, in_process

SIZE = 4096
"""Rows and columns of the matrices."""


def steps(size: int) -> dict[str, Nest]:
    """The product of matrices of ``size`` by ``size``, a multiple of 128, scheduled as each step says, and by rule.

    Parameters are ``A``, ``B`` and ``C``; the operands are of float16 where tensor cores are in the name, else float32.
    """
    known = page()
    made = {name: known["climbed"](step, size) for name, (step, _) in known["LADDER"].items()}
    made["by rule"] = scheduled(known["product"](size), CARD)
    made["tensor cores, by rule"] = scheduled(known["product"](size, "float16"), CARD)
    return made


def small_step() -> dict[str, Nest]:
    """One of them for matrices of 32 by 32, in small blocks."""
    name = "tiles in registers"
    return {name: page()["small"][name]}


@cache
def page() -> dict[str, Any]:
    """What the page defines."""
    known: dict[str, Any] = {"__name__": "cuda"}
    follow(DOCS / "cuda.md", in_process, known)
    return known


def ladder(machine: Machine) -> Iterator[Line]:
    """A line for each step: time, rate and the largest error beside cuBLAS, of one product of the step's operands. The
    error is that of the product of float32, from which operands of float16 are rounded."""
    is_tried = isinstance(machine, Simulated)
    n = 32 if is_tried else SIZE
    a, b = (machine.random((n, n), "float32") for _ in range(2))
    wanted, multiply = direct(machine, a, b, 1, "float32", False)
    multiply()
    for name, nest in (small_step() if is_tried else steps(n)).items():
        dtype = nest.params[0].dtype
        x, z, y = a.astype(dtype), b.astype(dtype), machine.array(np.zeros((n, n), "f"))
        ours = run(program(machine, nest), {"A": x, "B": z}, {"C": y})
        _, theirs = direct(machine, x, z, 1, dtype, False)
        times = machine.seconds(ours, theirs)
        rates = [2 * n**3 / seconds for seconds in times]
        error = float(abs(y - wanted).max() / abs(wanted).max())
        said = f"{time_of(times[0])}, {rates[0] / 1e12:.2f} TFLOP/s"
        if dtype == "float32":
            said += f", {rates[0] / machine.peak:.0%} of peak"
        there = f"{rates[1] / 1e12:.2f} TFLOP/s"
        yield Line("ladder", f"{name}, {n}", f"{said}, error {error:.0e}", "cuBLAS", there, times[1] / times[0])


def program(machine: Machine, nest: Nest) -> DeviceProgram:
    """A program of a scheduled nest, whose sizes are known: its parameters are inputs, the last one is the output."""
    numbers: dict[NestBuffer, int] = {p: k for k, p in enumerate(nest.params)}
    places = ["input"] * (len(numbers) - 1) + ["output"]
    kernels: list[Kernel] = []
    made: list[Step] = []
    for _, found in emit(nest):
        for buffer in found.buffers:
            if buffer not in numbers:
                numbers[buffer] = len(numbers)
                places.append("arena")
        args = (*(BufferRef(numbers[b]) for b in found.buffers), *(size_of(e, {}) for e in found.sizes))
        x, y, z = (size_of(e, {}) for e in found.grid)
        made.append(Launch(len(kernels), args, (x, y, z), found.block))
        kernels.append(found.kernel)
    buffers = tuple(
        ProgramBuffer(b.dtype, tuple(size_of(e, {}) for e in b.shape), place)  # type: ignore[arg-type]
        for b, place in zip(numbers, places, strict=True)
    )
    ports = [Port(p.name, k) for p, k in numbers.items() if places[k] != "arena"]
    code = Code(tuple(ports[:-1]), (ports[-1],), buffers, tuple(made), tuple(map(machine.code_of, kernels)))
    return DeviceProgram(code, machine.device)
