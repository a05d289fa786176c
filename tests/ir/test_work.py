"""Work is predicted from types: bytes at once and operations, whatever the sizes, without taking any."""

from __future__ import annotations

import tracemalloc
from time import thread_time
from typing import Any

import numpy as np
import pytest

from graphopt.ir import infer
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.ir.work import (
    APPROXIMATED,
    AT_ONCE,
    EACH_BYTE_OF_FEW,
    MOVED,
    QUICK,
    Work,
    bytes_handed,
    excess,
    handed_excess,
    most_operations,
    most_seconds,
    work_of,
)

GREAT = 2**40


def doubled(times: int, first: str) -> str:
    return " ".join(f"c{k + 1} = Concat(c{k}, c{k}, axis=0)" for k in range(times)).replace("c0", first)


LOOP = "y = Loop({trips}, _, x, body={{ i: ? go: ? s: {type} {body} return go, t }}) return y"
BOMBS = {
    "Tile": f"x: float32[1] y = Tile(x, [{GREAT}]) return y",
    "Expand": f"x: float32[1] y = Expand(x, [{GREAT}]) return y",
    "Expand and sum": f"x: float32[1] e = Expand(x, [{GREAT}]) y = ReduceSum(e, keepdims=0) return y",
    "Resize": "x: float32[1, 1, 4, 4] y = Resize(x, _, [1.0, 1.0, 524288.0, 131072.0]) return y",
    "Concat": f"x: float32[1] {doubled(40, 'x')} return c40",
    "a loop that doubles": "x: float32[8] " + LOOP.format(trips=40, type="?", body="t = Concat(s, s, axis=0)"),
    "OneHot": f"x: int64[1] y = OneHot(x, {GREAT}, [0.0, 1.0]) return y",
    "Pad": f"x: float32[1] y = Pad(x, [{GREAT}, {GREAT}]) return y",
    "an outer product": "a: float32[1048576, 1] b: float32[1, 1048576] y = MatMul(a, b) return y",
}
LONG = {
    "a product": "a: float32[1000000, 10] b: float32[10, 1000000000] c: float32[1000000000, 1] y = MatMul(b, c) "
    "z = MatMul(a, y) return z",
    "a loop of 2**62 rounds": "x: float32[8] " + LOOP.format(trips=2**62, type="float32[8]", body="t = Neg(s)"),
    "Einsum": 'x: float32[4096, 4096] y = Einsum(x, x, equation="ab,cd->") return y',
    "LRN": "x: float32[1, 1048576, 1, 1] y = LRN(x, size=2147483647) return y",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_bytes_are_known_before_anything_runs(text: str) -> None:
    start, graph = thread_time(), parse(text)
    tracemalloc.start()
    work = work_of(graph, {})
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert work.bytes >= 4 * GREAT
    assert most < 16 << 20
    assert thread_time() - start < 2
    assert "--memory" in excess(graph, {}, 1 << 30, 10**30)


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_operations_are_known_before_anything_runs(text: str) -> None:
    assert work_of(parse(text), {}).operations >= 10**10
    assert "operations" in excess(parse(text), {}, 1 << 62, 10**9)


def test_what_is_read_for_the_last_time_is_there_no_longer() -> None:
    assert work_of(parse("x: float32[1000] y = Neg(Neg(Neg(Neg(x)))) return y"), {}) == Work(12_000, 8_000 * MOVED)


def test_named_sizes_are_given_and_others_count_nothing() -> None:
    graph = parse("x: float32[n, m] y = Neg(x) return y")
    assert work_of(graph, {"n": 10, "m": 10}).bytes == 800
    assert work_of(graph, {"n": 10}).bytes == 0


def test_a_loop_that_may_end_sooner_is_taken_to_do_so() -> None:
    body = "t = Concat(s, s, axis=0) m = ReduceMax(t, keepdims=0) stop = Less(m, 1.0) return stop, t"
    graph = parse(f"x: float32[8] y = Loop(40, _, x, body={{ i: ? go: ? s: ? {body} }}) return y")
    assert work_of(graph, {}).bytes < 1000


def test_inputs_and_outputs_are_what_is_handed_over() -> None:
    assert bytes_handed(parse("x: float32[10] y = ReduceSum(Expand(x, [100, 10])) return y")) == 44


IF = "y = If({} | {x}, then_branch={{ q: ? {} return r }}, else_branch={{ q: ? p = Exp(q) r = Exp(p) return r }})"
MANY = "r = Tile(q, [1024])"


def test_of_branches_the_one_counts_that_is_known_to_be_taken_or_the_cheaper() -> None:
    text = "c: bool[] x: float32[8] {} return y"
    taken, other, either = (work_of(parse(text.format(IF.format(c, MANY, x="x"))), {}) for c in ("true", "false", "c"))
    assert taken.bytes > 1024 * 32 > other.bytes
    assert max(either.operations, other.operations) < 100 * APPROXIMATED < taken.operations


def test_bodies_within_bodies_are_inferred_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inner, walked, walk = "r = Exp(q)", list[Graph](), infer._Walk.graph
    for _ in range(5):
        other = "{ k: ? q: ? r = Sin(q) return r }"
        inner = f"r = If(k | k, q, then_branch={{ k: ? q: ? {inner} return r }}, else_branch={other})"

    def counted(self: infer._Walk, graph: Graph, *given: Any) -> Any:
        walked.append(graph)
        return walk(self, graph, *given)

    monkeypatch.setattr(infer._Walk, "graph", counted)
    work_of(parse(f"k: bool[] q: float32[8] {inner} return r"), {})
    assert len(walked) == len(set(map(id, walked))) == 11


def test_a_model_of_few_bytes_may_take_few_operations_unless_its_weights_are_repeated() -> None:
    assert most_operations(parse("x: float32[8] y = Relu(x) return y"), is_asked=False) == AT_ONCE
    stored = parse("x: float32[1, 100] y = Relu(x) return y")
    stored.add_constant(Constant.of(np.arange(10_000, dtype=np.float32)))
    assert most_operations(stored, is_asked=False) == EACH_BYTE_OF_FEW * 40_000
    repeated = "x: float32[1, 10000] y = MatMul(x, ConstantOfShape([10000, 10000])) return y"
    assert AT_ONCE < most_operations(parse(repeated), is_asked=False) <= QUICK
    assert most_operations(parse(repeated), is_asked=True) > QUICK


def test_only_what_no_type_tells_the_end_of_is_limited_by_time() -> None:
    loop = "x: float32[8] y = Loop(3, _, x, body={ i: ? go: ? s: ? t = Neg(s) return go, t }) return y"
    assert most_seconds(parse(loop)) == 1.0
    assert most_seconds(parse("x: float32[8] y = Relu(x) return y")) is None


def test_ends_that_take_too_much_are_told() -> None:
    graph = parse("x: float32[10] y = Expand(x, [100, 10]) return y")
    assert handed_excess(graph, 4040) == ""
    assert "take 4040 bytes, and a run may take 4000; 'y' is float32[100, 10]" in handed_excess(graph, 4000)
