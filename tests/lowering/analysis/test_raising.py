"""Programs raised to tensor expressions compute the same, and what a tensor expression wrote is found again."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np
import pytest

from graphopt.errors import ExecutionError
from graphopt.ir.text.elements import numpy_dtype
from graphopt.lowering.analysis.block_values import NotRaised
from graphopt.lowering.analysis.raising import raised
from graphopt.lowering.link.passes import legalize_ops
from graphopt.lowering.loops import compute
from graphopt.lowering.loops.expressions import Const, Var
from graphopt.lowering.loops.interpret import interpret, value
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from graphopt.lowering.loops.wellformed import check
from graphopt.lowering.lower.lower import Described, inputs_read
from tests.lowering.described import FIXED, SYMBOLIC
from tests.random_graphs import random_graph


def again(nest: Nest) -> Nest:
    """The program, raised and written once more."""
    written = set(nest.outputs)
    inputs = [compute.placeholder(b.shape, b.dtype, b.name) for b in nest.buffers if b not in written]
    wrote = compute.nest(nest.name, inputs, raised(nest, inputs, {s: s for s in nest.sizes}), nest.sizes)
    check(wrote)
    return wrote


def ran(nest: Nest, sizes: Mapping[str, int], seed: int = 0) -> list[np.ndarray]:
    rng, arrays = np.random.default_rng(seed), []
    written = set(nest.outputs)
    for buffer in nest.buffers:
        shape = tuple(value(e, sizes) for e in buffer.shape)
        drawn = rng.integers(-3, 4, shape) * (0 if buffer in written else 1)
        arrays.append(np.asarray(drawn).astype(numpy_dtype(buffer.dtype)))
    interpret(nest, arrays, sizes)
    return [a for a, b in zip(arrays, nest.buffers, strict=True) if b in written]


def same(text: str, *sizes: Mapping[str, int]) -> Nest:
    """The program of a script raised and written once more, after both gave the same."""
    nest = read(text)
    wrote = again(nest)
    for bound in sizes or ({},):
        for a, b in zip(ran(nest, bound), ran(wrote, bound), strict=True):
            np.testing.assert_array_equal(a, b)
    return wrote


@pytest.mark.parametrize("name", [*FIXED, *SYMBOLIC])
def test_what_tensor_expressions_wrote_is_found_again(name: str) -> None:
    nest = (FIXED | SYMBOLIC)[name]()
    assert again(nest) == nest


@pytest.mark.parametrize("seed", range(12))
def test_what_ops_are_lowered_to_is_found_again(seed: int) -> None:
    sizes = [Var(f"n{k}") for k in range(30)]
    for lowering in legalize_ops(random_graph(Random(seed), 8)).lowered.values():
        if isinstance(lowering, Described):
            inputs = inputs_read(lowering.tensors)
            nest = compute.nest("f", inputs, lowering.tensors, sizes)
            assert compute.nest("f", inputs, raised(nest, inputs, {s: s for s in sizes}), sizes) == nest


def test_sizes_are_replaced() -> None:
    nest = SYMBOLIC["any_elements"]()
    (x, *rest) = [compute.placeholder((), b.dtype, b.name) for b in nest.buffers if b not in set(nest.outputs)]
    (y,) = raised(nest, [x, *rest], {s: Const(3) for s in nest.sizes})
    assert all(isinstance(n, Const) for n in y.shape)


OPEN = ({"n": 0, "m": 3}, {"n": 1, "m": 1}, {"n": 3, "m": 4})


def test_several_outputs_of_one_block_and_of_two_shapes() -> None:
    wrote = same(
        """
@program
def f(A: Buffer[("n", "m"), "float32"], B: Buffer[("n", "m"), "float32"], C: Buffer[("n", "m"), "int64"],
      T: Buffer[("m", "n"), "float32"], n: size, m: size):
    for i, j in grid(n, m):
        with block("B"):
            v, w = axis.remap("SS", [i, j])
            B[v, w] = A[v, w] + 1.0
            C[v, w] = cast(B[v, w], "int64") * 2
            T[w, v] = B[v, w] - A[v, w]
