"""Tests that need a GPU are skipped where there is none, and say why."""

from typing import Any

import pytest

from graphopt.errors import DeviceError, MissingDependencyError


@pytest.fixture(scope="session")
def gpu() -> Any:
    try:
        from graphopt.kernels.cuda.cupy_device import CudaDevice

        return CudaDevice()
    except (DeviceError, MissingDependencyError) as error:
        return pytest.skip(str(error))
