"""The source of each default schedule, as it is kept in ``kernels/``: ``GRAPHOPT_GOLDEN=1 pytest`` writes it anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from graphopt.kernels import host
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.cpu.loop_fission import divided
from graphopt.lowering.emit.kernel_source import EmitError, emit
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.expressions import Const, maximum
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.described import FIXED, SYMBOLIC
from tests.lowering.native import check

FOLDER = Path(__file__).parents[1] / "kernels"
ALL = FIXED | SYMBOLIC


@pytest.mark.usefixtures("avx512")
@pytest.mark.parametrize("name", ALL)
def test_the_source_is_as_it_was(name: str) -> None:
    source = "\n".join(emit(part).kernel.source for part in divided(scheduled(ALL[name]())))
    path = FOLDER / f"{name}.py.txt"
    if os.environ.get("GRAPHOPT_GOLDEN"):
        path.write_text(source)
    assert source == path.read_text()


@pytest.mark.parametrize("name", ALL)
def test_a_nest_is_right_without_any_schedule(name: str) -> None:
    nest = ALL[name]()
    check(nest, nest, [5] * len(nest.sizes))


@pytest.mark.usefixtures("avx512")
def test_buffers_are_told_apart_where_the_loops_within_all_others_store() -> None:
    x, w, k = t.placeholder((32, 32)), t.placeholder((32, 32), name="w"), t.reduce_axis(32)
    made = t.compute((32, 32), lambda i, j: t.sum(x[i, k.var] * w[k.var, j], k), name="y")
    s = Schedule(t.nest("product", [x, w], [made]))
    block = s.get_block("y")
    assert emit(s.nest).kernel.noalias, "it adds to each result in memory"
    i, j, depth = s.get_loops(block)
    j0, j1 = s.split(j, [None, 16])
    s.reorder(i, j0, depth, j1)
    copy = s.cache_write(block, "local")
    s.reverse_compute_at(copy, j0)
    start = s.decompose_reduction(block, depth)
    for stage in (block, start, copy):
        s.vectorize(s.get_loops(stage)[-1])
    assert not emit(s.nest).kernel.noalias, "sums are in a register until all is added"


def test_a_reduction_is_not_vectorized_before_its_init_is_decomposed() -> None:
    nest = read("""
@program
def total(x: Buffer[(64,), "float32"], y: Buffer[(1,), "float32"]):
    for i in vectorized(64):
        with block("y"):
            v0 = axis.spatial(1, 0)
            v1 = axis.reduce(64, i)
            with init():
                y[v0] = 0.0
            y[v0] = y[v0] + x[v1]
""")
    with pytest.raises(EmitError, match="before its init"):
        emit(nest)


def test_equal_nests_have_equal_sources() -> None:
    assert emit(scheduled(FIXED["softmax"]())) == emit(scheduled(FIXED["softmax"]()))


def test_a_check_ends_the_kernel_with_its_message() -> None:
    nest = read("""
@program
def checked(x: Buffer[(4,), "int64"], y: Buffer[(4,), "int64"]):
    for i in serial(4):
        with block("y"):
            v0 = axis.spatial(4, i)
            check(x[v0] < 100, "too large")
            y[v0] = x[v0]
""")
    from numpy import arange, zeros

    from tests.lowering.native import run

    out = zeros(4, "int64")
    run(nest, [arange(4), out])
    assert out.tolist() == [0, 1, 2, 3]
    with pytest.raises(IndexError, match="too large"):
        run(nest, [arange(4) + 98, out])
    assert emit(nest).extent == Const(1)


@pytest.mark.usefixtures("avx512")
@pytest.mark.parametrize(("dtype", "lanes"), [("uint8", 64), ("int8", 64), ("int16", 32), ("int32", 16)])
def test_narrow_elements_that_lie_together_fill_vectors(dtype: str, lanes: int) -> None:
    x, y = t.placeholder((200,), dtype), t.placeholder((200,), dtype, name="y")
    nest = t.nest("equal", [x, y], [t.compute((200,), lambda i: maximum(x[i], y[i]), name="z")])
    made = scheduled(nest)
    check(nest, made)
    assert f", {lanes})" in emit(made).kernel.source
    apart = t.nest("strided", [x], [t.compute((66,), lambda i: x[i * 3], name="z")])
    check(apart, scheduled(apart))
    assert ", 64)" not in emit(scheduled(apart)).kernel.source


def test_what_is_read_whatever_is_chosen_is_read_once_and_neighbouring_axes_are_one() -> None:
    """Elements that are looked up between others, in rows of 5 that lie in memory as one of 35."""
    place = 'cast(floor(at[vi, vj]), "int64")'
    nest = read(
        f"""
@program
def sampled(x: Buffer[(40,), "float32"], at: Buffer[(7, 5), "float32"], y: Buffer[(7, 5), "float32"]):
    for i, j in grid(7, 5):
        with block("y"):
            vi, vj = axis.remap("SS", [i, j])
            y[vi, vj] = (select({place} >= 0 and {place} < 40, x[{place}], 0.0) * (at[vi, vj] - floor(at[vi, vj]))
                         + select({place} >= 1 and {place} < 41, x[{place} - 1], 0.0))
"""
    )
    made = scheduled(nest)
    source = emit(made).kernel.source
    assert "range(0, 32, 16)" in source or "range(0, 32, 8)" in source
    assert not re.findall(r"load_where\(at, (?!32)", source)
    check(nest, made)


def test_an_axis_of_any_size_that_may_have_one_element_for_all_is_read_in_vectors() -> None:
    nest = read(
        """
@program
def added(x: Buffer[(n,), "float32"], b: Buffer[(37,), "float32"], y: Buffer[(37,), "float32"], n: size):
    for i in grid(37):
        with block("y"):
            vi = axis.remap("S", [i])
            y[vi] = x[select(n == 1, 0, vi)] + b[vi]
"""
    )
    made = scheduled(nest)
    assert "gather" not in emit(made).kernel.source
    check(nest, made, [1])
    check(nest, made, [37])


@pytest.mark.parametrize("length", [31, 1024])
def test_bytes_that_are_computed_with_as_floats_fill_vectors_where_rows_do(length: int) -> None:
    nest = read(
        f"""
@program
def halved(x: Buffer[(9, {length}), "uint8"], y: Buffer[(9, {length}), "uint8"]):
    for i, j in grid(9, {length}):
        with block("y"):
            vi, vj = axis.remap("SS", [i, j])
            y[vi, vj] = cast(cast(x[vi, vj], "float32") * 0.5 + cast(vi, "float32"), "uint8")
"""
    )
    made = scheduled(nest)
    lanes = {int(n) for n in re.findall(r"load\(x, [^,]+, (\d+)\)", emit(made).kernel.source)}
    assert lanes == {host.vector_bytes() if length > 64 else host.lanes("float32")}
    check(nest, made)