""",
        *OPEN,
    )
    assert len(wrote.outputs) == 3


def test_rows_that_share_a_loop_are_taken_apart() -> None:
    same(
        """
@program
def softmax(A: Buffer[("n", 5), "float32"], B: Buffer[("n", 5), "float32"], n: size):
    m = alloc(("n",), "float32")
    s = alloc(("n",), "float32")
    for i in serial(n):
        with block("m0"):
            v = axis.spatial(n, i)
            m[v] = -1000.0
        for k in serial(5):
            with block("m"):
                v1, v2 = axis.remap("SR", [i, k])
                m[v1] = max(A[v1, v2], m[v1])
        for k1 in serial(5):
            with block("s"):
                v3, v4 = axis.remap("SR", [i, k1])
                with init():
                    s[v3] = 0.0
                s[v3] = s[v3] + exp(A[v3, v4] - m[v3])
        for j in serial(5):
            with block("B"):
                v5, v6 = axis.remap("SS", [i, j])
                B[v5, v6] = exp(A[v5, v6] - m[v5]) / s[v5]
""".replace('("n",), "float32")', '(n,), "float32")'),
        {"n": 0},
        {"n": 1},
        {"n": 3},
    )


@pytest.mark.parametrize("start", ["bias[v]", "1.0", "0.0", "-0.0"])
@pytest.mark.parametrize("term", ["C[v] + A[v, k]", "A[v, k] * 2.0 + C[v]", "C[v] - A[v, k]", "max(C[v], A[v, k])"])
def test_reductions_start_from_what_their_init_says(start: str, term: str) -> None:
    same(
        f"""
@program
def f(A: Buffer[("n", 4), "float32"], bias: Buffer[("n",), "float32"], C: Buffer[("n",), "float32"], n: size):
    for i, j in grid(n, 4):
        with block("C"):
            v, k = axis.remap("SR", [i, j])
            with init():
                C[v] = {start}
            C[v] = {term}
""",
        {"n": 0},
        {"n": 1},
        {"n": 5},
    )


@pytest.mark.parametrize("start", ["bias[v]", "0.0"])
def test_reductions_start_from_what_was_there_before(start: str) -> None:
    wrote = same(
        f"""
@program
def f(A: Buffer[("n", 4), "float32"], bias: Buffer[("n",), "float32"], C: Buffer[("n",), "float32"], n: size):
    for i in serial(n):
        with block("C_init"):
            v = axis.spatial(n, i)
            C[v] = {start}
    for i1, j in grid(n, 4):
        with block("C"):
            v1, k = axis.remap("SR", [i1, j])
            C[v1] = C[v1] + A[v1, k]
""",
        {"n": 3},
    )
    assert len(wrote.allocs) == (2 if start == "bias[v]" else 0)


def test_two_sums_and_a_largest_with_its_place() -> None:
    same(
        """
@program
def f(A: Buffer[("n", 4), "float32"], S: Buffer[("n",), "float32"], Q: Buffer[("n",), "float32"],
      V: Buffer[("n",), "float32"], P: Buffer[("n",), "int64"], n: size):
    for i, j in grid(n, 4):
        with block("S"):
            v, k = axis.remap("SR", [i, j])
            with init():
                S[v] = 0.0
                Q[v] = 0.0
            S[v] = S[v] + A[v, k]
            Q[v] = Q[v] + A[v, k] * A[v, k]
    for i1, j1 in grid(n, 4):
        with block("V"):
            v1, k1 = axis.remap("SR", [i1, j1])
            with init():
                V[v1] = -inf
                P[v1] = -1
            P[v1] = select(A[v1, k1] > V[v1], k1, P[v1])
            V[v1] = max(V[v1], A[v1, k1])
