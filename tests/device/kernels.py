"""Kernels that move memory, beside a copy of as many bytes, and what starting a kernel takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import graphopt
from graphopt.runtime.device_program import DeviceProgram
from graphopt.runtime.steps import Code, Port, ProgramBuffer
from tests.device.machine import Call, Machine, Simulated, run
from tests.device.table import Line, time_of
from tests.runtime.device_programs import KERNELS, scale

GOAL = 0.85
LAUNCHES = 200

Ops = list[tuple[str, list[str]]]
CASES: dict[str, tuple[Ops, dict[str, list[int]], float]] = {
    # rows and columns are (r, c); how many times the array's bytes are moved
    "elementwise, one input": ([("Exp", ["x"])], {}, 2),
    "elementwise, two inputs": ([("Add", ["x", "z"]), ("Relu", ["v0"])], {"z": []}, 3),
    "norm of rows": ([("LayerNormalization", ["x", "s"])], {"s": [-1]}, 2),
    "softmax of rows": ([("Softmax", ["x"])], {}, 2),
    "transpose": ([("Transpose", ["x"])], {}, 2),
}


def copies(machine: Machine, size: int) -> float:
    """Bytes in a second that a copy on the device moves, read and written ones together."""
    device = machine.device
    with device.call():
        source, target = device.allocate(size), device.allocate(size)

    def copy() -> None:
        with device.call():
            device.copy(source.address, target.address, size)

    return 2 * size / machine.seconds(copy)[0]


def kernels(machine: Machine, rows: int, columns: int) -> Iterator[Line]:
    """Each kind of kernel that memory bounds; two sets of arrays take turns, so that no cache has them."""
    size = 4 * rows * columns
    limit = copies(machine, size)
    yield Line("copy", f"{size >> 20} MB", f"{limit / 1e9:.0f} GB/s", "", "")
    for name, (ops, more, moved) in CASES.items():
        program = _compiled(machine, ops, {"x": [rows, columns], **_shapes(more, rows, columns)})
        turned = (columns, rows) if name == "transpose" else (rows, columns)
        calls = []
        for _ in range(2):
            inputs = {k: machine.random(tuple(s), "float32") for k, s in _inputs(more, rows, columns).items()}
            calls.append(run(program, inputs, {"y": machine.array(np.zeros(turned, "f"))}))
        rate = moved * size / (machine.seconds(_both(*calls))[0] / 2)
        yield Line(name, f"{rows} x {columns} f32", f"{rate / 1e9:.0f} GB/s", "copy", "", rate / limit, GOAL)


def _both(one: Call, other: Call) -> Call:
    def call() -> None:
        one()
        other()

    return call


def _shapes(more: dict[str, list[int]], rows: int, columns: int) -> dict[str, list[int]]:
    return {k: [columns] if s else [rows, columns] for k, s in more.items()}


def _inputs(more: dict[str, list[int]], rows: int, columns: int) -> dict[str, list[int]]:
    return {"x": [rows, columns], **_shapes(more, rows, columns)}


def _compiled(machine: Machine, ops: Ops, shapes: dict[str, list[int]]) -> Any:
    values = [*(f"v{n}" for n in range(len(ops) - 1)), "y"]
    nodes = [helper.make_node(op, inputs, [value]) for (op, inputs), value in zip(ops, values, strict=True)]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "kernel", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return graphopt.compile(model, target=machine.target).compiled.program


def launches(machine: Machine) -> Iterator[Line]:
    """Small kernels in a row, replayed as one graph, and asked for one by one."""
    count = 3 if isinstance(machine, Simulated) else LAUNCHES
    places = ["input", *["arena"] * (count - 1), "output"]
    buffers = tuple(ProgramBuffer("float32", (64,), place) for place in places)  # type: ignore[arg-type]
    steps = tuple(scale(k, k + 1, 1, 1, 64) for k in range(count))
    code = Code((Port("x", 0),), (Port("y", count),), buffers, steps, tuple(map(machine.code_of, KERNELS)))
    x, y = machine.random((64,), "float32"), machine.array(np.zeros(64, "f"))
    replayed = run(DeviceProgram(code, machine.device), {"x": x}, {"y": y})
    plain = DeviceProgram(code, machine.device)
    capture, machine.device.capture = machine.device.capture, lambda run: None
    try:
        times = machine.seconds(run(plain, {"x": x}, {"y": y}))
    finally:
        machine.device.capture = capture
    times += machine.seconds(replayed)
    slow, fast = (seconds / count for seconds in times)
    yield Line("launch, in a graph", f"{count} kernels", time_of(fast), "one by one", time_of(slow), slow / fast)
