from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import pytest

from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import AttrRef, Attrs, Value
from graphopt.ir.types import TensorType, symbol, unranked
from graphopt.rewrite.bindings import Bindings, Head
from graphopt.rewrite.expressions import Unknown, evaluate, holds, matches_literal
from graphopt.rewrite.parse import parse_rules
from graphopt.rewrite.rule import Expr, joined


@dataclass
class Known:
    """Operands of which a test says what is known."""

    facts: dict[Any, Fact]
    opset: int = 21
    used: dict[Any, int] = field(default_factory=dict)

    def fact(self, value: Any) -> Fact:
        return self.facts[value]

    def constant(self, value: Any) -> Constant | None:
        return self.facts[value].constant

    def uses(self, value: Any) -> int | None:
        return self.used.get(value)


def constant(array: Array | float, dtype: str = "float32") -> Fact:
    made = Constant.of(np.asarray(array, None if dtype == "bfloat16" else dtype))
    return Fact(TensorType(dtype, made.shape), is_const=True, constant=made)


def tensor(*shape: Any) -> Fact:
    return Fact(TensorType("float32", shape))


n, m = symbol("n"), symbol("m")
X, W, B, S, A0, A1 = (Value(i) for i in range(6))
KNOWN = Known(
    {
        X: tensor(n, 3),
        W: constant(np.arange(6.0).reshape(2, 3)),
        B: Fact(TensorType("int64", unranked()), low=0.0),
        S: constant([[1 / 6]]),
        A0: tensor(2, 4),
        A1: tensor(2, n),
    },
    used={X: 3, W: 1},
)
BOUND: Bindings[Value] = Bindings(
    {"x": X, "w": W, "b": B, "s": S, "none_here": None, "a": (A0, A1), "e": ()},
    {"p": (0, 2, 1), "k": -1, "mode": "linear", "absent": None, "r": Attrs(group=2), "called": AttrRef("axis", 2)},
    {"f": Head("Relu", Attrs()), "g": Head("Softmax", Attrs())},
)