""",
        {"n": 0},
        {"n": 1},
        {"n": 5},
    )


def test_branches_and_predicates_are_selections() -> None:
    same(
        """
@program
def f(A: Buffer[("n", "n"), "float32"], B: Buffer[("n", "n"), "float32"], S: Buffer[("n",), "float32"], n: size):
    for i, j in grid(n, n):
        with block("B"):
            v, w = axis.remap("SS", [i, j])
            if v < w:
                B[v, w] = A[v, w]
            else:
                B[v, w] = A[v, w] * 2.0
    for i1, j1 in grid(n, n):
        with block("B1"):
            where(v1 == w1)
            v1, w1 = axis.remap("SS", [i1, j1])
            B[v1, w1] = B[v1, w1] + 10.0
    for i2, k in grid(n, n):
        with block("S"):
            where(v3 <= v2)
            v2, v3 = axis.remap("SR", [i2, k])
            with init():
                S[v2] = 0.0
            S[v2] = S[v2] + B[v2, v3]
""",
        {"n": 0},
        {"n": 1},
        {"n": 4},
    )


def test_parts_of_a_buffer_are_written_one_after_the_other() -> None:
    same(
        """
@program
def padded_and_joined(A: Buffer[("n", 3), "float32"], B: Buffer[(2, 3), "float32"], P: Buffer[("n + 2", 5), "float32"],
      J: Buffer[("n + 2", 3), "float32"], n: size):
    for i, j in grid(n + 2, 5):
        with block("P0"):
            v, w = axis.remap("SS", [i, j])
            P[v, w] = 7.0
    for i1, j1 in grid(n, 3):
        with block("P"):
            v1, w1 = axis.remap("SS", [i1, j1])
            P[v1 + 1, w1 + 1] = A[v1, w1]
    for i2, j2 in grid(n, 3):
        with block("J0"):
            v2, w2 = axis.remap("SS", [i2, j2])
            J[v2, w2] = A[v2, w2]
    for i3, j3 in grid(2, 3):
        with block("J"):
            v3, w3 = axis.remap("SS", [i3, j3])
            J[v3 + n, w3] = B[v3, w3]
    for j4 in serial(5):
        with block("P2"):
            w4 = axis.spatial(5, j4)
            P[0, w4] = P[0, w4] + 1.0
""",
        {"n": 0},
        {"n": 1},
        {"n": 4},
    )


def test_a_reduction_into_a_part() -> None:
    same(
        """
@program
def f(A: Buffer[(3, 4), "float32"], C: Buffer[(5,), "float32"]):
    for i in serial(5):
        with block("C0"):
            v = axis.spatial(5, i)
            C[v] = 2.0
    for i1, j in grid(3, 4):
        with block("C"):
            v1, k = axis.remap("SR", [i1, j])
            with init():
                C[v1 + 1] = 1.0
            C[v1 + 1] = C[v1 + 1] + A[v1, k]
"""
    )


def test_a_root_block_scalars_and_loops_of_one_step() -> None:
    same(
        """
@program
def f(A: Buffer[(1, 4), "float32"], C: Buffer[(), "float32"], B: Buffer[(1, 4), "float32"]):
    with block("root"):
        for i, j in grid(1, 4):
            with block("C"):
                v = axis.spatial(1, 0)
                k = axis.reduce(4, j)
                with init():
                    C[()] = 0.0
                C[()] = C[()] + A[v, k]
        for j1 in serial(4):
            with block("B"):
                w = axis.spatial(4, j1)
                B[0, w] = A[0, w] - C[()]
"""
    )


def test_checks_stay_before_what_follows_them() -> None:
    text = """
@program
def f(A: Buffer[(4,), "int64"], B: Buffer[(4,), "int64"]):
    for i in serial(4):
        with block("B_check"):
            v = axis.spatial(4, i)
            check(A[v] >= {least}, "too small")
    for i1 in serial(4):
        with block("B"):
            v1 = axis.spatial(4, i1)
            B[v1] = A[v1] * 2
