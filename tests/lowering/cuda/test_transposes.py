"""Transposes are tiles that neighbouring threads read and write along memory, whatever is done besides."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from graphopt.lowering.cuda.card import CARD, SIMULATED
from graphopt.lowering.cuda.emit import Launchable, emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.expressions import Expr, Var, apply, select
from graphopt.lowering.loops.nest import Nest
from tests.lowering.cuda.simulated import check
from tests.lowering.described import any_turned, into_blocks, out_of_blocks

N = Var("n")


def permuted(shape: Sequence[int], order: Sequence[int], dtype: str = "float32") -> Nest:
    """An array with its axes in another order."""
    x = t.placeholder(tuple(shape), dtype)

    def element(*at: Expr) -> Expr:
        return x[tuple(at[order.index(k)] for k in range(len(order)))]

    y = t.compute(tuple(shape[k] for k in order), element, dtype, name="y")
    return t.nest("permuted", [x], [y])


def with_more() -> Nest:
    """What is done besides: another operand lies as the results do, and a third has one element for each column."""
    x, y = t.placeholder((2, 40, 35)), t.placeholder((2, 35, 40), name="y")
    b = t.placeholder((40,), name="b")
    z = t.compute((2, 35, 40), lambda n, i, j: apply("exp", x[n, j, i]) * y[n, i, j] + b[j], name="z")
    return t.nest("with_more", [x, y, b], [z])


def padded() -> Nest:
    """Elements that are there only where a condition of the columns says so."""
    x = t.placeholder((33, 40))
    y = t.compute((40, 37), lambda i, j: select(j < 33, x[j, i], -1.0), name="y")
    return t.nest("padded", [x], [y])


def two_turned() -> Nest:
    x, y = t.placeholder((20, 50)), t.placeholder((20, 50), name="y")
    z = t.compute((50, 20), lambda i, j: x[j, i] - y[j, i], name="z")
    return t.nest("two_turned", [x, y], [z])


FIXED: dict[str, Callable[[], Nest]] = {
    "whole tiles": lambda: permuted((64, 32), (1, 0)),
    "edges": lambda: permuted((70, 33), (1, 0)),
    "halves": lambda: permuted((40, 33), (1, 0), "float16"),
    "doubles": lambda: permuted((33, 40), (1, 0), "float64"),
    "heads": lambda: permuted((2, 17, 3, 20), (0, 2, 3, 1)),
    "images": lambda: permuted((2, 20, 5, 7), (0, 2, 3, 1)),
    "backwards": lambda: permuted((17, 3, 18), (2, 1, 0)),
    "with more": with_more,
    "padded": padded,
    "two": two_turned,
}
ANY: dict[str, Callable[[], Nest]] = {"any": any_turned, "into blocks": into_blocks, "out of blocks": out_of_blocks}


@pytest.mark.parametrize("name", FIXED)
def test_transposes_are_right(name: str) -> None:
    _check(FIXED[name]())


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("n", [0, 1, 33])
def test_transposes_of_any_size_are_right(name: str, n: int) -> None:
    _check(ANY[name](), n)


def _check(nest: Nest, *sizes: int) -> None:
    for card in (CARD, SIMULATED):
        made = scheduled(nest, card)
        assert any(b.scope == "shared" for b in made.allocs)
        check(nest, made, sizes, is_run=card is SIMULATED)


def test_neighbouring_threads_read_and_write_neighbours() -> None:
    ((_, part),) = emit(scheduled(permuted((64, 64), (1, 0)), CARD))
    assert isinstance(part, Launchable)
    assert part.grid[0].value == 4  # type: ignore[attr-defined]
    assert f"shared({31 * 33 + 32}, float32)" in part.kernel.source


def test_what_is_too_narrow_is_copied_element_by_element() -> None:
    assert not scheduled(permuted((3, 400), (1, 0)), CARD).allocs


def test_what_keeps_its_innermost_axis_is_copied_element_by_element() -> None:
    assert not scheduled(permuted((20, 30, 40), (1, 0, 2)), CARD).allocs
