from math import inf
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.types import TensorType, unranked
from graphopt.rewrite.guards.bindings import Bindings
from graphopt.rewrite.guards.expressions import Unknown, evaluate, holds, matches_literal, show_value
from tests.rewrite.known_values import BOUND, KNOWN, B, Known, S, W, X, constant, n, read


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


def test_elements_of_shapes() -> None:
    known = Known(
        {
            X: Fact(TensorType("int64", (2,)), elements=(n, 3)),
            W: constant([4, 5], "int64"),
            S: constant(4, "int64"),
            B: constant([1.0]),
        }
    )
    bound: Bindings[Any] = Bindings({"x": X, "w": W, "s": S, "b": B})
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
    assert matches_literal(Constant.of(np.asarray(0.1, ml_dtypes.bfloat16)), 0.1)
    assert matches_literal(Constant.of(np.asarray(3, ml_dtypes.int4)), 3)
    known = Known({X: Fact(is_const=True, constant=Constant.of(np.array([0.5, 1.5], ml_dtypes.bfloat16)))})
    assert evaluate(read("x.value"), Bindings({"x": X}), known) == (0.5, 1.5)


def test_long_sequences_are_shown_in_part() -> None:
    assert show_value((1, 2, 3)) == "(1, 2, 3)"
    assert show_value(tuple(range(4096))) == "(0, 1, 2, 3, 4, 5, 6, 7, ... 4096 in all)"


def test_elements_are_put_in_tuples_once() -> None:
    assert evaluate(read("w.value"), BOUND, KNOWN) is evaluate(read("w.value"), BOUND, KNOWN)


def test_the_facts_of_many_values_are_asked_once_for_each() -> None:
    """A concatenation has hundreds of inputs, and a rule is tried at each of them."""

    class Counting(Known):
        asked = 0

        def fact(self, value: object) -> Fact:
            self.asked += 1
            return super().fact(value)

    values = tuple(range(200))
    operands = Counting({v: Fact(TensorType("float32", (2, 3))) for v in values})
    bound: Bindings[int] = Bindings({"a": values})
    assert evaluate(read("sum(each a.shape[1])"), bound, operands) == 600
    assert operands.asked == len(values)
    assert holds(read("a.rank == 2"), bound, operands) is None
    assert operands.asked == 2 * len(values)


@pytest.mark.parametrize("text", ["[each a.shape[7]]", "[each a.shape]"])
def test_sizes_that_are_not_plain_are_said_as_ever(text: str) -> None:
    operands = Known({1: Fact(TensorType("float32", (2, 3))), 2: Fact(TensorType("float32", unranked()))})
    with pytest.raises(Unknown, match=r"has 2 elements, none at 7|`a\[1\]` has no known shape"):
        evaluate(read(text), Bindings({"a": (1, 2)}), operands)
