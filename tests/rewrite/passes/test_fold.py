"""Constants are folded where that pays, and models do not explode by it."""

from __future__ import annotations

import tracemalloc
from time import thread_time

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse, show
from graphopt.ir.work import stored_bytes
from graphopt.rewrite.passes.dead import UNUSED
from graphopt.rewrite.passes.fold import FOLD, KNOWN, fold_within
from graphopt.rewrite.passes.simplify import simplify

PASSES = (UNUSED, *KNOWN, FOLD)


def folded(text: str) -> str:
    return show(simplify(parse(text), passes=PASSES)).split("\n", 1)[1].strip()


def ops(graph: Graph) -> list[str]:
    return sorted(n.op for n in graph.nodes() if n.op not in ("Input", "Constant"))


def weights(text: str, **constants: np.ndarray) -> Graph:  # type: ignore[type-arg]
    """A graph whose inputs of these names are constants."""
    graph = parse(text)
    for value in list(graph.inputs):
        name = graph.names[value]
        if name in constants:
            graph.replace(value, graph.add_constant(Constant.of(constants[name]), name))
            graph.remove(value.node)
    return graph


def test_small_constants_are_computed() -> None:
    assert (
        folded("x: float32[2] y = Add(x, Mul(2.0, Add(1.0, 2.0))) return y")
        == "x: float32[2]\ny = Add(x, 6.0)\nreturn y"
    )


def test_shapes_are_known() -> None:
    source = "x: float32[n, 3, 4] s = Shape(x) y = Gather(s, [1, 2]) return y"
    assert folded(source) == "x: float32[n, 3, 4]\ny = [3, 4]\nreturn y"
    kept = "x: float32[n, 3] s = Shape(x) return s"
    assert folded(kept).endswith("s = Shape(x)\nreturn s")


def test_a_division_by_zero_is_left_alone() -> None:
    assert "Div" in folded("x: int64[1] y = Add(x, Div([1], [0])) return y")


def test_random_numbers_and_dequantized_weights_are_left_alone() -> None:
    assert "RandomNormal" in folded("x: float32[2] y = Add(x, RandomNormal(shape=[2])) return y")
    dequantized = "x: float32[2] y = Add(x, DequantizeLinear(int8[2]{1, 2}, 0.5)) return y"
    assert "DequantizeLinear" in folded(dequantized)
    assert "DequantizeLinear" in show(fold_within(parse(dequantized)))


def test_a_large_result_replaces_what_is_no_smaller() -> None:
    w = np.arange(6000, dtype=np.float32).reshape(60, 100)
    once = weights("x: float32[2, 100] w: float32[60, 100] y = MatMul(x, Transpose(w)) return y", w=w)
    assert ops(simplify(once, passes=PASSES)) == ["MatMul"]
    twice = weights("x: float32[2, 100] w: float32[60, 100] y = MatMul(x, Transpose(w)) z = MatMul(y, w) return z", w=w)
    assert ops(simplify(twice, passes=PASSES)) == ["MatMul", "MatMul", "Transpose"]
    assert ops(fold_within(twice)) == ["MatMul", "MatMul"]
    assert ops(fold_within(twice, stored_bytes(twice) + 100)) == ["MatMul", "MatMul", "Transpose"]


def test_what_is_too_large_is_never_computed() -> None:
    source = "y = ConstantOfShape([1048576, 1048576]) z = Add(y, y) n = NonZero(z) return n"
    graph = parse(source)
    assert ops(fold_within(simplify(graph, passes=PASSES))) == ["NonZero"]
    for text in ("y = Range(0, 1099511627776, 1) return y", "y = Tile([1], [1099511627776]) return y"):
        assert len(fold_within(simplify(parse(text), passes=PASSES))) == 1
    grown = "a = Concat([1, 2], [1, 2], axis=0)" + "".join(
        f" {b} = Concat({a}, {a}, axis=0)" for a, b in zip("abcdefghijklmnopqrs", "bcdefghijklmnopqrst", strict=True)
    )
    made = simplify(parse(grown + " return t"), passes=PASSES)
    assert stored_bytes(made) < 20_000


LONG = {
    "a regular expression that tries everything": 's: string[1] y = RegexFullMatch(s, pattern="(a+)+$") return y',
    "a product": "t = Range(0.0, 16777216.0, 1.0) a = Reshape(t, [4096, 4096]) y = MatMul(a, a) return y",
    "a product of small results": "t = Range(0.0, 1024.0, 1.0) a = Reshape(t, [32, 32]) "
    'y = Einsum(a, a, a, a, equation="ab,cd,ef,gh->") return y',
    "a window as long as the channels": "t = Range(0.0, 65536.0, 1.0) a = Reshape(t, [1, 65536, 1, 1]) "
    "y = LRN(a, size=65535) return y",
}
"""What would take from a minute to for ever to compute ahead, and would be worth it by its size."""


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_what_takes_long_is_never_computed(text: str) -> None:
    start = thread_time()
    strings = {"s": np.array(["a" * 40 + "!"], object)} if "string" in text else {}
    graph = weights(text, **strings) if strings else parse(text)
    assert ops(fold_within(simplify(graph, passes=PASSES)))
    assert thread_time() - start < 2


