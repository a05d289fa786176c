"""The nest of a group: what is written into what reads it, and what is stored."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.compile import lowered
from graphopt.ir import evaluate
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error
from graphopt.lowering.fuse.groups import group
from graphopt.lowering.fuse.nests import FusedNest, without_conditions, write
from graphopt.lowering.link.linked import Linked
from graphopt.lowering.link.options import BY_RULE
from graphopt.lowering.link.passes import needed
from graphopt.lowering.loops.compute import compute, nest, placeholder, require
from graphopt.lowering.loops.expressions import Var
from graphopt.lowering.loops.interpret import interpret, numpy_dtype
from graphopt.lowering.loops.nest import Check, blocks, statements
from graphopt.lowering.lower.lower import lower
from graphopt.run.steps import Steps
from graphopt.runtime.sizes import show


def written(text: str) -> list[FusedNest]:
    graph = parse(text)
    facts = infer(graph)
    lowered = lower(graph, facts)
    return [write(graph, facts, g) for g in group(graph, facts, lowered, needed(graph, lowered, facts))]


BLOCKS = {
    "a chain is one block": ("x: float32[8] y = Neg(Exp(Abs(x))) return y", 1),
    "what is read twice at one place is computed there": ("x: float32[8] a = Exp(x) y = Mul(a, a) return y", 1),
    "a reduction and what goes into it": ("x: float32[4, 8] y = ReduceSum(Exp(x), [1]) return y", 1),
    "what goes into softmax is computed again where it is cheap": ("x: float32[4, 8] y = Softmax(Neg(x)) return y", 4),
    "expressions do not grow without end": (
        "x: float32[8] a = Mul(x, x) b = Mul(a, a) c = Mul(b, b) d = Mul(c, c) e = Mul(d, d) f = Mul(e, e) "
        "g = Mul(f, f) h = Mul(g, g) y = Mul(h, h) return y",
        2,
    ),
}


@pytest.mark.parametrize("case", BLOCKS)
def test_blocks(case: str) -> None:
    text, count = BLOCKS[case]
    (made,) = written(text)
    assert len(list(blocks(made.nest.body))) == count


def test_a_scalar_constant_is_written_where_it_is_read() -> None:
    (made,) = written("x: float32[n] y = Mul(x, 2.5) return y")
    assert len(made.inputs) == 1


def test_a_small_shape_is_written_where_it_is_read() -> None:
    (made,) = written("x: float32[n, m] s = Shape(x) y = Mul(Cast(s, to=1), 2.0) return y")
    assert made.inputs == ()
    assert len(made.sizes) == 2


def test_sizes_that_nothing_depends_on_are_no_parameters() -> None:
    (made,) = written("x: float32[n, 4] s: float32[m] y = Add(x, 1.0) return y")
    assert len(made.nest.sizes) == 1


@pytest.mark.parametrize(
    "text",
    [
        "x: float32[6, 5] y = Relu(Transpose(Exp(x), perm=[1, 0])) return y",
        "x: float32[6, 5] b: float32[5] y = Softmax(Sub(Mul(x, 3.0), b)) return y",
        "x: float32[6, 5] y = Sqrt(ReduceSum(Mul(x, x), [1])) return y",
        "x: float32[6, 5] b: float32[6, 1] y = Concat(Neg(x), Abs(x), Add(x, b), axis=1) return y",
    ],
)
def test_groups_compute_what_their_nodes_do(text: str) -> None:
    graph = parse(text)
    (made,) = written(text)
    rng = np.random.default_rng(0)
    feeds = {
        graph.names[v]: rng.standard_normal([int(n) for n in graph.types[v].shape]).astype(np.float32)  # type: ignore
        for v in graph.inputs
    }
    (want,) = evaluate.run(graph, feeds).values()
    got = np.zeros(want.shape, numpy_dtype("float32"))
    interpret(made.nest, [*(feeds[graph.names[v]] for v in made.inputs), got])
    assert error(want, got) <= 1


# ------------------------------------------------------------------ conditions on sizes


def linked(text: str) -> Linked:
    return lowered(parse(text), BY_RULE, Steps())


def messages(program: Linked) -> list[str]:
    return [m for part in program.parts for m in part.emitted.messages]


CONDITIONS = {
    "x: float32[n, c] y = Add(x, float32[4]{1.0, ...})": ["(c == 1) or (c == 4)"],
    "x: float32[n, c] y = Where(Less(x, 0.0), x, float32[4]{1.0, ...})": ["(c == 1) or (c == 4)"],
    "x: float32[n, c] s: float32[m] y = PRelu(x, s)": ["(m == 1) or (m == c)"],
    "x: float32[n, k] w: float32[m, 3] y = MatMul(x, w)": ["k == m"],
    "x: float32[k] w: float32[m] y = MatMul(x, w)": ["k == m"],
    "x: float32[n, k] y = Gemm(x, float32[3, 8]{0.5, ...}, transB=1)": ["k == 8"],
    "x: float32[n, 8] b: float32[m] y = Gemm(x, float32[8, 3]{0.5, ...}, b)": ["(m == 1) or (m == 3)"],
    "x: float32[n, c] y = LayerNormalization(x, float32[8]{0.5, ...}, float32[8]{0.5, ...})": ["8 == c"],
    "x: float32[n, c, h] s: float32[4] y = BatchNormalization(x, s, s, s, s)": ["4 == c"],
    "x: int8[n, k] w: int8[8, 3] y = MatMulInteger(x, w)": ["k == 8"],
    "x: float32[n, c] y: float32[n, c] z = Relu(Add(x, y))": [],
}


@pytest.mark.parametrize("text", CONDITIONS)
def test_sizes_that_have_to_agree_are_seen_to_ahead_of_kernels(text: str) -> None:
    name = text.rpartition(" = ")[0].split()[-1]
    program = linked(f"{text} return {name}")
    assert [show(c.holds) for c in program.conditions] == CONDITIONS[text]
    assert all(name in c.message.partition(":")[0] for c in program.conditions)
    assert messages(program) == []


def test_a_branch_that_may_not_be_taken_checks_sizes_itself() -> None:
    yes, no = "q: ? r: ? s = Add(q, r) return s", "q: ? r: ? s = Neg(q) return s"
    branches = f"then_branch={{ {yes} }}, else_branch={{ {no} }}"
    program = linked(f"p: float32[4] x: float32[m] c: bool[] y = If(c | p, x, {branches}) return y")
    assert program.conditions == ()
    assert messages(program) == ["Add: a size of an input is neither 1 nor that of the result"]


def test_checks_of_elements_and_within_loops_stay_where_they_are() -> None:
    n = Var("n")
    x = placeholder((n,), "int64", "x")
    checks = [
        require((), lambda: n < 9, "of sizes"),
        require((), lambda: x[(0,)] < n, "of an element"),
        require((n,), lambda i: i < 9, "of each"),
    ]
    made = nest("k", [x], [compute((n,), lambda i: x[i], name="y", requirements=checks)], [n])
    left, found = without_conditions(made)
    assert [c.message for c in found] == ["of sizes"]
    assert [s.message for s in statements(left.body) if isinstance(s, Check)] == ["of an element", "of each"]
    assert without_conditions(left) == (left, ())
