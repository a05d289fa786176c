"""How a graph's lowering for CUDA differs from that for the host."""

from __future__ import annotations

from functools import partial

from graphopt.lowering.cuda.card import CARD, Card
from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.options import Options, as_they_are


def on(card: Card) -> Options:
    """All is done by rule, for kernels that run on such a card."""
    return Options(schedule=partial(scheduled, card=card), emit=emit, lay=as_they_are, prepare=as_they_are)


ON_DEVICE = on(CARD)
"""All is done by rule, for kernels that run on any card."""
