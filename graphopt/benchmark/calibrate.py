"""Calibration command: ops of models are measured in a runtime on this machine, and a target's prices fitted to that.

What is measured of a model is every call that the optimizer asks the price of, in the graph as it is
and in all that rules make of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from graphopt.benchmark.program_profiler import RUNTIME, ProgramProfiler
from graphopt.calibration.corpus import corpus
from graphopt.calibration.fit import apply, fit, priced, quality, rows
from graphopt.calibration.machine import machine
from graphopt.calibration.probe import is_constant
from graphopt.calibration.store import Fit, Setting, Time, TimesDatabase
from graphopt.calibration.timing import Stopwatch
from graphopt.errors import UsageError
from graphopt.frozen import dataclass
from graphopt.ir.onnx_io import load
from graphopt.optimize import optimize_graph
from graphopt.rewrite.extract.workload import OpWorkload
from graphopt.target import TARGETS, Target
from graphopt.verify.runtimes import OnnxRuntimeProfiler, Profiler

Told = Callable[["str | int"], None]
"""Called with how many workloads of a model there are, and then with what each is."""

CORPUS = "common ops"

DOUBTFUL = 1.5
"""Times are measured again that are so many times as long as prices say, and the shorter time counts."""

NEGLIGIBLE = 1e-5
"""Times that are too short to be measured again."""


class AskedTimes(Mapping[str, float]):
    """A table of times that knows none, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.workloads: dict[str, None] = {}

    def get(self, key: str, default: object = None) -> None:  # type: ignore[override]
        """None, always."""
        self.workloads[key] = None

    def __getitem__(self, key: str) -> float:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True)
class Calibration:
    """What a calibration did: under which setting, how many workloads were measured, already there, not to be measured,
    or left for want of time, and how well prices predict all that is there."""

    setting: Setting
    measured: int
    known: int
    refused: int
    left: int
    before: Mapping[str, float]
    after: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class OpTimes:
    """The times of one op: how many there are, how many could not be taken, their range, and how much they spread."""

    op: str
    measured: int
    refused: int
    fastest: float = 0.0
    slowest: float = 0.0
    spread: float = 0.0


@dataclass(frozen=True)
class SettingSummary:
    """What a database holds of one setting, and the quality of prices fitted to it, by target."""

    setting: Setting
    rows: tuple[OpTimes, ...]
    fits: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class CalibrationSummary:
    """What a database holds."""

    path: Path
    parts: tuple[SettingSummary, ...]


def summary(database: Path) -> CalibrationSummary:
    """What a database holds, op by op. Raises ReadError where there is none."""
    with TimesDatabase(database) as store:
        parts = [
            SettingSummary(setting, _rows(store.times(setting)), _fits(store, setting)) for setting in store.settings()
        ]
    return CalibrationSummary(database, tuple(parts))


def clear(database: Path) -> int:
    """Forget all times of a database; how many there were. Raises ReadError where there is none."""
    with TimesDatabase(database) as store:
        return store.clear()


