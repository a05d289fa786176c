import ctypes
import os
import threading
from typing import Any

import pytest

from graphopt.runtime import thread_pool
from graphopt.runtime.objects import Image
from tests.runtime.programs import objects


@pytest.fixture
def driver() -> tuple[Any, Image]:
    image = Image(objects()[:1])
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return entry(image.entries[0]), image


def test_words_begin_on_a_cache_line() -> None:
    for count in (1, 7, 8, 100):
        made = thread_pool.words(count)
        assert thread_pool.address(made) % 64 == 0
        assert made.tolist() == [0] * count


def test_programs_share_a_team_that_ends_with_the_last(driver: tuple[Any, Image]) -> None:
    before = threading.active_count()
    one, two, other = thread_pool.join(11, *driver), thread_pool.join(11, *driver), thread_pool.join(12, *driver)
    assert one is two is not other
    assert threading.active_count() == before + 10 + 11
    thread_pool.leave(one)
    thread_pool.leave(other)
    assert threading.active_count() == before + 10
    assert one.claim()
    assert not two.claim()
    one.busy.release()
    thread_pool.leave(two)
    assert threading.active_count() == before
    assert not one.claim()  # whoever still has it runs alone
    again = thread_pool.join(11, *driver)
    assert again is not one
    thread_pool.leave(again)


def test_all_teams_end_with_the_interpreter(driver: tuple[Any, Image]) -> None:
    before = threading.active_count()
    one = thread_pool.join(13, *driver)
    thread_pool._end_all()
    assert threading.active_count() <= before
    assert not one.claim()
    thread_pool.leave(one)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_members_run_elsewhere_than_the_caller(driver: tuple[Any, Image]) -> None:
    allowed = os.sched_getaffinity(0)
    before = {t.native_id for t in threading.enumerate()}
    made = thread_pool.join(2, *driver)
    (member,) = {t.native_id for t in threading.enumerate()} - before
    assert member is not None
    try:
        for processor in sorted(allowed)[:2]:
            os.sched_setaffinity(0, {processor})
            assert made.claim()
            made.busy.release()
            assert os.sched_getaffinity(member) == allowed - {processor}
    finally:
        os.sched_setaffinity(0, allowed)
        thread_pool.leave(made)


def test_members_of_a_team_larger_than_the_machine_run_anywhere(driver: tuple[Any, Image]) -> None:
    allowed = os.sched_getaffinity(0)
    before = {t.native_id for t in threading.enumerate()}
    made = thread_pool.join(len(allowed) + 1, *driver)
    members = {t.native_id for t in threading.enumerate()} - before
    assert made.claim()
    made.busy.release()
    assert all(os.sched_getaffinity(m or 0) == allowed for m in members)
    thread_pool.leave(made)
