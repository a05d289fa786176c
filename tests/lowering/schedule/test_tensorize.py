"""Intrinsics take the place of tiles that do what their descriptions say, and of no others."""

import pytest

from graphopt.lowering.cpu.compact_buffers import compacted
from graphopt.lowering.loops.nest import Invoke, statements
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.lowering.schedule.tensorize import tensorize
from tests.lowering.documented import check, refused, same_results
from tests.lowering.native import check as check_native


def test_documented():
    check(tensorize)


PRODUCT = """
@program
def product(A: Buffer[({n}, {k}), "{dtype}"], B: Buffer[({k}, {m}), "{dtype}"], C: Buffer[({n}, {m}), "{dtype}"]):
    for i, j, k in grid({n}, {m}, {k}):
        with block("C"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                C[vi, vj] = 0.0
            C[vi, vj] = {step}
"""
PLAIN = "C[vi, vj] + A[vi, vk] * B[vk, vj]"


def product(step: str = PLAIN, n: int = 8, m: int = 32, k: int = 10, dtype: str = "float32") -> str:
    return PRODUCT.format(step=step, n=n, m=m, k=k, dtype=dtype)


TILED = ["s.split('i', [None, 4])", "s.split('j', [None, 16])", "s.reorder('i_0', 'j_0', 'i_1', 'j_1', 'k')"]
DECOMPOSED = [*TILED, "s.decompose_reduction('C', 'i_1')"]


def done(text: str, *calls: str) -> Schedule:
    s = Schedule(read(text))
    for call in calls:
        eval(call, {"s": s})
    return s


@pytest.mark.parametrize("step", [PLAIN, "C[vi, vj] + B[vk, vj] * A[vi, vk]", "A[vi, vk] * B[vk, vj] + C[vi, vj]"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_in_every_spelling(step, dtype):
    text = product(step, dtype=dtype)
    s = done(text, *DECOMPOSED, f"s.tensorize('i_1', 'product_4x16_{dtype}')")
    same_results(read(text), s.nest)
    check_native(read(text), s.nest)


def test_a_block_of_blocks_in_steps_of_the_reduction():
    text = product()
    calls = ["s.split('k', [None, 4])", "s.split('i', [None, 4])", "s.split('j', [None, 16])"]
    s = done(text.replace("10", "12"), *calls)
    s.reorder("i_0", "j_0", "k_0", "i_1", "j_1", "k_1")
    outer = s.blockize("i_1")
    s.tensorize(outer, "product_4x16_float32")
    same_results(read(text.replace("10", "12")), s.nest)
    check_native(read(text.replace("10", "12")), s.nest)


def test_a_packed_operand_and_a_tile_of_its_own():
    text = product(n=6, m=32, k=7)
    s = Schedule(read(text))
    copy = s.cache_write("C", "local")
    packed = s.cache_read("C", "B", "global")
    s.transform_layout(packed, "B_global", lambda k, j: (j // 16, k, j % 16))
    i, j, k = s.get_loops("C")
    i0, i1 = s.split(i, [None, 3])
    j0, j1 = s.split(j, [None, 16])
    s.reorder(i0, j0, i1, j1, k)
    s.reverse_compute_at(copy, j0)
    init = s.decompose_reduction("C", i1)
    s.tensorize(i1, "product_3x16_float32")
    for block in (init, copy):
        rows, columns = s.get_loops(block)[-2:]
        s.unroll(rows)
        s.vectorize(columns)
    small = compacted(s.nest)
    assert [len(b.shape) for b in small.allocs] == [2, 3]
    same_results(read(text), small)
    check_native(read(text), small)


CONV = """
@program
def conv(X: Buffer[(5, 9, 9), "float32"], W: Buffer[(3, 3, 5, 16), "float32"], Y: Buffer[(7, 7, 16), "float32"]):
    for y, x, f in grid(7, 7, 16):
        with block("Y0"):
            vy0, vx0, vf0 = axis.remap("SSS", [y, x, f])
            Y[vy0, vx0, vf0] = 0.0
    for y1, r, t, x1, f1, c in grid(7, 3, 3, 7, 16, 5):
        with block("Y"):
            vy, vr, vt, vx, vf, vc = axis.remap("SRRSSR", [y1, r, t, x1, f1, c])
            Y[vy, vx, vf] = Y[vy, vx, vf] + {x} * W[vr, vt, vc, vf]
"""


def test_a_convolution_is_products():
    """The image lies with channels last, so that one pixel's channels are a row of the left operand."""
    text = CONV.replace("(5, 9, 9)", "(9, 9, 5)").format(x="X[vy + vr, vx + vt, vc]")
    s = done(text, "s.tensorize('x1', 'product_7x16_float32')")
    same_results(read(text), s.nest)
    check_native(read(text), s.nest)


@pytest.mark.parametrize(
    ("text", "calls", "message"),
    [
        (product(), [*DECOMPOSED, "s.tensorize('i_1', 'product_4x15_float32')"], "vj_i runs to 16, and vj of product_"),
        (product(), [*DECOMPOSED, "s.tensorize('i_1', 'product_4x16_float64')"], "C is float64, and C float32"),
        (
            product(),
            [*TILED, "s.tensorize('i_1', 'product_4x16_float32')"],
            "product_4x16_float32 has no init; use",
        ),
        (
            product(),
            [*DECOMPOSED, "s.tensorize('i_1', 'tile')"],
            "there is no intrinsic tile; there are",
        ),
        (
            product("C[vi, vj] + A[vi, vk] * A[vi, vj]"),
            [*DECOMPOSED, "s.tensorize('i_1', 'product_4x16_float32')"],
            "A is there, and not what B is elsewhere",
        ),
        (
            product("C[vi, vj] - A[vi, vk] * B[vk, vj]"),
            [*DECOMPOSED, "s.tensorize('i_1', 'product_4x16_float32')"],
            "C[vi, vj] + A[vi, vp] * B[vp, vj] is wanted",
        ),
        (
            product("C[vi, vj] + A[vi, vk] * B[vk, 31 - vj]"),
            [*DECOMPOSED, "s.tensorize('i_1', 'product_4x16_float32')"],
            "B[vp, vj] is wanted",
        ),
        (
            product(n=6),
            [*DECOMPOSED, "s.tensorize('i_1', 'product_4x16_float32')"],
            "C runs only for a part of its tile: pad it before",
        ),
        (
            CONV.format(x="X[vc, vy + vr, vx + vt]"),
            ["s.tensorize('x1', 'product_7x16_float32')"],
            "A[vi, vp] is wanted",
        ),
        (product(), ["s.tensorize('C', 'product_4x16_float32')"], "C holds no single block in its loops"),
    ],
)
def test_what_is_something_else(text, calls, message):
    assert message in refused(text, *calls)


def test_pieces_that_were_left_over_are_padded_before():
    text = product(n=5, m=13, k=3)
    s = Schedule(read(text))
    s.pad_einsum("C", [4, 16, 1])
    i, j, k = s.get_loops("C")
    i0, i1 = s.split(i, [None, 4])
    s.reorder(i0, i1, j, k)
    s.decompose_reduction("C", i1)
    s.tensorize(i1, "product_4x16_float32")
    assert sum(isinstance(x, Invoke) for x in statements(s.nest.body)) == 1
    same_results(read(text), s.nest)
    check_native(read(text), s.nest)
