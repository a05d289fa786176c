"""Schedules of tensor programs: ``graphopt.schedule.Schedule``, the trace of its steps, and what its steps name.

The primitives are the methods of ``Schedule``: each is checked, and raises ``ScheduleError`` where it would change what
the program computes. ``ROOT`` and ``INLINE`` stand for places that are no loops.
"""

from __future__ import annotations

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import INLINE, ROOT, BlockRef, LoopRef
from graphopt.lowering.intrinsics.tensor_intrin import TensorIntrin
from graphopt.lowering.schedule.schedule import Schedule, replay
from graphopt.lowering.schedule.trace import Trace, TraceStep

__all__ = [
    "INLINE",
    "ROOT",
    "BlockRef",
    "LoopRef",
    "Schedule",
    "ScheduleError",
    "TensorIntrin",
    "Trace",
    "TraceStep",
    "replay",
]
