"""Search spaces: schedules with sampled decisions. A nest of another kind raises ScheduleError.

A space is any function of a ``Schedule`` that calls its ``sample_`` methods; here are those that graphopt tries by
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Final, TypeAlias

from graphopt.errors import ScheduleError
from graphopt.lowering.schedule.by_rule import card, chosen_for
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.target import CPU
from graphopt.target import target as target_named
from graphopt.tuning.block_tiles import block_tiles
from graphopt.tuning.elements import elements
from graphopt.tuning.register_tiles import register_tiles
from graphopt.tuning.row_reductions import row_reductions

Space: TypeAlias = Callable[[Schedule], object]


def by_rule(s: Schedule, target: str = CPU.name) -> None:
    """The default schedule for a target, with other tiles, pieces and functions than it would choose by itself."""
    choices: dict[str, int] = {}
    while left := {name: c for name, c in chosen_for(target, s.nest, choices)[1].items() if name not in choices}:
        name, candidates = next(iter(left.items()))
        choices[name] = s.sample_categorical(candidates)
    if not choices:
        raise ScheduleError(f"by_rule: there is nothing to choose for {s.nest.name}")
    scheduled_by_rule(s, target, tuple(choices.items()))


def scheduled_by_rule(s: Schedule, target: str, choices: tuple[tuple[str, int], ...] = ()) -> None:
    """Schedules by rule for a target; a step for the CPU does not name it."""
    if target_named(target).device.is_host:
        s.by_rule(choices) if choices else s.by_rule()
    else:
        s.by_rule(choices, target=target)


SPACES: Final[tuple[Space, ...]] = (by_rule, register_tiles, row_reductions, elements)
"""The spaces that are tried on the CPU: to add one, add it here."""


@cache
def spaces_for(target: str) -> tuple[Space, ...]:
    """The spaces that are tried for a target. UsageError where there is none of this name."""
    device = target_named(target).device
    if not device.has_blocks:
        return SPACES
    return partial(by_rule, target=target), partial(block_tiles, card=card(device))
