"""What is true whatever sizes are is proved for all of them, and nothing else."""

from __future__ import annotations

import pytest

pytest.importorskip("z3")

from graphopt.proof.sizes import prove
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule


def rule(text: str, soundness: str) -> Rule:
    return parse_rules(f"# why [A1] {soundness}\nr: {text}")[0]


@pytest.mark.parametrize(
    ("text", "soundness", "kind"),
    [
        ("Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=compose(p, q))", "exact", "index"),
        ("Concat(Relu(a*), axis=k) => Relu(Concat(a*, axis=k))", "exact", "index"),
        ("Flatten(Relu(x), axis=k) => Relu(Flatten(x, axis=k))", "exact", "index"),
        ("Relu(Gather(x, i, axis=k)) => Gather(Relu(x), i, axis=k)", "exact", "index"),
        # a rule fires only where both sides have one type, so the axes that are reduced have one element
        ("ReduceMax(x, a, keepdims=1) => x where x.rank == 2", "exact", "index"),
        ("Log(Softmax(x, axis=k)) => LogSoftmax(x, axis=k)", "reals", "reals"),
        ("MatMul(x, MatMul(y, z)) => MatMul(MatMul(x, y), z) where x.rank == 2 and y.rank == 2 and z.rank == 2",
         "reals", "reals"),
        ("MatMul(Concat(x, y, axis=1), Concat(z, w, axis=0)) => Add(MatMul(x, z), MatMul(y, w)) "
         "where x.rank == 2 and z.rank == 2 and x.shape[1] == z.shape[0]", "reals", "reals"),
        ("Mul(ReduceSum(x, a, keepdims=1), c) => ReduceSum(Mul(x, c), a, keepdims=1) where c.rank == 0",
         "reals", "reals"),
    ],
)  # fmt: skip
def test_proofs(text: str, soundness: str, kind: str) -> None:
    found = prove(rule(text, soundness))
    assert found.kind == kind, found.why
    assert found.scope.startswith("all sizes")


@pytest.mark.parametrize(
    ("text", "soundness"),
    [
        ("Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=compose(q, p))", "exact"),
        ("Concat(x, y, axis=k) => Concat(y, x, axis=k)", "reals"),
        ("MatMul(x, MatMul(y, z)) => MatMul(MatMul(x, y), z) where x.rank == 2 and y.rank == 2 and z.rank == 2",
         "exact"),
        # true of no columns and of one, and no more
        ("Mul(ReduceSum(x, [1], keepdims=1), ReduceSum(y, [1], keepdims=1)) => ReduceSum(Mul(x, y), [1], keepdims=1) "
         "where x.rank == 2 and y.rank == 2", "reals"),
        # true of two columns
        ("ReduceMean(x, [1], keepdims=1) => Mul(ReduceSum(x, [1], keepdims=1), 0.5) where x.rank == 2", "reals"),
        # an unknown op is not read as the one that stands for it
        ("f(Add(x, y), z) => Add(f(x, z), y) where f in binary", "reals"),
        ("ReduceMax(x, a, keepdims=1) => ReduceMin(x, a, keepdims=1) where x.rank == 2", "exact"),
        ("Softmax(x, axis=k) => Softmax(x, axis=0)", "reals"),
    ],
)  # fmt: skip
def test_what_is_not_so_is_not_proved(text: str, soundness: str) -> None:
    assert prove(rule(text, soundness)).kind is None
