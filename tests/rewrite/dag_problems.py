"""Small problems of extraction, and their answers by trying everything."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from graphopt.rewrite.extract.dag import Option, Problem, needed, price


def problem(roots: tuple[int, ...], **classes: list[tuple[float, tuple[int, ...]]]) -> Problem:
    return Problem({int(c[1:]): tuple(Option(*o) for o in own) for c, own in classes.items()}, roots)


def brute_force(p: Problem) -> float | None:
    """The price of the cheapest choice, by trying all."""
    names = list(p.options)
    best = None
    for picks in product(*(p.options[c] or (None,) for c in names)):
        choice = {c: o for c, o in zip(names, picks, strict=True) if o is not None}
        found = needed(choice, p.roots)
        if found is not None and (best is None or price(found) < best):
            best = price(found)
    return best


@st.composite
def problems(draw: st.DrawFn, circular: bool = True) -> Problem:
    n = draw(st.integers(2, 6))
    options: dict[int, tuple[Option, ...]] = {}
    for c in range(n):
        below = st.integers(0, n - 1) if circular else st.integers(0, c - 1) if c else st.nothing()
        needs = st.lists(below, max_size=3 if c else 0, unique=True).map(tuple)
        own = draw(st.lists(st.tuples(st.integers(0, 9), needs), min_size=1, max_size=3))
        options[c] = tuple(Option(float(cost), need) for cost, need in own)
    return Problem(options, tuple(draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=2, unique=True))))
