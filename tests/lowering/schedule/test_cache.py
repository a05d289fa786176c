"""Copies near the blocks that use them, and where buffers live, change no result."""

import numpy as np
import pytest

from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.cache import (
    cache_inplace,
    cache_read,
    cache_write,
    double_buffer,
    set_scope,
    storage_align,
)
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.documented import TRIANGLE, check, random_arrays, refused, same_results


@pytest.mark.parametrize("primitive", [cache_read, cache_write, cache_inplace, double_buffer, set_scope, storage_align])
def test_documented(primitive):
    check(primitive)


PRODUCT = """
@program
def product(A: Buffer[({n}, 5), "float32"], B: Buffer[(5, 7), "float32"], C: Buffer[({n}, 7), "float32"]):
    Y = alloc(({n}, 7), "float32")
    for i, j, k in grid({n}, 7, 5):
        with block("Y"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                Y[vi, vj] = 0.0
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for i1, j1 in grid({n}, 7):
        with block("C"):
            vi1, vj1 = axis.remap("SS", [i1, j1])
            C[vi1, vj1] = Y[vi1, vj1] * 2.0
"""


def test_an_aligned_local_buffer_is_compiled():
    """Rows are as far apart as the alignment says, and the last one ends where its elements do."""
    nest = read(PRODUCT.format(n=6))
    s = Schedule(nest)
    s.cache_read("Y", "B", "local")
    s.storage_align("B_copy", 0, 8, 1)
    arrays = random_arrays(nest)
    product = arrays["A"] @ arrays["B"] * 2.0
    s.nest(*arrays.values())
    np.testing.assert_array_equal(arrays["C"], product)


@pytest.mark.parametrize("n", [1, 6, 9])
def test_caches_of_tiles(n):
    """Where a buffer is read and written in a loop, only what a step of the loop needs is copied."""
    nest = read(PRODUCT.format(n=n))
    s = Schedule(nest)
    s.split("i", [None, 4])
    s.reverse_compute_at("C", "i_0")
    copy = s.cache_write("Y", "local")
    assert s.get_loops(copy)[0].name == "i_0"
    a = s.cache_read("Y", "A", "local")
    assert len(s.get_loops(a)) == 2
    s.storage_align(a, 0, 8, 1)
    assert next(b for b in s.nest.allocs if b.name == "A_local").strides == (Const(9), Const(1))
    same_results(nest, s.nest)


def test_a_read_behind_a_condition_may_reach_out_of_the_buffer():
    text = """
@program
def shift(A: Buffer[(6,), "float32"], C: Buffer[(6,), "float32"]):
    for i in serial(6):
        with block("C"):
            v = axis.remap("S", [i])
            C[v] = select(v >= 2, A[v - 2], 0.0)
"""
    nest = read(text)
    s = Schedule(nest)
    s.cache_read("C", 0, "local")
    same_results(nest, s.nest)


RUNNING = """
@program
def running(A: Buffer[(4, 3), "float32"], C: Buffer[(4, 3), "float32"]):
    T = alloc((3,), "float32")
    for t in serial(4):
        for i in serial(3):
            with block("T"):
                vt, vi = axis.remap("OS", [t, i])
                T[vi] = select(vt > 0, T[vi], 0.0) + A[vt, vi]
        for i1 in serial(3):
            with block("C"):
                vt1, vi1 = axis.remap("SS", [t, i1])
                C[vt1, vi1] = T[vi1]
"""


@pytest.mark.parametrize(
    ("text", "calls", "message"),
    [
        (PRODUCT, ["s.cache_write('Y', 'register')"], "there is no scope register; there are global, shared, local"),
        (PRODUCT, ["s.cache_write('Y', 'local', 1)"], "Y writes Y: 1 is none of these"),
        (PRODUCT, ["s.cache_write('Y', 'local', 'C')"], "Y writes Y: C is none of these"),
        (PRODUCT, ["s.cache_read('Y', 'Y')"], "Y reads, and does not write, A, B: Y is none of these"),
        (PRODUCT, ["s.cache_read('Y', 2)"], "Y reads, and does not write, A, B: 2 is none of these"),
        (
            PRODUCT,
            ["s.decompose_reduction('Y', 'k')", "s.cache_write('Y')"],
            "Y is written by Y_init as well; use cache_write earlier",
        ),
        (RUNNING, ["s.cache_write('T')"], "T goes on from what T held before"),
        (RUNNING, ["s.cache_write('T')"], "; cache_inplace copies in first what was there"),
        (
            PRODUCT.replace("Y[vi, vj] = 0.0", "Y[vi, vj] = Y[vi, vj] * 2.0"),
            ["s.cache_write('Y')"],
            "the init of Y goes on from what Y held before",
        ),
        (PRODUCT, ["s.cache_inplace('Y', 'A')"], "Y writes Y: A is none of these"),
        (PRODUCT, ["s.set_scope('C', 'local')"], "C is a parameter of product, and lives where its caller put it"),
        (PRODUCT, ["s.set_scope('Y', 'stack')"], "there is no scope stack"),
        (PRODUCT, ["s.storage_align('C', 0, 4)"], "C is a parameter of product, and lies where its caller put it"),
        (PRODUCT, ["s.storage_align('Y', 2, 4)"], "Y has 2 axes, and 2 is not one of them"),
        (PRODUCT, ["s.storage_align('Y', 0, 0)"], "no alignment"),
        (PRODUCT, ["s.storage_align('Y', 0, 4, 4)"], "no alignment"),
        (PRODUCT, ["s.double_buffer('C', 'i1')"], "C is a parameter of product, and has the room that its caller gave"),
        (PRODUCT, ["s.double_buffer('Y', 'i')"], "Y is used outside of i"),
        (RUNNING, ["s.double_buffer('T', 't')"], "a step of t may read what an earlier one left in T"),
    ],
)
def test_what_is_refused(text, calls, message):
    assert message in refused(text.format(n=6), *calls)


def test_two_slots():
    nest = read(PRODUCT.format(n=6))
    s = Schedule(nest)
    s.split("i", [None, 4])
    s.reverse_compute_at("C", "i_0")
    s.double_buffer("Y", "i_0")
    assert s.nest.allocs[0].shape[0] == Const(2)
    same_results(nest, s.nest)


def test_what_is_no_box_is_not_copied_out():
    assert "cache_inplace copies in first" in refused(TRIANGLE, "s.cache_write('C', 'local')")
