"""Progress events of a long run: which step, how large the e-graph, the best cost so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from graphopt.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """One thing worth showing. A field that is None says nothing new."""

    step: str
    """The step that is running, or has just ended where ``seconds`` is given."""
    seconds: float | None = None
    """What the step took, once it has ended."""
    size: int | None = None
    """Nodes in the e-graph."""
    iteration: int | None = None
    """Rounds of saturation so far."""
    cost: float | None = None
    """Modelled seconds of the best graph so far."""
    share: float | None = None
    """The part of the run that is done: of its steps, or of what it may measure."""


Listener: TypeAlias = Callable[[Event], None]
"""Called from inside the run, often: must be quick and must not raise."""
