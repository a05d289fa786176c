"""What programs require of sizes that are known only when they run: once, before kernels, which check none of it."""

from __future__ import annotations

import pytest

from graphopt.ir.text import parse
from graphopt.lowering.link.linked import Linked
from graphopt.lowering.link.passes import link
from graphopt.lowering.loops.compute import compute, nest, placeholder, require
from graphopt.lowering.loops.conditions import without_conditions
from graphopt.lowering.loops.expressions import Var
from graphopt.lowering.loops.nest import Check, statements
from graphopt.runtime.sizes import show


def linked(text: str) -> Linked:
    return link(parse(text))


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
