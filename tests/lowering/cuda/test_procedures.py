"""Procedures: loops that are independent are threads, and whatever the others are, the results are right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphopt.lowering.cuda.card import CARD, SIMULATED
from graphopt.lowering.cuda.emit import Launchable, emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.expressions import Const, Expr, Var, equal, maximum, select
from graphopt.lowering.loops.nest import Buffer, For, If, Nest, Stmt, Store, seq
from tests.lowering.cuda.simulated import check

N = Var("n")
ONE = (Const(1),)


def running(axis: int, shape: tuple[Expr | int, ...] = (5, 70)) -> Nest:
    """Running sums along an axis."""
    x = t.placeholder(shape)

    def build(y: Buffer) -> Stmt:
        def along(i: Expr, j: Expr) -> Stmt:
            first, before = (equal(i, 0), y[i - 1, j]) if axis == 0 else (equal(j, 0), y[i, j - 1])
            return Store(y, (i, j), x[i, j] + select(first, 0.0, before))

        return t.loop(shape[0], lambda i: t.loop(shape[1], lambda j: along(i, j)))

    made = t.procedure([("y", shape, "float32")], [x], build)
    return t.nest("running", [x], list(made), [v for v in shape if isinstance(v, Var)])


def pairs() -> Nest:
    """Two neighbouring elements for each iteration."""
    x = t.placeholder((40,))

    def build(y: Buffer) -> Stmt:
        both = lambda i: seq(*(Store(y, (i * 2 + k,), x[38 - i * 2 + k]) for k in range(2)))  # noqa: E731
        return t.loop(20, both)

    return t.nest("pairs", [x], list(t.procedure([("y", (40,), "float32")], [x], build)))


def with_scratch(carries: bool = False) -> Nest:
    """The largest element of each row so far, in a variable of each row's own; or of all rows before as well."""
    x, best = t.placeholder((6, 9)), Buffer("best", ONE, "float32", "local")

    def build(y: Buffer) -> Stmt:
        start = Store(best, (Const(0),), t.lowest("float32"))

        def row(i: Expr) -> Stmt:
            def step(j: Expr) -> Stmt:
                return seq(Store(best, (Const(0),), maximum(best[0], x[i, j])), Store(y, (i, j), best[0]))

            begun = If(equal(i, 0), start) if carries else start
            return seq(begun, t.loop(9, step))

        return t.loop(6, row)

    return t.nest("with_scratch", [x], list(t.procedure([("y", (6, 9), "float32")], [x], build, (best,))))


def carrying() -> Nest:
    return with_scratch(carries=True)


def recurrent() -> Nest:
    """Steps in order, in each of which there are many elements; and what is done to each element of the result."""
    x, state = t.placeholder((4, 3, 20)), Buffer("state", (Const(20),), "float32", "local")

    def build(y: Buffer) -> Stmt:
        def batch(b: Expr) -> Stmt:
            def step(s: Expr) -> Stmt:
                mixed = t.loop(20, lambda i: Store(y, (s, b, i), state[i] * 0.5 + state[19 - i] + x[s, b, i]))
                return seq(mixed, t.loop(20, lambda i: Store(state, (i,), y[s, b, i])))

            return seq(t.loop(20, lambda i: Store(state, (i,), Const(0.0, "float32"))), t.loop(4, step))

        item = t.fresh()
        return For(item, Const(3), batch(item), "parallel")

    (h,) = t.procedure([("h", (4, 3, 20), "float32")], [x], build, (state,))
    return t.nest("recurrent", [x], [t.compute(h.shape, lambda *at: h[at] * 2.0, name="y")])


def scattered() -> Nest:
    """A copy, of which elements are replaced: in order, for indices may be the same."""
    x, at, v = t.placeholder((12, 5)), t.placeholder((7, 5), "int64", "at"), t.placeholder((7, 5), name="v")

    def build(y: Buffer) -> Stmt:
        copy = t.loop(12, lambda i: t.loop(5, lambda j: Store(y, (i, j), x[i, j])))
        place = lambda i, j: (at[i, j] % 12, j)  # noqa: E731
        return seq(copy, t.loop(7, lambda i: t.loop(5, lambda j: Store(y, place(i, j), v[i, j]))))

    return t.nest("scattered", [x, at, v], list(t.procedure([("y", (12, 5), "float32")], [x, at, v], build)))


def between() -> Nest:
    """Rows before a procedure and after it: what passes is in memory."""
    x, k, s = t.placeholder((5, 40)), t.reduce_axis(40), t.reduce_axis(5)
    total = t.compute((5,), lambda i: t.sum(x[i, k.var], k), name="total")

    def build(y: Buffer) -> Stmt:
        return t.loop(5, lambda i: Store(y, (i,), total[i] + select(equal(i, 0), 0.0, y[i - 1])))

    (y,) = t.procedure([("y", (5,), "float32")], [total], build)
    return t.nest("between", [x], [t.compute((), lambda: t.sum(y[s.var], s), name="z")])


ALL: dict[str, Callable[[], Nest]] = {
    "down": lambda: running(0),
    "along": lambda: running(1),
    "any": lambda: running(0, (N, N + 1)),
    **{f.__name__: f for f in (pairs, with_scratch, carrying, recurrent, scattered, between)},
}


@pytest.mark.parametrize("name", ALL)
def test_procedures_are_right(name: str) -> None:
    nest = ALL[name]()
    for n in (0, 1, 9) if nest.sizes else (None,):
        sizes = () if n is None else (n,)
        check(nest, scheduled(nest, CARD), sizes, is_run=False)
        check(nest, scheduled(nest, SIMULATED), sizes)


def _threads(nest: Nest) -> list[int]:
    """How many threads each kernel of a nest has."""
    made = (part for _, part in emit(scheduled(nest, SIMULATED)))
    return [int(p.grid[0].value) * p.block[0] for p in made if isinstance(p, Launchable)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "threads"),
    [
        ("down", [128]),
        ("along", [32]),
        ("pairs", [32]),
        ("with_scratch", [32]),
        ("carrying", [1]),
        ("recurrent", [192, 64]),
        ("scattered", [64, 32]),
    ],
)
def test_independent_loops_are_threads(name: str, threads: list[int]) -> None:
    assert _threads(ALL[name]()) == threads


def test_a_nest_with_loops_over_threads_stays_as_it_is() -> None:
    made = scheduled(running(0))
    assert scheduled(made) is made
