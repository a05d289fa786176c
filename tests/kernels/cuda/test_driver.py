"""What stands between graphopt and CUDA, on machines without a GPU: what is missing is said."""

import subprocess
import sys

import pytest

from graphopt.errors import DeviceError, DeviceMemoryError, ExecutionError

pytest.importorskip("cupy")
from graphopt.kernels.cuda import driver
from graphopt.kernels.cuda.cupy_device import CudaDevice


def has_gpu() -> bool:
    try:
        return driver.count() > 0
    except DeviceError:
        return False


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
def test_without_a_driver_or_a_gpu_it_is_said() -> None:
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"there is no NVIDIA driver|finds no GPU|driver is too old"):
            CudaDevice()


@pytest.mark.parametrize(
    ("status", "has", "said"),
    [
        (35, 0, "there is no NVIDIA driver"),
        (35, 12040, "the NVIDIA driver is too old: it knows CUDA 12.4, and cupy is made for 13.2; update the driver"),
        (100, 13020, "the NVIDIA driver finds no GPU"),
        (3, 13020, "the GPU cannot be used: CUDA does not begin here"),
        (803, 13020, "the GPU cannot be used: the driver is not ready"),
        (999, 13020, "the GPU cannot be used: cudaErrorUnknown"),
    ],
)
def test_why_no_gpu_can_be_used(status: int, has: int, said: str) -> None:
    found = driver._absent(status, has, 13020)
    assert said in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (2, DeviceMemoryError, "no memory left"),
        (46, DeviceError, "another process has this GPU for itself"),
        (209, DeviceError, "it is for another GPU"),
        (218, DeviceError, "the driver takes this for no code of a kernel"),
        (222, DeviceError, "too old for this code"),
        (701, DeviceError, "registers or shared memory"),
        (700, ExecutionError, "cannot use the GPU any more"),
        (999, ExecutionError, "cudaErrorUnknown"),
    ],
)
def test_what_cuda_raises_is_raised_as_what_it_means(status: int, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=f"testing: .*{said}") as caught, driver.errors("testing"):
        raise driver.runtime.CUDARuntimeError(status)
    assert type(caught.value) is kind


def test_errors_of_libraries_are_told_by_their_names() -> None:
    for name, library in (("CUBLASError", "cuBLAS"), ("cuBLASLtError", "cuBLAS"), ("CUDNNError", "cuDNN")):
        with pytest.raises(ExecutionError, match=f"testing: {library} failed: not supported"), driver.errors("testing"):
            raise type(name, (Exception,), {})("not\nsupported")


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="mine"), driver.errors("testing"):
        raise RuntimeError("mine")


def test_graphopt_is_imported_without_cupy() -> None:
    code = "import sys, graphopt, graphopt.compile, graphopt.runtime.device_program; assert 'cupy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
