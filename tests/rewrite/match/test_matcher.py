"""Left sides are found in graphs, and where they are not, the reason says why."""

from __future__ import annotations

from time import process_time

import pytest

from graphopt.ir.graph import Attrs, Graph, Value
from graphopt.ir.infer import infer
from graphopt.ir.text import parse as parse_text
from graphopt.rewrite.match.matcher import (
    Match,
    Matcher,
    depth,
    families,
    input_dtypes,
    input_ops,
    match,
    root_ops,
    why_not,
)
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule


def rule(text: str) -> Rule:
    return parse_rules(f"# why [A1] reals\nr: {text}")[0]


def parse(text: str) -> Graph:
    """A graph; unlike in the text form, what is returned may be a call."""
    head, _, result = text.rpartition("return ")
    return parse_text(f"{head} out = {result} return out" if "(" in result else text)


def root(graph: Graph) -> int:
    return graph.outputs[0].node  # type: ignore[union-attr]


def found(text: str, source: str, at: int | None = None) -> list[Match]:
    graph = parse(source)
    return list(match(rule(text), graph, infer(graph), root(graph) if at is None else at))


def bound(m: Match, graph: Graph) -> dict[str, object]:
    def name(value: object) -> object:
        if isinstance(value, Value):
            return graph.names[value]
        return tuple(map(name, value)) if isinstance(value, tuple) else value

    return {n: name(v) for n, v in m.bindings.values.items()}


def names(text: str, source: str) -> list[dict[str, object]]:
    graph = parse(source)
    return [bound(m, graph) for m in match(rule(text), graph, infer(graph), root(graph))]


def reason(text: str, source: str) -> str:
    graph = parse(source)
    return why_not(rule(text), graph, infer(graph), root(graph))


XY = "x: float32[2, 3] y: float32[2, 3] "


def test_operands_in_either_order() -> None:
    assert names("Add(Neg(a), b) => Sub(b, a)", XY + "n = Neg(x) return Add(y, n)") == [{"a": "x", "b": "y"}]
    assert names("Add(a, b) => Add(b, a)", XY + "return Add(x, y)") == [{"a": "x", "b": "y"}, {"a": "y", "b": "x"}]
    assert names("Sub(Neg(a), b) => Neg(Add(a, b))", XY + "n = Neg(x) return Sub(y, n)") == []


def test_a_repeated_variable_is_the_same_value() -> None:
    assert names("Add(a, a) => Mul(a, 2.0)", XY + "return Add(x, x)") == [{"a": "x"}]
    assert names("Add(a, a) => Mul(a, 2.0)", XY + "return Add(x, y)") == []
    assert len(found("Add(Mul(x, c), c) => x", XY + "return Add(Mul(x, 3.0), 3.0)")) == 1


def test_literals_of_any_rank() -> None:
    assert found("Mul(x, 1.0) => x", XY + "return Mul(x, 1.0)")
    assert found("Mul(x, 1.0) => x", XY + "return Mul(float32[1, 1]{1.0}, x)")
    assert not found("Mul(x, 1.0) => x", XY + "return Mul(x, 2.0)")
    assert not found("Mul(x, 1.0) => x", XY + "return Mul(x, float32[3]{1.0, 1.0, 1.0})")


def test_a_computed_constant_matches_a_literal() -> None:
    assert found("Mul(x, 6.0) => x", XY + "return Mul(x, Add(2.0, 4.0))")


def test_attributes() -> None:
    source = "x: float32[2, 3, 4] return Transpose(x, perm=[0, 2, 1])"
    (m,) = found("Transpose(x, perm=p) => x", source)
    assert m.bindings.attrs == {"p": (0, 2, 1)}
    assert found("Transpose(x, perm=[0, 2, 1]) => x", source)
    assert not found("Transpose(x, perm=[2, 1, 0]) => x", source)
    assert not found("Transpose(x) => x", source)
    assert found("Transpose(x, perm=[2, 1, 0]) => x", "x: float32[2, 3, 4] return Transpose(x)")


