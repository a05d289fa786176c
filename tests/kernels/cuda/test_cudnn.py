"""Convolutions by cuDNN: a stand-in computes what graphs say, and where the frontend is installed, it takes them."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphopt.errors import ExecutionError, MissingDependencyError
from graphopt.kernels.cuda import cudnn, machine
from graphopt.kernels.cuda.simulated_device import SimulatedDevice
from graphopt.runtime.library_calls import Convolution
from graphopt.runtime.thread_pool import address
from tests.kernels.cuda.cudnn_stand_in import StandIn, held

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def row_major(shape: tuple[int, ...], order: str) -> list[int]:
    """The strides of images whose channels come first, or last."""
    places = [0, *range(2, len(shape)), 1] if order == "last" else list(range(len(shape)))
    strides, step = [0] * len(shape), 1
    for k in reversed(places):
        strides[k] = step
        step *= shape[k]
    return strides


def words(function: Convolution, order: str = "first", images: int = 2, depth: int = 3) -> tuple[dict[str, int], Any]:
    """The arguments of a small convolution after the addresses, and the shapes of ``x w y``."""
    axes, groups = range(function.rank), 2
    size, window, stride, dilation, before = [7, 6, 5], [3, 2, 2], [2, 1, 1], [1, 2, 1], [1, 0, 1]
    after = [0, 1, 0]
    made = [(size[a] + before[a] + after[a] - (window[a] - 1) * dilation[a] - 1) // stride[a] + 1 for a in axes]
    numbers = {"batch": images, "channels": depth, "filters": 4, "groups": groups}
    for a in axes:
        names = {"size": size, "made": made, "window": window, "stride": stride, "dilation": dilation, "before": before}
        numbers |= {f"{name}_{a}": values[a] for name, values in names.items()}
    rank = function.rank
    shapes = (images, groups * depth, *size[:rank]), (4, depth, *window[:rank]), (images, 4, *made)
    for name, shape in zip("xwy", shapes, strict=True):
        ways = ("filter" if name == "w" else "batch", "channel", *axes)
        numbers |= {f"{name}_{way}": s for way, s in zip(ways, row_major(shape, order), strict=True)}
    return numbers, shapes


def args(function: Convolution, arrays: Mapping[str, Any], numbers: Mapping[str, int]) -> Any:
    places = {name: address(array) for name, array in arrays.items()}
    return np.array([{**numbers, **places}[name] for name in function.params], np.int64)


def operands(function: Convolution, shapes: Any) -> dict[str, Any]:
    x, w, y = (held(shape, DTYPES[function.dtype]).reshape(-1) for shape in shapes)
    return {
        "x": x,
        "w": w,
        "y": y,
        "bias": held((4,), x.dtype),
        "residual": held(shapes[2], x.dtype).reshape(-1)[::-1].copy(),
    }


def dnn(found: StandIn, monkeypatch: pytest.MonkeyPatch, device: SimulatedDevice | None = None) -> cudnn.Dnn:
    monkeypatch.setitem(sys.modules, "cudnn", found)
    monkeypatch.setattr(cudnn, "has_cudnn", lambda: True)
    return cudnn.Dnn(3, (device or SimulatedDevice()).allocate)


FUNCTIONS = [
    Convolution(),
    Convolution("float16", 1, has_bias=True),
    Convolution("bfloat16", 3, has_bias=True, epilogue="relu"),
    Convolution("float32", 2, has_bias=True, has_residual=True, epilogue="relu"),
    Convolution("float16", 2, has_residual=True),
]
WHOLE, ALONE = StandIn, lambda: StandIn(lambda ops: len(ops) > 1 and "conv" in ops)


@pytest.mark.parametrize("order", ["first", "last"])
@pytest.mark.parametrize("make", [WHOLE, ALONE], ids=["whole", "apart"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_graphs_say_what_is_to_be_computed(
    function: Convolution, make: Any, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, shapes = words(function, order)
    arrays, device = operands(function, shapes), SimulatedDevice()
    there = {name: device.array(x.view(np.uint16) if x.itemsize == 2 else x) for name, x in arrays.items()}
    wanted = np.array([{**numbers, **{n: a.address for n, a in there.items()}}[p] for p in function.params], np.int64)
    device.library(function, wanted)()
    found = make()
    dnn(found, monkeypatch).convolution(function, args(function, arrays, numbers))()
    result = there["y"].get().view(arrays["y"].dtype)
    close = {"float32": 1e-5, "float16": 8e-3, "bfloat16": 6e-2}[function.dtype]
    np.testing.assert_allclose(arrays["y"].astype(np.float32), result.astype(np.float32), rtol=close, atol=close)
    finish = [n for n, is_there in (("add", function.has_residual), ("bias", function.has_bias)) if is_there]
    finish += ["relu"] * (function.epilogue == "relu")
    assert found.runs == ([["conv", *finish]] if make is WHOLE or not finish else [["conv"], finish])


def test_plans_are_made_once_for_each_shape_and_go_with_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    found, function = StandIn(), Convolution(has_bias=True)
    numbers, shapes = words(function)
    arrays, device = operands(function, shapes), SimulatedDevice()
    given = args(function, arrays, numbers)
    run = dnn(found, monkeypatch, device).convolution(function, given)
    run()
    device.capture(run)  # nothing is allocated any more
    assert len(found.graphs) == 1
    given[function.params.index("batch")] = 1
    run()
    given[function.params.index("batch")] = 2
    run()
    given[function.params.index("batch")] = 0
    run()
    assert (len(found.graphs), len(found.runs)) == (2, 4)
    plans = list(map(weakref.ref, found.graphs))
    found.graphs.clear()
    assert all(plan() is not None for plan in plans)
    del run
    gc.collect()
    assert not any(plan() is not None for plan in plans)


@pytest.mark.parametrize(
    ("function", "is_whole"),
    [(Convolution(), True), (Convolution(tf32=True), False), (Convolution("float16"), False)],
    ids=["float32", "tf32", "halves"],
)
def test_float32_is_rounded_only_where_that_is_allowed(
    function: Convolution, is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = StandIn()
    numbers, shapes = words(function)
    dnn(found, monkeypatch).convolution(function, args(function, operands(function, shapes), numbers))()
    (graph,) = found.graphs
    assert {"NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION"} <= set(graph.without)
    assert ({"TENSOR_CORE", "DOWN_CONVERT_INPUTS"} <= set(graph.without)) is is_whole


def test_what_cudnn_has_no_plan_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    function = Convolution(has_bias=True)
    numbers, shapes = words(function)
    given = args(function, operands(function, shapes), numbers)
    run = dnn(StandIn(lambda ops: True), monkeypatch).convolution(function, given)
    with pytest.raises(
        ExecutionError, match="cuDNN has no plan for a float32 convolution of 7 x 6: no engine does conv"
    ):
        run()


def test_a_plan_that_cannot_be_run_is_an_error_of_cudnns(monkeypatch: pytest.MonkeyPatch) -> None:
    function, found = Convolution(), StandIn()
    numbers, shapes = words(function)
    run = dnn(found, monkeypatch).convolution(function, args(function, operands(function, shapes), numbers))
    run()

    def execute(*given: Any, **ways: Any) -> None:
        raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")

    monkeypatch.setattr(found.graphs[0], "execute", execute, raising=False)
    with pytest.raises(cudnn.CUDNNError, match="EXECUTION_FAILED"):
        run()


def test_without_cudnn_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn, "has_cudnn", lambda: False)
    with pytest.raises(MissingDependencyError, match=r"graphopt\[cudnn13\]"):
        cudnn.Dnn(3, SimulatedDevice().allocate)


@pytest.mark.parametrize(("version", "is_there"), [(91200, True), (8907, False), (None, False)])
def test_cudnn_is_there_with_its_library(version: int | None, is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def backend_version() -> int:
        if version is None:
            raise RuntimeError("Unable to find symbol cudnnGetVersion")
        return version

    found = StandIn()
    found.__spec__ = ModuleSpec("cudnn", None)
    found.backend_version = backend_version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cudnn", found)
    assert machine.has_cudnn.__wrapped__() is is_there


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_the_frontend_takes_the_graphs(function: Convolution) -> None:
    frontend = pytest.importorskip("cudnn")
    numbers, shapes = words(function)
    described = cudnn.Description(frontend, None, function, numbers)
    value = described.convolve()
    rank = max(function.rank, 2)
    unit = [1] * (rank - function.rank)
    assert list(value.get_dim()) == [*shapes[2][:2], *unit, *shapes[2][2:]]
    described.finish(value)
    placed = dict(described.placed)
    assert len(placed) == 3 + function.has_bias + function.has_residual
