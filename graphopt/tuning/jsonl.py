"""JSON lines of tuning records, for other machines: lines come from strangers, and nothing of them is taken on trust.

Apart from the database, its only user, for length.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from graphopt.calibration.measured_file import Setting
from graphopt.errors import GraphoptError, ReadError
from graphopt.lowering.loops.script import read as read_script
from graphopt.lowering.schedule.trace import Trace
from graphopt.target import target as target_named
from graphopt.tuning.record import Candidate, Outcome, Record
from graphopt.tuning.workload import Workload

FORMAT = 1
"""The number of the format of lines."""
SHORTEST, LONGEST = 1e-9, 86400.0
"""Seconds that a run of a nest takes at least and at most, as far as is believed: a nanosecond, and a day."""

LONGEST_REASON = 200
"""Characters of what is wrong with a line that are told at most."""


def line(record: Record) -> str:
    """A record as a line of JSON."""
    candidate, outcome, setting = record.candidate, record.outcome, record.setting
    held = {
        "format": FORMAT,
        "key": candidate.workload.key,
        "script": candidate.workload.script,
        "sizes": dict(candidate.workload.sizes),
        "machine": setting.machine,
        "runtime": setting.runtime,
        "threads": setting.threads,
        "target": candidate.target,
        "trace": candidate.trace,
        "seconds": outcome.seconds,
        "beside": outcome.beside,
        "problem": outcome.problem,
        "features": outcome.features,
    }
    return json.dumps(held)


def read(text: str | bytes, where: str) -> Record:
    """The record in a line, which is not verified: its script is read, its key computed anew, its trace read, and
    times are held between ``SHORTEST`` and ``LONGEST``. ReadError, which says where, for anything else."""
    try:
        return _read(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, LookupError, OverflowError, RecursionError) as error:
        why = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
    except GraphoptError as error:
        why = str(error)
    raise ReadError(f"{where}: not a record of a tuned schedule: {' '.join(why.split())[:LONGEST_REASON]}")


def _read(held: Any) -> Record:
    if held["format"] != FORMAT:
        raise ValueError(f"it has format {held['format']!r}, and {FORMAT} is read")
    workload = Workload.of(read_script(_text(held["script"])), {n: _count(s, 0) for n, s in held["sizes"].items()})
    if workload.key != held["key"]:
        raise ValueError(f"its key is {held['key']!r}, and that of its script and sizes {workload.key}")
    if workload.sizes != tuple(held["sizes"].items()):
        raise ValueError("it has sizes that its script has not")
    trace = Trace.from_json(_text(held["trace"]))
    str(trace)  # fails where a step uses what no earlier one gives
    setting = Setting(_text(held["machine"]), _text(held["runtime"]), _count(held["threads"], 1))
    problem = " ".join(_text(held["problem"]).split())
    seconds, beside = (tuple(min(max(n, SHORTEST), LONGEST) for n in _numbers(held[k])) for k in ("seconds", "beside"))
    if not problem and not (seconds and beside):
        raise ValueError("it has no times, and no problem")
    if not all(map(isfinite, features := _numbers(held["features"]))):
        raise ValueError("a feature of it is not finite")
    outcome = Outcome(seconds, beside, problem, features, setting.machine)
    target = target_named(_text(held["target"]), makes_models=False).name
    candidate = Candidate(workload, trace.to_json(), setting.threads, target)
    return Record(candidate, setting, outcome, verified=False)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    value.encode()  # a lone surrogate is no text, either
    return value


def _count(value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 63:
        raise TypeError(f"{value!r} is no number of {least} or more")
    return value


def _numbers(values: object) -> tuple[float, ...]:
    if not isinstance(values, list) or not all(isinstance(v, int | float) for v in values):
        raise TypeError(f"{values!r} are no numbers")
    if any(v != v for v in values):
        raise ValueError("a number of it is no number")
    return tuple(map(float, values))
