"""Elements along rows of any length: each thread has several of one row."""

from __future__ import annotations

import pytest

from graphopt.lowering.cuda.card import CARD, SIMULATED
from graphopt.lowering.cuda.emit import Launchable, emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.expressions import Expr, Var, cast, maximum
from graphopt.lowering.loops.nest import Nest
from tests.lowering.cuda.simulated import check

N, M = Var("n"), Var("m")


def biased(*shape: Expr | int) -> Nest:
    """A bias for each channel, and a factor for each place of an image."""
    x, b = t.placeholder(shape), t.placeholder(shape[1:2], name="b")
    f = t.placeholder(shape[2:], name="f")
    y = t.compute(shape, lambda n, c, *at: maximum(x[(n, c, *at)] + b[c], 0.0) * f[at], name="y")
    return t.nest("biased", [x, b, f], [y], [v for v in dict.fromkeys(shape) if isinstance(v, Var)])


def numbered() -> Nest:
    """What an element is depends on where it is."""
    x = t.placeholder((3, N))
    return t.nest("numbered", [x], [t.compute((3, N), lambda i, j: x[i, j] + cast(i - j, "float32"), name="y")], [N])


@pytest.mark.parametrize("sizes", [(0, 3), (2, 0), (1, 1), (2, 9), (3, 20)])
def test_elements_of_rows_are_right(sizes: tuple[int, int]) -> None:
    nest = biased(N, 5, M, M)
    check(nest, scheduled(nest, CARD), sizes, is_run=False)
    check(nest, scheduled(nest, SIMULATED), sizes)


@pytest.mark.parametrize("n", [1, 255, 256, 300])
def test_rows_that_are_longer_than_a_piece_are_right(n: int) -> None:
    check(numbered(), scheduled(numbered(), SIMULATED), [n])


def test_nothing_is_divided_for_each_element() -> None:
    ((_, part),) = emit(scheduled(biased(N, 5, M, M), CARD))
    assert isinstance(part, Launchable)
    whole = part.kernel.source.split("<= p0_:")[1].split("else:")[0]
    assert whole.count("y[") == 8
    assert "//" not in whole
    assert "x[" not in whole[whole.index("y[") :]  # all is read before anything is written


def test_rows_of_known_lengths_are_left_to_others() -> None:
    ((_, part),) = emit(scheduled(biased(N, 5, 3, 4), CARD))
    assert isinstance(part, Launchable)
    assert part.block[1] == 1