def test_the_rest_of_the_attributes() -> None:
    source = "x: float32[2, 4] return Gemm(x, x, transB=1, alpha=0.5)"
    (m,) = found("Gemm(x, y, alpha=a, **rest) => x", source)
    assert m.bindings.attrs == {"a": 0.5, "rest": Attrs(transB=1)}
    assert reason("Gemm(x, y, alpha=a) => x", source) == "attribute transB of Gemm is 1, the rule wants its default"


def test_optional_and_absent_inputs() -> None:
    conv = "x: float32[1, 2, 4, 4] w: float32[2, 2, 1, 1] b: float32[2] "
    assert names("Conv(x, w, b?) => x", conv + "return Conv(x, w)") == [{"x": "x", "w": "w", "b": None}]
    assert names("Conv(x, w, b?) => x", conv + "return Conv(x, w, b)") == [{"x": "x", "w": "w", "b": "b"}]
    assert reason("Conv(x, w) => x", conv + "return Conv(x, w, b)") == "Conv has 3 inputs, the rule wants 2"
    assert reason("Conv(x, w, b) => x", conv + "return Conv(x, w)") == "b is absent"
    assert found("Clip(x, _, hi) => x", XY + "return Clip(x, _, 6.0)")
    assert not found("Clip(x, _, hi) => x", XY + "return Clip(x, 0.0, 6.0)")


def test_starred_variables_take_what_is_left() -> None:
    source = XY + "return Concat(x, y, x, axis=1)"
    assert names("Concat(a*, axis=k) => Concat(a*, axis=k)", source) == [{"a": ("x", "y", "x")}]
    assert names("Concat(a*, b, axis=k) => b", source) == [{"a": ("x", "y"), "b": "x"}]
    nested = XY + "n = Neg(y) return Concat(x, n, x, axis=1)"
    assert names("Concat(a*, Neg(c), b*, axis=1) => c", nested) == [{"a": ("x",), "b": ("x",), "c": "y"}]


def test_families_below_a_variadic_op() -> None:
    text = "Concat(Relu(a*), axis=k) => Relu(Concat(a*, axis=k))"
    assert names(text, XY + "return Concat(Relu(x), Relu(y), axis=1)") == [{"a": ("x", "y")}]
    assert names(text, XY + "return Concat(Relu(x), Neg(y), axis=1)") == []
    same = "Concat(Transpose(a*, perm=p), axis=k) => x"
    turned = "Concat(Transpose(x, perm=[1, 0]), Transpose(y, perm={}), axis=1)"
    same = same.replace("=> x", "=> Transpose(Concat(a*, axis=0), perm=p)")
    assert names(same, XY + "return " + turned.format("[1, 0]"))
    assert not names(same, "x: float32[2, 2] y: float32[2, 2] return " + turned.format("[0, 1]"))


def test_families_of_roots() -> None:
    source = """x: float32[2, 3] a: float32[3, 4] b: float32[3, 5]
        p = MatMul(x, a) q = MatMul(x, b) r = MatMul(x, Neg(a)) return p, q, r"""
    text = "MatMul(x, a*) => Split(MatMul(x, Concat(a*, axis=1)), {[each a.shape[1]]}, axis=1)"
    (m,) = found(text, source)
    assert len(m.roots) == 3
    graph = parse(source)
    second = graph.outputs[1].node  # type: ignore[union-attr]
    assert not found(text, source, second)
    assert reason(text, "x: float32[2, 3] a: float32[3, 4] return MatMul(x, a)").startswith("only 1 of the calls match")


def test_members_that_do_not_satisfy_a_guard_are_left_out() -> None:
    source = """x: float32[2, 3] a = float32[3, 4]{1.0, ...} b = float32[3, 5]{2.0, ...} c: float32[3, 6]
        p = MatMul(x, a) q = MatMul(x, b) r = MatMul(x, c) return p, q, r"""
    text = "MatMul(x, a*) => Split(MatMul(x, Concat(a*, axis=1)), {[each a.shape[1]]}, axis=1) where a.is_const"
    (m,) = found(text, source)
    assert len(m.roots) == 2


def test_a_family_does_not_read_its_own_roots() -> None:
    source = "x: float32[3, 3] p = MatMul(x, x) q = MatMul(x, p) return p, q"
    assert not found("MatMul(x, a*) => Split(MatMul(x, Concat(a*, axis=1)), [3, 3], axis=1)", source)