def _rows(times: Mapping[str, Time]) -> tuple[OpTimes, ...]:
    by_op: dict[str, list[Time]] = {}
    for text, timed in times.items():
        call = OpWorkload.parse(text)
        by_op.setdefault(f"{call.op} blocked" if call.blocked else call.op, []).append(timed)
    rows: list[OpTimes] = []
    for op, of_op in sorted(by_op.items()):
        seconds = sorted(t.seconds for t in of_op if t.seconds is not None)
        spreads = sorted(t.spread / t.seconds for t in of_op if t.seconds)
        middle = spreads[len(spreads) // 2] if spreads else 0.0
        range_ = (seconds[0], seconds[-1]) if seconds else (0.0, 0.0)
        rows.append(OpTimes(op, len(seconds), len(of_op) - len(seconds), *range_, middle))
    return tuple(rows)


def _fits(store: TimesDatabase, setting: Setting) -> dict[str, Mapping[str, float]]:
    fits = {name: store.fit(setting, name) for name in TARGETS}
    return {name: fit.quality for name, fit in fits.items() if fit is not None}


def asked(path: Path, target: Target) -> list[str]:
    """The workloads whose prices decide how a model is optimized for a target."""
    table = AskedTimes()
    optimize_graph(load(path), target=replace(target, measured=table))
    return [text for text in table.workloads if _is_telling(OpWorkload.parse(text), target)]


def _is_telling(call: OpWorkload, target: Target) -> bool:
    """Whether what a call takes by itself says what it takes among others."""
    return call.op not in target.within and not is_constant(call)


def calibrate(
    models: Sequence[Path],
    target: Target,
    database: Path,
    profiler: Profiler | None = None,
    threads: int = 1,
    seconds: float | None = None,
    told: Told = lambda what: None,
    clock: Callable[[], float] = time.monotonic,
) -> Calibration:
    """Measure the workloads of models, or of a corpus of generated ones where there are none, that the database lacks,
    and fit the target's prices to all that it holds. ``seconds`` is when to stop measuring."""
    if not target.runtime:
        names = [f"--target {t.name}" for t in TARGETS.values() if t.runtime]
        raise UsageError(
            f"the target {target.name} has no runtime that can be measured: say {' or '.join(names)}, "
            "or a file that names a runtime"
        )
    engine = profiler or (ProgramProfiler(threads) if target.runtime == RUNTIME else OnnxRuntimeProfiler(threads))
    setting = Setting(machine(), engine.runtime, engine.threads)
    with TimesDatabase(database, write=True) as store:
        stopwatch = Stopwatch(engine)
        start = clock()
        count: Counter[str] = Counter()
        for name, wanted in _wanted(models, target):
            measured = store.times(setting)
            missing = [text for text in wanted if text not in measured]
            count["known"] += len(wanted) - len(missing)
            told(len(missing))
            for text in missing:
                if seconds is not None and clock() - start > seconds:
                    count["left"] += 1
                    continue
                call = OpWorkload.parse(text)
                told(f"{name}: {call.op}")
                timed = stopwatch.measure(call)
                store.put(setting, text, timed)
                count["refused" if timed.seconds is None else "measured"] += 1
        before, after = _fit(store, setting, target)
        doubtful = _doubtful(store, setting, target)
        told(len(doubtful))
        for text, old in doubtful.items():
            if seconds is not None and clock() - start > seconds:
                break
            call = OpWorkload.parse(text)
            told(f"again: {call.op}")
            timed = stopwatch.measure(call)
            if timed.seconds is not None and old.seconds is not None and timed.seconds < old.seconds:
                store.put(setting, text, timed)
                count["again"] += 1
        if count["again"]:
            before, after = _fit(store, setting, target)
    return Calibration(setting, count["measured"], count["known"], count["refused"], count["left"], before, after)


def _wanted(models: Sequence[Path], target: Target) -> Iterator[tuple[str, list[str]]]:
    """What to measure, with a name of what it is for."""
    if not models:
        yield CORPUS, [text for text in corpus() if _is_telling(OpWorkload.parse(text), target)]
    for path in models:
        yield path.stem, asked(path, target)


def _doubtful(store: TimesDatabase, setting: Setting, target: Target) -> dict[str, Time]:
    """Times far above what prices say, as they come or fitted: where the machine was busy with something else, they
    were too long, and measuring again shows it."""
    times = store.times(setting)
    fitted = store.fit(setting, target.key)
    assert fitted is not None
    prices = apply(target.prices, {name: float(str(n)) for name, n in fitted.prices.items()})
    measured = rows({text: t.seconds for text, t in times.items() if t.seconds is not None and t.seconds > NEGLIGIBLE})
    slow = [
        row.call.text()
        for row in measured
        if row.seconds > DOUBTFUL * min(priced(target, p, row) for p in (prices, target.prices))
    ]
    return {text: times[text] for text in slow}


def _fit(store: TimesDatabase, setting: Setting, target: Target) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Fit the prices to all times of a setting, keep them, and say how well they predict before and after."""
    times = store.times(setting)
    measured = rows({text: t.seconds for text, t in times.items() if t.seconds is not None})
    numbers = fit(target, measured)
    before, after = (quality(target, p, measured) for p in (target.prices, apply(target.prices, numbers)))
    store.put_fit(setting, target.key, Fit(numbers, {**{f"before: {k}": v for k, v in before.items()}, **after}))
    return before, after
