"""Constants are read when asked, and compared without reading what is large."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.constants import ALIGNMENT, SMALL, Array, Constant, aligned


def test_elements_are_read_only_when_asked_for() -> None:
    reads = []

    def read() -> Array:
        reads.append(1)
        return np.zeros(1000, np.float32)

    constant = Constant("float32", (1000,), read)
    assert (constant.size, constant.nbytes) == (1000, 4000)
    assert constant == constant
    assert constant != Constant("float32", (1000,), read)
    assert not reads
    assert constant.array.shape == (1000,)
    assert len(reads) == 1


def test_small_constants_are_equal_by_elements() -> None:
    a, b = (Constant.of(np.arange(SMALL, dtype=np.int64)) for _ in range(2))
    assert a == b
    assert hash(a) == hash(b)
    assert a != Constant.of(np.arange(SMALL, dtype=np.int32))
    assert Constant.of(np.float32(0.0)) != Constant.of(np.float32(-0.0))


def test_large_constants_have_equal_digests_where_they_are_equal() -> None:
    a, b = (Constant.of(np.arange(1000)) for _ in range(2))
    assert a != b
    assert a.digest == b.digest


def test_a_repeated_element_is_stored_once() -> None:
    constant = Constant.full((1 << 20, 1 << 20), np.float32(2).reshape(()))
    assert constant.nbytes == 4
    assert constant.array[5, 5] == 2


@pytest.mark.parametrize(("dtype", "nbytes"), [("int4", 2), ("bfloat16", 6), ("bool", 3), ("float64", 24)])
def test_bytes_are_those_of_the_file(dtype: str, nbytes: int) -> None:
    assert Constant(dtype, (3,), lambda: np.zeros(3)).nbytes == nbytes


def test_strings_are_constants_too() -> None:
    constant = Constant.of(np.array(["ab", "c"], dtype=object))
    assert constant.dtype == "string"
    assert constant == Constant.of(np.array(["ab", "c"], dtype=object))


def test_computed_elements_lie_where_vectors_read_them_in_one_step() -> None:
    whole = np.arange(3000, dtype=np.float32)
    for array in (whole.reshape(30, 100).T, np.array(whole[1:]), np.array(whole[2:])):
        made = aligned(array)
        assert made.flags.c_contiguous
        assert made.ctypes.data % ALIGNMENT == 0
        np.testing.assert_array_equal(made, array)


def test_elements_that_another_array_holds_are_not_written_twice() -> None:
    part = np.arange(3000, dtype=np.float32)[1:]
    assert aligned(part) is part
    assert aligned(words := np.array(["a"] * 100)) is words