def test_several_roots_share_a_variable() -> None:
    source = XY + "p = Neg(x) q = Abs(x) r = Abs(y) return p, q, r"
    (m,) = found("Neg(x), Abs(x) => Abs(x), Neg(x)", source)
    graph = parse(source)
    assert [graph.names[v] for v in m.roots] == ["p", "q"]


def test_alternatives_and_op_variables() -> None:
    assert len(found("(Relu(x) | Neg(x)) => x", XY + "return Neg(x)")) == 1
    (m,) = found("f(f(x)) => f(x) where f in unary", XY + "return Abs(Abs(x))")
    assert m.bindings.heads["f"].op == "Abs"
    assert not found("f(f(x)) => f(x) where f in unary", XY + "return Abs(Neg(x))")


def test_op_variables_with_attributes() -> None:
    text = "f(f(x, a, keepdims=1), b, keepdims=1) => f(x, Concat(a, b, axis=0), keepdims=1) where f in reduce"
    assert found(text, "x: float32[2, 3] return ReduceSum(ReduceSum(x, [0]), [1])")
    assert not found(text, "x: float32[2, 3] return ReduceSum(ReduceSum(x, [0], keepdims=0), [0])")


def test_named_values() -> None:
    text = "Div(Exp(x) as z, ReduceSum(z, a, keepdims=1)) => Softmax(x, axis=a.value[0])"
    assert found(text, XY + "e = Exp(x) return Div(e, ReduceSum(e, [1]))")
    assert not found(text, XY + "return Div(Exp(x), ReduceSum(Exp(y), [1]))")


def test_outputs_are_told_apart() -> None:
    source = "x: int64[4] v, i = TopK(x, [2]) {} return out"
    assert found("Neg(TopK(x, k)[1]) => k", source.format("out = Neg(i)"))
    assert not found("Neg(TopK(x, k)[1]) => k", source.format("out = Neg(v)"))


@pytest.mark.parametrize(
    ("text", "source", "why"),
    [
        ("Div(x, 6.0) => x", "return Div(x, 5.0)", "input 1 of Div is 5.0, the rule wants 6.0"),
        ("Div(Neg(a), b) => a", "return Div(x, y)", "x is an input of the graph, the rule wants Neg"),
        ("Div(x, 6.0) => x", "return Div(x, y)", "y is not a constant, the rule wants 6.0"),
        ("Relu(x) => Neg(x) where x.rank == 1", "return Relu(x)", "`x` has rank 2, the rule wants 1"),
        ("Relu(x) => Relu(Flatten(x)) where x.rank == 2", "return Relu(x)", ""),
        ("Relu(x) => ReduceSum(x)", "return Relu(x)", "the right side is float32[1, 1], the left side float32[2, 3]"),
    ],
)
def test_the_reason_of_a_failed_match(text: str, source: str, why: str) -> None:
    assert reason(text, XY + source) == why


def test_depth() -> None:
    assert depth(rule("Add(Mul(x, y), (Neg(Abs(x)) | Relu(x))) => x").lhs[0]) == 3


def test_input_ops() -> None:
    assert input_ops(rule("Add(Mul(x, y), f(Neg(x))) => x where f in unary")) == {"Mul"}
    assert input_ops(rule("(Relu(x) | Abs(Neg(x))) => x")) == frozenset()


@pytest.mark.parametrize(
    ("text", "dtypes"),
    [
        ("Add(x, 0) => x where x.dtype in int", {"int8", "int16", "int32", "int64"}),
        ("(Add(x, c) | Sub(x, c)) => x where c.is_const and x.dtype == 'bool'", {"bool"}),
        ("Add(x, y) => x where y.dtype in ('int8', 'int16')", {"int8", "int16"}),
        ("Add(x, y) => x where x.dtype == 'int8' or x.dtype == 'int16'", {"int8", "int16"}),
        ("Add(x, y) => x where x.dtype == 'int8' or y.dtype == 'int16'", None),
        ("(Add(x, c) | Abs(Add(x, c))) => c where x.dtype in int", None),
        ("Abs(Neg(x)) => x where x.dtype in int", None),
        ("Add(x, y) => x where not x.dtype in int", None),
        ("Add(x, y) => x", None),
    ],
)
def test_dtypes_that_an_input_must_have(text: str, dtypes: set[str] | None) -> None:
    assert input_dtypes(rule(text)) == dtypes


