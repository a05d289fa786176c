"""Vectors of loops that are not vectorized by hand, and lanes that are read from places apart."""

from __future__ import annotations

import pytest

from graphopt.kernels import host
from graphopt.lowering.emit.kernel_source import emit
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.native import check


def product(n: int, dtype: str, b: str = "B[v2, v1]") -> Nest:
    """A product of three rows and ``n`` columns."""
    rows = f"(5, {n})" if b == "B[v2, v1]" else f"({n}, 5)"
    return read(f"""
@program
def product(A: Buffer[(3, 5), "{dtype}"], B: Buffer[{rows}, "{dtype}"], Y: Buffer[(3, {n}), "{dtype}"]):
    for i, j, k in grid(3, {n}, 5):
        with block("Y"):
            v0, v1, v2 = axis.remap("SSR", [i, j, k])
            with init():
                Y[v0, v1] = cast(0, "{dtype}")
            Y[v0, v1] = Y[v0, v1] + A[v0, v2] * {b}
""")


def strips(nest: Nest, width: int, is_vectorized: bool = False) -> Nest:
    """The product by columns in strips."""
    s = Schedule(nest)
    i, j, k = s.get_loops("Y")
    j0, j1 = s.split(j, [None, width])
    s.reorder(i, j0, k, j1)
    if is_vectorized:
        s.vectorize(j1)
    s.decompose_reduction("Y", k)
    return s.nest


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize(("n", "width"), [(64, 64), (48, 16), (20, 16), (4, 4), (6, 3), (1, 1)])
def test_integers_add_up_in_vectors(n: int, width: int, dtype: str) -> None:
    nest = product(n, dtype)
    check(nest, strips(nest, width))


def test_sums_of_integers_are_vectors_where_they_fill_them() -> None:
    lanes = host.lanes("float32")
    assert "load(Y" in emit(strips(product(4 * lanes, "int32"), 2 * lanes)).kernel.source
    assert "load(Y" not in emit(strips(product(4 * lanes, "float32"), 2 * lanes)).kernel.source
    assert "load(Y" not in emit(strips(product(9 * lanes, "int32"), 3 * lanes + 1)).kernel.source


def test_elements_that_depend_on_those_beside_them_are_no_vectors() -> None:
    nest = read("""
@program
def running(A: Buffer[(4, 32), "int32"], Y: Buffer[(33,), "int32"]):
    for k, j in grid(4, 32):
        with block("Y"):
            vk, vj = axis.remap("OO", [k, j])
            Y[vj + 1] = Y[vj + 1] + Y[vj] + A[vk, vj]
""")
    assert "load(" not in emit(nest).kernel.source


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
@pytest.mark.parametrize(("n", "width"), [(64, 16), (20, 16), (4, 4), (1, 4)])
def test_lanes_a_known_distance_apart_are_loaded_one_by_one(n: int, width: int, dtype: str) -> None:
    nest = product(n, dtype, "B[v1, v2]")
    made = strips(nest, width, is_vectorized=True)
    check(nest, made)
    assert "gather(" not in emit(made).kernel.source


@pytest.mark.parametrize("sizes", [(0, 3), (1, 1), (17, 5), (32, 2)])
def test_lanes_may_be_an_open_distance_apart(sizes: tuple[int, int]) -> None:
    nest = read("""
@program
def turned(A: Buffer[("n", "m"), "float32"], Y: Buffer[("m", "n"), "float32"], n: size, m: size):
    for i, j in grid(m, n):
        with block("Y"):
            v0, v1 = axis.remap("SS", [i, j])
            Y[v0, v1] = A[v1, v0]
""")
    s = Schedule(nest)
    s.vectorize(s.get_loops("Y")[-1])
    assert "load_strided(A" in emit(s.nest).kernel.source
    check(nest, s.nest, sizes)


