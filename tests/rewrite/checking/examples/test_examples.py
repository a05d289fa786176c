"""Examples are made of left sides of all kinds."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from graphopt.ir.infer import infer
from graphopt.rewrite.checking.examples import Example, examples, violations
from graphopt.rewrite.checking.examples.arrays import array, as_dtype
from graphopt.rewrite.checking.examples.hints import Hints
from graphopt.rewrite.checking.examples.sample import Misfit, Want
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule


def rule(text: str) -> Rule:
    return parse_rules(f"# why [A1] reals\nr: {text}")[0]


def made(text: str, tries: int = 200) -> list[Example]:
    return [e for e in examples(rule(text), Random(0), tries) if isinstance(e, Example)]


@pytest.mark.parametrize(
    "left",
    [
        "Abs(x)", "Add(x, y)", "Where(c, x, y)", "Clip(x, lo?, hi?)", "Cast(x, to=t)", "CastLike(x, y)", "PRelu(x, s)",
        "MatMul(x, y)", "Gemm(x, y, c?, **rest)", "Conv(x, w, b?, **rest)", "ConvTranspose(x, w, b?, **rest)",
        "MaxPool(x, **rest)", "AveragePool(x, **rest)", "GlobalAveragePool(x)", "BatchNormalization(x, s, b, m, v)",
        "LayerNormalization(x, s, b?, **rest)", "InstanceNormalization(x, s, b)", "LRN(x, **rest)",
        "DFT(x, n?, a, **rest)", "STFT(x, s, w, n, **rest)",
        "Einsum(x, y, equation=e)", "Transpose(x, perm=p)", "Reshape(x, s)", "Flatten(x, axis=k)", "Squeeze(x, a?)",
        "Unsqueeze(x, a)", "Slice(x, s, e, a?, t?)", "Concat(a*, axis=k)", "Split(x, s, axis=k)", "Pad(x, p, c?, a?)",
        "Expand(x, s)", "Tile(x, r)", "Gather(x, i, axis=k)", "GatherND(x, i)", "GatherElements(x, i, axis=k)",
        "OneHot(i, d, v)", "Shape(x, **rest)", "Size(x)", "ConstantOfShape(s)", "Resize(x, _, s, **rest)",
        "DepthToSpace(x, **rest)", "SpaceToDepth(x, **rest)", "Softmax(x, axis=k)", "ArgMax(x, **rest)",
        "TopK(x, k)", "CumSum(x, a)", "ReduceSum(x, a?, **rest)", "Dropout(x, r?)", "QuantizeLinear(x, s, z)",
        "DequantizeLinear(x, s, z)", "Range(a, b, c)", "LeakyRelu(x, alpha=a)", "Swish(x)",
        "com.microsoft::FusedMatMul(x, y)", "com.microsoft::SkipLayerNormalization(x, y, s)",
    ],
)  # fmt: skip
def test_every_kind_of_op(left: str) -> None:
    variable = (
        "i" if left.startswith("OneHot") else "s" if left.startswith("ConstantOf") else "a" if "(a" in left else "x"
    )
    found = made(f"{left} => Neg({variable})")
    assert len(found) > 20
    for example in found:
        infer(example.graph)


def test_what_guards_ask_for() -> None:
    text = "Add(MatMul(x, w), b) => x where x.rank == 2 and w.is_const and not b.is_const and b.shape == (w.shape[1],)"
    found = made(text)
    assert len(found) > 20
    for example in found:
        values = example.match.bindings.values
        assert example.graph.constant_of(values["w"]) is not None  # type: ignore[arg-type]
        assert example.graph.constant_of(values["b"]) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "Mul(Mul(x, h), c) => x where near(h.scalar * c.scalar, 1.0)",
        "Conv(x, w) => x where x.shape[1] > 16",
        "Gather(x, i*, axis=k) => x where i.rank == 0 and (each i.value) == range(x.shape[k])",
        "Relu(x) => x where x.low >= 0",
        "Mul(x, HardSigmoid(x, alpha=a, beta=0.5)) => x where near(a, 1.0 / 6.0)",
        "Relu(x) => x where opset < 18",
        "f(x, y) => x where f in binary and x.dtype in int",
        "Reshape(Tile(x, i) as w, r) => x where x.rank == 4 and w.shape == x.shape[:3] + (2,) and x.shape[3] == 1",
        "Mul(x, Reshape(Expand(f, i) as w, r) as c) => x where x.rank == 4 and divides(2, x.shape[3]) "
        "and f.shape == (x.shape[0], 1, x.shape[2], x.shape[3] // 2, 1) and w.shape == f.shape[:4] + (2,) "
        "and c.shape == (x.shape[0], 1, x.shape[2], x.shape[3])",
    ],
)
def test_guards_that_are_rarely_met_by_chance(text: str) -> None:
    assert made(text)


def test_the_same_seed_gives_the_same_examples() -> None:
    first, second = made("Conv(x, w, b?, **rest) => x"), made("Conv(x, w, b?, **rest) => x")
    draws = [[e.draw(np.random.default_rng(0), "plain") for e in found] for found in (first, second)]
    assert [sorted(d) for d in draws[0]] == [sorted(d) for d in draws[1]]
    for a, b in zip(*draws, strict=True):
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def test_hints() -> None:
    hints = Hints.of(
        rule(
            "f(x, Mul(c, z)) => x where f in binary and x.dtype in float and c.size == 1 and c.scalar > 0.5 "
            "and not x.is_const and z.rank == 3 and x.low >= 0 and opset <= 17"
        )
    )
    assert "Add" in hints.heads["f"]
    assert "float16" in hints.dtypes["x"]
    assert (hints.constants, hints.variables, hints.single, hints.bounded) == ({"c"}, {"x"}, {"c"}, {"x"})
    assert (hints.rank_of, hints.opset, 0.5 in hints.numbers) == ({"z": 3}, 17, True)


def test_arrays() -> None:
    generator = np.random.default_rng(0)
    special = array(generator, Want((1000,), "float32"), "special")
    assert np.isnan(special).any()
    assert np.isinf(special).any()
    assert (np.signbit(special) & (special == 0)).any()
    assert np.isfinite(array(generator, Want((1000,), "float32"), "finite")).all()
    bounded = array(generator, Want((1000,), "float32", low=0.2, high=2.0), "special")
    assert bounded.min() >= 0.2
    index = array(generator, Want((100,), "int64", low=0, high=2), "plain")
    assert set(index.tolist()) == {0, 1, 2}
    assert as_dtype(2.0, "bfloat16").dtype.name == "bfloat16"
    with pytest.raises(Misfit):
        as_dtype(0.5, "int64")


@pytest.mark.parametrize(
    ("text", "guard"),
    [
        ("Add(x, y) => Mul(x, y) where x.dtype in float", "x.rank == 2"),
        ("Add(x, y) => Mul(x, y) where y.is_const and x.shape == y.shape", "x.dtype in float"),
        ("Relu(x) => x where x.high <= 8", "x.low >= 0"),
        ("Max(x, Mul(x, a)) => x where a.scalar > 0", "a.scalar < 1"),
        ("Transpose(x, perm=p) => x where x.rank == 3", "p == (0, 2, 1)"),
        ("Concat(a*, axis=k) => Neg(Concat(a*, axis=k)) where a.rank == 2", "k >= 0"),
        ("Conv(x, w) => Relu(Conv(x, w)) where w.is_const", "x.shape[1] > 2"),
        ("Add(Add(x, a), b) => Add(x, Add(a, b)) where a.is_const and b.is_const", "mergeable(a.numbers, b.numbers)"),
    ],
)
def test_examples_that_violate_one_guard_alone(text: str, guard: str) -> None:
    lacking = rule(text)
    (violated,) = rule(f"{text.partition(' where ')[0]} where {guard}").where
    found = [e for e in violations(lacking, violated, Random(0), 120) if isinstance(e, Example)]
    assert len(found) > 5
    for example in found:
        space = Workspace(example.graph)
        assert expressions.holds(violated, example.match.bindings, space) is not None
        assert all(expressions.holds(g, example.match.bindings, space) is None for g in lacking.where)
    again = [e for e in violations(lacking, violated, Random(0), 120) if isinstance(e, Example)]
    assert [e.graph.key() for e in again] == [e.graph.key() for e in found]


def drawn_without(text: str, guard: str) -> list[Example]:
    """Examples of a rule that lacks a guard, which violate it."""
    (violated,) = rule(f"{text.partition(' where ')[0]} where {guard}").where
    return [e for e in violations(rule(text), violated, Random(0), 120) if isinstance(e, Example)]


def test_op_variables_stand_for_ops_that_a_guard_leaves_out() -> None:
    found = drawn_without("f(Transpose(x, perm=p)) => Transpose(f(x), perm=p)", "f in unary")
    assert len({e.match.bindings.heads["f"].op for e in found}) > 8


def test_dtypes_that_a_guard_leaves_out_are_those_of_the_ops() -> None:
    text = "QuantizeLinear(Flatten(DequantizeLinear(x, s, z)), s, z) => Flatten(x) where s.size == 1"
    found = drawn_without(text, 'x.dtype in ("int8", "uint8")')
    dtypes = {e.graph.types[v].dtype for e in found for v in e.graph.inputs}  # type: ignore[union-attr]
    assert "int16" in dtypes or "uint16" in dtypes


def test_images_in_blocks_are_filled_up_with_zeros() -> None:
    found = [e for e in made("Relu(graphopt::Unblock(x, channels=c)) => x") if e.match.bindings.attrs["c"] == 3]
    image = found[0].draw(np.random.default_rng(0), "special")["x"]
    assert image[..., :3].any()
    assert not image[..., 3:].any()