def test_root_ops() -> None:
    assert root_ops(rule("Relu(x) => x")) == {"Relu"}
    assert root_ops(rule("(Relu(x) | Abs(x)) => x")) == {"Relu", "Abs"}
    assert "Neg" in (root_ops(rule("f(f(x)) => x where f in unary")) or ())
    assert root_ops(rule('f(f(x)) => x where f in ("Relu", "Abs")')) == {"Relu", "Abs"}


SEVERAL_ROOTS = parse_rules(
    """
# the products of one input are one                                                 [J5] reals
shared:  MatMul(x, a*)  =>  Split(MatMul(x, Concat(a*, axis=1)), axis=-1, split=[each a.shape[1]])
    where a.is_const and a.rank == 2

# a rule with one root                                                              [C1] exact
relu-relu:  Relu(Relu(x))  =>  Relu(x)
"""
)
TWO_PRODUCTS = """
x: float32[2, 2]
w = float32[2, 2]{1.0, 2.0, 3.0, 4.0}
v = float32[2, 2]{1.0, 2.0, 3.0, 5.0}
a = MatMul(x, w)
b = MatMul(OTHER, v)
c = Relu(Relu(b))
return a, c
"""


def test_the_roots_of_each_match_are_found() -> None:
    graph = parse(TWO_PRODUCTS.replace("OTHER", "x"))
    families_found = families(SEVERAL_ROOTS, graph)
    assert {name for name, _ in families_found} == {"shared"}
    assert {frozenset(graph.names[v] for v in roots) for _, roots in families_found} == {frozenset("ab")}


def test_the_calls_of_a_family_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    unfit = Matcher.unfit
    monkeypatch.setattr(Matcher, "unfit", lambda *arguments: looked.append(arguments) or unfit(*arguments))
    products = " ".join(f"p{i} = MatMul(x, a{i})" for i in range(9))
    inputs = " ".join(f"a{i}: float32[3, 4]" for i in range(9))
    graph = parse(f"x: float32[2, 3] {inputs} {products} return {', '.join(f'p{i}' for i in range(9))}")
    text = "MatMul(x, a*) => Split(MatMul(x, Concat(a*, axis=1)), {[each a.shape[1]]}, axis=1)"
    ((_, roots),) = families([rule(text)], graph)
    assert len(roots) == len(looked) == 9


def test_nobody_puts_into_words_what_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("nobody asked why")

    graph = parse("x: float32[2] c = float32[2]{1.0, 2.0} y = Add(x, c) return y")
    given = rule("Add(x, c) => x where c.is_const and c.value[0] == 3.0")
    add = graph.nodes().__next__().id + 2
    assert "wants 3" in why_not(given, graph, None, add)
    for name in ("matcher.expressions.holds", "match_terms.TermMatcher._says"):
        monkeypatch.setattr(f"graphopt.rewrite.match.{name}", fail)
    assert not list(match(given, graph, None, add))
    assert not list(match(rule("Add(x, 3.0) => x"), graph, None, add))


def test_one_call_is_no_family() -> None:
    assert not families(SEVERAL_ROOTS, parse(TWO_PRODUCTS.replace("OTHER", "a")))


def test_calls_and_inputs_of_many_are_looked_at_once() -> None:
    """A chain of six hundred calls that share an operand, and a sum of a thousand inputs, of which a rule wants two."""
    calls = " ".join(f"c{k + 1} = MatMul(c{k}, w)" for k in range(600))
    chain = parse(f"x: float32[4, 4], w: float32[4, 4] c0 = Relu(x) {calls} return c600")
    total = parse(f"x: float32[4] y = Sum({', '.join(['x'] * 1000)}) return y")
    start = process_time()
    assert not families(
        [rule("MatMul(a*, w) => Split(MatMul(Concat(a*, axis=0), w), axis=0) where w.rank == 2")], chain
    )
    assert not list(match(rule("Sum(x, y) => Add(x, y)"), total, infer(total), root(total)))
    assert process_time() - start < 3
