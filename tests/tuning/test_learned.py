"""The cost model ranks what it has seen, and keeps to its form."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import pytest

from graphopt.errors import MissingDependencyError, ReadError
from graphopt.tuning.features import NAMES
from graphopt.tuning.learned import WORST, LearnedCostModel, goal, require

lightgbm = pytest.importorskip("lightgbm")

RNG = np.random.default_rng(0)
ROWS = [tuple(map(float, row)) for row in RNG.uniform(0, 10, (60, len(NAMES)))]
GOALS = [row[3] - 2 * row[7] for row in ROWS]
"""Two of the numbers say it all."""


def trained() -> LearnedCostModel:
    return fitted(ROWS, GOALS)


def fitted(rows: Sequence[Sequence[float]], goals: Sequence[float]) -> LearnedCostModel:
    model = LearnedCostModel()
    model.fit(np.array(rows), np.array(goals))
    return model


def test_what_is_faster_has_the_greater_score() -> None:
    new = [tuple(map(float, row)) for row in RNG.uniform(0, 10, (40, len(NAMES)))]
    scores, truth = trained().predict(np.array(new)), [row[3] - 2 * row[7] for row in new]
    ranks = [np.argsort(np.argsort(x)) for x in (scores, truth)]
    assert np.corrcoef(*ranks)[0, 1] > 0.7
    assert trained().predict(np.zeros((0, len(NAMES)))) == []


def test_the_same_data_give_the_same_model() -> None:
    assert trained().text() == trained().text() == fitted(ROWS[::-1], GOALS[::-1]).text()


def test_a_model_is_read_as_it_was_written() -> None:
    model = trained()
    assert LearnedCostModel.read(model.text()).predict(np.array(ROWS)) == model.predict(np.array(ROWS))


def test_goals() -> None:
    assert [goal(x) for x in (4.0, 1.0, 0.5)] == [2.0, 0.0, -1.0]
    assert goal(0.0) == goal(1e-9) == WORST


def test_what_is_no_model_is_an_error() -> None:
    with pytest.raises(ReadError, match="this is no cost model"):
        LearnedCostModel.read("nonsense")
    small = lightgbm.train({"verbosity": -1}, lightgbm.Dataset(np.zeros((40, 2)), np.zeros(40)), 1)
    with pytest.raises(ReadError, match=f"knows 2 features, and nests have {len(NAMES)}"):
        LearnedCostModel.read(small.model_to_string())


def test_without_lightgbm_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'graphopt\[tune\]', or search at random"):
        require()
