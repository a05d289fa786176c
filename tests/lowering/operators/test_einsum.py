"""Einsum against ONNX's node tests and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt.ir.constants import Array
from graphopt.ir.tolerance import error
from graphopt.lowering.operators.einsum import TABLE, labels_of
from graphopt.lowering.operators.operation import NotLowered
from tests.lowering.operators.lowered import Shape, cases_of, check, computed, not_lowered


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Any) -> None:
    check(case)


def test_every_case_is_lowered() -> None:
    assert not_lowered(TABLE) == set()


def _agree(equation: str, *shapes: tuple[int, ...], unknown: list[Shape] | None = None) -> None:
    random = np.random.default_rng(0)
    arrays: list[Array] = [random.uniform(-1, 1, s).astype(np.float32) for s in shapes]
    (got,) = computed("Einsum", arrays, unknown, equation=equation)
    want = np.einsum(equation.replace(" ", ""), *arrays)
    assert want.shape == got.shape
    assert error(want, got) <= 1.0


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("i,j,k->kji", [(2,), (3,), (4,)]),
        ("ij,ij", [(3, 4), (3, 4)]),
        ("ba", [(2, 3)]),
        ("ii", [(4, 4)]),
        ("...ij,...jk", [(2, 1, 3, 4), (5, 4, 6)]),
        ("i...,...j -> ...ij", [(3, 2, 4), (2, 4, 5)]),
        ("a...->...", [(3, 2, 4)]),
        ("ij,kj->ik", [(3, 1), (2, 4)]),
        ("ij,jk->ik", [(2, 0), (0, 3)]),
    ],
)
def test_equations(equation: str, shapes: list[tuple[int, ...]]) -> None:
    _agree(equation, *shapes)


def test_sizes_that_are_not_known() -> None:
    _agree("bij,bjk->bik", (2, 3, 4), (2, 4, 5), unknown=[("b", "i", "j"), ("b", "j", 5)])
    _agree("...i,...i->...", (2, 3, 4), (1, 3, 4), unknown=[("a", 3, 4), ("b", 3, 4)])
    _agree("...i,...i->...", (1, 4), (3, 4), unknown=[("a", 4), ("b", 4)])


def test_lengths_that_differ_end_the_program() -> None:
    arrays = [np.ones((2, 3), np.float32), np.ones((4, 5), np.float32)]
    with pytest.raises(Exception, match="'j' differ"):
        computed("Einsum", arrays, [("a", "b"), ("c", "d")], equation="ij,jk->ik")


@pytest.mark.parametrize(("equation", "ranks"), [("ij", [3]), ("ij,jk->ik", [2]), ("ij->ik", [2]), ("ij->ii", [2])])
def test_equations_that_do_not_fit(equation: str, ranks: list[int]) -> None:
    with pytest.raises(NotLowered):
        labels_of(equation, ranks)
