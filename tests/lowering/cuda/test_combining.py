"""What threads of a row have is combined by exchange, and by steps in shared memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphopt.lowering.cuda.card import CARD, Card
from graphopt.lowering.cuda.emit import Launchable, emit
from graphopt.lowering.cuda.schedules import scheduled
from tests.lowering.cuda.row_nests import both_ends, softmax, truths
from tests.lowering.cuda.simulated import check

ALONE = replace(CARD, has_exchange=False)


@pytest.mark.parametrize("card", [CARD, ALONE])
def test_any_number_of_threads_combine_what_they_have(card: Card) -> None:
    for nest in (softmax(2, 1030), softmax(2, 300), both_ends(), truths()):
        check(nest, scheduled(nest, card))


@pytest.mark.parametrize(("length", "barriers"), [(100, 4), (520, 4), (1030, 6)])
def test_without_exchange_there_are_few_steps(length: int, barriers: int) -> None:
    ((_, part),) = emit(scheduled(softmax(2, length), ALONE))
    assert isinstance(part, Launchable)
    assert part.kernel.source.count(" barrier()") <= barriers
    assert "warp" not in part.kernel.source
