import numpy as np
import pytest

from graphopt.errors import RuleError, UsageError
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType, symbol
from graphopt.rewrite.checking.explain_match import find_node
from graphopt.rewrite.reading.region import (
    TermWriter,
    as_expr,
    between,
    guards_on,
    identifier,
    literal_of,
    rule_name,
    whole,
)
from graphopt.rewrite.rule.notation import show_expr, show_term

GRAPH = """
x: float32[4, 4]
a = Relu(x)
b = Neg(a)
c = Mul(a, b)
d = Sqrt(x)
e = Add(c, d)
return e
"""
BRANCHES = """
c: bool[]
x: float32[2]
y = If(c, x, then_branch={
  a: float32[2]
  z = Relu(a)
  return z
}, else_branch={
  a: float32[2]
  z = Neg(a)
  return z
})
return y
"""


def region(first: str, last: str):  # type: ignore[no-untyped-def]
    graph = parse(GRAPH)
    ends = [find_node(graph, name) for name in (first, last)]
    return between(graph, [ends[0]], [ends[1]])  # type: ignore[list-item]


def test_a_region_is_what_lies_on_the_way() -> None:
    assert [n.op for n in region("a", "e").nodes] == ["Relu", "Neg", "Mul", "Add"]
    assert [n.op for n in region("b", "c").nodes] == ["Neg", "Mul"]


def test_what_is_read_twice_is_named_on_the_left_and_written_out_on_the_right() -> None:
    found = region("a", "c")
    assert [show_term(t) for t in TermWriter(found).roots()] == ["Mul(Relu(x) as m, Neg(m))"]
    assert [show_term(t) for t in TermWriter(found, shares=False).roots()] == ["Mul(Relu(x), Neg(Relu(x)))"]


def test_variables_are_called_as_the_op_calls_its_inputs() -> None:
    graph = parse("x: float32[1, 3, 8, 8]\nw: float32[2, 3, 3, 3]\ny = Conv(x, w, pads=[1, 1, 1, 1])\nreturn y")
    assert [show_term(t) for t in TermWriter(whole(graph)).roots()] == ["Conv(x, w, pads=(1, 1, 1, 1))"]


def test_what_doubles_with_each_op_is_refused_where_it_is_written_out() -> None:
    text = "x: float32[2]\na0 = Relu(x)\n" + "".join(f"a{i + 1} = Add(a{i}, a{i})\n" for i in range(40)) + "return a40"
    found = whole(parse(text))
    TermWriter(found)
    with pytest.raises(UsageError, match="more than 2000 ops"):
        TermWriter(found, shares=False)


def test_bodies_have_no_notation() -> None:
    graph = parse(BRANCHES)
    with pytest.raises(UsageError, match="y is If, which has bodies"):
        TermWriter(whole(graph)).roots()


def test_an_output_that_is_missing() -> None:
    graph = parse(GRAPH)
    graph.add_output("nothing", None)
    with pytest.raises(RuleError, match="an output is missing"):
        whole(graph)


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (np.float32(0.1), "0.1"),
        (np.float16(0.1), "0.1"),
        (np.array([-1], np.int64), "[-1]"),
        (np.array([1, 2, 3], np.int64), "[1, 2, 3]"),
        (np.bool_(True), "true"),
        (np.float32(-0.0), "-0.0"),
        (np.float32(np.inf), "inf"),
        (np.float32(np.nan), None),
        (np.ones((1, 1), np.float32), None),
        (np.ones(2, np.float32), None),
        (np.arange(9), None),
    ],
)
def test_literals(array: np.ndarray, shown: str | None) -> None:
    found = literal_of(Constant.of(np.asarray(array)))
    assert (None if found is None else show_term(found)) == shown


def test_names_are_names_that_rules_know() -> None:
    names = ["conv1/out:0", "3", "where", "float", "", "x"]
    assert [identifier(n) for n in names] == ["conv1_out_0", "x3", "where_", "float_", "x", "x"]


def test_names_of_rules() -> None:
    assert rule_name("my-rule_2") == "my-rule_2"
    for name in ("2", "", "a b", "x: Relu(x) => x"):
        with pytest.raises(RuleError, match="no name for a rule"):
            rule_name(name)


def test_guards() -> None:
    n = symbol("n")
    facts = {"a": Fact(TensorType("float32", (n, 3))), "b": Fact(TensorType("int64", (n,)), is_const=True)}
    assert [show_expr(g.expr) for g in guards_on(facts)] == [
        'a.dtype == "float32"',
        "a.rank == 2",
        "a.shape[1] == 3",
        "b.is_const",
        'b.dtype == "int64"',
        "b.rank == 1",
        "b.shape[0] == a.shape[0]",
    ]


def test_attributes() -> None:
    assert [show_expr(e) for v in (1, 0.5, "a", (1, 2)) if (e := as_expr(v)) is not None] == [
        "1",
        "0.5",
        '"a"',
        "(1, 2)",
    ]
    assert as_expr(Constant.of(np.ones(3))) is None
