"""Small kernels, and programs made of them, for the tests of the runtime."""

from __future__ import annotations

from functools import cache

from graphopt.kernels.compile import compile_kernels, native_driver
from graphopt.kernels.kernel import Kernel
from graphopt.runtime.program import BufferRef, Code, KernelStep, Port, ProgramBuffer, Step
from graphopt.runtime.steps import SHARED

SCALE = Kernel(
    '''"""b = a * s + t"""
def kernel(a, b, s, t, n, lo, hi):
    for i in range(lo * n, hi * n):
        b[i] = a[i] * s + t
    return 0
''',
    ("float32", "float32", "size", "size", "size"),
)
ADD = Kernel(
    '''"""c = a + b"""
def kernel(a, b, c, lo, hi):
    for i in range(lo, hi):
        c[i] = a[i] + b[i]
    return 0
''',
    ("float32", "float32", "float32"),
)
LESS = Kernel(
    '''"""c = (sum of a < limit)"""
def kernel(a, c, n, limit, lo, hi):
    total = a[0]
    for i in range(1, n):
        total += a[i]
    c[0] = total < limit
    return 0
''',
    ("float32", "bool", "size", "size"),
)
COUNT = Kernel(
    '''"""c = how many of a are positive"""
def kernel(a, c, n, lo, hi):
    total = 0
    for i in range(n):
        total += 1 if a[i] > 0 else 0
    c[0] = total
    return 0
''',
    ("float32", "int64", "size"),
)
FAIL = Kernel(
    '''"""fails where a[0] is negative"""
def kernel(a, lo, hi):
    return 2 if a[0] < 0 else 0
''',
    ("float32",),
)
EMPTY = Kernel(
    '''"""does nothing"""
def kernel(a, lo, hi):
    return 0
''',
    ("float32",),
)
KERNELS = (SCALE, ADD, LESS, COUNT, FAIL, EMPTY)
NUMBERS = {kernel: n for n, kernel in enumerate(KERNELS)}


@cache
def objects() -> tuple[bytes, ...]:
    """The object code of the driver, and of the kernels."""
    return tuple(compile_kernels([native_driver(), *KERNELS]))


def scale(a: int, b: int, s: int, t: int, n: object = "n", parallel: bool = False) -> KernelStep:
    """``b = a * s + t`` on buffers of ``n`` elements, each a work item."""
    return KernelStep(
        NUMBERS[SCALE],
        (BufferRef(a), BufferRef(b), s, t, 1),
        n,
        parallel,
        SHARED,
        f"scale by {s}",
        (f"Mul_{s}",),
        ("*", 2, n),
        8,
    )  # type: ignore[arg-type]


def code(
    buffers: list[ProgramBuffer],
    steps: list[Step],
    inputs: dict[str, int],
    outputs: dict[str, int],
    constants: dict[int, object] | None = None,
) -> Code:
    """A program of the kernels above."""
    driver, *kernels = objects()
    return Code(
        tuple(Port(*p) for p in inputs.items()),
        tuple(Port(*p) for p in outputs.items()),
        tuple(buffers),
        tuple(steps),
        tuple(kernels),
        driver,
        constants or {},  # type: ignore[arg-type]
    )


def floats(place: str, *shape: object) -> ProgramBuffer:
    """A float32 buffer."""
    return ProgramBuffer("float32", shape, place)  # type: ignore[arg-type]


def chain(parallel: bool = False) -> Code:
    """``y = ((x * 2 + 1) * 3 + 0) * 1 + 5`` for ``x`` of any length."""
    buffers = [floats("input", "n"), floats("arena", "n"), floats("arena", "n"), floats("output", "n")]
    steps: list[Step] = [scale(0, 1, 2, 1, parallel=parallel), scale(1, 2, 3, 0, parallel=parallel), scale(2, 3, 1, 5)]
    return code(buffers, steps, {"x": 0}, {"y": 3})