def read(text: str) -> Expr:
    """An expression as a rule file writes it."""
    names = ("x", "w", "b", "s", "none_here")
    inputs = ", ".join([*names, "a*"])
    attrs = ", ".join(f"v{i}={name}" for i, name in enumerate(("p", "k", "mode", "absent", "called")))
    rule = f"# exact\nr: my::Op({inputs}, f(x), g(x), my::Op(e*), {attrs}, **r) => x where {text}\n"
    return joined("and", parse_rules(rule)[0].where)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x.shape", (n, 3)),
        ("x.rank", 2),
        ("x.size", 3 * n),
        ("x.dtype", "float32"),
        ("x.is_const", False),
        ("x.uses", 3),
        ("x.shape[-1]", 3),
        ("x.shape[:1]", (n,)),
        ("x.shape[1:] + (1,)", (3, 1)),
        ("x.shape[0] * 2 - 1", 2 * n - 1),
        ("(x.shape[0] * 6 + 4) // 2", 3 * n + 2),
        ("x.shape[0] * 4 % 2", 0),
        ("w.value", ((0.0, 1.0, 2.0), (3.0, 4.0, 5.0))),
        ("s.scalar", float(np.float32(1 / 6))),
        ("w.is_const", True),
        ("b.low", 0.0),
        ("b.high", inf),
        ("p", (0, 2, 1)),
        ("k + 1", 0),
        ("-k ** 2", -1),
        ("2 ** 3 ** 1", 8),
        ("7 % 4 + 7 // 4 - 1 / 2", 3.5),
        ("[each a.shape[1]]", (4, n)),
        ("[0, each a.shape[1], 7]", (0, 4, n, 7)),
        ("each a.shape[0] * 2", (4, 4)),
        ("len(a)", 2),
        ("a[1].shape", (2, n)),
        ("[each e.rank]", ()),
        ("1 if x.rank == 2 else 2", 1),
        ("r.group", 2),
        ("r.other", None),
        ("g.axis", -1),
        ("opset", 21),
        ("mode", "linear"),
        ("f in unary", True),
        ("f == 'Relu'", True),
        ("f == g", False),
        ("absent == none", True),
        ("none_here == none", True),
        ("x == x", True),
        ("x.dtype in float", True),
        ("x.dtype not in ['float16', 'int8']", True),
        ("b.rank == 1 or x.rank == 2", True),
        ("not (b.rank == 1 and x.rank == 3)", True),
        ("1 < x.rank <= 2", True),
        ("x.shape[0] + 1 > x.shape[0]", True),
        ("x.shape[0] >= 0", True),
        ("x.shape[0] != x.shape[0] + 1", True),
        ("x.shape == (x.shape[0], 3)", True),
        ("x.shape == (3,)", False),
        ("x.shape[0] in (1, x.shape[0])", True),
        ("compose(p, p)", (0, 1, 2)),
        ("1.5", 1.5),
        ("'a\\n'", "a\n"),
        ("(1,)", (1,)),
        ("()", ()),
        ("-inf", -inf),
        ("true and not false", True),
    ],
)
def test_values(text: str, value: object) -> None:
    found = evaluate(read(text), BOUND, KNOWN)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("b.rank", "`b` has no known rank"),
        ("b.shape[0]", "`b` has no known shape"),
        ("b.uses", "`b` has no known uses"),
        ("x.value", "`x` is not a constant"),
        ("w.scalar", "`w` has 6 elements, not one"),
        ("none_here.rank", "`none_here` is absent"),
        ("x.shape[2]", "`x.shape` has 2 elements, none at 2"),
        ("x.shape['a']", "a is no index into `x.shape`"),
        ("k[0]", "`k` is -1, which has no elements"),
        ("k.rank", "`k` is no operand: only operands have .rank"),
        ("called", "`called` is an attribute that the callers of a local function set"),
        ("x.shape[0] == 4", "n is not known to equal 4"),
        ("x.shape == (4, 3)", "n is not known to equal 4"),
        ("x.shape[0] < 4", "n is not known to be less than 4"),
        ("x == w", "`x` and `w` are not known to be the same value"),
        ("1 // 0", "`1 // 0` has no value: integer division or modulo by zero"),
        ("compose(p, (0, 1))", "`compose(p, (0, 1))` has no value: (0, 2, 1) and (0, 1) differ in length"),
        ("mode < 1", "linear and 1 cannot be compared"),
        ("a.rank", "`a` stands for several values: write `each` before what asks for their .rank"),
        ("[each a.rank + e.rank]", "`a` and `e` stand for different numbers of values"),
        ("b.rank == 1 and x.rank == 2", "`b` has no known rank"),
    ],
)
def test_what_is_not_known(text: str, reason: str) -> None:
    with pytest.raises(Unknown) as error:
        evaluate(read(text), BOUND, KNOWN)
    assert str(error.value) == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x.rank == 2", None),
        ("x.rank <= 1", "`x` has rank 2, the rule wants at most 1"),
        ("x.rank == 1", "`x` has rank 2, the rule wants 1"),
        ("x.rank != 2", "`x` has rank 2, the rule wants anything but 2"),
        ("x.rank < 2", "`x` has rank 2, the rule wants less than 2"),
        ("x.rank > 2", "`x` has rank 2, the rule wants more than 2"),
        ("3 <= x.rank", "`x` has rank 2, the rule wants at least 3"),
        ("not x.rank == 2", "`x` has rank 2, the rule wants anything but 2"),
        ("x.rank in (1, 3)", "`x` has rank 2, the rule wants one of (1, 3)"),
        ("x.rank not in (1, 2)", "`x` has rank 2, the rule wants none of (1, 2)"),
        ("x.dtype in int", "`x` has dtype float32, the rule wants int"),
        ("x.dtype not in float", "`x` has dtype float32, the rule wants anything but float"),
        ("x.is_const", "`x` is not a constant"),
        ("not w.is_const", "`w` is a constant, the rule wants it computed"),
        ("x.uses == 1", "`x` is used 3 times, the rule wants 1"),
        ("w.uses == 2", "`w` is used once, the rule wants 2"),
        ("w.low >= 0.0", "`w` has low -inf, the rule wants at least 0.0"),
        ("b.rank == 2", "`b` has no known rank"),
        ("x.shape[0] == 4", "x.shape[0] is n, which is not known to be 4"),
        ("x.shape == (4, 3)", "`x` has shape (n, 3), which is not known to be (4, 3)"),
        ("x.size <= 4", "`x` has size 3*n, which is not known to be at most 4"),
        ("x.shape == (w.shape[1],)", "`x` has shape (n, 3), the rule wants (3,)"),
        ("p == (1, 0)", "p is (0, 2, 1), the rule wants (1, 0)"),
        ("mode == 'cubic'", "mode is linear, the rule wants cubic"),
        ("f in reduce", "f is Relu, the rule wants reduce"),
        ("f == 'Exp'", "f is Relu, the rule wants Exp"),
        ("opset >= 22", "opset is 21, the rule wants at least 22"),
        ("is_identity(p)", "is_identity(p) is false, the rule wants it true"),
        ("not is_identity(range(2))", "is_identity(range(2)) is true, the rule wants it false"),
        ("absent != none", "absent is none, the rule wants anything but none"),
        ("none_here.is_const", "`none_here` is absent"),
        ("x.rank == 2 and x.rank == 3", "`x` has rank 2, the rule wants 3"),
        (
            "x.rank == 1 or w.rank == 1",
            "`x` has rank 2, the rule wants 1; and `w` has rank 2, the rule wants 1",
        ),
        ("not (x.rank == 1 or w.rank == 2)", "`w` has rank 2, the rule wants anything but 2"),
        ("a.rank == 2", None),
        ("a.shape[1] == 4", "a.shape[1] is n, which is not known to be 4"),
        ("a.is_const", "`a[0]` is not a constant"),
        ("len(a) == 3", "len(a) is 2, the rule wants 3"),
        ("e.rank == 3", None),
        ("[each a.rank] == (2, 3)", "[each a.rank] is (2, 2), the rule wants (2, 3)"),
        ("not (x.rank == 1 or b.rank == 2)", "`b` has no known rank"),
        (
            "not (x.rank == 2 and w.rank == 2)",
            "`x` has rank 2, the rule wants anything but 2; and `w` has rank 2, the rule wants anything but 2",
        ),
    ],
)
def test_why_a_guard_fails(text: str, reason: str | None) -> None:
    assert holds(read(text), BOUND, KNOWN) == reason


