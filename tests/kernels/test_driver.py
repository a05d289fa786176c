"""The driver as such; what programs make of it is tested with them (``tests/runtime``)."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from graphopt.kernels import driver as source
from graphopt.kernels.compile import compile_kernels, native_driver
from graphopt.kernels.kernel import Kernel
from graphopt.runtime import bytecode
from graphopt.runtime.objects import Image
from graphopt.runtime.steps import SHARED
from graphopt.runtime.thread_pool import ELEMENTS, Team, address, words

TOUCH = Kernel(
    '''"""a[i] += 1 for each work item; its status is that of the item 77 where it has one"""
def kernel(a, status, lo, hi):
    for i in range(lo, hi):
        a[i] += 1
    return status if lo <= 77 < hi else 0
''',
    ("int64", "size"),
)


@pytest.fixture(scope="module")
def image() -> Image:
    return Image(compile_kernels([native_driver(), TOUCH]))


@pytest.fixture(scope="module")
def drive(image: Image) -> Callable[..., int]:
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(image.entries[0])


@pytest.fixture(params=[2, 5])
def team(request: pytest.FixtureRequest, drive: Any, image: Image) -> Iterator[Team]:
    made = Team(request.param, drive, image)
    yield made
    made.end()


def run(drive: Any, rows: list[list[int]], args: list[int], team: Team | None = None) -> tuple[int, list[int]]:
    """Run instructions; gives the driver's answer and its report."""
    code = np.zeros((len(rows), bytecode.WIDTH), np.int64)
    for at, row in enumerate(rows):
        code[at, : len(row)] = row
    values, report, block = np.array(args, np.int64), words(2), words(len(bytecode.DRIVER_PARAMS))
    start = address(values)
    block[:7] = address(code), start, start, team.address if team else 0, address(report), 0, 0
    return drive(address(block), 0, len(rows)), report.tolist()


def test_the_driver_and_python_agree_on_numbers() -> None:
    names = ["CALL", "JUMP", "UNLESS", "NOT_BELOW", "NOT_BELOW_STORED", "SET", "ADD", "SERVE"]
    names += ["DONE", "FAILED", "PAUSED", "LOOK", "STRETCH"]
    names += ["WIDTH", "STAMP_WIDTH", "PLACE_WIDTH", "RANGES"]
    assert [getattr(source, n) for n in names] == [getattr(bytecode, n) for n in names]
    assert source.SHARED == SHARED
    team = ["GENERATION", "SLEEPING", "REMAINING", "WAITING", "STATUS", "FUNCTION", "ARGUMENTS", "EXTENT", "MEMBERS"]
    for name in [*team, "SPINS", "ACTIVE", "STOPPED", "BEGUN", "LINE"]:
        assert getattr(source, name) == 8 * getattr(bytecode, name), name


@pytest.mark.parametrize("extent", [0, 1, 2, 3, 4, 5, 6, 77, 1000])
def test_every_work_item_is_done_once(drive: Any, image: Image, team: Team, extent: int) -> None:
    a = np.zeros(1000, np.int64)
    rows = [[bytecode.CALL, image.entries[1], 0, 2, 3]] * 50
    assert run(drive, rows, [address(a), 0, extent, SHARED], team) == (0, [0, 0])
    assert a.tolist() == [50] * extent + [0] * (1000 - extent)


@pytest.mark.parametrize(("place", "iterations"), [(0, SHARED), (3, 10), (3, SHARED - 1)])
def test_small_kernels_wake_nobody(drive: Any, image: Image, team: Team, place: int, iterations: int) -> None:
    a = np.zeros(10, np.int64)
    assert run(drive, [[bytecode.CALL, image.entries[1], 0, 2, place]], [address(a), 0, 10, iterations], team)[0] == 0
    assert a.tolist() == [1] * 10
    assert ctypes.c_int64.from_address(team.address + 8 * bytecode.GENERATION).value == 0


@pytest.mark.parametrize("parallel", [0, 6])
def test_a_failure_in_any_part_stops_the_program(drive: Any, image: Image, team: Team, parallel: int) -> None:
    a = np.zeros(100, np.int64)
    touch = [bytecode.CALL, image.entries[1], 0, 2, parallel]
    fail = [bytecode.CALL, image.entries[1], 3, 5, parallel]
    args = [address(a), 0, 100, address(a), 9, 100, SHARED]
    assert run(drive, [touch, touch, fail, touch], args, team) == (1, [2, 9])
    assert a.tolist() == [3] * 100
    assert run(drive, [touch], args, team) == (0, [0, 0])


