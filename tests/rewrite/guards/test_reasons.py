import pytest

from graphopt.ir.graph import Value
from graphopt.rewrite.guards.bindings import Bindings
from graphopt.rewrite.guards.expressions import holds
from tests.rewrite.known_values import A0, A1, BOUND, KNOWN, Known, X, read, tensor


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
