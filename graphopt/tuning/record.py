"""Records of tuning: a workload, a schedule of it, and the outcome of its measurement."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from graphopt.calibration.measured_file import Setting
from graphopt.frozen import dataclass
from graphopt.tuning.workload import Workload


@dataclass(frozen=True)
class Candidate:
    """A way to schedule a workload: a trace, as ``Trace.to_json`` writes it; of threads, so many run it.

    ``target`` is what it is scheduled for: ``cpu`` or ``cuda``.
    """

    workload: Workload
    trace: str
    threads: int = 1
    target: str = "cpu"


@dataclass(frozen=True)
class Outcome:
    """What measuring a candidate gave: seconds of one run, in several series, and of the default schedule beside it.

    ``problem`` says in one line what was wrong with it, and is empty where it counts. ``features`` are those of the
    scheduled nest, for the cost model. ``machine`` is the one that it was measured on, as ``calibration.machine`` calls
    them: it may be another than the one that asks.
    """

    seconds: tuple[float, ...] = ()
    beside: tuple[float, ...] = ()
    problem: str = ""
    features: tuple[float, ...] = ()
    machine: str = ""

    @property
    def kind(self) -> str:
        """The kind of problem, with which its line begins; empty where there is none."""
        return self.problem.partition(":")[0]

    @property
    def fastest(self) -> float:
        """The least of the series, which other work on the machine made no longer; infinite for what does not count."""
        return min(self.seconds, default=inf) if not self.problem else inf

    @property
    def speedup(self) -> float:
        """How many times as fast as the default schedule, by the least of both: 0 for what was not timed."""
        return min(self.beside) / min(self.seconds) if self.seconds and self.beside else 0.0

    @property
    def gain(self) -> float:
        """How many times as fast as the default schedule it is in three series of four, each beside that of the
        default's that was measured in turn with it, so that noise does not choose; 0 for what does not count."""
        ratios = sorted(b / s for b, s in zip(self.beside, self.seconds, strict=False))
        return ratios[(len(ratios) - 1) // 4] if ratios and not self.problem else 0.0

    def joined(self, other: Outcome) -> Outcome:
        """What both gave: all series of the two, or the problem that one has."""
        if self.problem or other.problem:
            return self if self.problem else other
        return replace(other, seconds=self.seconds + other.seconds, beside=self.beside + other.beside)


@dataclass(frozen=True)
class Timed:
    """Seconds that a run of something takes: by the best schedule that is known, and by the default one."""

    seconds: float
    default: float


@dataclass(frozen=True)
class Record:
    """An outcome with what it is one of, and where it was measured.

    ``verified`` is whether its result was compared with the oracle's on this machine.
    """

    candidate: Candidate
    setting: Setting
    outcome: Outcome
    verified: bool = True
