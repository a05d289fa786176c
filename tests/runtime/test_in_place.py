"""Programs for a device write arrays of their callers, wherever these lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt.errors import InputError
from graphopt.kernels.cuda.simulated_device import SimulatedArray, SimulatedDevice, packed
from graphopt.runtime.in_place import InPlaceDeviceProgram
from graphopt.runtime.steps import Code, Port
from tests.runtime.device_programs import KERNELS, floats, scale

DEVICE = SimulatedDevice()


@pytest.fixture(scope="module")
def doubled() -> InPlaceDeviceProgram:
    """``y = 2 x``, of any length."""
    ports = (Port("x", 0), Port("y", 1))
    buffers = (floats("input", "n"), floats("input", "n"))
    code = Code(ports, (), buffers, (scale(0, 1, 2, 0),), tuple(map(packed, KERNELS)))
    return InPlaceDeviceProgram(code, DEVICE, ["y"])


def numbers(n: int, start: float = 1.0) -> Any:
    return np.arange(start, start + n, dtype=np.float32)


@pytest.mark.parametrize("n", [0, 1, 5, 8])
@pytest.mark.parametrize("x_there", [False, True], ids=["x here", "x there"])
@pytest.mark.parametrize("y_there", [False, True], ids=["y here", "y there"])
def test_arrays_are_written_where_they_lie(doubled: Any, n: int, x_there: bool, y_there: bool) -> None:
    for start in (1.0, 7.0):  # what was sent for one call is not what the next computes with
        x, y = numbers(n, start), np.full(n, np.nan, np.float32)
        given = [DEVICE.array(a) if there else a for a, there in ((x, x_there), (y, y_there))]
        assert doubled(*given) == {}
        np.testing.assert_array_equal(given[1].get() if y_there else given[1], x * 2)
        np.testing.assert_array_equal(given[0].get() if x_there else given[0], x)


def test_by_name_and_where_kernels_cannot_begin(doubled: Any) -> None:
    whole = DEVICE.array(np.zeros(9, np.float32))
    part = SimulatedArray(whole.block, (5,), np.dtype(np.float32), 4)
    doubled({"y": part, "x": numbers(5)})
    np.testing.assert_array_equal(whole.get(), [0, 2, 4, 6, 8, 10, 0, 0, 0])
    sparse = numbers(10)[::2]
    y = np.zeros(5, np.float32)
    doubled(sparse, y)
    np.testing.assert_array_equal(y, sparse * 2)


def test_arrays_that_cannot_be_written_are_refused(doubled: Any) -> None:
    x, y = numbers(8), np.zeros(8, np.float32)
    frozen = np.zeros(8, np.float32)
    frozen.flags.writeable = False
    there = DEVICE.array(numbers(12))
    parts = [SimulatedArray(there.block, (8,), np.dtype(np.float32), start) for start in (0, 16)]
    for arrays, why in [
        ((x, frozen), "argument 'y' is written in place, and an array that is writable"),
        ((x, np.zeros(16, np.float32)[::2]), "argument 'y' is written in place, and an array that is row-major"),
        ((x, x), "arguments 'y' and 'x' share memory, and the first is written"),
        ((there, there), r"argument|share memory"),
        (parts, "arguments 'y' and 'x' share memory"),
        ((x, y[:5]), "argument 'y' has size 5 along axis 0, and 8"),
        ((x, y.astype(np.float64)), r"argument 'y' is float64\[8\]"),
        ((x,), "no array is given for 'y': the arguments are 'x', 'y'"),
    ]:
        with pytest.raises(InputError, match=why):
            doubled(*arrays)
    doubled(x, y)
    np.testing.assert_array_equal(y, x * 2)


def test_a_timing_ends_when_the_device_has_done_the_work(doubled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, before = [], DEVICE.launches
    monkeypatch.setattr(DEVICE, "synchronize", lambda: waits.append(DEVICE.launches - before))
    monkeypatch.setattr(DEVICE, "upload", lambda *given, real=DEVICE.upload: (waits.append(-1), real(*given)))
    found = doubled.timed((numbers(8), np.zeros(8, np.float32)), 5, 2)
    assert len(found.seconds) == 2
    assert waits[-3:] == [1, 6, 11], "after the first call, and after each series"
    assert waits.count(-1) == len(waits) - 3, "what is sent is sent before"
