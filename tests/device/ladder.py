"""The steps of the ladder of products in docs/cuda.md, as nests of any size."""

from __future__ import annotations

from typing import Any

from graphopt.lowering.cuda.card import CARD
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.loops import Nest
from tests.test_docs import run


def steps(size: int) -> dict[str, Nest]:
    """The product of matrices of ``size`` by ``size``, a multiple of 128, scheduled as each step says, and by rule.

    Parameters are ``A``, ``B`` and ``C``.
    """
    known: dict[str, Any] = {"__name__": "cuda"}
    run("cuda.md", known)
    made = {name: known["climbed"](step, size) for name, (step, _) in known["LADDER"].items()}
    return {**made, "by rule": scheduled(known["product"](size), CARD)}
