"""Tuning: schedules that are faster than the default ones on this machine, found by measuring, and remembered.

What is public is listed here, and imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphopt.tuning.database import Records as Records
    from graphopt.tuning.executors import executor_named as executor_named
    from graphopt.tuning.session import Budget as Budget
    from graphopt.tuning.session import Task as Task
    from graphopt.tuning.session import tune as tune
    from graphopt.tuning.spaces import SPACES as SPACES
    from graphopt.tuning.workload import Workload as Workload

_HOMES = {
    "SPACES": "graphopt.tuning.spaces",
    "Budget": "graphopt.tuning.session",
    "Records": "graphopt.tuning.database",
    "Task": "graphopt.tuning.session",
    "Workload": "graphopt.tuning.workload",
    "executor_named": "graphopt.tuning.executors",
    "tune": "graphopt.tuning.session",
}
"""Where each public name is defined."""

__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'graphopt.tuning' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
