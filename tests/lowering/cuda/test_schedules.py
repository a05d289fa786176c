"""Every nest is right as it is scheduled for CUDA, and the source of each default schedule is as it was:
``GRAPHOPT_GOLDEN=1 pytest`` writes it anew. The PTX of all is made in a slow test."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from graphopt.errors import ScheduleError
from graphopt.kernels.cuda.compile import ptx
from graphopt.lowering.cuda.card import CARD, SIMULATED
from graphopt.lowering.cuda.emit import Launchable, emit
from graphopt.lowering.cuda.schedules import chosen, scheduled
from graphopt.lowering.loops.nest import Nest
from tests.lowering.cuda import row_nests, test_procedures, test_transposes
from tests.lowering.cuda.nests import CONTRACTIONS, matrices
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


CHOSEN: dict[str, Callable[[], Nest]] = {
    "product": lambda: matrices(7, 10, 20),
    "elements": FIXED["flat"],
    **{name: ROWS[name] for name in ("short_rows", "one_warp", "channel_softmax", "layer_norm")},
}


@pytest.mark.parametrize("name", CHOSEN)
def test_what_is_chosen_changes_loops_and_not_results(name: str) -> None:
    nest = CHOSEN[name]()
    made, offered, _ = chosen(nest, {}, SIMULATED)
    assert made == scheduled(nest, SIMULATED)
    for key, candidates in offered.items():
        others = [chosen(nest, {key: n}, SIMULATED)[0] for n in candidates]
        assert others.count(made) == 1, key
        if others[1:]:
            check(nest, next(other for other in reversed(others) if other != made))


def test_what_is_chosen_for_tensor_cores_changes_no_results() -> None:
    nest = CONTRACTIONS["halves"]()
    for key, candidates in chosen(nest, {})[1].items():
        check(nest, chosen(nest, {key: candidates[-1]})[0], is_run=False)


def test_what_there_is_no_choice_of_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="there is no choice of speed: there is one of width 0, threads 0"):
        chosen(FIXED["flat"](), {"speed": 1})
    with pytest.raises(ScheduleError, match="threads 0 is one of 32, 64, 128, 256, and not 48"):
        chosen(FIXED["flat"](), {"threads 0": 48})


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
