"""The classic exercises of scheduling: each ends up with the loops that one wants, and computes what it did before."""

from __future__ import annotations

import pytest

from graphopt.lowering.loops.script import read, show
from graphopt.lowering.schedule.schedule import Schedule, replay
from graphopt.lowering.schedule.trace import Trace
from tests.lowering.documented import same_results

MATMUL_RELU = """
@program
def mm_relu(A: Buffer[({n}, {k}), "float32"], B: Buffer[({k}, {m}), "float32"], C: Buffer[({n}, {m}), "float32"]):
    Y = alloc(({n}, {m}), "float32")
    for i, j, k in grid({n}, {m}, {k}):
        with block("Y"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                Y[vi, vj] = 0.0
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for i1, j1 in grid({n}, {m}):
        with block("C"):
            vi1, vj1 = axis.remap("SS", [i1, j1])
            C[vi1, vj1] = max(Y[vi1, vj1], 0.0)
"""


def test_matmul_relu():
    nest = read(MATMUL_RELU.format(n=12, m=8, k=5))
    s = Schedule(nest)
    _, j, k = s.get_loops("Y")
    j0, j1 = s.split(j, [None, 4])
    s.reorder(j0, k, j1)
    s.reverse_compute_at("C", j0)
    s.decompose_reduction("Y", k)
    wanted = """
@program
def mm_relu(A: Buffer[(12, 5), "float32"], B: Buffer[(5, 8), "float32"], C: Buffer[(12, 8), "float32"]):
    Y = alloc((12, 8), "float32")
    for i, j_0 in grid(12, 2):
        for j_1_init in serial(4):
            with block("Y_init"):
                vi_init = axis.spatial(12, i)
                vj_init = axis.spatial(8, j_0 * 4 + j_1_init)
                Y[vi_init, vj_init] = 0.0
        for k, j_1 in grid(5, 4):
            with block("Y"):
                vi = axis.spatial(12, i)
                vj = axis.spatial(8, j_0 * 4 + j_1)
                vk = axis.reduce(5, k)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for ax1 in serial(4):
            with block("C"):
                vi1 = axis.spatial(12, i)
                vj1 = axis.spatial(8, j_0 * 4 + ax1)
                C[vi1, vj1] = max(Y[vi1, vj1], 0.0)
"""
    assert show(s.nest) == show(read(wanted))
    same_results(nest, s.nest)


@pytest.mark.parametrize(("n", "m", "k"), [(2, 7, 3), (5, 7, 3), (4, 3, 2), (3, 9, 4)])
def test_matmul_relu_with_what_is_left_over(n, m, k):
    nest = read(MATMUL_RELU.format(n=n, m=m, k=k))
    s = Schedule(nest)
    i, j, k_ = s.get_loops("Y")
    j0, j1 = s.split(j, [None, 4])
    i0, i1 = s.split(i, [None, 2])
    k0, k1 = s.split(k_, [None, 2])
    s.reorder(i0, j0, k0, i1, k1, j1)
    s.reverse_compute_at("C", j0)
    s.decompose_reduction("Y", k0)
    same_results(nest, s.nest)


BATCHED = """
@program
def bmm_relu(A: Buffer[({b}, {n}, {k}), "float32"], B: Buffer[({b}, {k}, {m}), "float32"],
             C: Buffer[({b}, {n}, {m}), "float32"]):
    Y = alloc(({b}, {n}, {m}), "float32")
    for b, i, j, k in grid({b}, {n}, {m}, {k}):
        with block("Y"):
            vb, vi, vj, vk = axis.remap("SSSR", [b, i, j, k])
            with init():
                Y[vb, vi, vj] = 0.0
            Y[vb, vi, vj] = Y[vb, vi, vj] + A[vb, vi, vk] * B[vb, vk, vj]
    for b1, i1, j1 in grid({b}, {n}, {m}):
        with block("C"):
            vb1, vi1, vj1 = axis.remap("SSS", [b1, i1, j1])
            C[vb1, vi1, vj1] = max(Y[vb1, vi1, vj1], 0.0)
"""


@pytest.mark.parametrize(("b", "n", "m", "k"), [(4, 8, 8, 8), (1, 3, 5, 2), (2, 1, 9, 6)])
def test_batched_matmul_relu(b, n, m, k):
    nest = read(BATCHED.format(b=b, n=n, m=m, k=k))
    s = Schedule(nest)
    b_, i, j, k_ = s.get_loops("Y")
    j0, j1 = s.split(j, [None, 4])
    k0, k1 = s.split(k_, [None, 2])
    s.reorder(b_, i, j0, k0, k1, j1)
    s.reverse_compute_at("C", j0)
    init = s.decompose_reduction("Y", k0)
    s.parallel(b_)
    s.vectorize(s.get_loops(init)[-1])
    s.vectorize(j1)
    s.vectorize(s.get_loops("C")[-1])
    s.unroll(k1)
    kinds = [line.split(" in ")[1].split("(")[0] for line in show(s.nest).splitlines() if " in " in line]
    assert kinds.count("parallel") == 1
    assert kinds.count("vectorized") == 3
    same_results(nest, s.nest)


