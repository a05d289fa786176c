"""Full tiles without predicates: what is computed stays the same, whatever is split and does not divide."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from graphopt.kernels import host
from graphopt.lowering.emit.full_tiles import separated
from graphopt.lowering.emit.kernel_source import emit
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import TRUE, For, If, Nest, Seq, blocks, statements
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.native import check, random_arrays, run


def matmul(m: int | str, n: int | str, k: int | str) -> Nest:
    """A product of these sides, of which names are sizes."""
    a, b, c = (f"{m!r}", f"{n!r}", f"{k!r}")
    sizes = "".join(f", {x}: size" for x in dict.fromkeys(x for x in (m, n, k) if isinstance(x, str)))
    return read(f"""
@program
def product(A: Buffer[({a}, {c}), "float32"], B: Buffer[({c}, {b}), "float32"],
            Y: Buffer[({a}, {b}), "float32"]{sizes}):
    for i, j, k_ in grid({m}, {n}, {k}):
        with block("Y"):
            v0, v1, v2 = axis.remap("SSR", [i, j, k_])
            with init():
                Y[v0, v1] = 0.0
            Y[v0, v1] = Y[v0, v1] + A[v0, v2] * B[v2, v1]
""")


def strips(nest: Nest, width: int, vectorized: bool, decomposed: bool = True) -> Nest:
    """The product by columns in strips."""
    s = Schedule(nest)
    i, j, k = s.get_loops("Y")
    j0, j1 = s.split(j, [None, width])
    s.reorder(i, j0, k, j1)
    if vectorized:
        s.vectorize(j1)
    if decomposed:
        s.decompose_reduction("Y", k)
    return s.nest


def squares(nest: Nest, side: int, parallel: bool = False) -> Nest:
    """The product by squares of results, and the sum in parts."""
    s = Schedule(nest)
    i, j, k = s.get_loops("Y")
    (i0, i1), (j0, j1), (k0, k1) = (s.split(loop, [None, side]) for loop in (i, j, k))
    s.reorder(i0, j0, k0, i1, k1, j1)
    s.vectorize(j1)
    s.decompose_reduction("Y", k0)
    if parallel:
        s.parallel(i0)
    return s.nest


@pytest.mark.parametrize(("vectorized", "decomposed"), [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize(("n", "width"), [(100, 16), (17, 16), (33, 8), (5, 16), (1, 4), (31, 7), (30, 28), (16, 16)])
def test_strips_are_right(n: int, width: int, vectorized: bool, decomposed: bool) -> None:
    nest = matmul(3, n, 5)
    check(nest, strips(nest, width, vectorized, decomposed))


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize(("sides", "side"), list(product([(10, 19, 6), (4, 1, 9), (0, 5, 3), (7, 7, 7)], [4, 8])))
def test_squares_are_right(sides: tuple[int, int, int], side: int, parallel: bool) -> None:
    nest = matmul(*sides)
    check(nest, squares(nest, side, parallel))


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 24])
def test_strips_of_open_sizes_are_right(n: int, vectorized: bool) -> None:
    nest = matmul("m", "n", "k")
    made = strips(nest, 8, vectorized)
    for depth in (1, 6):
        check(nest, made, [3, n, depth])


def test_full_tiles_of_open_sizes_have_no_predicate() -> None:
    nest = strips(matmul("m", "n", "k"), 8, True)
    tiles = [s for s in statements(separated(nest.body, nest.sizes)) if isinstance(s, If)]
    assert tiles
    for tile in tiles:
        assert all(b.predicate == TRUE for b in blocks(tile.then))
        assert tile.otherwise is not None
        assert all(b.predicate != TRUE for b in blocks(tile.otherwise))


def test_tiles_of_sums_that_do_not_divide_have_no_predicate() -> None:
    nest = squares(matmul(100, 100, 100), 16)
    full = next(s.then for s in statements(separated(nest.body)) if isinstance(s, If))
    assert [b.name for b in blocks(full)] == ["Y_init", "Y", "Y"]  # steps of the sum that are left are the last
    assert all(b.predicate == TRUE for b in blocks(full))


def test_nothing_is_written_where_all_lanes_of_one_element_are_out_of_bounds() -> None:
    nest = matmul(4, 1, 9)
    y = np.full((8, 1), 77, np.float32)  # four rows behind those of the result
    a, b, _ = random_arrays(nest)
    run(squares(nest, 8), [a, b, y])
    assert np.array_equal(y[4:], np.full((4, 1), 77))
    assert np.allclose(y[:4], a @ b, atol=1e-3)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 40])
def test_sizes_that_are_known_when_it_runs_are_tested_there(n: int) -> None:
    nest = matmul(9, "n", 4)
    check(nest, strips(nest, 16, True), [n])
    check(nest, squares(nest, 8), [n])


def test_the_last_tile_is_a_statement_of_its_own_that_ends_where_the_axis_does() -> None:
    body = separated(strips(matmul(3, 100, 5), 16, False).body)
    assert isinstance(body, For)
    assert isinstance(body.body, Seq)
    full, *_ = body.body.stmts
    assert isinstance(full, For)
    assert full.extent == Const(6)
    assert all(block.predicate == TRUE for block in blocks(body))
    assert sum(block.name == "Y" for block in blocks(body)) == 2


def test_tiles_of_two_axes_are_tested_once() -> None:
    body = separated(squares(matmul(10, 10, 8), 4).body)
    assert isinstance(body, For)
    assert isinstance(body.body, For)
    test = body.body.body
    assert isinstance(test, If)
    assert all(block.predicate == TRUE for block in blocks(test.then))


def test_what_divides_stays_as_it_is() -> None:
    nest = squares(matmul(8, 8, 8), 4)
    assert separated(nest.body) == nest.body


@pytest.mark.usefixtures("avx512")
def test_what_is_left_over_of_sums_in_memory_is_shorter_vectors() -> None:
    nest = matmul(3, 28, 5)
    s = Schedule(nest)
    i, j, k = s.get_loops("Y")
    s.reorder(i, k, j)
    s.vectorize(j)
    s.decompose_reduction("Y", k)
    source = emit(s.nest).kernel.source
    update = [line for line in source.splitlines() if "fma(" in line]
    assert host.lanes("float32") == 16
    assert [f", {n})" in line for line, n in zip(update, (16, 8, 4), strict=True)] == [True] * 3
    assert not any("_where" in line for line in update)
    check(nest, s.nest)
