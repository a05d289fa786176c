"""Lowering options for CUDA.

It stands apart from the options for the host, which import nothing of CUDA.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from graphopt.lowering.cuda.card import Card
from graphopt.lowering.cuda.dispatch import DispatchMode, choice
from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.link.options import Options, as_they_are
from graphopt.target import ProductPrices


def on(card: Card, prices: Mapping[str, ProductPrices], way: DispatchMode = "auto", contract: bool = True) -> Options:
    """Options for a card: default schedules, CUDA kernels, with fused multiply-adds by contraction or without, and
    libraries at these prices."""
    schedule = partial(scheduled, card=card, library=choice(way, prices))
    emission = partial(emit, contract=contract)
    return Options(schedule=schedule, emit=emission, lay=as_they_are, prepare=as_they_are, is_for_host=False)