def test_jumps_and_counters(drive: Any, image: Image) -> None:
    a, counter, stored, truth = np.zeros(3, np.int64), words(1), words(1), np.array([True])
    stored[0] = 2
    args = [address(a), 0, 3, address(counter), 5, address(stored), truth.ctypes.data]
    touch = [bytecode.CALL, image.entries[1], 0, 2, 0]
    loop = [[bytecode.SET, 3, 0], [bytecode.NOT_BELOW, 5, 3, 4], touch, [bytecode.ADD, 3, 1], [bytecode.JUMP, 1]]
    assert run(drive, loop, args)[0] == 0
    assert (a.tolist(), counter[0]) == ([5] * 3, 5)
    loop[1] = [bytecode.NOT_BELOW_STORED, 5, 3, 5]
    run(drive, loop, args)
    assert (a.tolist(), counter[0]) == ([7] * 3, 2)
    run(drive, [[bytecode.UNLESS, 2, 6], touch], args)
    assert a.tolist() == [8] * 3
    truth[0] = False
    run(drive, [[bytecode.UNLESS, 2, 6], touch], args)
    assert a.tolist() == [8] * 3


def test_a_loop_that_does_not_end_pauses_and_goes_on(drive: Any) -> None:
    counter = words(1)
    forever = [[bytecode.SET, 0, 0], [bytecode.ADD, 0, 1], [bytecode.JUMP, 1]]
    outcome, (at, _) = run(drive, forever, [address(counter)])
    assert (outcome, at in (1, 2)) == (bytecode.PAUSED, True)
    assert counter[0] > bytecode.LOOK


@pytest.mark.parametrize("shape", [(3,), (2, 5), (), (0,)])
def test_arguments_are_placed_in_arrays_of_the_callers(drive: Any, image: Image, shape: tuple[int, ...]) -> None:
    arrays = [np.zeros(7, np.int64), np.zeros(shape, np.int64), np.zeros(9, np.int64)[2:]]
    a = np.zeros(4, np.int64)
    args = np.array([address(a), 0, 2, -1, -1, -1], np.int64)
    places = np.array([(3, 2, 8), (5, 0, 0), (4, 1, 24)], np.int64)
    objects, block = np.array([id(x) for x in arrays], np.int64), words(len(bytecode.DRIVER_PARAMS))
    code = np.array([[bytecode.CALL, image.entries[1], 0, 2, 0]], np.int64)
    start = address(args)
    block[:] = address(code), start, start, 0, 0, 0, bytecode.WALK, address(places), 3, address(objects), ELEMENTS
    assert drive(address(block), 0, 1) == 0
    assert args.tolist() == [address(a), 0, 2, *(address(x) + n for x, n in zip(arrays[::-1], (8, 24, 0), strict=True))]
    assert a.tolist() == [1, 1, 0, 0]


def test_members_sleep_and_wake(drive: Any, image: Image, team: Team) -> None:
    a = np.zeros(8, np.int64)
    sleeping = ctypes.c_int64.from_address(team.address + 8 * bytecode.SLEEPING)
    for _ in range(20):
        until = time.monotonic() + 10
        while sleeping.value < team.threads - 1:
            assert time.monotonic() < until
            time.sleep(0.001)
        run(drive, [[bytecode.CALL, image.entries[1], 0, 2, 1]], [address(a), 0, 8], team)
    assert a.tolist() == [20] * 8


def test_nobody_waits_for_a_member_that_does_not_come(drive: Any, image: Image) -> None:
    made = Team(3, lambda *_: 0, image)  # its threads have gone
    a = np.zeros(100, np.int64)
    touch = [bytecode.CALL, image.entries[1], 0, 2, 1]
    assert run(drive, [touch] * 5, [address(a), 0, 100], made) == (0, [0, 0])
    assert a.tolist() == [5] * 100


def test_a_team_ends(drive: Any, image: Image) -> None:
    before = threading.active_count()
    made = Team(4, drive, image)
    assert threading.active_count() == before + 3
    made.end()
    assert threading.active_count() == before
