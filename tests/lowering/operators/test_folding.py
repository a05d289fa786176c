"""Col2Im against ONNX's cases and the reference."""

from __future__ import annotations

import pytest

from graphopt.errors import ExecutionError
from graphopt.lowering.operators.folding import TABLE
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered
from tests.lowering.operators.shaped import ints, numbers


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (2, 3), (3, 4)])
@pytest.mark.parametrize("dilations", [(1, 1), (1, 2)])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 2, 1)])
@pytest.mark.parametrize("block", [(2, 3), (3, 3), (4, 1)])
def test_blocks(strides: tuple[int, int], dilations: tuple[int, int], pads: tuple[int, ...], block: tuple[int, int],
                ) -> None:  # fmt: skip
    """Where each place is tried, where blocks meet in phases, and where no two of them meet."""
    image = (5, 6)
    counts = [(image[k] + pads[k] + pads[k + 2] - dilations[k] * (block[k] - 1) - 1) // strides[k] + 1 for k in (0, 1)]
    x = numbers(2, 3 * block[0] * block[1], counts[0] * counts[1])
    arrays = [x, ints(*image), ints(*block)]
    agree("Col2Im", arrays, known={1, 2}, strides=strides, dilations=dilations, pads=pads)


def test_columns_that_do_not_fit_end_the_program() -> None:
    with pytest.raises(ExecutionError, match="Col2Im"):
        computed("Col2Im", [numbers(1, 4, 5), ints(3, 3), ints(2, 2)], known={1, 2})
