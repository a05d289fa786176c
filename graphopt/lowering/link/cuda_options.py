"""How a graph's lowering for CUDA differs from that for the host."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from graphopt.lowering.cuda.card import Card
from graphopt.lowering.cuda.dispatch import DispatchMode
from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.cuda.schedules import rules_beside, scheduled
from graphopt.lowering.link.options import Options, as_they_are
from graphopt.target import ProductPrices


def on(card: Card, prices: Mapping[str, ProductPrices], way: DispatchMode = "auto") -> Options:
    """All is done by rule, for kernels that run on such a card, beside a library at such prices."""
    schedule = partial(scheduled, card=card, rules=rules_beside(prices, way))
    return Options(schedule=schedule, emit=emit, lay=as_they_are, prepare=as_they_are, is_for_host=False)
