"""Polynomials are equal however they were put together, and division loses nothing."""

from hypothesis import given
from hypothesis import strategies as st

from graphopt.lowering.index.polynomials import Polynomial, atom, divided, number, replaced
from graphopt.lowering.loops.expressions import Const, Var

I, J, N = (Var(name) for name in "ijn")  # noqa: E741
TERMS = st.tuples(st.integers(-6, 6), st.lists(st.sampled_from([I, J, N]), max_size=2))


def put(terms: list[tuple[int, list[Var]]]) -> Polynomial:
    total = number(0)
    for times, atoms in terms:
        term = number(times)
        for a in atoms:
            term = term * atom(a)
        total = total + term
    return total


POLYNOMIALS = st.lists(TERMS, max_size=4).map(put)


@given(POLYNOMIALS, POLYNOMIALS, POLYNOMIALS)
def test_the_laws_of_a_ring(a: Polynomial, b: Polynomial, c: Polynomial) -> None:
    assert a + b == b + a
    assert hash(a + b) == hash(b + a)
    assert (a + b) * c == c * a + b * c
    assert (a - a).number == 0
    assert a - b == -(b - a)
    assert all((a * b).terms.values())


@given(POLYNOMIALS, POLYNOMIALS.filter(lambda d: d.terms and (d.number is None or d.number > 0)))
def test_quotient_and_remainder_give_back_the_whole(p: Polynomial, d: Polynomial) -> None:
    q, r = divided(p, d)
    assert q * d + r == p


@given(POLYNOMIALS)
def test_a_polynomial_is_a_factor_and_a_rest(p: Polynomial) -> None:
    parts = p.split(I)
    if parts is None:
        assert any(t.count(I) > 1 for t in p.terms)
    else:
        assert parts[0] * atom(I) + parts[1] == p


def test_a_polynomial_is_written_in_the_order_of_the_loops() -> None:
    p = put([(3, []), (1, [J]), (4, [I]), (-1, [N])])
    assert p.expr({I: 0, J: 1}) == I * 4 + J - N + 3
    assert p.expr({J: 0, I: 1}) == J + I * 4 - N + 3
    assert put([(-1, [I]), (1, [N]), (-1, [])]).expr({I: 0}) == N - I - 1
    assert put([(-2, [I])]).expr({}) == I * -2
    assert number(0).expr({}) == Const(0)


def test_atoms_are_replaced_in_products() -> None:
    p = put([(2, [I, N]), (1, [J])])
    assert replaced(p, lambda a: atom(J) + 1 if a == I else None) == put([(2, [J, N]), (2, [N]), (1, [J])])
