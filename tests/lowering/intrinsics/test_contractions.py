"""Programs of contractions sum what einsum does."""

import numpy as np

from graphopt.lowering.intrinsics.contractions import contraction
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Block, statements


def test_each_element_is_the_sum_of_its_terms():
    made = contraction(
        "total",
        {"C": ("(m, n)", "int32"), "A": ("(m, k, l)", "int32"), "B": ("(l, n)", "int32")},
        ("m", "n", "k", "l"),
        {"i": "m", "j": "n"},
        {"p": "k", "q": "l"},
        "A[vi, vp, vq] * B[vq, vj]",
        zero="7",
        block="sum",
    )
    assert [s.name for s in statements(made.body) if isinstance(s, Block)] == ["start", "sum"]
    a, b = np.arange(24, dtype=np.int32).reshape(2, 3, 4), np.arange(20, dtype=np.int32).reshape(4, 5)
    c = np.zeros((2, 5), np.int32)
    interpret(made, [c, a, b])
    assert np.array_equal(c, 7 + np.einsum("mkl,ln->mn", a, b))
