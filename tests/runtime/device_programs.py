"""Small kernels for GPUs, and programs made of them, for the tests of programs that run on devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from graphopt.kernels.cuda.simulated_device import SimulatedDevice, packed
from graphopt.kernels.kernel import Kernel
from graphopt.runtime.device_program import DeviceProgram
from graphopt.runtime.library_calls import Function
from graphopt.runtime.steps import Attribute, BufferRef, Code, Launch, Port, ProgramBuffer, Step

IMPORTS = """from graphopt.kernels.cuda.functions import barrier, block_x, shared, thread_x
from graphopt.kernels.cuda.target import float32, int32, uint8
"""

SCALE = Kernel(
    f'''"""b = a * s + t"""
{IMPORTS}
def kernel(a, b, s, t, n):
    i = block_x() * 4 + thread_x()
    if i < n:
        b[i] = a[i] * float32(s) + float32(t)
''',
    ("float32", "float32", "size", "size", "size"),
)
REVERSE = Kernel(
    f'''"""each block's four elements in reverse"""
{IMPORTS}
def kernel(a, b):
    i, t = block_x() * 4, thread_x()
    s = shared(4, float32)
    s[t] = a[i + t]
    barrier()
    b[i + t] = s[3 - t]
''',
    ("float32", "float32"),
)
LESS = Kernel(
    f'''"""c = (the first of a < limit)"""
{IMPORTS}
def kernel(a, c, limit):
    c[0] = uint8(1) if a[0] < float32(limit) else uint8(0)
''',
    ("float32", "bool", "size"),
)
COUNT = Kernel(
    f'''"""c = how many of a are positive"""
{IMPORTS}
def kernel(a, c, n):
    total = 0
    for i in range(n):
        if a[i] > float32(0):
            total += 1
    c[0] = total
''',
    ("float32", "int64", "size"),
)
FAIL = Kernel(
    f'''"""says 2 where an element is negative"""
{IMPORTS}
def kernel(a, status):
    if a[thread_x()] < float32(0):
        status[0] = int32(2)
''',
    ("float32", "int32"),
)
STEP = Kernel(
    f'''"""a += the number of the iteration"""
{IMPORTS}
def kernel(a, i):
    a[thread_x()] += float32(i[0])
''',
    ("float32", "int64"),
)
KERNELS = (SCALE, REVERSE, LESS, COUNT, FAIL, STEP)


def launch(kernel: Kernel, args: tuple[Any, ...], grid: Any = 1, threads: int = 1, **more: Any) -> Launch:
    """A launch of one of the kernels."""
    return Launch(KERNELS.index(kernel), args, (grid, 1, 1), (threads, 1, 1), **more)


def scale(a: int, b: int, s: int, t: int, n: Any = "n") -> Launch:
    """``b = a * s + t`` for ``n`` elements, four in a block."""
    grid = ("//", ("+", n, 3), 4)
    labels = {"label": f"scale by {s}", "nodes": (f"Mul_{s}",), "flops": ("*", 2, n), "bytes": ("*", 8, n)}
    return launch(SCALE, (BufferRef(a), BufferRef(b), s, t, n), grid, 4, **labels)


def floats(place: str, *shape: Any) -> ProgramBuffer:
    """A float32 buffer."""
    return ProgramBuffer("float32", shape, place)  # type: ignore[arg-type]


def program(
    buffers: list[ProgramBuffer],
    steps: list[Step],
    inputs: Mapping[str, int],
    outputs: Mapping[str, int],
    constants: Mapping[int, Any] | None = None,
    functions: Mapping[str, Any] | None = None,
    device: Any = None,
    code_of: Callable[[Kernel], bytes] = packed,
    **more: Any,
) -> DeviceProgram:
    """A program on a device, which is simulated where none is given; ``code_of`` is what it loads."""
    ports = [tuple(Port(*p) for p in ports.items()) for ports in (inputs, outputs)]
    objects = tuple(map(code_of, KERNELS))
    code = Code(ports[0], ports[1], tuple(buffers), tuple(steps), objects, constants=constants or {}, **more)
    return DeviceProgram(code, device or SimulatedDevice(), functions)


def chain(device: Any = None, code_of: Callable[[Kernel], bytes] = packed) -> DeviceProgram:
    """``y = ((x * 2 + 1) * 3 + 0) * 1 + 5`` for ``x`` of any length."""
    buffers = [floats("input", "n"), floats("arena", "n"), floats("arena", "n"), floats("output", "n")]
    steps: list[Step] = [scale(0, 1, 2, 1), scale(1, 2, 3, 0), scale(2, 3, 1, 5)]
    return program(buffers, steps, {"x": 0}, {"y": 3}, device=device, code_of=code_of)


def attributes_of(function: Function) -> tuple[tuple[str, Attribute], ...]:
    """The attributes of a step that calls a library's function: those that are not as they are by default."""
    pairs = ((f.name, getattr(function, f.name), f.default) for f in fields(function))
    return tuple((name, value) for name, value, default in pairs if value != default)
