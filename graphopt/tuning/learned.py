"""Learned cost model: gradient boosting on the features of scheduled nests that were measured.

It says how schedules of one workload compare, which is all that a search needs: it is trained on logarithms of how many
times as fast as the default schedule each was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from graphopt.errors import MissingDependencyError, ReadError
from graphopt.tuning.features import NAMES

if TYPE_CHECKING:
    import lightgbm

ENOUGH: Final = 8
"""Measurements from which on there is something to learn."""
WORST: Final = -6.0
"""What is said of what does not run, and the least of what does: the logarithm of a 64th of the speed."""
SETTINGS: Final[dict[str, Any]] = {
    "objective": "regression",
    "learning_rate": 0.1,
    "num_leaves": 15,
    "extra_trees": True,
    "min_data_in_leaf": 3,
    "min_data_in_bin": 1,
    "feature_pre_filter": False,
    "verbosity": -1,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 0,
}
"""Small trees, for there are few measurements, with thresholds drawn at random, for these are noisy; the same data give
the same model."""
ROUNDS: Final = 150
"""Trees."""


def goal(speedup: float) -> float:
    """What the model is to say of a schedule that is so many times as fast as the default one; 0 does not run."""
    return WORST if speedup <= 0 else max(log2(speedup), WORST)


@dataclass(frozen=True)
class LearnedCostModel:
    """How schedules compare, by their features."""

    booster: lightgbm.Booster

    @staticmethod
    def trained(rows: Sequence[Sequence[float]], goals: Sequence[float]) -> LearnedCostModel | None:
        """The model of so many measurements, in whatever order they came; None of too few. MissingDependencyError
        without lightgbm."""
        examples = sorted((tuple(row), g) for row, g in zip(rows, goals, strict=True) if len(row) == len(NAMES))
        if len(examples) < ENOUGH:
            return None
        library = _lightgbm()
        data = library.Dataset(np.array([row for row, _ in examples]), np.array([g for _, g in examples]))
        return LearnedCostModel(library.train(SETTINGS, data, ROUNDS))

    def scores(self, rows: Sequence[Sequence[float]]) -> list[float]:
        """What the model says of schedules: the greater, the faster."""
        if not rows:
            return []
        return [float(x) for x in np.asarray(self.booster.predict(np.array(rows), num_threads=1))]

    def text(self) -> str:
        """The model as text, which ``read`` reads."""
        return str(self.booster.model_to_string())

    @staticmethod
    def read(text: str) -> LearnedCostModel:
        """The model that ``text`` wrote. ReadError where the text is something else or is of other features."""
        library = _lightgbm()
        try:
            booster = library.Booster(model_str=text)
        except library.basic.LightGBMError as error:
            raise ReadError(f"this is no cost model ({error})") from None
        if booster.num_feature() != len(NAMES):
            raise ReadError(f"this cost model knows {booster.num_feature()} features, and nests have {len(NAMES)}")
        return LearnedCostModel(booster)


def require() -> None:
    """Raise MissingDependencyError where lightgbm is not installed."""
    _lightgbm()


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise MissingDependencyError(
            "a search that learns needs lightgbm: pip install 'graphopt[tune]', or search at random"
        ) from None
    return lightgbm
