"""What nests compute from constants alone: computed ahead of time, element for element as the nest would."""

import numpy as np
import pytest

from graphopt.ir.constants import Array
from graphopt.lowering.cpu.constant_precompute import prepared
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.compute import Tensor, compute, nest, placeholder, procedure
from graphopt.lowering.loops.expressions import Const, Expr, Var, apply, cast, const, equal, minimum, select
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Buffer, Nest, Stmt, Store


def taken(t: Tensor, x: Tensor) -> Nest:
    """A procedure that adds the elements of a tensor, wherever it is stored, to those of an input."""

    def build(y: Buffer) -> Stmt:
        return te.loop(
            x.shape[0], lambda i: Store(y, (i,), cast(t[(i,) + (Const(0),) * (t.rank - 1)], "float32") + x[i])
        )

    return nest("kernel", [*te.reads(t), x], list(procedure([("y", x.shape, "float32")], [t, x], build)))


W = placeholder((3, 5), "float32", "w")
B = placeholder((5,), "float16", "b")
C = placeholder((3, 8), "uint8", "c")
X = placeholder((8,), "float32", "x")
N = Var("n")


def packed(i: Expr, j: Expr) -> Expr:
    return select(i < 5, W[j % 3, i] + cast(B[i], "float32"), const(0, "float32"))


def word(i: Expr, j: Expr) -> Expr:
    """Two bytes as one number, and of that some bits."""
    low, high = (cast(C[minimum(i, 2), 2 * (j % 4) + k], "uint32") for k in (0, 1))
    both = low | apply("shl", high, const(8, "uint32"))
    bits = apply("bitand", apply("shr", both, const(4, "uint32")), const(255, "uint32"))
    return cast(cast(bits, "int32"), "float32")


CASES = {
    "words of bytes": word,
    "rearranged": lambda i, j: W[(i + j) % 3, i // 2],
    "outside of it": packed,
    "chosen": lambda i, j: select(equal(j // 2, 1) & ~(i < 2), W[2, 4], -W[0, 0] * 2.0),
}


@pytest.mark.parametrize("case", CASES)
def test_arrays_are_what_the_nest_computes(case: str) -> None:
    rng = np.random.default_rng(0)
    known: dict[str, Array] = {
        "w": rng.standard_normal((3, 5)).astype(np.float32),
        "b": rng.standard_normal(5).astype(np.float16),
        "c": rng.integers(0, 256, (3, 8), np.uint8),
    }
    known["w"][1, 1], known["w"][2, 2] = np.nan, -np.inf
    written = taken(compute((8, 7), CASES[case]), X)
    given = {b: known[b.name] for b in written.buffers if b.name in known}
    ready = prepared(written, given)
    assert ready is not None
    arrays = ready.arrays(given)
    assert [b.name for b in ready.nest.buffers] == [*(b.name for b in arrays), "x", "y"]
    assert [a.shape for a in arrays.values()] == [(8, 7)]
    x = rng.standard_normal(8).astype(np.float32)
    want, got = (np.empty(8, np.float32) for _ in range(2))
    interpret(written, [*given.values(), x, want])
    interpret(ready.nest, [*arrays.values(), x, got])
    assert np.array_equal(want, got, equal_nan=True)


def test_what_is_not_known_ahead_stays() -> None:
    rest = {
        "an input": compute((8, 7), lambda i, j: W[0, 0] + X[i]),
        "a function": compute((8, 7), lambda i, j: apply("exp", W[0, 0])),
        "an integer of a float": compute((8, 7), lambda i, j: cast(cast(W[0, 0], "int32"), "float32")),
        "a size": compute((N, 7), lambda i, j: W[0, j % 5]),
        "a sum": compute((8,), lambda i: te.sum(W[0, (k := te.reduce_axis(5)).var], k)),
    }
    for tensor in rest.values():
        written = nest(
            "kernel",
            [W, X],
            list(procedure([("y", (8,), "float32")], [tensor, X], lambda y: Store(y, (Const(0),), X[0]))),
            (N,),
        )
        assert prepared(written, [b for b in written.buffers if b.name == "w"]) is None


def test_what_is_not_constant_stays() -> None:
    written = taken(compute((8, 7), CASES["rearranged"]), X)
    assert prepared(written, []) is None


def test_an_output_is_computed_by_the_nest() -> None:
    written = nest("kernel", [W], [compute((3,), lambda i: W[i, 0])])
    assert prepared(written, written.buffers[:1]) is None
