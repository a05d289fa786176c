"""Buffers that live within a step of a loop are as small as the step needs, and programs compute what they did."""

from __future__ import annotations

import pytest

from graphopt.lowering.cpu.compact_buffers import compacted
from graphopt.lowering.emit.kernel_source import emit
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read, show_expr
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.documented import random_arrays, same_results
from tests.lowering.native import check
from tests.lowering.test_exercises import BATCHED, CONV, MATMUL_RELU, tiled
from tests.lowering.test_schedule_oracle import PROGRAMS, walk_of


def shapes(nest: Nest) -> dict[str, str]:
    return {b.name: " ".join(show_expr(n) for n in b.shape) for b in nest.allocs}


def register_tile(s: Schedule) -> None:
    copy = s.cache_write("Y", "local")
    i, j, k = s.get_loops("Y")
    i0, i1 = s.split(i, [None, 4])
    j0, j1 = s.split(j, [None, 16])
    s.reorder(i0, j0, k, i1, j1)
    s.reverse_compute_at(copy, j0)
    s.reverse_compute_inline("C")
    init = s.decompose_reduction("Y", k)
    for block in ("Y", init, copy):
        *_, rows, columns = s.get_loops(block)
        s.unroll(rows)
        s.vectorize(columns)


def test_a_tile_of_accumulators_is_small():
    nest = read(MATMUL_RELU.format(n=8, m=32, k=5))
    s = Schedule(nest)
    register_tile(s)
    small = compacted(s.nest)
    assert shapes(small) == {"Y_local": "4 16"}
    same_results(nest, small)
    check(nest, small)


@pytest.mark.usefixtures("avx512")
def test_a_tile_of_accumulators_is_in_registers():
    s = Schedule(read(MATMUL_RELU.format(n=8, m=32, k=5)))
    register_tile(s)
    source = emit(compacted(s.nest)).kernel.source
    assert "stack" not in source
    assert source.count("fma(") == 4


@pytest.mark.parametrize(("c", "f", "h", "w"), [(3, 4, 8, 8), (2, 3, 5, 7)])
def test_a_tile_of_rows(c, f, h, w):
    nest = read(CONV.format(c=c, f=f, h=h, w=w))
    s = Schedule(nest)
    _, y, *_ = s.get_loops("Y")
    y0, _ = s.split(y, [None, 4])
    s.compute_at("P", y0)
    s.reverse_compute_at("Z", y0)
    small = compacted(s.nest)
    assert shapes(small)["P"].split()[1] == str(min(6, h + 2))
    assert shapes(small)["Y"].split()[0] == "1"
    same_results(nest, small)
    check(nest, small)


@pytest.mark.parametrize("seed", range(2))
def test_multi_level_tiling_runs(seed):
    nest = read(MATMUL_RELU.format(n=16, m=16, k=16))
    s = Schedule(nest, seed)
    tiled(s)
    small = compacted(s.nest)
    assert int(shapes(small)["Y_local"].split()[0]) < 16 or int(shapes(small)["Y_local"].split()[1]) < 16
    same_results(nest, small)
    check(nest, small, pieces=2)


def test_what_parallel_steps_share_keeps_its_size():
    nest = read(BATCHED.format(b=3, n=4, m=5, k=2))
    s = Schedule(nest)
    s.reverse_compute_at("C", "i")
    assert shapes(compacted(s.nest))["Y"] == "1 1 5"
    s.parallel("b")
    assert shapes(compacted(s.nest))["Y"] == "3 4 5"
    s.set_scope("Y", "local")
    assert shapes(compacted(s.nest))["Y"] == "1 1 5"
    check(nest, compacted(s.nest), pieces=3)


def test_what_steps_leave_for_others_keeps_its_size():
    text = """
@program
def running(A: Buffer[(4, 3), "float32"], C: Buffer[(4, 3), "float32"]):
    T = alloc((4, 3), "float32")
    for t in serial(4):
        for i in serial(3):
            with block("T"):
                vt, vi = axis.remap("OS", [t, i])
                T[vt, vi] = select(vt > 0, T[vt - 1, vi], 0.0) + A[vt, vi]
        for i1 in serial(3):
            with block("C"):
                vt1, vi1 = axis.remap("SS", [t, i1])
                C[vt1, vi1] = T[vt1, vi1]
"""
    nest = read(text)
    assert compacted(nest) == nest


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_schedules(name):
    for seed in range(15):
        nest, s = walk_of(name, seed)
        small = compacted(s.nest)
        first, second = random_arrays(nest, seed), random_arrays(nest, seed)
        interpret(s.nest, first)
        interpret(small, second)
        for key in first:
            assert (first[key] == second[key]).all(), small


def test_slots_that_steps_take_in_turn_are_kept() -> None:
    s = Schedule(read(MATMUL_RELU.format(n=8, m=32, k=6)))
    i, _, k = s.get_loops("Y")
    ko, ki = s.split(k, [None, 3])
    s.reorder(i, ko, ki)
    s.decompose_reduction("Y", ko)
    copy = s.cache_read("Y", 0, "shared")
    s.compute_at(copy, ko)
    s.double_buffer(copy, ko)
    s.bind(i, "blockIdx.x")
    small = compacted(s.nest)
    assert [shape for name, shape in shapes(small).items() if "shared" in name] == ["2 1 3"]
    same_results(s.nest, small)
