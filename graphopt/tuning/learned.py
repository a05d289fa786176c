"""Cost models: what they are asked, and the default one, gradient boosting on the features of measured schedules.

A cost model says how schedules of one workload compare, which is all that a search needs: it is fitted to logarithms of
how many times as fast as the default schedule each was.
"""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from graphopt.errors import MissingDependencyError, ReadError
from graphopt.frozen import dataclass
from graphopt.tuning.features import NAMES

if TYPE_CHECKING:
    import lightgbm

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


class CostModel(Protocol):
    """A cost model, by the methods of scikit-learn's regressors: any of these is one.

    Rows are features of scheduled nests, an array of float64 of shape [schedules, ``len(tuning.features.NAMES)``].

    >>> class Wishful:
    ...     def fit(self, rows, goals):
    ...         self.weights = rows.T @ goals
    ...
    ...     def predict(self, rows):
    ...         return rows @ self.weights
    >>> model: tuning.CostModel = Wishful()
    >>> model.fit(np.eye(3), np.ones(3))
    >>> model.predict(np.eye(3))
    array([1., 1., 1.])
    """

    def fit(self, rows: np.ndarray[Any, Any], goals: np.ndarray[Any, Any], /) -> object:
        """Learn anew from all that was measured: ``goals``, of shape [schedules], are the binary logarithms of how many
        times as fast as the default schedule each is, -6 for those that failed."""

    def predict(self, rows: np.ndarray[Any, Any], /) -> Any:
        """Scores of schedules, of shape [schedules]: the greater, the faster. It is asked once something was fitted."""


@dataclass
class LearnedCostModel:
    """The default cost model, of lightgbm's trees; MissingDependencyError without lightgbm.

    >>> tuning.LearnedCostModel().predict(np.empty((0, 3)))
    []
    """

    booster: lightgbm.Booster | None = None

    def fit(self, rows: np.ndarray[Any, Any], goals: np.ndarray[Any, Any], /) -> None:
        """Learn from measurements, in whatever order they came."""
        examples = sorted((tuple(map(float, row)), float(g)) for row, g in zip(rows, goals, strict=True))
        library = _lightgbm()
        data = library.Dataset(np.array([row for row, _ in examples]), np.array([g for _, g in examples]))
        self.booster = library.train(SETTINGS, data, ROUNDS)

    def predict(self, rows: np.ndarray[Any, Any], /) -> list[float]:
        """What the model says of schedules: the greater, the faster. It has to be fitted, or read, first."""
        if not len(rows):
            return []
        assert self.booster is not None
        return [float(x) for x in np.asarray(self.booster.predict(np.asarray(rows), num_threads=1))]

    def text(self) -> str:
        """The model as text, which ``read`` reads."""
        assert self.booster is not None
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
