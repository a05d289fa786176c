"""What is true of all small tensors whatever their elements is proved, and nothing else."""

from __future__ import annotations

import pytest

pytest.importorskip("z3")

from graphopt.proof.indices import prove
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule


def rule(text: str, soundness: str) -> Rule:
    return parse_rules(f"# why [A1] {soundness}\nr: {text}")[0]


@pytest.mark.parametrize(
    ("text", "soundness", "kind"),
    [
        ("Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=compose(p, q))", "exact", "index"),
        ("f(Transpose(x, perm=p)) => Transpose(f(x), perm=p) where f in unary", "exact", "index"),
        ("Concat(Relu(a*), axis=k) => Relu(Concat(a*, axis=k))", "exact", "index"),
        ("Squeeze(Unsqueeze(x, a), b?) => x", "exact", "index"),
        ("MatMul(Transpose(x, perm=p), Transpose(y, perm=p)) => Transpose(MatMul(y, x), perm=p) "
         "where swaps_last_two(p) and x.rank == y.rank", "exact", "index"),
        ("MatMul(x, MatMul(y, z)) => MatMul(MatMul(x, y), z) where x.rank == 2 and y.rank == 2 and z.rank == 2",
         "reals", "reals"),
        ("Gather(Shape(x), i) => Shape(x, start=i.value[0], end=i.value[0] + 1) "
         "where i.rank == 1 and len(i.value) == 1 and i.value[0] >= 0", "exact", "index"),
    ],
)  # fmt: skip
def test_proofs(text: str, soundness: str, kind: str) -> None:
    found = prove(rule(text, soundness))
    assert found.kind == kind, found.why


@pytest.mark.parametrize(
    ("text", "soundness"),
    [
        ("Transpose(Transpose(x, perm=p), perm=q) => Transpose(x, perm=compose(q, p))", "exact"),
        ("f(Transpose(x, perm=p), y) => Transpose(f(x, y), perm=p) where f in binary", "exact"),
        ("Slice(Slice(x, s, e, a), s2, e2, a2) => Slice(x, s2, e2, a2)", "exact"),
        ("Concat(x, y, axis=k) => Concat(y, x, axis=k)", "reals"),
        ("Gather(x, i, axis=k) => Gather(x, i, axis=0)", "exact"),
        ("MatMul(x, MatMul(y, z)) => MatMul(MatMul(x, y), z) where x.rank == 2 and y.rank == 2 and z.rank == 2",
         "exact"),
        ("Softmax(x, axis=k) => Softmax(x, axis=0)", "reals"),
    ],
)  # fmt: skip
def test_what_is_not_so_is_not_proved(text: str, soundness: str) -> None:
    assert prove(rule(text, soundness)).kind is None


def test_what_elements_decide_is_not_proved() -> None:
    assert "decide" in prove(rule("Mul(x, c) => x where c.scalar == 1.0", "exact")).why
