"""Equal nodes and constants become one; what is random or only looks equal does not."""

from __future__ import annotations

from graphopt.ir.text import parse, show
from graphopt.rewrite.passes.dead import UNUSED
from graphopt.rewrite.passes.sharing import COMMON, DUPLICATES
from graphopt.rewrite.passes.simplify import simplify


def shared(text: str) -> str:
    made = show(simplify(parse(text), passes=(UNUSED, DUPLICATES, COMMON)))
    return "; ".join(line.strip() for line in made.split("\n") if " = " in line)


XY = "x: float32[2] y: float32[2] "


def test_equal_nodes() -> None:
    assert shared(XY + "z = Add(Neg(x), Neg(x)) return z") == "%0 = Neg(x); z = Add(%0, %0)"
    assert shared(XY + "z = Sub(Add(x, y), Add(y, x)) return z") == "%0 = Add(x, y); z = Sub(%0, %0)"
    assert shared(XY + "z = Sub(Sub(x, y), Sub(y, x)) return z").count("Sub") == 3


def test_a_chain_of_equal_nodes() -> None:
    assert shared(XY + "z = Add(Exp(Abs(Neg(x))), Exp(Abs(Neg(x)))) return z").count("=") == 4


def test_attributes_tell_nodes_apart_but_not_their_defaults() -> None:
    x = "x: float32[2, 2] "
    assert shared(x + "z = Add(Softmax(x, axis=0), Softmax(x, axis=1)) return z").count("Softmax") == 2
    assert shared(x + "z = Add(Softmax(x, axis=-1), Softmax(x)) return z").count("Softmax") == 1


def test_random_nodes_stay_apart() -> None:
    made = shared(XY + "z = Add(RandomNormal(shape=[2]), RandomNormal(shape=[2])) return z")
    assert made.count("RandomNormal") == 2


def test_outputs_keep_their_names() -> None:
    graph = simplify(parse(XY + "a = Neg(x) b = Neg(x) return a, b"), passes=(UNUSED, DUPLICATES, COMMON))
    assert graph.output_names == ["a", "b"]
    assert graph.outputs[0] == graph.outputs[1]


def test_equal_constants() -> None:
    assert shared(XY + "z = Add(Add(x, 1.0), 1.0) return z").count("1.0") == 1
    graph = parse(XY + "z = Mul(Add(x, float32[2]{1.0, 2.0}), float32[2]{1.0, 2.0}) return z")
    made = simplify(graph, passes=(DUPLICATES, UNUSED))
    assert sum(n.op == "Constant" for n in made.nodes()) == 1
    apart = parse(XY + "z = Mul(Add(x, 0.0), -0.0) return z")
    assert simplify(apart, passes=(DUPLICATES,)) is apart


def test_equal_bodies() -> None:
    branch = "If(c | x, then_branch={{ q: ? r = Neg(q) return r }}, else_branch={{ q: ? r = {}(q) return r }})"
    source = "c: bool[] x: float32[2] a = {} b = {} y = Add(a, b) return y"
    same = source.format(branch.format("Abs"), branch.format("Abs"))
    other = source.format(branch.format("Abs"), branch.format("Exp"))
    assert shared(same).count("If(") == 1
    assert shared(other).count("If(") == 2
