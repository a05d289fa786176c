"""Measuring workloads: each in a tiny model under a runtime's profiler, many runs.

The time of a workload is the lower quartile of its runs: other processes make some runs slower, and
nothing makes any faster. What the profiler itself takes, seen on one addition of two numbers, is subtracted.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.calibration.probe import ENTER, LEAVE, probe
from graphopt.calibration.store import Time
from graphopt.engines import EngineError, Kernel, Profiler
from graphopt.ir.graph import NO_ATTRS
from graphopt.rewrite.workload import Operand, Workload

SECONDS, RUNS, WARM = 0.04, (9, 200), 3
"""How long one workload is run, how often at least and at most, and how many runs do not count."""

REORDERS = frozenset({"ReorderInput", "ReorderOutput"})
"""What a runtime calls its changes of layout."""

BLOCKED = "_nchwc"
"""What the names of nodes end in that compute in the blocked layout."""

RESOLUTION = 1e-6
"""Of what profilers tell, in seconds."""

UNMEASURABLE = Time(None)


TRIES, STEADY = 3, 0.1
"""A workload is measured again, a few times, where less than a quarter of its runs are this near to the fastest."""

NOTHING = Workload("Add", NO_ATTRS, (Operand("float32", (1,)), Operand("float32", (1,))))
"""A workload that takes a runtime next to no time."""


def overhead(profiler: Profiler) -> float:
    """Seconds by which the profiler makes each kernel seem longer. Raises EngineError where it runs nothing."""
    found = measure(NOTHING, profiler)
    if found.seconds is None:
        raise EngineError(f"{profiler.runtime} does not run an addition")
    return found.seconds


def measure(call: Workload, profiler: Profiler, overhead: float = 0.0) -> Time:
    """What the call takes; no seconds where the runtime does not run it, or in another layout."""
    made = probe(call)
    if made is None:
        return UNMEASURABLE
    best = UNMEASURABLE
    for _ in range(TRIES):
        try:
            runs = profiler.profile(made.model, made.feeds, SECONDS, RUNS, WARM)
        except EngineError:
            return UNMEASURABLE
        if not runs or not any(map(_is_own, runs[0])) or _is_blocked(runs[0]) != call.blocked:
            return UNMEASURABLE
        seconds = sorted(sum(k.seconds - overhead for k in run if _is_own(k)) / made.copies for run in runs)
        quarter = len(seconds) // 4
        found = Time(max(seconds[quarter], 0.0), seconds[-1 - quarter] - seconds[quarter], len(seconds))
        if best.seconds is None or (found.seconds or 0.0) < best.seconds:
            best = found
        if seconds[quarter] - seconds[0] <= STEADY * seconds[quarter] + RESOLUTION:
            break
    return best


def _is_own(kernel: Kernel) -> bool:
    """Whether the kernel belongs to the op that is measured."""
    return kernel.op not in REORDERS and not kernel.name.startswith((ENTER, LEAVE))


def _is_blocked(run: Sequence[Kernel]) -> bool:
    """Whether the op itself computed in the blocked layout."""
    if any(k.name.startswith(ENTER) for k in run):
        entered = max(i for i, k in enumerate(run) if k.name.startswith(ENTER))
        left = min(i for i, k in enumerate(run) if k.name.startswith(LEAVE))
        return not any(k.op in REORDERS for k in run[min(entered, left) : max(entered, left)])
    return any(k.name.endswith(BLOCKED) for k in run)
