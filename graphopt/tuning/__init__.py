"""Tuning: schedules that are faster than the default ones on this machine, found by measuring, and remembered.

What is public is listed here, and imported when it is first used. Examples go on from this one:

>>> from pathlib import Path
>>> from random import Random
>>> from graphopt import te, tuning
>>> from graphopt.calibration.schedule_tables import setting_here
>>> from graphopt.tuning.draws import Draws
>>> from graphopt.tuning.record import Candidate, Outcome, Record
>>> x = te.placeholder((4, 8), "float32", "x")
>>> nest = te.nest("plus_one", [x, te.compute((4, 8), lambda i, j: x[i, j] + 1.0, name="y")])
>>> workload = tuning.Workload.of(nest)
>>> def tiles(s):
...     j = s.get_loops("y")[1]
...     s.split(j, s.sample_perfect_tile(j, 2))
>>> draws = Draws(workload, (tiles,))
>>> len(tuning.SPACES) > 2
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphopt.tuning.database import Records as Records
    from graphopt.tuning.executors import executor_named as executor_named
    from graphopt.tuning.learned import CostModel as CostModel
    from graphopt.tuning.learned import LearnedCostModel as LearnedCostModel
    from graphopt.tuning.results import Trial as Trial
    from graphopt.tuning.results import TunedNest as TunedNest
    from graphopt.tuning.search import Evolution as Evolution
    from graphopt.tuning.search import ExhaustiveSearch as ExhaustiveSearch
    from graphopt.tuning.search import RandomSearch as RandomSearch
    from graphopt.tuning.search import Search as Search
    from graphopt.tuning.search import SearchStrategy as SearchStrategy
    from graphopt.tuning.session import Budget as Budget
    from graphopt.tuning.session import Task as Task
    from graphopt.tuning.session import tune as tune
    from graphopt.tuning.session import tune_tasks as tune_tasks
    from graphopt.tuning.spaces import SPACES as SPACES
    from graphopt.tuning.workload import Workload as Workload

_HOMES = {
    "Budget": "graphopt.tuning.session",
    "CostModel": "graphopt.tuning.learned",
    "Evolution": "graphopt.tuning.search",
    "ExhaustiveSearch": "graphopt.tuning.search",
    "LearnedCostModel": "graphopt.tuning.learned",
    "RandomSearch": "graphopt.tuning.search",
    "Records": "graphopt.tuning.database",
    "SPACES": "graphopt.tuning.spaces",
    "Search": "graphopt.tuning.search",
    "SearchStrategy": "graphopt.tuning.search",
    "Task": "graphopt.tuning.session",
    "Trial": "graphopt.tuning.results",
    "TunedNest": "graphopt.tuning.results",
    "Workload": "graphopt.tuning.workload",
    "executor_named": "graphopt.tuning.executors",
    "tune": "graphopt.tuning.session",
    "tune_tasks": "graphopt.tuning.session",
}
"""Where each public name is defined."""

__all__ = sorted({*_HOMES} - {"tune"})  # which is tune_tasks, by the name that it had


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'graphopt.tuning' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