def test_all_folds_together_take_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    product = " ".join(f"b{i + 1} = MatMul(b{i}, a)" for i in range(20))
    text = f"t = Range(0.0, 4096.0, 1.0) a = Reshape(t, [64, 64]) b0 = Relu(a) {product} return b20"
    assert not ops(fold_within(parse(text)))
    monkeypatch.setattr("graphopt.rewrite.match.evaluation.ALL_OPERATIONS", 5 * 64**3)
    assert ops(fold_within(parse(text))).count("MatMul") == 20


def test_bodies_take_of_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphopt.rewrite.match.evaluation.ALL_OPERATIONS", 5 * 64**3)
    product = "a = Reshape(Range(0.0, 4096.0, 1.0), [64, 64]) r = Add(ReduceSum(MatMul(a, a), keepdims=0), q) return r"
    branches = "then_branch={ q: ? %s }, else_branch={ q: ? r = Neg(q) return r }" % product  # noqa: UP031
    calls = " ".join(f"y{k + 1} = If(c | y{k}, {branches})" for k in range(6))
    graph = fold_within(parse(f"c: bool[] x: float32[] y0 = Abs(x) {calls} return y6"))
    left = [op for node in graph.nodes() for body in node.bodies.values() for op in ops(body)]
    assert 0 < left.count("MatMul") < 6


def test_what_is_computed_on_the_way_is_dropped_when_it_was_read() -> None:
    """Eighty intermediate results of 16 MB, of which one is there at a time."""
    sums = " ".join(f"t{i} = Add(b, [{i}.0]) r{i} = ReduceSum(t{i}, keepdims=0)" for i in range(80))
    total = f"y = Sum({', '.join(f'r{i}' for i in range(80))})"
    c = np.array([[1.0], [2.0]], np.float32)
    graph = weights(f"c: float32[2, 1] b = Expand(c, [2, 2097152]) {sums} {total} return y", c=c)
    tracemalloc.start()
    made = fold_within(graph)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not ops(made)
    assert most < 200 << 20


def test_one_repeated_element_stays_one() -> None:
    graph = simplify(parse("x: float32[1000, 1000] y = Add(x, ConstantOfShape([1000, 1000])) return y"), passes=PASSES)
    assert stored_bytes(graph) == 4
    more = "x: float32[1000, 1000] w = ConstantOfShape([1000, 1000]) y = Add(x, Transpose(Exp(w))) return y"
    graph = simplify(parse(more), passes=PASSES)
    assert ops(graph) == ["Add"]
    assert stored_bytes(graph) == 4


def test_the_last_fold_takes_the_smallest_first() -> None:
    w = np.arange(100_000, dtype=np.float32).reshape(100, 1000)
    v = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    text = """x: float32[2, 100] w: float32[100, 1000] v: float32[100, 100]
        a = MatMul(MatMul(x, w), Transpose(w)) b = MatMul(MatMul(x, v), Transpose(v)) return a, b"""
    graph = weights(text, w=w, v=v)
    made = fold_within(graph, stored_bytes(graph) + 50_000)
    assert ops(made).count("Transpose") == 1
    assert stored_bytes(made) == stored_bytes(graph) + 40_000
    assert ops(fold_within(graph)).count("Transpose") == 0


def test_a_chain_of_constants_is_computed_as_a_whole() -> None:
    w = np.arange(6000, dtype=np.float32).reshape(60, 100)
    text = """x: float32[2, 60] w: float32[60, 100] y = MatMul(x, Relu(Neg(w))) z = MatMul(x, w) return y, z"""
    made = fold_within(weights(text, w=w))
    assert ops(made) == ["MatMul", "MatMul"]
    assert fold_within(made) is made


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "bool"])
def test_dtypes(dtype: str) -> None:
    made = folded(
        f"x: {dtype}[2] y = Concat(x, Concat({dtype}[1]{{1}}, {dtype}[1]{{0}}, axis=0), axis=0) return y".replace(
            "{1}", "{true}" if dtype == "bool" else "{1}" if dtype == "int32" else "{1.0}"
        ).replace("{0}", "{false}" if dtype == "bool" else "{0}" if dtype == "int32" else "{0.0}")
    )
    assert made.count("Concat") == 1


def test_bodies_are_folded() -> None:
    inner = "{ q: ? r = Add(q, Pad([1.0, 2.0], [1, 1])) return r }"
    graph = parse(f"x: float32[4] c: bool[] y = If(c | x, then_branch={inner}, else_branch={inner}) return y")
    made = fold_within(graph)
    node = next(n for n in made.nodes() if n.op == "If")
    assert [ops(body) for body in node.bodies.values()] == [["Add"], ["Add"]]
    assert fold_within(made) is made
