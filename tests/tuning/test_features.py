"""The numbers of nests that are small enough to count by hand."""

from __future__ import annotations

import pytest

import graphopt
from graphopt.lowering.loops.nest import Nest
from graphopt.tuning.features import NAMES, features
from tests.tuning.nests import dense, product


def numbers(nest: Nest, **sizes: int) -> dict[str, float]:
    found = features(nest, sizes)
    assert len(found) == len(NAMES)
    return {name: 2**x - 1 for name, x in zip(NAMES, found, strict=True)}


def check(found: dict[str, float], **wanted: float) -> None:
    assert {name: found[name.replace("_", " ")] for name in wanted} == pytest.approx(wanted, rel=1e-3)


def test_a_naive_product() -> None:
    found = numbers(product(24, 48, 20))
    bytes_ = 4 * (24 * 20 + 20 * 48 + 24 * 48)
    check(found, flops=2 * 24 * 48 * 20, steps=24 * 48 * 20, statements=2, serial_loops=3, bytes=bytes_, local_bytes=0)
    check(found, extent_0=20, extent_1=48, extent_2=24, extent_3=0, vector=1, unrolled=1, parallel=1, calls=0)
    # of c, which it reads too, of a and b: one row and one column, then all columns, then everything
    check(found, loads=3, bytes_within_0=4 * (1 + 20 + 20), bytes_within_1=4 * (48 + 20 + 960), bytes_within_2=bytes_)
    check(found, intensity=2 * 24 * 48 * 20 / bytes_)


def test_a_tile_in_registers() -> None:
    s = graphopt.Schedule(product(24, 48, 20))
    block = s.get_block("c")
    i, j, k = s.get_loops(block)
    i0, i1 = s.split(i, [None, 6])
    j0, j1 = s.split(j, [None, 16])
    s.reorder(i0, j0, k, i1, j1)
    s.reverse_compute_at(s.cache_write(block, "local"), j0)
    s.decompose_reduction(block, k)
    s.unroll(i1)
    s.vectorize(j1)
    s.parallel(i0)
    found = numbers(s.nest)
    check(found, vector=16, unrolled=6, parallel=4, serial_loops=2, extent_0=20, extent_1=3, statements=3)
    check(found, steps=24 * 48 * 20, other_steps=2 * 24 * 48)
    # in each step of the sum, six elements of a and a vector of b
    check(found, loads=2, loads_side_by_side=1, loads_of_one_element=1, loads_far_apart=0, loads_per_step=1 + 1 / 6)
    check(found, bytes_within_0=4 * 20 * (6 + 16))


def test_a_call_of_a_function() -> None:
    s = graphopt.Schedule(product(128, 128, 128))
    s.by_rule((("function", 1), ("piece 0", 64)))
    found = numbers(s.nest)
    check(found, calls=2, parallel=2, loads=0, flops=2 * 128**3, library=0)
    check(found, rows_of_argument_0=128, columns_of_argument_0=64, bytes_of_argument_1=4 * 128 * 128)
    s = graphopt.Schedule(product(128, 128, 128))
    s.by_rule((("function", 0),))
    check(numbers(s.nest), library=1)


def test_blocks_of_threads() -> None:
    s = graphopt.Schedule(product(64, 48, 20))
    block = s.get_block("c")
    i, j, _ = s.get_loops(block)
    by, ty = s.split(i, [None, 16])
    bx, tx = s.split(j, [None, 8])
    s.reorder(by, bx, ty, tx)
    s.compute_at(s.cache_read(block, "a", "shared"), bx)
    for loop, axis in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        s.bind(loop, axis)
    found = numbers(s.nest)
    check(found, blocks=4 * 6, threads=16 * 8, parallel=1, serial_loops=1)
    check(found, loads=3)  # what threads share is read like what lies in memory


def test_open_sizes_are_those_of_the_workload() -> None:
    few, many = (numbers(dense("n"), n=n) for n in (4, 400))
    assert many["flops"] == pytest.approx(100 * few["flops"], rel=1e-2)
    check(many, extent_2=400)
