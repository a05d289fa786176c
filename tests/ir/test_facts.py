"""Facts meet: what either side knows is kept."""

from __future__ import annotations

import numpy as np

from graphopt.ir.constants import Constant
from graphopt.ir.facts import NOTHING, Fact, meet
from graphopt.ir.types import TensorType


def test_what_either_knows_is_kept() -> None:
    kind = TensorType("float32", (2,))
    constant = Constant.of(np.zeros(2, np.float32))
    found = meet(Fact(kind, low=0.0), Fact(is_const=True, constant=constant, low=-1.0, high=5.0))
    assert found == Fact(kind, True, constant, None, 0.0, 5.0)
    assert (found.dtype, found.shape, found.rank, found.size) == ("float32", (2,), 1, 2)


def test_nothing_new_gives_the_same_object() -> None:
    fact = Fact(TensorType("float32", (2,)), low=0.0)
    assert meet(fact, NOTHING) is fact
    assert meet(NOTHING, fact) is fact
    assert meet(fact, Fact(low=-1.0)) is fact


def test_nothing_is_known_of_nothing() -> None:
    assert (NOTHING.dtype, NOTHING.shape, NOTHING.rank, NOTHING.size) == (None, None, None, None)
