"""Schedules by a tuning database: the best trace of a nest is replayed, each step of it checked.

Apart from ``graphopt.program``, its only user, for it belongs to tuning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from graphopt.calibration.measured_file import Setting
from graphopt.errors import GraphoptError, ReadError, UsageError
from graphopt.frozen import dataclass
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.schedule.trace import Trace
from graphopt.tuning.database import Records, types
from graphopt.tuning.record import Candidate, Outcome, Record
from graphopt.tuning.workload import Workload


@dataclass(frozen=True)
class Tuned:
    """Schedules nests by what a database holds of them under a setting, and as ``fallback`` does where it holds none,
    or none that is faster.

    A nest of open sizes serves them all by one schedule: that of the largest sizes at which it was tuned, by their
    product and then in order, where most time is to be gained. A record that was not verified on this machine is first
    measured by ``verify``, one of a nest at a time, and what came of it is kept.

    With ``require`` a nest of which nothing is known is a UsageError, and so is a trace that does not apply to it.
    """

    database: Path
    setting: Setting
    fallback: Callable[[Nest], Nest]
    verify: Callable[[Candidate], Outcome] | None = None
    require: bool = False

    def __call__(self, nest: Nest) -> Nest:
        """The nest, scheduled."""
        try:
            record = self._record(nest)
        except ReadError as error:
            if self.require:
                raise
            warnings.warn(f"{error}; default schedules are used", stacklevel=2)
            return self.fallback(nest)
        return self.fallback(nest) if record is None else self._replayed(nest, record)

    def _record(self, nest: Nest) -> Record | None:
        """The record that a nest is scheduled by. UsageError where there has to be one, and nothing is known."""
        with Records(self.database) as records:
            workloads = records.at_any_size(nest, self.setting)
            record = self._verified(records, workloads[0]) if workloads else None
            if self.require and not any(r.verified for w in workloads[:1] for r in records.history(w, self.setting)):
                raise UsageError(
                    f"{self.database}: no schedule was tuned for the nest {types(nest)} on this machine with "
                    f"{self.setting.threads} thread{'s' * (self.setting.threads > 1)}: run graphopt tune"
                )
            return record

    def _verified(self, records: Records, workload: Workload) -> Record | None:
        """The best record, once that which is said to be the best is verified."""
        first = next(iter(records.ranked(workload, self.setting)), None)
        if first is not None and not first.verified and self.verify is not None:
            outcome = replace(self.verify(first.candidate), features=first.outcome.features)
            records.keep(replace(first, outcome=outcome, verified=True))
        return records.best(workload, self.setting)

    def _replayed(self, nest: Nest, record: Record) -> Nest:
        try:
            return Trace.from_json(record.candidate.trace).replay(nest).nest
        except (GraphoptError, TypeError, ValueError, LookupError, AttributeError) as error:  # a file may hold anything
            line = (
                f"{self.database}: the schedule that was tuned for the nest {types(nest)} no longer applies ({error})"
            )
        if self.require:
            raise UsageError(f"{line}: run graphopt tune")
        warnings.warn(f"{line}; the default one is used", stacklevel=2)
        return self.fallback(nest)