@pytest.mark.parametrize("n", [0, 1, 5, 64, 147, 4096])
@pytest.mark.parametrize(("table", "code", "index"), [
    ("(256,)", "int8", 'cast(X[v0, v1], "int64") + 128'),
    ("(256,)", "uint8", 'cast(X[v0, v1], "int64")'),
    ("(3, 256)", "uint8", 'v0, cast(X[v0, v1], "int64")'),
    ("(256,)", "uint8", 'cast(bitxor(X[v0, v1], cast(129, "uint8")), "int64")'),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
def test_bytes_are_looked_up_in_tables(dtype: str, table: str, code: str, index: str, n: int) -> None:
    made = looked_up(dtype, table, code, index)
    source = emit(made).kernel.source
    assert "gather" not in source
    assert f"lookup({'offset(' if table != '(256,)' else ''}T" in source
    check(made, made, (n,))


@pytest.mark.parametrize(("table", "code", "index"), [
    ("(257,)", "uint8", 'cast(X[v0, v1], "int64") + 1'),  # not a table of all codes
    ("(512,)", "uint8", 'cast(X[v0, v1], "int64") + 7'),
    ("(256,)", "int8", 'cast(X[v0, v1], "int64") % 256'),
    ("(256,)", "uint16", 'cast(X[v0, v1], "int64") % 256'),
    ("(256, 256)", "uint8", 'cast(X[v0, v1], "int64"), 0'),
    ("(256, 256)", "uint8", 'cast(X[v0, v1], "int64"), cast(X[v0, v1], "int64")'),
])  # fmt: skip
def test_other_tables_are_gathered(table: str, code: str, index: str) -> None:
    made = looked_up("uint8", table, code, index)
    assert "lookup(" not in emit(made).kernel.source
    check(made, made, (37,))


def looked_up(dtype: str, table: str, code: str, index: str) -> Nest:
    """Rows of codes, looked up in a table."""
    made = Schedule(
        read(f"""
@program
def looked_up(T: Buffer[{table}, "{dtype}"], X: Buffer[(3, "n"), "{code}"], Y: Buffer[(3, "n"), "{dtype}"], n: size):
    for i, j in grid(3, n):
        with block("Y"):
            v0, v1 = axis.remap("SS", [i, j])
            Y[v0, v1] = T[{index}]
""")
    )
    made.vectorize(made.get_loops("Y")[-1])
    return made.nest


def choices(count: int, is_branch: bool) -> Nest:
    """One of so many rows for each lane, by an index that counts from the end where it is negative; in a branch that
    rows take, or whatever the row is."""
    n = 5 * host.lanes("float32")
    given = "".join(f'X{k}: Buffer[(2, {n}), "float32"], ' for k in range(count))
    index = f"select(I[v1] < 0, I[v1] + {count}, I[v1])"
    chosen = f"X{count - 1}[v0, v1]"
    for k in reversed(range(count - 1)):
        chosen = f"select({index} < {k + 1}, X{k}[v0, v1], {chosen})"
    if is_branch:
        chosen = f"select(v0 < 1, {chosen}, X0[v0 - 1, v1])"
    return read(f"""
@program
def choices(I: Buffer[({n},), "int32"], {given}Y: Buffer[(2, {n}), "float32"]):
    for i, j in grid(2, {n}):
        with block("Y"):
            v0, v1 = axis.remap("SS", [i, j])
            Y[v0, v1] = {chosen}
""")


@pytest.mark.parametrize("is_branch", [False, True])
def test_choices_within_choices_are_written_once(is_branch: bool) -> None:
    """Each mask is computed before the loads that it leaves out: written where they are, it is in each of them."""
    lengths = []
    for count in (3, 6, 12):
        nest = choices(count, is_branch)
        schedule = Schedule(nest)
        schedule.vectorize(schedule.split(schedule.get_loops("Y")[1], [None, host.lanes("float32")])[1])
        check(nest, schedule.nest)
        lengths.append(len(emit(schedule.nest).kernel.source))
    assert lengths[2] < 3 * lengths[1] < 9 * lengths[0]
