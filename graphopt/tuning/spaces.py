"""Search spaces: schedules that draw. What fits a nest of none of their kind raises ScheduleError.

A space is any function of a ``Schedule`` that calls its ``sample_`` methods; here are those that graphopt tries by
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from graphopt.errors import ScheduleError
from graphopt.lowering.default_schedules import chosen
from graphopt.lowering.schedule import Schedule
from graphopt.tuning.elements import elements
from graphopt.tuning.register_tiles import register_tiles
from graphopt.tuning.row_reductions import row_reductions

Space: TypeAlias = Callable[[Schedule], object]


def by_rule(s: Schedule) -> None:
    """The default schedule, with other tiles, pieces and functions than it would choose by itself."""
    choices: dict[str, int] = {}
    while left := {name: c for name, c in chosen(s.nest, choices)[1].items() if name not in choices}:
        name, candidates = next(iter(left.items()))
        choices[name] = s.sample_categorical(candidates)
    if not choices:
        raise ScheduleError(f"by_rule: there is nothing to choose for {s.nest.name}")
    s.by_rule(tuple(choices.items()))


SPACES: Final[tuple[Space, ...]] = (by_rule, register_tiles, row_reductions, elements)
"""The spaces that are tried: to add one, add it here."""
