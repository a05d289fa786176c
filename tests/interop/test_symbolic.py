from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphopt.interop.symbolic import Attribute, NotPlain, SymbolicNumber, SymbolicOperand, Trail, ways
from graphopt.rewrite.rule.notation import show_expr
from graphopt.rewrite.rule.rule import NameRef


def conditions(function: Callable[[Any], Any]) -> list[list[str]]:
    """What must hold on the ways on which the function of one operand gives something true."""
    found = ways(lambda trail: bool(function(SymbolicOperand(trail, NameRef("x")))))
    return [[show_expr(e) for e in condition] for condition, result in found if result]


def test_a_condition_is_its_questions() -> None:
    assert conditions(lambda x: x.shape.rank() == 2) == [["x.rank >= 0", "x.rank == 2"]]
    assert conditions(lambda x: x.shape is not None and x.shape[0] != 1) == [["x.rank >= 0", "x.shape[0] != 1"]]


def test_every_way_to_success_is_found() -> None:
    assert conditions(lambda x: x.const_value.numpy().size == 1 or x.shape[0] % 2 == 0) == [
        ["x.is_const", "x.size == 1"],
        ["x.is_const", "x.size != 1", "x.rank >= 0", "x.shape[0] % 2 == 0"],
    ]


def test_one_question_has_one_answer() -> None:
    def asks_twice(x: Any) -> bool:
        return bool(x.shape[0] == 1) == bool(x.shape[0] == 1)

    assert len(conditions(asks_twice)) == 2


def test_lengths_are_tried() -> None:
    found = conditions(lambda x: all(size == 1 for size in x.shape))
    assert found[0] == ["x.rank >= 0", "x.rank == 0"]
    assert found[2] == ["x.rank >= 0", "x.rank == 2", "x.shape[0] == 1", "x.shape[1] == 1"]


def test_sizes_are_integers_where_they_are_known() -> None:
    found = conditions(lambda x: isinstance(x.shape[0], int) and x.shape[0] > 3)
    assert found == [["x.rank >= 0", "is_integer(x.shape[0])", "x.shape[0] > 3"]]
    # where it is open no guard holds, since `not is_integer` of what is unknown is unknown
    assert conditions(lambda x: not isinstance(x.shape[0], int)) == [["x.rank >= 0", "not is_integer(x.shape[0])"]]


def test_dtypes_are_looked_up_in_sets() -> None:
    assert conditions(lambda x: x.dtype in {1, 10}) == [
        ["code(x.dtype) == 1"],
        ["code(x.dtype) == 10"],
    ]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.producer(), "it asks for .producer of x"),
        (lambda x: float(x.const_value.numpy().item()) > 1, "it computes with x.scalar"),
        (lambda x: np.equal(x.const_value.numpy(), 0.0).all(), "it computes with x in numpy"),
        (lambda x: np.array(x.shape), "x.shape"),
        (lambda x: range(x.shape[0]), "it computes with x.shape"),
        (lambda x: x == 3, "it compares x"),
        (lambda x: {x.shape[0]: 1}, "it computes with x.shape"),
        (lambda x: list(x.shape[1:]), "it slices x.shape"),
    ],
)
def test_what_guards_cannot_ask_is_refused(function: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(NotPlain, match=message.replace(".", r"\.")):
        conditions(function)


def test_too_many_ways() -> None:
    with pytest.raises(NotPlain, match="more than 2000 ways"):
        conditions(lambda x: sum(bool(x.shape[i] == 1) for i in range(12)) == 99)


def test_attributes() -> None:
    def run(trail: Trail) -> bool:
        perm = Attribute(trail, "perm", 7, is_dtype=False)
        assert not perm.is_ref()
        return bool(perm.as_ints() == [1, 0])

    assert [[show_expr(e) for e in c] for c, result in ways(run) if result] == [["perm == (1, 0)"]]


def test_arithmetic() -> None:
    trail = Trail([])
    x = SymbolicNumber(trail, NameRef("x"))
    assert repr((1 + x * 2 - x) // 3 % (-x)) == "(1 + x * 2 - x) // 3 % -x"
