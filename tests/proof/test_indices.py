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


@pytest.mark.parametrize(
    ("text", "wrong", "soundness"),
    [
        # a guard on elements is left out
        ("Sub(Transpose(x, perm=p), c) => Transpose(Sub(x, c), perm=p) where c.low > 0 and x.rank == 2 and c.rank == 0",
         "Sub(Transpose(x, perm=p), c) => Transpose(Sub(c, x), perm=p) where c.low > 0 and x.rank == 2 and c.rank == 0",
         "exact"),
        # a maximum is that of a set
        ("Max(ReduceMax(x, a, keepdims=1), ReduceMax(x, a, keepdims=1)) => ReduceMax(x, a, keepdims=1) "
         "where x.rank == 2",
         "Max(ReduceMax(x, a, keepdims=1), ReduceMin(x, a, keepdims=1)) => ReduceMin(x, a, keepdims=1)", "exact"),
        # an attribute that is handed on stands for any number
        ("LayerNormalization(Neg(Neg(x)), s, axis=-1, epsilon=e) => LayerNormalization(x, s, axis=-1, epsilon=e)",
         "LayerNormalization(Neg(Neg(x)), s, axis=-1, epsilon=e) => LayerNormalization(x, s, axis=-1)", "reals"),
        ("Pow(x, -0.5) => Reciprocal(Sqrt(x)) where x.rank == 2", "Pow(x, -0.5) => Sqrt(x) where x.rank == 2", "reals"),
        # a size that a guard names, at ranks to 4
        ("graphopt::Unblock(Relu(x), channels=c) => Relu(graphopt::Unblock(x, channels=c)) where x.rank == 4 "
         "and x.shape[x.rank - 1] == 16",
         "graphopt::Unblock(Relu(x), channels=c) => graphopt::Unblock(x, channels=c) where x.rank == 4 "
         "and x.shape[x.rank - 1] == 16", "exact"),
        # zeros that fill up stay zeros, but for what makes others of them
        ("graphopt::Block(Abs(x)) => Abs(graphopt::Block(x)) where x.rank == 2",
         "graphopt::Block(Cos(x)) => Cos(graphopt::Block(x)) where x.rank == 2",
         "exact"),
        ("graphopt::Block(Relu(x)) => Relu(graphopt::Block(x)) where x.rank == 2",
         "graphopt::Block(Neg(x)) => Neg(graphopt::Block(x)) where x.rank == 2",
         "exact"),
        ("graphopt::Block(Add(x, y)) => Add(graphopt::Block(x), graphopt::Block(y)) where x.shape == y.shape "
         "and x.rank == 2",
         "graphopt::Block(Div(x, y)) => Div(graphopt::Block(x), graphopt::Block(y)) where x.shape == y.shape "
         "and x.rank == 2", "exact"),
        ("graphopt::Block(Cos(x)) => Mul(Cos(graphopt::Block(x)), graphopt::Block(Expand({1.0 like x}, {x.shape}))) "
         "where x.rank == 2",
         "graphopt::Block(Log(x)) => Mul(Log(graphopt::Block(x)), graphopt::Block(Expand({1.0 like x}, {x.shape}))) "
         "where x.rank == 2", "exact"),
        # sequences of as many
        ("Concat(Sub(a*, b*), axis=k) => Sub(Concat(a*, axis=k), Concat(b*, axis=k)) "
         "where (each a.shape) == (each b.shape)",
         "Concat(Sub(a*, b*), axis=k) => Sub(Concat(b*, axis=k), Concat(a*, axis=k)) "
         "where (each a.shape) == (each b.shape)", "exact"),
        # several outputs of one call
        ("Concat(Split(x, s, axis=k)[0], Split(x, s, axis=k)[1], axis=k) => x where len(s.value) == 2",
         "Concat(Split(x, s, axis=k)[1], Split(x, s, axis=k)[0], axis=k) => x where len(s.value) == 2", "exact"),
        # a cast there and back
        ("Cast(Transpose(Cast(x, to=t), perm=p), to=u) => Transpose(x, perm=p) "
         "where lossless(x.dtype, dtype(t)) and dtype(u) == x.dtype",
         "Cast(Transpose(Cast(x, to=t), perm=p), to=u) => Transpose(x, perm=p) where dtype(u) == x.dtype", "exact"),
        # a step gives back what was quantized by it
        ('QuantizeLinear(Transpose(DequantizeLinear(x, s, z), perm=p), s, z) => Transpose(x, perm=p) '
         'where s.is_const and s.size == 1 and has_step(s.scalar) and x.dtype in ("int8", "uint8")',
         'QuantizeLinear(Transpose(DequantizeLinear(x, s, z), perm=p), s, z) => Transpose(x, perm=p) '
         'where s.is_const and s.size == 1 and x.dtype in ("int8", "uint8")', "exact"),
        ('QuantizeLinear(Transpose(DequantizeLinear(x, s, z), perm=p), s, z) => Transpose(x, perm=p) '
         'where s.is_const and s.size == 1 and has_step(s.scalar) and x.dtype in ("int8", "uint8")',
         'QuantizeLinear(Transpose(DequantizeLinear(x, s, z), perm=p), s, z) => Transpose(x, perm=p) '
         'where s.is_const and s.size == 1 and has_step(s.scalar) and x.dtype in ("int8", "int32")', "exact"),
        # exponentials of sums, and extremes of them
        ("Softmax(Sub(x, m), axis=k) => Softmax(x, axis=k) where m.rank == x.rank and m.shape[k] == 1",
         "Softmax(Mul(x, m), axis=k) => Softmax(x, axis=k) where m.rank == x.rank and m.shape[k] == 1", "reals"),
        ("ReduceMax(Add(x, c), a, keepdims=1) => Add(ReduceMax(x, a, keepdims=1), c) where c.rank == 0",
         "ReduceMax(Mul(x, c), a, keepdims=1) => Mul(ReduceMax(x, a, keepdims=1), c) where c.rank == 0", "reals"),
        # a mean of nothing is no number, which the right side has to be where the left one is
        ("ReduceSum(x, [0], keepdims=1) => Mul(ReduceMean(x, [0], keepdims=1), {1.0 * x.shape[0] like x}) "
         "where x.rank == 1 and x.shape[0] > 0",
         "ReduceSum(x, [0], keepdims=1) => Mul(ReduceMean(x, [0], keepdims=1), {1.0 * x.shape[0] like x}) "
         "where x.rank == 1", "reals"),
        # windows
        ("MaxPool(Max(x, y), kernel_shape=k) => Max(MaxPool(x, kernel_shape=k), MaxPool(y, kernel_shape=k)) "
         "where x.shape == y.shape and x.rank == 3",
         "MaxPool(Min(x, y), kernel_shape=k) => Min(MaxPool(x, kernel_shape=k), MaxPool(y, kernel_shape=k)) "
         "where x.shape == y.shape and x.rank == 3", "exact"),
        ("ConvTranspose(x, Neg(w), kernel_shape=k) => Neg(ConvTranspose(x, w, kernel_shape=k)) where x.rank == 3",
         "ConvTranspose(x, Neg(w), kernel_shape=k) => ConvTranspose(x, w, kernel_shape=k) where x.rank == 3", "reals"),
        # attention
        ("MatMul(Softmax(MatMul(q, k), axis=-1), v) => Attention(q, Transpose(k, perm=[0, 1, 3, 2]), v, scale=1.0) "
         "where q.rank == 4 and k.rank == 4 and q.shape[:2] == k.shape[:2] and q.shape[3] == k.shape[2] "
         "and v.shape == (k.shape[0], k.shape[1], k.shape[3], v.shape[3])",
         "MatMul(Softmax(MatMul(q, k), axis=-1), v) => Attention(q, Transpose(k, perm=[0, 1, 3, 2]), v) "
         "where q.rank == 4 and k.rank == 4 and q.shape[:2] == k.shape[:2] and q.shape[3] == k.shape[2] "
         "and v.shape == (k.shape[0], k.shape[1], k.shape[3], v.shape[3])", "reals"),
        # the first of the largest
        ("ReduceMax(x, [1], keepdims=1), ArgMax(x, axis=1, keepdims=1) => TopK(x, [1], axis=1)[0], "
         "TopK(x, [1], axis=1)[1] where x.rank == 2",
         "ReduceMax(x, [1], keepdims=1), ArgMin(x, axis=1, keepdims=1) => TopK(x, [1], axis=1)[0], "
         "TopK(x, [1], axis=1)[1] where x.rank == 2", "exact"),
        # the opset that a guard asks for
        ("Mul(Div(x, Sqrt(Add(ReduceMean(Mul(x, x), [1], keepdims=1), 0.5))), s) => "
         "SimplifiedLayerNormalization(x, s, axis=-1, epsilon=0.5) where opset < 23 and x.rank == 2 and s.rank == 1",
         "Mul(Div(x, Sqrt(Add(ReduceMean(Mul(x, x), [1], keepdims=1), 0.5))), s) => "
         "SimplifiedLayerNormalization(x, s, axis=-1, epsilon=0.25) where opset < 23 and x.rank == 2 and s.rank == 1",
         "reals"),
    ],
)  # fmt: skip
def test_a_wrong_mutant_of_what_is_proved_is_not(text: str, wrong: str, soundness: str) -> None:
    found = prove(rule(text, soundness))
    assert found.kind is not None, found.why
    assert prove(rule(wrong, soundness)).kind is None


def test_an_op_with_which_nothing_fires_is_not_proved() -> None:
    moved = 'f(Relu(x), **rest) => Relu(f(x, **rest)) where f in ("Transpose", {})'
    assert prove(rule(moved.format('"Flatten"'), "exact")).kind == "index"
    assert "fires with Gather" in prove(rule(moved.format('"Gather"'), "exact")).why


def test_the_scope_says_which_sizes() -> None:
    found = prove(rule("Neg(Neg(x)) => x", "exact"))
    assert found.kind is None  # it is no law of symbols
    found = prove(rule("Transpose(Transpose(x, perm=(1, 0)), perm=(1, 0)) => x where x.rank == 2", "exact"))
    assert found.scope == "rank <= 2, sizes none, 0 to 4"


def test_what_is_computed_from_elements_is_not_proved() -> None:
    assert "from the elements of c" in prove(rule("Mul(x, c) => Mul(x, {c.scalar}) where c.size == 1", "exact")).why


def test_what_elements_decide_is_not_proved() -> None:
    assert prove(rule("Mul(x, c) => x where c.scalar == 1.0", "exact")).kind is None
