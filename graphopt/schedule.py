"""Schedules of tensor programs: ``graphopt.schedule.Schedule``, the trace of its steps, and what its steps name.

The primitives are the methods of ``Schedule``: each is checked, and raises ``ScheduleError`` where it would change what
the program computes. ``ROOT`` and ``INLINE`` stand for places that are no loops.

Rules schedule whole programs: ``default_rules`` are those of the compiler, which ``apply_rules`` applies, as it does
rules of one's own, and ``explain_rules`` explains.

Examples go on from this schedule:

>>> from graphopt import schedule, te
>>> x = te.placeholder((4, 8), "float32", "x")
>>> nest = te.nest("plus_one", [x, te.compute((4, 8), lambda i, j: x[i, j] + 1.0, name="y")])
>>> s, k, r = schedule.Schedule(nest), te.reduce_axis(3, "k"), te.reduce_axis(8, "r")
>>> schedule.ROOT, schedule.INLINE
(LoopRef(name='<root>'), LoopRef(name='<inline>'))
"""

from __future__ import annotations

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import INLINE, ROOT, BlockRef, LoopRef
from graphopt.lowering.intrinsics.tensor_intrin import TensorIntrin
from graphopt.lowering.module.scheduling import apply_rules, explain_rules
from graphopt.lowering.schedule.rules import (
    GEMV,
    Convolution,
    ElementWise,
    Fallback,
    GeneralReduction,
    Matmul,
    Reduction,
    RuleAnswer,
    RuleExplanation,
    RuleLike,
    ScheduleRule,
    Transpose,
    default_rules,
)
from graphopt.lowering.schedule.schedule import Schedule, replay
from graphopt.lowering.schedule.trace import Trace, TraceStep

__all__ = [
    "BlockRef",
    "Convolution",
    "ElementWise",
    "Fallback",
    "GEMV",
    "GeneralReduction",
    "INLINE",
    "LoopRef",
    "Matmul",
    "ROOT",
    "Reduction",
    "RuleAnswer",
    "RuleExplanation",
    "RuleLike",
    "Schedule",
    "ScheduleError",
    "ScheduleRule",
    "TensorIntrin",
    "Trace",
    "TraceStep",
    "Transpose",
    "apply_rules",
    "default_rules",
    "explain_rules",
    "replay",
]
