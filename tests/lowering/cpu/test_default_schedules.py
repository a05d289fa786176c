import re

import pytest

from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.cpu.scheduling import CHUNK
from graphopt.lowering.link.options import for_the_host
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops import wellformed
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import For, Invoke, Nest, blocks, statements
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.described import FIXED, SYMBOLIC
from tests.lowering.native import Native, check


@pytest.mark.parametrize("name", FIXED)
def test_a_schedule_computes_what_the_nest_says(name: str) -> None:
    nest = FIXED[name]()
    made = scheduled(nest)
    wellformed.check(made)
    check(nest, made, pieces=(1, 3))


@pytest.mark.parametrize("name", SYMBOLIC)
def test_one_schedule_serves_every_size(name: str) -> None:
    nest = SYMBOLIC[name]()
    made = Native(scheduled(nest))
    for size in (1, 7, 16, 45):
        check(nest, made, [size])


def kinds(name: str) -> set[str]:
    return {s.kind for s in statements(scheduled(FIXED[name]()).body) if isinstance(s, For)}


def test_contractions_are_tiled_in_registers() -> None:
    nest = scheduled(FIXED["convolution"]())
    assert "unrolled" in kinds("convolution")
    assert any(b.scope == "local" and len(b.shape) > 1 for b in nest.allocs)


def test_rows_stay_together() -> None:
    nest = scheduled(FIXED["softmax"]())
    assert all(b.scope == "local" for b in nest.allocs)
    assert isinstance(nest.body, For)


def test_contractions_leave_the_rows_of_what_reads_them() -> None:
    """Else the operand that all rows share would be read anew for each."""
    nest = read(
        """
@program
def gathered(a: Buffer[(24, 40), "float32"], b: Buffer[(40, 48), "float32"], y: Buffer[(24,), "float32"]):
    c = alloc((24, 48), "float32")
    for i0, i1, i2 in grid(24, 48, 40):
        with block("c"):
            v0, v1, v2 = axis.remap("SSR", [i0, i1, i2])
            with init():
                c[v0, v1] = 0.0
            c[v0, v1] = c[v0, v1] + a[v0, v2] * b[v2, v1]
    for i0, i1 in grid(24, 48):
        with block("y"):
            v0, v1 = axis.remap("SR", [i0, i1])
            with init():
                y[v0] = 0.0
            y[v0] = y[v0] + c[v0, v1]
"""
    )
    made = scheduled(nest)
    called = [s.intrinsic for s in statements(made.body) if isinstance(s, Invoke)]
    assert called in (["product_nn_float32"], ["gemm_nn_float32"])
    assert not isinstance(made.body, For)
    check(nest, made, pieces=(1, 3))


@pytest.mark.parametrize(("place", "loops"), [("vk", 2), ("36 - vk", 3)])
def test_what_is_summed_up_along_a_row_is_made_in_the_same_loop(place: str, loops: int) -> None:
    """Where the sum reads its elements where they are made, and nowhere else."""
    nest = read(
        f"""
@program
def shares(x: Buffer[(5, 37), "float32"], y: Buffer[(5, 37), "float32"]):
    p = alloc((5, 37), "float32")
    t = alloc((5,), "float32")
    for i, k in grid(5, 37):
        with block("p"):
            vi, vk = axis.remap("SS", [i, k])
            p[vi, vk] = exp(x[vi, vk])
    for i, k in grid(5, 37):
        with block("t"):
            vi, vk = axis.remap("SR", [i, k])
            with init():
                t[vi] = 0.0
            t[vi] = t[vi] + p[vi, {place}] * x[vi, vk]
    for i, k in grid(5, 37):
        with block("y"):
            vi, vk = axis.remap("SS", [i, k])
            y[vi, vk] = p[vi, vk] / t[vi]
"""
    )
    made = scheduled(nest)
    assert len([s for s in statements(made.body) if isinstance(s, For) and s.extent == Const(37)]) == loops
    check(nest, made, pieces=2)


def test_an_axis_of_one_element_does_not_keep_a_reduction_from_vectors() -> None:
    nest = read(
        """
@program
def largest(x: Buffer[(n, 5, 40), "float32"], y: Buffer[(n, 5, 1), "float32"], n: size):
    for i, j, u, k in grid(n, 5, 1, 40):
        with block("B"):
            vi, vj, vu, vk = axis.remap("SSSR", [i, j, u, k])
            with init():
                y[vi, vj, vu] = -inf
            y[vi, vj, vu] = max(y[vi, vj, vu], x[vi, vj, vk])
"""
    )
    made = scheduled(nest)
    assert [s.extent for s in statements(made.body) if isinstance(s, For) and s.kind == "vectorized"] == [Const(40)]
    check(nest, made, [3])


