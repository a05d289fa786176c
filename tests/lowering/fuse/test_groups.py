"""Which nodes are computed by one nest: each case is a graph, and the ops of its groups in order."""

from __future__ import annotations

import pytest

from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.lowering.fuse.groups import Group, Member, group
from graphopt.lowering.link.passes import needed
from graphopt.lowering.lower.lower import lower

X = "x: float32[8, 16] "
W = "w: float32[16, 32] b: float32[32] "

CASES = {
    "a chain of elementwise ops": (X + "y = Neg(Relu(Exp(x))) return y", ["Exp+Relu+Neg"]),
    "a broadcast": (X + "b: float32[16] y = Relu(Add(x, b)) return y", ["Add+Relu"]),
    "a diamond": (X + "a = Relu(x) y = Add(Neg(a), Abs(a)) return y", ["Relu+Neg+Abs+Add"]),
    "a value that is an output is stored": (X + "a = Relu(x) y = Neg(a) return a, y", ["Relu", "Neg"]),
    "a value with readers in two groups is stored": (
        X + "a = Relu(x) y = Neg(a) z = Abs(a) return y, z",
        ["Relu", "Neg", "Abs"],
    ),
    "what follows a product": (X + W + "y = Relu(Add(MatMul(x, w), b)) return y", ["MatMul+Add+Relu"]),
    "what comes before a product is stored": (X + W + "y = MatMul(Relu(x), w) return y", ["Relu", "MatMul"]),
    "two products are two nests": (
        X + W + "v: float32[8, 16] y = Add(MatMul(x, w), MatMul(v, w)) return y",
        ["MatMul", "MatMul+Add"],
    ),
    "another shape after a product is no epilogue": (
        X + W + "y = Transpose(MatMul(x, w), perm=[1, 0]) return y",
        ["MatMul", "Transpose"],
    ),
    "a sum and the normalization of its rows": (
        X + "r: float32[8, 16] s: float32[16] y = LayerNormalization(Add(x, r), s) return y",
        ["Add+LayerNormalization"],
    ),
    "what is cheap is done again in a reduction": (X + "y = ReduceSum(Mul(x, x), [1]) return y", ["Mul+ReduceSum"]),
    "what is dear is done in a reduction that reads it once": (
        X + "y = ReduceSum(Exp(x), [1]) return y",
        ["Exp+ReduceSum"],
    ),
    "what is dear is not done twice": (X + "y = Softmax(Exp(x)) return y", ["Exp", "Softmax"]),
    "what follows a reduction at its size": (X + "y = Sqrt(ReduceSum(x, [1])) return y", ["ReduceSum+Sqrt"]),
    "what follows a reduction at another size": (
        X + "y = Sub(x, ReduceSum(x, [1])) return y",
        ["ReduceSum", "Sub"],
    ),
    "what is dear is not repeated by a broadcast": (
        X + "b: float32[16] y = Add(x, Exp(b)) return y",
        ["Exp", "Add"],
    ),
    "what is cheap is repeated by a broadcast": (X + "b: float32[16] y = Add(x, Neg(b)) return y", ["Neg+Add"]),
    "elements that move": (X + "y = Relu(Transpose(x, perm=[1, 0])) return y", ["Transpose+Relu"]),
    "a view is in no group": (X + "y = Neg(Reshape(Relu(x), [128])) return y", ["Relu", "Neg"]),
}


def groups(text: str) -> list[Group]:
    graph = parse(text)
    facts = infer(graph)
    lowered = lower(graph, facts)
    return group(graph, facts, lowered, needed(graph, lowered, facts))


def ops(found: list[Group]) -> list[str]:
    return ["+".join(m.node.op for m in g.members) for g in found]


@pytest.mark.parametrize("case", CASES)
def test_greedy_fusion(case: str) -> None:
    text, want = CASES[case]
    assert ops(groups(text)) == want


def test_a_group_has_a_limit() -> None:
    chain = "x"
    for _ in range(100):
        chain = f"Neg({chain})"
    found = groups(X + f"y = {chain} return y")
    assert 2 < len(found) < 6


def test_the_decision_can_be_anothers() -> None:
    graph = parse(X + "y = Neg(Relu(Exp(x))) return y")
    facts = infer(graph)
    lowered = lower(graph, facts)

    def only_relu(member: Member, group: Group) -> bool:
        return member.node.op == "Relu"

    assert ops(group(graph, facts, lowered, needed(graph, lowered, facts), only_relu)) == ["Exp", "Relu+Neg"]
