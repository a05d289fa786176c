"""How arguments reach the CUDA driver, with a stand-in for it; what a GPU does is shown by tests/device."""

import ctypes
from types import SimpleNamespace
from typing import Any

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
