"""Sizes are chosen in every way, and a sum has one form."""

from __future__ import annotations

from graphopt.proof.sized_terms import Choices, SizedAlgebra


def test_every_way_of_choosing_is_gone_once() -> None:
    choices = Choices()
    ways = []
    for _ in choices.runs(100):
        first = choices.choose("ab")
        ways.append((first, choices.choose((1, 2, 3))) if first == "b" else (first,))
    assert ways == [("a",), ("b", 1), ("b", 2), ("b", 3)]


def test_a_sum_has_one_form_however_it_is_nested() -> None:
    algebra = SizedAlgebra(is_real=True)

    def nested(first: str, second: str) -> int:
        i, j = algebra.index(), algebra.index()
        index = {"n": i, "m": j}
        a = algebra.placed("a", [(0, (i,))])
        b = algebra.placed("b", [(0, (i,)), (0, (j,))])
        product = algebra.call("Mul", (), [a, b])
        return algebra.summed([(index[first], first)], algebra.summed([(index[second], second)], product))

    assert nested("n", "m") == nested("m", "n")
    alone = algebra.index()
    assert algebra.summed([(alone, "n")], algebra.value(1.0)) == algebra.size("n")
