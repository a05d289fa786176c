"""Products on tensor cores: fragments hold what the descriptions say, in the interpreter and in a warp's registers."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.intrinsics.tensor_intrin import descriptions
from graphopt.lowering.intrinsics.warp import together
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from tests.lowering.cuda.simulated import launch
from tests.lowering.native import numpy_dtype


def product(dtype: str, a: str, b: str) -> Nest:
    """``C = A @ B`` for matrices of 16 by 16, of float32 of 8 steps, which lie transposed in shared memory where they
    are marked ``t``."""
    each = together(dtype)
    held, steps = 4 * each, 8 * each
    left, right = ([16, steps][:: 1 if a == "n" else -1], [steps, 16][:: 1 if b == "n" else -1])
    whole_a, whole_b = (", ".join(f"0:{n}" for n in shape) for shape in (left, right))
    wide, half = {"A": left[1], "B": right[1]}, f"q * {held // 2} : q * {held // 2} + {held // 2}"
    place = {name: f"(i * 32 + l) // {n}, (i * 32 + l) % {n}" for name, n in wide.items()}
    return read(f"""
@program
def warp(A: Buffer[{(*left,)}, "{dtype}"], B: Buffer[{(*right,)}, "{dtype}"], C: Buffer[(16, 16), "float32"]):
    sa = alloc({(*left,)}, "{dtype}", scope="shared")
    sb = alloc({(*right,)}, "{dtype}", scope="shared")
    fa = alloc((1, 32, {held}), "{dtype}", scope="local")
    fb = alloc((1, 32, {held}), "{dtype}", scope="local")
    c = alloc((1, 32, 2, 4), "float32", scope="local")
    for o in bind("blockIdx.x", 1):
        for w in bind("threadIdx.y", 1):
            for l in bind("threadIdx.x", 32):
                for i in serial({steps // 2}):
                    sa[{place["A"]}] = A[{place["A"]}]
                    sb[{place["B"]}] = B[{place["B"]}]
                for j in unrolled(2):
                    for r in unrolled(4):
                        c[w, l, j, r] = 0.0
        for x in bind("threadIdx.y", 1):
            invoke("fragment_a_{a}_{dtype}", fa[x, 0:32, 0:{held}], sa[{whole_a}])
            invoke("fragment_b_{b}_{dtype}", fb[x, 0:32, 0:{held}], sb[{whole_b}])
            for q in unrolled(2):
                invoke("mma_{dtype}", c[x, 0:32, q, 0:4], fa[x, 0:32, 0:{held}], fb[x, 0:32, {half}])
        for y in bind("threadIdx.y", 1):
            for m in bind("threadIdx.x", 32):
                for p in unrolled(2):
                    for s in unrolled(4):
                        C[m // 4 + s // 2 * 8, p * 8 + m % 4 * 2 + s % 2] = c[y, m, p, s]
""")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("a", "nt")
@pytest.mark.parametrize("b", "nt")
def test_fragments_meet_in_products(dtype: str, a: str, b: str) -> None:
    nest, rng = product(dtype, a, b), np.random.default_rng(0)
    shapes = [tuple(int(str(n.value)) for n in buffer.shape if isinstance(n, Const)) for buffer in nest.buffers[:2]]
    # half floats have no more bits than tensor cores see of float32
    left, right = (rng.standard_normal(shape).astype(np.float16).astype(numpy_dtype(dtype)) for shape in shapes)
    x, y = left.astype(np.float32), right.astype(np.float32)
    want = (x if a == "n" else x.T) @ (y if b == "n" else y.T)
    interpreted, run = np.zeros((16, 16), np.float32), np.zeros((16, 16), np.float32)
    interpret(nest, [left, right, interpreted], intrinsics=descriptions(nest))
    launch(nest, [left, right, run])
    assert np.allclose(interpreted, want, atol=1e-5)
    assert np.allclose(run, want, atol=1e-5)


def test_registers_of_a_warp_are_a_line_of_source() -> None:
    ((_, made),) = emit(product("float16", "n", "t"))
    line = "c_0, c_1, c_2, c_3 = mma_f16((c_0, c_1, c_2, c_3), (fa_0, fa_2, fa_4, fa_6), (fb_0, fb_2))"
    assert line in made.kernel.source
