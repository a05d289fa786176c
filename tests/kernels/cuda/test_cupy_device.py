"""How arguments and arrays reach the CUDA driver, with a stand-in for it; what a GPU does is shown by tests/device."""

import ctypes
import os
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
import pytest

pytest.importorskip("cupy")
from graphopt.errors import DeviceError, ExecutionError
from graphopt.kernels.cuda import cupy_device
from graphopt.kernels.cuda.cupy_device import CudaDevice
from graphopt.kernels.cuda.driver import CUBLASError, runtime


class StandIn:
    """A driver that notes what is launched, with the arguments that it finds where it is told to look."""

    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_NUM_REGS = 0, 4

    def __init__(self, params: int) -> None:
        self.params = params
        self.launched: list[Any] = []

    def launchKernel(self, *args: int) -> None:  # noqa: N802
        pointers = (ctypes.c_void_p * self.params).from_address(args[-2])
        self.launched.append((*args[:-2], [ctypes.c_int64.from_address(p).value for p in pointers]))

    def funcGetAttribute(self, attribute: int, function: int) -> int:  # noqa: N802
        return {0: 256, 4: 200}[attribute]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    made = object.__new__(CudaDevice)
    made.name, made._stream = "a GPU", SimpleNamespace(ptr=3)
    monkeypatch.setattr(cupy_device, "driver", StandIn(3))
    return made


FUNCTION = SimpleNamespace(ptr=77)


def test_a_launch_takes_the_words_as_they_are_by_then(device: CudaDevice) -> None:
    words = np.array([1 << 40, -5, 7, 2, 3, 1], np.int64)
    run = device.kernel(FUNCTION, (32, 2, 1), words[:3], words[3:])
    run()
    words[1:5] = 11, 12, 9, 1
    run()
    words[3] = 0
    run()  # no blocks, no launch
    assert cupy_device.driver.launched == [
        (77, 2, 3, 1, 32, 2, 1, 0, 3, [1 << 40, -5, 7]),
        (77, 9, 1, 1, 32, 2, 1, 0, 3, [1 << 40, 11, 12]),
    ]


def test_a_block_that_wants_more_than_there_is(device: CudaDevice) -> None:
    words = np.zeros(6, np.int64)
    with pytest.raises(DeviceError, match=r"200 registers .* at most 256 threads on a GPU, and 512 are asked for"):
        device.kernel(FUNCTION, (512, 1, 1), words[:3], words[3:])


class Stream:
    """A stream that can be captured once at a time."""

    ptr = 3

    def __init__(self) -> None:
        self.is_capturing = False
        self.launched: list[str] = []

    def begin_capture(self) -> None:
        assert not self.is_capturing
        self.is_capturing = True

    def end_capture(self) -> Any:
        assert self.is_capturing
        self.is_capturing = False
        return SimpleNamespace(launch=lambda stream: self.launched.append("graph"))


def failing(error: BaseException) -> Any:
    def run() -> None:
        raise error

    return run


def test_a_capture_ends_whatever_happens(device: CudaDevice) -> None:
    stream = device._stream = Stream()
    of_nvmath = type("cuBLASLtError", (Exception,), {})("not permitted")
    for of_cuda in (CUBLASError("cublasGemmEx", 14), of_nvmath, runtime.CUDARuntimeError(900)):
        assert device.capture(failing(of_cuda)) is None
        assert not stream.is_capturing
    for other in (KeyboardInterrupt(), ExecutionError("ours"), RuntimeError("whose?")):
        with pytest.raises(type(other)):
            device.capture(failing(other))
        assert not stream.is_capturing
    replay = device.capture(lambda: None)
    assert replay is not None
    replay()
    assert stream.launched == ["graph"]


class Runtime:
    """CUDA's runtime for arrays of the host: which memory they are in is what a test says."""

    memcpyHostToDevice, memoryTypeUnregistered = 1, 0  # noqa: N815

    def __init__(self, kind: int) -> None:
        self.kind = kind

    def memcpyAsync(self, *args: int) -> None:  # noqa: N802
        pass

    def pointerGetAttributes(self, place: int) -> Any:  # noqa: N802
        return SimpleNamespace(type=self.kind)


@pytest.mark.parametrize(
    ("kind", "reaches_all", "is_waited_for"),
    [(0, False, False), (1, False, True), (3, False, True), (0, True, True)],
    ids=["the host's alone", "pinned", "managed", "the GPU reaches all"],
)
def test_memory_that_the_gpu_may_read_later_is_waited_for(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, kind: int, reaches_all: bool, is_waited_for: bool
) -> None:
    waits: list[bool] = []
    device._stream = SimpleNamespace(ptr=3, synchronize=lambda: waits.append(True))
    device._reaches_all = reaches_all
    monkeypatch.setattr(cupy_device, "runtime", Runtime(kind))
    device.upload(np.zeros(0), 0)
    assert not waits
    device.upload(np.zeros(3), 0)
    assert bool(waits) == is_waited_for


def test_a_process_that_was_forked_is_told_to_spawn(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    device._process = os.getpid()
    monkeypatch.setattr(cupy_device.os, "getpid", lambda: device._process + 1)
    said = r"forked .*: start processes by multiprocessing.get_context\(.spawn.\)"
    with pytest.raises(DeviceError, match=said), device.call():
        pass


def test_gpus_that_are_too_old_are_refused() -> None:
    made = object.__new__(CudaDevice)
    made.name, made._device = "T4", SimpleNamespace(compute_capability="75")
    with pytest.raises(DeviceError, match=r"T4 has the compute capability 7\.5, and kernels are for 8\.0"):
        made._refuse_old()
    made._device = SimpleNamespace(compute_capability="100")
    made._refuse_old()
    assert made.capability == (10, 0)


class Module:
    """Code that a GPU has as long as this lives."""

    there: ClassVar[list[bytes]] = []

    def load(self, code: bytes) -> None:
        self.code = code
        self.there.append(code)

    def get_function(self, name: str) -> Any:
        return SimpleNamespace(ptr=77, module=self)

    def __del__(self) -> None:
        self.there.remove(self.code)


def test_kernels_go_with_the_last_program_that_has_them(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[Any] = []
    monkeypatch.setattr(
        cupy_device, "cupy", SimpleNamespace(cuda=SimpleNamespace(function=SimpleNamespace(Module=Module)))
    )
    device._loaded, device._dropped, device._process = WeakValueDictionary(), [], os.getpid()
    device._lock, device._device = nullcontext(), nullcontext()
    device._callers = SimpleNamespace(begin=lambda: None, end=lambda: None)
    device._stream = SimpleNamespace(ptr=3, synchronize=lambda: waits.append(list(Module.there)))
    words = np.zeros(6, np.int64)
    one = [device.kernel(f, (1, 1, 1), words[:3], words[3:]) for f in device.load([b"a", b"b"])]
    other = device.load([b"b", b"c"])
    assert Module.there == [b"a", b"b", b"c"]
    del one
    assert Module.there == [b"a", b"b", b"c"]  # launches of it may be left
    with device.call():
        pass
    assert waits == [[b"a", b"b", b"c"]]
    assert Module.there == [b"b", b"c"]
    del other
    with device.call():
        pass
    assert Module.there == []
