"""Every nest is right as it is scheduled for CUDA, and the source of each default schedule is as it was:
``GRAPHOPT_GOLDEN=1 pytest`` writes it anew. The PTX of all is made in a slow test."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from graphopt.kernels.cuda.compile import ptx
from graphopt.lowering.cuda.card import CARD, SIMULATED
from graphopt.lowering.cuda.emit import Launchable, emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.loops import Nest
from tests.lowering.cuda import row_nests, test_procedures, test_transposes
from tests.lowering.cuda.row_nests import ANY_ROWS, LONG_ROWS, ROWS
from tests.lowering.cuda.simulated import check
from tests.lowering.described import FIXED, SYMBOLIC

FOLDER = Path(__file__).parent / "goldens"
PRODUCTS = {"product", "transposed_product", "pointwise_convolution", "small_product", "few_rows"}
PRODUCTS |= {"few_transposed_rows", "convolution", "any_convolution", "depth_to_space"}
"""Which have tests of their own, of fewer steps."""
GOLDENS: dict[str, Callable[[], Nest]] = {
    "elements": FIXED["flat"],
    "elements_of_any_size": SYMBOLIC["any_elements"],
    "rows_in_registers": ROWS["several_warps"],
    "rows_of_any_length": ANY_ROWS["any_softmax"],
    "rows_side_by_side": ROWS["channel_softmax"],
    "norm_of_a_sum": ROWS["layer_norm"],
    "few_long_rows": lambda: row_nests.squares(3, 1 << 20),
    "whole_array": ANY_ROWS["whole"],
    "over_outer_axis": ROWS["down"],
    "vector": ROWS["vector"],
    "transposed_vector": ROWS["transposed_vector"],
    "transpose": test_transposes.FIXED["heads"],
    "transpose_of_any_size": test_transposes.ANY["any"],
    "procedure": test_procedures.ALL["down"],
    "procedure_in_steps": test_procedures.ALL["recurrent"],
}


@pytest.mark.parametrize("name", sorted((FIXED | SYMBOLIC).keys() - PRODUCTS))
def test_nests_are_right(name: str) -> None:
    nest = (FIXED | SYMBOLIC)[name]()
    for n in (1, 5) if nest.sizes else (None,):
        sizes = () if n is None else (n,)
        check(nest, scheduled(nest, CARD), sizes, is_run=False)
        check(nest, scheduled(nest, SIMULATED), sizes, is_run=n != 1)


@pytest.mark.parametrize("name", GOLDENS)
def test_the_source_is_as_it_was(name: str) -> None:
    source = "\n".join(p.kernel.source for _, p in emit(scheduled(GOLDENS[name](), CARD)) if isinstance(p, Launchable))
    path = FOLDER / f"{name}.py.txt"
    if os.environ.get("GRAPHOPT_GOLDEN"):
        path.write_text(source)
    assert source == path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_all_default_schedules_become_ptx(capability: tuple[int, int]) -> None:
    for make in (FIXED | SYMBOLIC | ROWS | ANY_ROWS | LONG_ROWS | GOLDENS).values():
        for _, part in emit(scheduled(make(), CARD)):
            if isinstance(part, Launchable):
                assert f".target sm_{capability[0]}{capability[1]}" in ptx(part.kernel, capability)