def test_facts_of_each_value_are_asked_one_by_one() -> None:
    known = Known({A0: tensor(2), A1: tensor(2, 3)})
    bound: Bindings[Value] = Bindings({"a": (A0, A1), "x": X})
    assert holds(read("a.rank == 1"), bound, known) == "`a[1]` has rank 2, the rule wants 1"


def test_elements_of_shapes() -> None:
    known = Known(
        {
            X: Fact(TensorType("int64", (2,)), elements=(n, 3)),
            W: constant([4, 5], "int64"),
            S: constant(4, "int64"),
            B: constant([1.0]),
        }
    )
    bound: Bindings[Value] = Bindings({"x": X, "w": W, "s": S, "b": B})
    assert evaluate(read("x.elements"), bound, known) == (n, 3)
    assert evaluate(read("w.elements"), bound, known) == (4, 5)
    assert evaluate(read("s.elements"), bound, known) == (4,)
    with pytest.raises(Unknown, match="`b` has no known elements"):
        evaluate(read("b.elements"), bound, known)


def test_large_constants_have_no_value() -> None:
    known = Known({X: constant(np.zeros(5000))})
    with pytest.raises(Unknown, match="`x` has 5000 elements, too many for its value to be looked at"):
        evaluate(read("x.value"), Bindings({"x": X}), known)


@pytest.mark.parametrize(
    ("array", "literal", "matches"),
    [
        (np.float32(1 / 6), 0.16666667, True),
        (np.float32(1 / 6), 0.1666667, False),
        (np.float16(1 / 6), 0.16666667, True),
        (np.float64(1 / 6), 0.16666667, False),
        (np.float32([[[3.0]]]), 3.0, True),
        (np.float32(3.0), 3, True),
        (np.int64(3), 3.0, True),
        (np.int64(3), 3.5, False),
        (np.int8(3), 300, False),
        (np.float32([1.0, 1.0]), 1.0, False),
        (np.float32(0.0), 0.0, True),
        (np.float32(-0.0), 0.0, False),
        (np.float32(0.0), -0.0, False),
        (np.float32(-0.0), -0.0, True),
        (np.float32(0.0), 0, True),
        (np.float32(np.nan), 0.0, False),
        (np.float32(np.inf), inf, True),
        (np.float32(np.inf), 1e39, False),
        (np.int64([0, -1]), (0, -1), True),
        (np.int64([[0, -1]]), (0, -1), False),
        (np.int64([0]), (0,), True),
        (np.int64([]), (), True),
        (np.int64(2**60 + 1), 2**60 + 1, True),
        (np.int64(2**60 + 1), 2**60, False),
        (np.bool_(True), True, True),
        (np.bool_(True), 1, False),
        (np.int64(1), True, False),
        (np.float32(1), True, False),
        (np.array("a", object), 1, False),
        (np.complex64(1), 1, False),
    ],
)
def test_literals(array: Array, literal: Any, matches: bool) -> None:
    assert matches_literal(Constant.of(array), literal) is matches


def test_literals_in_narrow_dtypes() -> None:
    import ml_dtypes

    assert matches_literal(Constant.of(np.asarray(0.1, ml_dtypes.bfloat16)), 0.1)
    assert matches_literal(Constant.of(np.asarray(3, ml_dtypes.int4)), 3)
    known = Known({X: Fact(is_const=True, constant=Constant.of(np.array([0.5, 1.5], ml_dtypes.bfloat16)))})
    assert evaluate(read("x.value"), Bindings({"x": X}), known) == (0.5, 1.5)