"""
    same(text.format(least=-5))
    with pytest.raises(ExecutionError, match="too small"):
        ran(again(read(text.format(least=5))), {})


REFUSED = {
    "its steps are in order": """
    for i in serial(4):
        with block("B"):
            v = axis.ordered(4, i)
            B[v] = A[v]""",
    "scheduled by hand": """
    for i in parallel(4):
        with block("B"):
            v = axis.spatial(4, i)
            B[v] = A[v]""",
    "its axis v = 3 - i has no loop of its own": """
    for i in serial(4):
        with block("B"):
            v = axis.spatial(4, 3 - i)
            B[v] = A[v]""",
    "the loop i runs it again": """
    for i, j in grid(3, 4):
        with block("B"):
            v = axis.spatial(4, j)
            B[v] = A[v]""",
    "it reads B, to which nothing is written before": """
    for i in serial(4):
        with block("B"):
            v = axis.spatial(4, i)
            B[v] = B[v] + A[v]""",
    "block B: it reads B, to which nothing is written before": """
    for i, k in grid(4, 4):
        with block("B"):
            v, w = axis.remap("SR", [i, k])
            B[v] = B[v] + A[w]""",
    "it reads other elements of B than it writes": """
    for i in serial(4):
        with block("B0"):
            v = axis.spatial(4, i)
            B[v] = A[v]
    for i1 in serial(4):
        with block("B"):
            v1 = axis.spatial(4, i1)
            B[v1] = B[3 - v1]""",
    "it writes several elements of B": """
    for i in serial(2):
        with block("B"):
            v = axis.spatial(2, i)
            B[v] = A[v]
            B[v + 2] = A[v]""",
    "which is no axis of it": """
    for i in serial(4):
        with block("B"):
            v = axis.spatial(4, i)
            B[3 - v] = A[v]""",
    "it writes elements of B several times": """
    for i, j in grid(4, 4):
        with block("B"):
            v, w = axis.remap("SS", [i, j])
            B[v] = A[w]""",
    "a step of i around both may depend on B": """
    for i in serial(4):
        with block("B"):
            v = axis.spatial(4, i)
            B[v] = A[v]
        with block("C"):
            w = axis.spatial(4, i)
            C[w] = B[3 - w]""",
    "combined with what was there before": """
    for i, k in grid(4, 4):
        with block("B"):
            v, w = axis.remap("SR", [i, k])
            with init():
                B[v] = 0.0
            B[v] = B[v] * 0.5 + A[w]""",
    "its init does not run where": """
    for i, k in grid(4, 4):
        with block("B"):
            where(w >= 1)
            v, w = axis.remap("SR", [i, k])
            with init():
                B[v] = 0.0
            B[v] = B[v] + A[w]""",
    "it checks what nothing depends on": """
    for i in serial(4):
        with block("B"):
            v = axis.spatial(4, i)
            B[v] = A[v]
    for i1 in serial(4):
        with block("c"):
            w = axis.spatial(4, i1)
            check(A[w] > 0.0, "no")""",
    "no formula says what its for does": """
    with block("B"):
        for i in serial(4):
            B[i] = A[i]""",
    "stands outside of blocks": """
    for i in serial(4):
        B[i] = A[i]""",
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_no_chain_of_tensors_is_refused(why: str) -> None:
    head = '@program\ndef f(A: Buffer[(4,), "float32"], B: Buffer[(4,), "float32"], C: Buffer[(4,), "float32"]):'
    if "C[w]" not in REFUSED[why]:
        head = head.replace(', C: Buffer[(4,), "float32"]', "")
    with pytest.raises(NotRaised, match=why.replace("(", r"\(")):
        again(read(head + REFUSED[why]))
