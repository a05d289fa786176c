"""One index algebra: each identity as a row of a table, and both sides are the same at every point.

Expressions are over loops ``i`` (64 steps), ``j`` (5) and ``f`` (``n * m`` steps), and sizes ``n`` and ``m``. The loops
are made shorter to be gone through, and sizes are 0 as well: then no loop over them runs.
"""

from itertools import product

import pytest

from graphopt.lowering.index.arithmetic import address_of, bounds, polynomial, prove, simplify
from graphopt.lowering.index.ranges import Ranges
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, maximum, minimum, rewrite
from graphopt.lowering.loops.nest import Buffer
from graphopt.lowering.loops.script_print import show_expr

I, J, F, A, N, M = (Var(name) for name in "ijfanm")  # noqa: E741
EXTENTS: dict[Var, Expr] = {I: Const(64), J: Const(5), F: N * M, A: N}
TABLE: dict[str, tuple[Expr, Expr]] = {
    "remainder of a remainder": (I % 16 % 4, I % 4),
    "quotient of a quotient": (I // 4 // 8, I // 32),
    "quotient of a remainder": (I % 16 // 4, I // 4 % 4),
    "quotient of a quotient and a number": ((I // 4 + 3) // 8, (I + 12) // 32),
    "quotient of a quotient and a loop": ((I // 4 + J) // 8, (I + J * 4) // 32),
    "multiples come out": ((J * 16 + I % 16) // 16, J),
    "and leave no remainder": ((J * 16 + I % 16) % 16, I % 16),
    "multiples of an unknown size come out": ((J * N + A) // N, J),
    "and leave no remainder of it": ((J * N + A) % N, A),
    "common factors": ((I * 4 + 3) // 8, I // 2),
    "remainders of common factors": ((I * 4 + 3) % 8, I % 2 * 4 + 3),
    "below the divisor": (J // 5 + J % 5, J),
    "quotient and remainder": (I // 16 * 16 + I % 16, I),
    "three digits": (I % 16 // 4 * 4 + I % 4 + I // 16 * 16, I),
    "two digits of three": ((I // 4 % 8) * 4 + I % 4, I % 32),
    "digits of a sum": ((J * 8 + I // 8) // 4 * 32 + (J * 8 + I // 8) % 4 * 8 + I % 8, J * 64 + I),
    "digits by another number of the same remainder": ((I % 32 + J) // 8 * 8 + (I + J) % 8, I % 32 + J),
    "digits of unknown size": (F // M * M + F % M, F),
    "digits in units": (F // M * M * 3 + F % M * 3, F * 3),
    "what is left of a quotient": (I - I // 8 * 8, I % 8),
    "rounded down below 0": ((I - 64) // 64, Const(-1)),
    "the remainder is never below 0": ((I - 64) % 64, I),
    "negated": (-I // 16 * 16 + (-I) % 16, -I),
    "negative steps": ((J * -8 + 3) // 4, J * -2),
    "what is left of a strip": (minimum(16, I // 16 * -16 + 64), Const(16)),
    "the smaller of two": (minimum(J, 4), J),
    "the larger of two": (maximum(J, 0) + maximum(I - 64, -1), J - 1),
    "the smaller by an unknown size": (minimum(A, N), A),
    "the larger of unknown sizes": (maximum(N + M, N), N + M),
    "a choice in a choice": (minimum(maximum(I, 0), 63), I),
    "sums cancel": ((I + J) * 3 - J * 3 - I, I * 2),
    "numbers alone": ((I * 0 + 7) // 2, Const(3)),
}
VALUES = {I: (0, 1, 5, 15, 16, 31, 33, 63), J: range(5)}


def value(expr: Expr, at: dict[Var, int]) -> int:
    """What an expression is, computed plainly."""
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Var):
        return at[expr]
    assert isinstance(expr, Apply)
    args = [value(e, at) for e in expr.args]
    return {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "floordiv": lambda a, b: a // b,
        "mod": lambda a, b: a % b,
        "neg": lambda a: -a,
        "min": min,
        "max": max,
    }[expr.fn](*args)


def points() -> list[dict[Var, int]]:
    """The places that the loops come by, for sizes from 0 up."""
    return [
        {I: i, J: j, F: f, A: a, N: n, M: m}
        for n, m in product((0, 1, 2, 3, 5), (0, 1, 2, 4))
        for f, a in product(range(n * m), range(n))
        for i, j in product(VALUES[I], VALUES[J])
    ]


POINTS = points()


@pytest.mark.parametrize("name", TABLE)
def test_an_identity_is_found_and_true(name: str) -> None:
    left, right = TABLE[name]
    made = simplify(left, EXTENTS)
    assert polynomial(left, EXTENTS) == polynomial(right, EXTENTS), show_expr(made)
    for at in POINTS:
        assert value(made, at) == value(left, at) == value(right, at), at


@pytest.mark.parametrize("name", TABLE)
def test_the_simpler_form_is_no_longer_and_stays(name: str) -> None:
    left, right = TABLE[name]
    made = simplify(left, EXTENTS)
    assert simplify(made, EXTENTS) == made
    assert len(show_expr(made)) <= len(show_expr(right))


@pytest.mark.parametrize("name", TABLE)
def test_bounds_hold_at_every_point(name: str) -> None:
    left, _ = TABLE[name]
    found = bounds(left, EXTENTS)
    assert found is not None
    for at in POINTS:
        assert value(found[0], at) <= value(left, at) <= value(found[1], at), at


def test_small_divisions_are_right_for_all_numbers() -> None:
    x = Var("x")
    for a, b, c, d in product((-5, -1, 1, 4, 6), (-7, 0, 3), (1, 2, 3, 8), (1, 2, 6)):
        for expr in ((x * a + b) // c // d, (x * a + b) % c % d, (x * a + b) // c % d * c + (x * a + b) % c):
            made = simplify(expr, {x: 9})
            assert all(value(made, {x: n}) == value(expr, {x: n}) for n in range(9)), (expr, made)


def test_loops_without_steps_and_divisions_by_nothing_are_left_alone() -> None:
    assert simplify(I // (N * 0), {I: 4}) == Apply("floordiv", (I, Const(0)), "int64")
    assert polynomial(I % 4, {I: 0}) == polynomial(I, {I: 0})


def test_parts_of_an_index_are_it_again_whatever_the_divisor() -> None:
    """A plane of ``(n - 2) * (m - 2)`` places, of which nobody knows that there are any, lies as one row."""
    d = M - 2
    assert polynomial(F // d * d + F % d, {F: 100}) == polynomial(F, {F: 100})
    assert polynomial((F + 3) // d * (d * N * 5) + (F + 3) % d * N * 5, {F: 100}) == polynomial((F + 3) * N * 5)
    assert polynomial(F // d * d + (F + 1) % d, {F: 100}) != polynomial(F, {F: 100})


def test_a_divisor_of_unknown_size_is_not_0() -> None:
    assert prove(F % M < M, {F: 100})
    assert not prove(N - 1 >= 0, {})


def test_elements_wrap_around_so_only_their_sums_are_rewritten() -> None:
    x = Buffer("x", (Const(4),), "int64")
    e = Load(x, (I,))
    assert simplify((e * 4) // 4, {I: 4}) == (e * 4) // 4
    assert polynomial(e + I - e, {I: 4}) == polynomial(I, {I: 4})


def test_an_address_by_the_digits_of_a_number_is_the_number() -> None:
    x = Buffer("x", (Const(4), Const(4), Const(4)), "float32")
    assert address_of(Load(x, (I // 16, I // 4 % 4, I % 4)), {I: 64}) == polynomial(I, {I: 64})


E = Load(Buffer("x", (Const(4),), "int64"), (Const(0),))
DIGITS = (
    (E // 16 * 16 + E // 4 % 4 * 4 + E % 4, E),
    (E // 4 // 4 * 16 + E // 4 % 4 * 4 + E % 4, E),
    (E // N // 3 * N * 3 + E // N % 3 * N + E % N, E),
    (E - E // 7 * 7, E % 7),
    (E // 4 % 4 * 4 + E % 4, E % 16),
    (E // 4 // 4, E // 16),
    ((E + 3) // 4 // 4, (E + 3) // 4 // 4),
    ((E * 2) % 6 % 3, (E * 2) % 6 % 3),
    ((E // 4 + 3) % 8 * 4 + E % 4, (E // 4 + 3) % 8 * 4 + E % 4),
)
"""Quotients and remainders of an element, which may be any number, and what they are."""


@pytest.mark.parametrize(("written", "simple"), DIGITS)
def test_digits_of_an_element_are_put_together(written: Expr, simple: Expr) -> None:
    extents = {N: Const(5)}
    assert polynomial(written, extents) == polynomial(simple, extents)
    made = simplify(written, extents)
    for number in (0, 1, -1, 15, 16, -17, 2**63 - 1, -(2**63)):
        before, after = (rewrite(e, {E: Const(number), N: Const(3)}.get) for e in (written, made))
        assert isinstance(before, Const)
        assert isinstance(after, Const)
        assert (int(before.value) - int(after.value)) % 2**64 == 0


def test_what_is_found_does_not_depend_on_what_was_asked_before() -> None:
    """Results are kept: the same from a prover that has answered all the others, in whatever order."""
    extents = tuple(EXTENTS.items())
    alone = {name: Ranges(extents).polynomial(left) for name, (left, _) in TABLE.items()}
    for names in (list(TABLE), list(reversed(TABLE))):
        facts = Ranges(extents)
        assert {name: facts.polynomial(TABLE[name][0]) for name in names} == alone


def test_a_question_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emission asks for the address of each element of an unrolled tile, most of which have their terms in common."""
    proofs: list[object] = []
    proved = Ranges._proved
    monkeypatch.setattr(Ranges, "_proved", lambda self, p: proofs.append(p) or proved(self, p))
    facts = Ranges(tuple(EXTENTS.items()))
    x, d = facts.polynomial(F + N), facts.polynomial(N)
    first, asked = (facts.division(x, d), facts.collected(x * 3), facts.at_least_zero(x)), len(proofs)
    assert asked
    assert (facts.division(x, d), facts.collected(x * 3), facts.at_least_zero(x)) == first
    assert len(proofs) == asked