@pytest.mark.parametrize(("shape", "at", "length"), [
    ((35, 24), "vk, vj", 35 * 24),
    ((24, 35), "vj, vk", 35 * 24),
    ((40, 24), "vk + 5, vj", 35 * 24),
    ((24, 40), "vj, vk", 35),
    ((35, 30), "vk, vj", 24),
    ((70, 48), "vk * 2, vj * 2", 0),
])  # fmt: skip
@pytest.mark.parametrize("fn", ["max", "add"])
def test_what_is_reduced_whole_is_read_as_it_lies(fn: str, shape: tuple[int, int], at: str, length: int) -> None:
    """Whatever the order of axes: of a transposed image, too."""
    step = f"max(y[0], x[{at}])" if fn == "max" else f"y[0] + x[{at}]"
    nest = read(
        f"""
@program
def whole(x: Buffer[{shape}, "float32"], y: Buffer[(1,), "float32"]):
    for j, k in grid(24, 35):
        with block("B"):
            vj, vk = axis.remap("RR", [j, k])
            with init():
                y[0] = 0.0
            y[0] = {step}
"""
    )
    made = scheduled(nest)
    found = [s.extent for s in statements(made.body) if isinstance(s, For) and s.kind == "vectorized"]
    assert found == ([Const(length)] if length else [])
    check(nest, made)


@pytest.mark.parametrize("batch", [1, 3])
def test_columns_of_which_something_is_reduced_twice_go_in_vectors(batch: int) -> None:
    x = t.placeholder((batch, 29, 40), "float32")
    (r, q) = t.reduce_axis(29), t.reduce_axis(29)
    largest = t.compute((batch, 40), lambda b, j: t.max(x[b, r.var, j], r), None, "largest")
    total = t.compute((batch, 40), lambda b, j: t.sum(x[b, q.var, j] - largest[b, j], q), None, "total")
    nest = t.nest("columns", (x,), (total,))
    made = scheduled(nest)
    check(nest, made, pieces=(1, 2))
    assert "vectorized" in {s.kind for s in statements(made.body) if isinstance(s, For)}


def test_products_worth_a_call_are_called() -> None:
    calls = [s for s in statements(scheduled(FIXED["transposed_product"]()).body) if isinstance(s, Invoke)]
    assert [c.intrinsic for c in calls] == ["product_nt_float32"]


@pytest.mark.parametrize("sizes", [(0, 8, 16), (5, 8, 0), (0, 0, 0)])
def test_products_of_nothing_are_left_as_they_are(sizes: tuple[int, int, int]) -> None:
    m, depth, n = sizes
    a, b, k = t.placeholder((m, depth)), t.placeholder((depth, n), name="y"), t.reduce_axis(depth)
    product = t.compute((m, n), lambda i, j: t.sum(a[i, k.var] * b[k.var, j], k), name="z")
    nest = t.nest("nothing", [a, b], [product])
    check(nest, scheduled(nest))


def test_slices_of_nothing_are_left_as_they_are() -> None:
    x = t.placeholder((4, 2, 3, 1))
    nest = t.nest("nothing", [x], [t.compute((4, 2, 3, 0), lambda i, j, k, m: x[i, j, k, m + 1], name="slice")])
    check(nest, scheduled(nest))


def test_what_is_scheduled_already_stays() -> None:
    nest = scheduled(FIXED["softmax"]())
    assert scheduled(nest) is nest


SCALED = """
@program
def scaled(X: Buffer[("n", 24, "(m + 31) // 32", "n + 2", 16), "float32"], S: Buffer[("n", 24, 16), "float32"], Y: Buffer[("n", 24, "(m + 31) // 32", "n + 2", 16), "float32"], n: size, m: size):
    for i, b, j, k, lane in grid(n, 24, (m + 31) // 32, n + 2, 16):
        with block("Y"):
            vi, vb, vj, vk, vl = axis.remap("SSSSS", [i, b, j, k, lane])
            Y[vi, vb, vj, vk, vl] = X[vi, vb, vj, vk, vl] * S[vi, vb, vl]
"""  # noqa: E501


def in_one_row(s: Schedule) -> None:
    """Elements that lie in a row, in chunks that are shared out."""
    one = s.fuse(*s.get_loops("y"))
    s.parallel(one)
    _, inner = s.split(one, [None, CHUNK], tail="short")
    s.vectorize(inner)


def in_vectors(s: Schedule) -> None:
    """Few elements."""
    s.vectorize(s.get_loops(next(blocks(s.nest.body)).name)[-1])


def in_chunks(s: Schedule) -> None:
    """Short vectors, many of which are a work item."""
    images, channels, *points, lanes = s.get_loops("Y")
    s.vectorize(lanes)
    one = s.fuse(*points)
    for loop in (images, channels, one):
        s.parallel(loop)
    outer, _ = s.split(one, [None, CHUNK // 16], tail="short")
    s.fuse(images, channels, outer)


STEPS = {"flat": in_one_row, "any_elements": in_one_row, "broadcast": in_vectors, "padded": in_vectors, "": in_chunks}


@pytest.mark.parametrize("name", STEPS)
def test_default_loops_of_elements_are_steps_of_primitives(name: str) -> None:
    nest = {**FIXED, **SYMBOLIC}[name]() if name else read(SCALED)
    s = Schedule(nest)
    STEPS[name](s)
    assert sources(s.trace.replay(nest).nest) == sources(scheduled(nest))


def sources(nest: Nest) -> list[str]:
    """The sources of its kernels, loops being called by their numbers."""
    texts = [emitted.kernel.source for _, emitted in for_the_host(nest)]
    for k, loop in enumerate(s for s in statements(nest.body) if isinstance(s, For)):
        texts = [re.sub(rf"\b{loop.var.name}\b", f"loop{k}", text) for text in texts]
    return texts
