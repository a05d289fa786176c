import ctypes
import threading
from typing import Any

import pytest

from graphopt.runtime import team
from graphopt.runtime.objects import Image
from tests.runtime.programs import objects


@pytest.fixture
def driver() -> tuple[Any, Image]:
    image = Image(objects()[:1])
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return entry(image.entries[0]), image


def test_words_begin_on_a_cache_line() -> None:
    for count in (1, 7, 8, 100):
        made = team.words(count)
        assert team.address(made) % 64 == 0
        assert made.tolist() == [0] * count


def test_programs_share_a_team_that_ends_with_the_last(driver: tuple[Any, Image]) -> None:
    before = threading.active_count()
    one, two, other = team.join(11, *driver), team.join(11, *driver), team.join(12, *driver)
    assert one is two is not other
    assert threading.active_count() == before + 10 + 11
    team.leave(one)
    team.leave(other)
    assert threading.active_count() == before + 10
    assert one.claim()
    assert not two.claim()
    one.busy.release()
    team.leave(two)
    assert threading.active_count() == before
    assert not one.claim()  # whoever still has it runs alone
    again = team.join(11, *driver)
    assert again is not one
    team.leave(again)


def test_all_teams_end_with_the_interpreter(driver: tuple[Any, Image]) -> None:
    before = threading.active_count()
    one = team.join(13, *driver)
    team._end_all()
    assert threading.active_count() <= before
    assert not one.claim()
    team.leave(one)
