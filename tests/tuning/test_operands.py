"""What workloads read when they are checked: the same each time, within range, with something special in it."""

import ml_dtypes
import numpy as np
import pytest

from graphopt.lowering.loops.script import read
from graphopt.tuning.operands import CASES, NORMAL, SPECIAL, WHOLE, operands, restored, stored
from graphopt.tuning.workload import Workload
from tests.tuning.products import product

TAKEN = """
@program
def taken(x: Buffer[("n", 5), "bfloat16"], at: Buffer[(40,), "int64"], by: Buffer[(40,), "int32"],
          q: Buffer[(40,), "uint8"], y: Buffer[(40, 5), "bfloat16"], n: size):
    for i, j in grid(40, 5):
        with block("y"):
            v0, v1 = axis.remap("SS", [i, j])
            y[v0, v1] = x[at[v0], v1] * cast(by[v0] + cast(q[v0], "int32"), "bfloat16")
"""


def taken() -> Workload:
    return Workload.of(read(TAKEN), {"n": 3})


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_the_same_each_time_and_unlike_the_others(case: int) -> None:
    for first, again in zip(operands(product(), case), operands(product(), case), strict=True):
        np.testing.assert_array_equal(first, again)
    others = [operands(product(), other)[0] for other in CASES if other != case]
    assert not any(np.array_equal(operands(product(), case)[0], other, equal_nan=True) for other in others)


def test_integers_that_index_are_within_range() -> None:
    x, at, by, q = operands(taken(), NORMAL)
    assert x.shape == (3, 5)
    assert set(at.tolist()) == {0, 1, 2}
    assert by.min() < 0 < by.max()
    assert q.max() > 127
    zeros = operands(taken(), NORMAL, are_integers_zero=True)
    assert not any(array.any() for array in zeros[1:])


def test_whole_numbers_are_small_and_special_ones_are_there() -> None:
    whole, special = operands(product(), WHOLE)[0], operands(product(), SPECIAL)[0]
    assert set(whole.ravel().tolist()) == set(range(-4, 5))
    assert np.isnan(special).any()
    assert np.isinf(special).any()
    assert np.isfinite(special).mean() > 0.9


def test_elements_that_numpy_does_not_know_lie_in_integers() -> None:
    array = operands(taken(), NORMAL)[0]
    assert stored(array).dtype == np.uint16
    assert restored(stored(array), "bfloat16").dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(restored(stored(array), "bfloat16"), array)
