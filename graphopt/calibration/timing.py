"""Timing of workloads: each in a tiny model under a runtime's profiler, many runs.

The time of a workload is that of the fastest tenth of its runs: other processes make runs slower, and
nothing makes any faster. What the profiler itself takes, seen on one addition of two numbers, is subtracted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from graphopt.calibration.probe import ENTER, LEAVE, probe
from graphopt.calibration.store import Time
from graphopt.ir.graph import NO_ATTRS
from graphopt.rewrite.extract.workload import OpWorkload, WorkloadOperand
from graphopt.verify.runtimes import EngineError, ProfiledKernel, Profiler

SECONDS, RUNS, WARM = 0.04, (9, 200), 3
"""How long one workload is run, how often at least and at most, and how many runs do not count."""

REORDERS = frozenset({"ReorderInput", "ReorderOutput"})
"""What a runtime calls its changes of layout."""

POOL = "MaxPool"
"""What stands around calls that are to compute in the blocked layout."""

BLOCKED = "_nchwc"
"""What the names of nodes end in that compute in the blocked layout."""

RESOLUTION = 1e-6
"""Of what profilers tell, in seconds."""

LEAST = 1e-7
"""No call takes a runtime less, in seconds, whatever is left when the profiler's own time is taken off."""

UNMEASURABLE = Time(None)


TRIES, STEADY = 4, 0.1
"""A workload is measured again, a few times, where less than a tenth of its runs are this near to the fastest, or where
the machine is slower by so much than it was."""

NOTHING = OpWorkload("Add", NO_ATTRS, (WorkloadOperand("float32", (1,)), WorkloadOperand("float32", (1,))))
"""A workload that takes a runtime next to no time."""

YARDSTICK = OpWorkload(
    "MatMul", NO_ATTRS, (WorkloadOperand("float32", (128, 128)), WorkloadOperand("float32", (128, 512), True))
)
"""A workload by which to see how fast the machine is now."""

YARDSTICK_SECONDS = 0.005


class Stopwatch:
    """Measures workloads in a runtime, and knows when the machine is busy with something else.

    Raises EngineError where the runtime runs nothing.
    """

    def __init__(self, profiler: Profiler) -> None:
        self.profiler = profiler
        empty = _seconds(NOTHING, profiler)
        if empty is None:
            raise EngineError(f"{profiler.runtime} does not run an addition")
        self.overhead = empty[0]
        """Seconds by which the profiler makes each kernel seem longer."""
        self.pace = inf
        """The least seconds that the yardstick took so far."""

    def measure(self, call: OpWorkload) -> Time:
        """What the call takes; no seconds where the runtime does not run it, or in another layout."""
        best = UNMEASURABLE
        for _ in range(TRIES):
            seconds = _seconds(call, self.profiler, self.overhead)
            if seconds is None:
                return best
            n = len(seconds)
            time_of_run = Time(max(seconds[n // 10], LEAST), seconds[-1 - n // 4] - seconds[n // 10], n)
            if best.seconds is None or (time_of_run.seconds or 0.0) < best.seconds:
                best = time_of_run
            if seconds[n // 10] - seconds[0] <= STEADY * seconds[n // 10] + RESOLUTION and not self._is_busy():
                break
        return best

    def _is_busy(self) -> bool:
        """Whether the machine is slower now than it was before."""
        seconds = _seconds(YARDSTICK, self.profiler)
        if seconds is None:
            return False
        now = seconds[len(seconds) // 10]
        self.pace = min(self.pace, now)
        return now > (1 + STEADY) * self.pace + RESOLUTION


def _seconds(call: OpWorkload, profiler: Profiler, overhead: float = 0.0) -> list[float] | None:
    """What each of some runs of the call took, the fastest first; None where it does not run as it should."""
    model = probe(call)
    if model is None:
        return None
    try:
        runs = profiler.profile(
            model.model, model.feeds, YARDSTICK_SECONDS if call is YARDSTICK else SECONDS, RUNS, WARM
        )
    except EngineError:
        return None
    if not runs or not any(map(_is_own, runs[0])) or _is_blocked(runs[0]) != call.blocked:
        return None
    return sorted(sum(k.seconds - overhead for k in run if _is_own(k)) / model.copies for run in runs)


def _is_own(kernel: ProfiledKernel) -> bool:
    """Whether the kernel belongs to the op that is measured."""
    return kernel.op not in REORDERS and not kernel.name.startswith((ENTER, LEAVE))


def _is_blocked(run: Sequence[ProfiledKernel]) -> bool:
    """Whether the op itself computed in the blocked layout: as its name says, or, between two pools, because nothing
    was reordered there."""
    entered = [i for i, k in enumerate(run) if k.name.startswith(ENTER) and k.op == POOL]
    left = [i for i, k in enumerate(run) if k.name.startswith(LEAVE) and k.op == POOL]
    if entered and left:
        return not any(k.op in REORDERS for k in run[entered[-1] : left[0]])
    return any(k.name.endswith(BLOCKED) for k in run if _is_own(k))
