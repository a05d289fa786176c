"""Products on a GPU: as programs send them to the library, by our own kernels, and cuBLAS called directly."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import graphopt
from graphopt.runtime.device_program import DeviceProgram
from graphopt.runtime.library_calls import Gemm
from graphopt.runtime.steps import BufferRef, Code, LibraryStep, Port, ProgramBuffer
from tests.device.machine import Call, Machine, Simulated, run
from tests.device.table import Line
from tests.runtime.device_programs import attributes_of

KINDS = {"f32": ("float32", False), "TF32": ("float32", True), "f16": ("float16", False)}
_OWN_GOALS = {"f32": 0.60, "f16": 0.50}
_PEAK_GOAL = 0.41
LARGE = 2048
"""Sizes from which on our own products have a goal."""
_FLOPS = 4e12
"""Of one measured program, about: so that starting it does not count."""


def products(machine: Machine, sizes: tuple[int, ...]) -> Iterator[Line]:
    """Square products, several in a row, each of the one before; all in one graph on both sides."""
    for kind, (dtype, tf32) in KINDS.items():
        for n in sizes:
            count = 2 if isinstance(machine, Simulated) else max(2, min(512, int(_FLOPS / (2 * n**3))))
            few = min(count, 32)  # our own are compiled as a model, and need not be a match for the library where small
            # so large that numbers stay about as large from product to product
            a, b = machine.random((n, n), dtype), machine.array(_orthogonal(n, dtype))
            y = machine.array(np.zeros((n, n), dtype))
            _, theirs = direct(machine, a, b, count, dtype, tf32)
            sent = run(_chain(machine, n, count, dtype, tf32), {"a": a, "b": b}, {"y": y})
            calls = [theirs, sent]
            if not tf32:
                calls.append(run(_own(machine, n, few, dtype), {"a": a, "b": b}, {"y": y}))
            spent = machine.seconds(*calls)
            times = [seconds / number for seconds, number in zip(spent, (count, count, few), strict=False)]
            yield _line("dispatched product", kind, n, times[1], times[0], 0.98)
            if not tf32:
                goal = _OWN_GOALS[kind] if n >= LARGE else None
                yield _line("our own product", kind, n, times[2], times[0], goal)
                if kind == "f32":
                    rate, goal = 2 * n**3 / times[2], _PEAK_GOAL if n >= LARGE else None
                    said, most = f"{rate / 1e12:.2f} TFLOP/s", f"{machine.peak / 1e12:.2f} TFLOP/s"
                    yield Line("our own product", f"{kind} {n}", said, "peak", most, rate / machine.peak, goal)


def _line(what: str, kind: str, n: int, ours: float, theirs: float, goal: float | None) -> Line:
    rates = [2 * n**3 / seconds for seconds in (ours, theirs)]
    said = [f"{rate / 1e12:.2f} TFLOP/s" for rate in rates]
    return Line(what, f"{kind} {n}", said[0], "cuBLAS", said[1], theirs / ours, goal)


def _orthogonal(n: int, dtype: str) -> np.ndarray[Any, Any]:
    """A reflection, which leaves lengths as they are."""
    v = np.random.default_rng(1).standard_normal(n).astype("f")
    v /= np.linalg.norm(v)
    found: np.ndarray[Any, Any] = (np.eye(n, dtype="f") - 2 * np.outer(v, v)).astype(dtype)
    return found


def _chain(machine: Machine, n: int, count: int, dtype: str, tf32: bool) -> DeviceProgram:
    """``count`` products by the library, as steps of a program."""
    places = ["input", "input", *["arena"] * (count - 1), "output"]
    buffers = tuple(ProgramBuffer(dtype, (n, n), place) for place in places)  # type: ignore[arg-type]
    rest = (n, n, n, n, n, n, 1, 0, 0, 0)
    attributes = attributes_of(Gemm(dtype, tf32=tf32))
    steps = tuple(
        LibraryStep("gemm", (BufferRef(k + 1 if k else 0), BufferRef(1), BufferRef(k + 2), *rest), attributes)
        for k in range(count)
    )
    code = Code((Port("a", 0), Port("b", 1)), (Port("y", count + 1),), buffers, steps, ())
    return DeviceProgram(code, machine.device)


def _own(machine: Machine, n: int, count: int, dtype: str) -> Any:
    """``count`` products as a compiled model of our own kernels."""
    kind = TensorProto.FLOAT if dtype == "float32" else TensorProto.FLOAT16
    names = ["a", *(f"v{k}" for k in range(count - 1)), "y"]
    nodes = [helper.make_node("MatMul", [names[k], "b"], [names[k + 1]]) for k in range(count)]
    values = {name: helper.make_tensor_value_info(name, kind, [n, n]) for name in ("a", "b", "y")}
    graph = helper.make_graph(nodes, "products", [values["a"], values["b"]], [values["y"]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return graphopt.compile(model, target=machine.target, dispatch="own", optimize=False).compiled.program


def direct(machine: Machine, a: Any, b: Any, count: int, dtype: str, tf32: bool) -> tuple[Any, Call]:
    """cuBLAS without us: its calls captured in a graph, two results in turn; the last result, and what computes it."""
    if isinstance(machine, Simulated):
        return a @ b, partial(np.matmul, a, b)
    from graphopt.kernels.cuda.cublas import BY_RULE, FLOAT32, FLOAT32_BY_TF32, TYPES
    from graphopt.kernels.cuda.cublas_library import WORKSPACE, Cublas
    from graphopt.kernels.cuda.driver import cupy

    n, kind, compute = a.shape[0], TYPES[dtype], FLOAT32_BY_TF32 if tf32 else FLOAT32
    stream = cupy.cuda.Stream(non_blocking=True)
    blas = Cublas(stream.ptr, machine.device.allocate(WORKSPACE))
    one, zero = np.ones((), np.float32), np.zeros((), np.float32)
    results = [cupy.empty_like(a), cupy.empty_like(a)]

    def multiply() -> None:
        source = a
        for k in range(count):
            target = results[k % 2]
            blas.gemm(
                *(0, 0, n, n, n, one.ctypes.data, b.data.ptr, kind, n, source.data.ptr, kind, n),
                *(zero.ctypes.data, target.data.ptr, kind, n, compute, BY_RULE),
            )
            source = target

    cupy.cuda.runtime.deviceSynchronize()
    multiply()
    stream.synchronize()
    stream.begin_capture()
    multiply()
    graph = stream.end_capture()

    def call(keep: Any = (blas, results, one, zero, a, b)) -> None:
        graph.launch(cupy.cuda.Stream.null)

    return results[(count - 1) % 2], call
