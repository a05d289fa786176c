"""Reductions start before their loops where nothing tells the difference; what is computed stays the same."""

from __future__ import annotations

from itertools import permutations
from random import Random

import numpy as np
import pytest

from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Nest, blocks
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.decomposed import decomposed
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.native import check, random_arrays, run


def product(m: int | str, n: int | str, k: int | str) -> Nest:
    """A product of these sides, of which names are sizes."""
    sizes = "".join(f", {x}: size" for x in dict.fromkeys(x for x in (m, n, k) if isinstance(x, str)))
    return read(f"""
@program
def product(A: Buffer[({m!r}, {k!r}), "float32"], B: Buffer[({k!r}, {n!r}), "float32"],
            Y: Buffer[({m!r}, {n!r}), "float32"]{sizes}):
    for i, j, k_ in grid({m}, {n}, {k}):
        with block("Y"):
            v0, v1, v2 = axis.remap("SSR", [i, j, k_])
            with init():
                Y[v0, v1] = 0.5
            Y[v0, v1] = Y[v0, v1] + A[v0, v2] * B[v2, v1]
""")


def body(text: str) -> Nest:
    """A program over buffers of eight rows."""
    return read(f"""
@program
def rows(A: Buffer[(8, 8), "float32"], Y: Buffer[(9,), "float32"], Z: Buffer[(9,), "float32"]):
{text}
""")


def starts_inside(nest: Nest) -> bool:
    """Whether a block still has its init."""
    return any(b.init is not None for b in blocks(nest.body))


def same(nest: Nest, **sizes: int) -> None:
    """Checks that the interpreter finds the very same in both, and that nothing else is written."""
    arrays = random_arrays(nest, [sizes[v.name] for v in nest.sizes])
    expected, got = [a.copy() for a in arrays], [a.copy() for a in arrays]
    interpret(nest, expected, sizes)
    interpret(decomposed(nest), got, sizes)
    for a, b in zip(expected, got, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("sides", [(3, 5, 4), (1, 1, 1), (2, 3, 1)])
def test_reductions_start_before_their_loops_in_any_order(sides: tuple[int, int, int], order: tuple[int, ...]) -> None:
    s = Schedule(product(*sides))
    loops = s.get_loops("Y")
    s.reorder(*(loops[k] for k in order))
    assert not starts_inside(decomposed(s.nest))
    same(s.nest)


@pytest.mark.parametrize("n", [0, 1, 4, 7])
@pytest.mark.parametrize("width", [1, 4, 16])
def test_strips_start_once_also_of_open_sizes(n: int, width: int) -> None:
    s = Schedule(product("m", "n", "k"))
    i, j, k = s.get_loops("Y")
    j0, j1 = s.split(j, [None, width])
    s.reorder(i, j0, k, j1)
    assert not starts_inside(decomposed(s.nest))
    for depth in (0, 1, 5):  # without steps nothing starts
        same(s.nest, m=2, n=n, k=depth)


@pytest.mark.parametrize(("n", "width", "depth"), [(100, 16, 8), (17, 16, 5), (5, 8, 3), (1, 4, 4)])
@pytest.mark.parametrize("is_vectorized", [False, True])
def test_blocks_compile_to_the_same(n: int, width: int, depth: int, is_vectorized: bool) -> None:
    nest = product(5, n, 11)
    s = Schedule(nest)
    i, j, k = s.get_loops("Y")
    (j0, j1), (k0, k1) = s.split(j, [None, width]), s.split(k, [None, depth])
    s.reorder(i, j0, k0, k1, j1)
    if is_vectorized:
        s.vectorize(j1)
    assert not starts_inside(decomposed(s.nest))
    same(s.nest)
    check(nest, decomposed(s.nest))


def test_a_block_that_is_not_alone_in_its_loops_keeps_its_init() -> None:
    nest = body("""
    for k in serial(8):
        for i in serial(8):
            with block("Y"):
                vi, vk = axis.remap("SR", [i, k])
                with init():
                    Y[vi] = 0.0
                Y[vi] = Y[vi] + A[vi, vk]
        for i in serial(8):
            with block("Z"):
                vi = axis.remap("S", [i])
                Z[vi] = Y[vi] + Y[vi + 1]
""")
    assert decomposed(nest) == nest


def test_a_block_that_reads_its_neighbours_keeps_its_init() -> None:
    nest = body("""
    for k, i in grid(8, 8):
        with block("Y"):
            vi, vk = axis.remap("SR", [i, k])
            with init():
                Y[vi] = 0.0
            Y[vi] = Y[vi] + A[vi, vk] * Y[vi + 1]
""")
    assert decomposed(nest) == nest


def test_a_block_that_starts_several_times_keeps_its_init() -> None:
    nest = body("""
    for k, i in grid(8, 8):
        with block("Y"):
            vi = axis.spatial(8, i)
            vk = axis.reduce(4, k // 2)
            with init():
                Y[vi] = 0.0
            Y[vi] = Y[vi] + A[vi, vk]
""")
    assert decomposed(nest) == nest


@pytest.mark.parametrize("seed", range(24))
def test_random_schedules_add_up_in_the_same_order(seed: int) -> None:
    random = Random(seed)
    sides = [random.choice([1, 2, 3, 5, 8, 17]) for _ in range(3)]
    s = Schedule(product(*sides))
    loops = [part for loop in s.get_loops("Y") for part in s.split(loop, [None, random.choice([1, 2, 4, 16])])]
    random.shuffle(loops)
    s.reorder(*loops)
    if random.random() < 0.5:
        s.unroll(random.choice(loops[2:]))
    same(s.nest)
    arrays = [np.rint(a) for a in random_arrays(s.nest)]  # sums of small whole numbers are exact
    expected, got = [a.copy() for a in arrays], [a.copy() for a in arrays]
    interpret(s.nest, expected)
    run(s.nest, got)
    for a, b in zip(expected, got, strict=True):
        np.testing.assert_array_equal(a, b)
