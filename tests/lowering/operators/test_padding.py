"""Pad in all modes, and CenterCropPad, against ONNX's cases, the reference and numpy."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.lowering.operators.padding import TABLE
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered
from tests.lowering.operators.shaped import ints, numbers, run

MODES = ("constant", "reflect", "edge", "wrap")


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 0, 2), (2, 3, 1, 3), (0, 4, 0, 4)])
def test_pad(mode: str, pads: tuple[int, ...]) -> None:
    agree("Pad", [numbers(3, 5), ints(*pads)], known={1}, mode=mode)
    agree("Pad", [numbers(3, 5), ints(*pads)], [["n", "m"], [4]], known={1}, mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("size", "front", "back"), [(1, 3, 2), (2, 7, 9), (4, 11, 3), (3, 0, 8)])
def test_pads_longer_than_the_axis(mode: str, size: int, front: int, back: int) -> None:
    x, pads = numbers(size), ints(front, back)
    want = np.pad(x, (front, back), mode=mode)  # type: ignore[call-overload]
    assert np.array_equal(computed("Pad", [x, pads], known={1}, mode=mode)[0], want)
    assert np.array_equal(run("Pad", [x, pads], want.shape, mode=mode), want)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("front", "back"), [(-1, 2), (2, -1), (-2, -1), (3, -2), (-4, 0)])
def test_a_negative_pad_takes_elements_away_first(mode: str, front: int, back: int) -> None:
    x = numbers(5)
    kept = x[max(-front, 0) : 5 - max(-back, 0)]
    want = np.pad(kept, (max(front, 0), max(back, 0)), mode=mode)  # type: ignore[call-overload]
    for known in (set(), {1}):
        assert np.array_equal(run("Pad", [x, ints(front, back)], want.shape, known, mode=mode), want)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool", "float16"])
def test_a_value_to_pad_with(dtype: str) -> None:
    x, value = numbers(2, 2, dtype=dtype), np.array(1, dtype)
    agree("Pad", [x, ints(1, 0), value, ints(-1)], known={1, 3})
    agree("Pad", [x, ints(1, 0), value, ints(0)], known={1, 2, 3})
    agree("Pad", [x, ints(0, 1, 1, 0)], known={1})


def test_pad_of_nothing() -> None:
    agree("Pad", [numbers(0, 2), ints(1, 0, 2, 0)], known={1})


@pytest.mark.parametrize("target", [(3, 3), (6, 8), (5, 4), (2, 9), (4, 7)])
def test_the_middle(target: tuple[int, int]) -> None:
    agree("CenterCropPad", [numbers(4, 7), ints(*target)], known={1})
    agree("CenterCropPad", [numbers(4, 7), ints(*target)], [["n", "m"], [2]], known={1})