CONV = """
@program
def conv(X: Buffer[({c}, {h}, {w}), "float32"], W: Buffer[({f}, {c}, 3, 3), "float32"],
         bias: Buffer[({f},), "float32"], Z: Buffer[({f}, {h}, {w}), "float32"]):
    P = alloc(({c}, {h} + 2, {w} + 2), "float32")
    Y = alloc(({f}, {h}, {w}), "float32")
    for c, h, w in grid({c}, {h} + 2, {w} + 2):
        with block("P"):
            vc, vh, vw = axis.remap("SSS", [c, h, w])
            P[vc, vh, vw] = select(vh >= 1 and vh < {h} + 1 and vw >= 1 and vw < {w} + 1, X[vc, vh - 1, vw - 1], 0.0)
    for f, y, x, k, r, t in grid({f}, {h}, {w}, {c}, 3, 3):
        with block("Y"):
            vf, vy, vx, vk, vr, vt = axis.remap("SSSRRR", [f, y, x, k, r, t])
            with init():
                Y[vf, vy, vx] = 0.0
            Y[vf, vy, vx] = Y[vf, vy, vx] + P[vk, vy + vr, vx + vt] * W[vf, vk, vr, vt]
    for f1, y1, x1 in grid({f}, {h}, {w}):
        with block("Z"):
            vf1, vy1, vx1 = axis.remap("SSS", [f1, y1, x1])
            Z[vf1, vy1, vx1] = max(Y[vf1, vy1, vx1] + bias[vf1], 0.0)
"""


@pytest.mark.parametrize(("c", "f", "h", "w"), [(3, 4, 8, 8), (2, 3, 5, 7), (1, 1, 2, 3)])
def test_convolution_fused_tiled_and_decomposed(c, f, h, w):
    nest = read(CONV.format(c=c, f=f, h=h, w=w))
    s = Schedule(nest)
    _, y, x, *reduction = s.get_loops("Y")
    y0, y1 = s.split(y, [None, 4])
    x0, x1 = s.split(x, [None, 4])
    s.reorder(y0, x0, *reduction, y1, x1)
    s.compute_at("P", y0)  # a tile's rows are padded once for all its columns
    s.reverse_compute_at("Z", x0)
    s.decompose_reduction("Y", reduction[0])
    same_results(nest, s.nest)
    s.vectorize(x1)
    s.vectorize(s.get_loops("Z")[-1])
    same_results(nest, s.nest)


@pytest.mark.parametrize(("c", "f", "h", "w"), [(3, 4, 8, 8), (2, 3, 5, 7)])
def test_convolution_without_a_padded_copy(c, f, h, w):
    nest = read(CONV.format(c=c, f=f, h=h, w=w))
    s = Schedule(nest)
    s.compute_inline("P")
    assert "P = alloc" not in s.script()
    same_results(nest, s.nest)


SIZES = [(16, 16, 16), (8, 12, 6), (1, 4, 1)]


def tiled(s: Schedule) -> None:
    """SSRSRS: spatial, spatial, reduction, spatial, reduction, spatial, from the outermost in."""
    s.annotate("Y", "tiling", "SSRSRS")
    cache = s.cache_write("Y", "local")
    i, j, k = s.get_loops("Y")
    i0, i1, i2, i3 = s.split(i, s.sample_perfect_tile(i, 4))
    j0, j1, j2, j3 = s.split(j, s.sample_perfect_tile(j, 4))
    k0, k1 = s.split(k, s.sample_perfect_tile(k, 2))
    s.reorder(i0, j0, i1, j1, k0, i2, j2, k1, i3, j3)
    s.reverse_compute_at(cache, j1, preserve_unit_loops=True)
    s.reverse_compute_at("C", j1, preserve_unit_loops=True)
    s.parallel(s.fuse(i0, j0))
    s.unroll(i3)
    s.vectorize(j3)
    s.vectorize(s.get_loops("C")[-1])
    init = s.decompose_reduction("Y", k0)
    s.annotate(init, "start", 1)


@pytest.mark.parametrize(("n", "m", "k"), SIZES)
@pytest.mark.parametrize("seed", range(2))
def test_multi_level_tiling_is_written_down_and_replayed(n, m, k, seed):
    nest = read(MATMUL_RELU.format(n=n, m=m, k=k))
    s = Schedule(nest, seed)
    tiled(s)
    same_results(nest, s.nest)
    written = Trace.from_json(s.trace.to_json())
    assert replay(written, nest).nest == s.nest
    assert str(written) == str(s.trace)
