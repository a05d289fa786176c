"""Active measurement: the few times that would change which terms are extracted are taken, and extraction runs again.

A choice is made twice: by the times that are known, where doubt counts against a change, and as if what was not timed
were as fast as it may be, and what was chosen as slow. Calls that are in one of the two and not in the other, and were
not timed, are what would decide. They are lowered by themselves, their default schedules are measured, and the choices
are made again, until the two are equal in all that can be measured.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

from graphopt.calibration.fit import priced, rows
from graphopt.calibration.measured_file import Setting
from graphopt.calibration.probe import is_constant
from graphopt.calibration.schedule_tables import setting_here
from graphopt.compile import prepared
from graphopt.errors import UsageError, names_its_model
from graphopt.frozen import dataclass
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.rewrite.egraph.egraph_snapshot import ENode
from graphopt.rewrite.extract.choose import extract
from graphopt.rewrite.extract.cost import CostModel, stated_sizes
from graphopt.rewrite.extract.terms import as_classes, calls
from graphopt.rewrite.extract.workload import OpWorkload
from graphopt.run.observer import Chosen, Watch
from graphopt.run.settings import Settings
from graphopt.target import CPU, Target
from graphopt.target import target as target_named
from graphopt.tuning.database import Records
from graphopt.tuning.executors import executor_named
from graphopt.tuning.record import Timed
from graphopt.tuning.session import Budget, Ending, measured_by_default
from graphopt.tuning.tuned_prices import TunedPrices, nests
from graphopt.tuning.workload import Workload


@dataclass(frozen=True)
class Question:
    """A call of an op (``rewrite.workload``) that was asked for, and what it takes; None where that cannot be measured
    here."""

    call: str
    answer: Timed | None

    def __str__(self) -> str:
        return described(self.call)


@dataclass(frozen=True)
class Answers:
    """What was asked, in order, and what the model became: its calls before and after, and how many of each."""

    questions: tuple[Question, ...]
    before: Mapping[str, int]
    after: Mapping[str, int]
    trials: int
    """Nests that were measured."""
    seconds: float
    ending: Ending

    @property
    def gone(self) -> Mapping[str, int]:
        """Calls that the model does no longer, and how many."""
        return Counter(self.before) - Counter(self.after)

    @property
    def new(self) -> Mapping[str, int]:
        """Calls that it does in place of them."""
        return Counter(self.after) - Counter(self.before)


Told = Callable[[int, int], None]
"""Called before calls are measured with how many nests were so far, and how many are now."""


@names_its_model
def tune_choices(
    model: Any,
    database: Path,
    budget: Budget = Budget(),
    *,
    executor: Executor | str | None = None,
    target: str | Target = CPU,
    threads: int = 1,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    told: Told | None = None,
) -> Answers:
    """Measure what could change the choices of ops and layouts for a model, in the database that ``compile`` uses.

    ``model`` is a path, bytes, a model proto or a ``Graph``. ``budget.trials`` counts nests, each timed by its default
    schedule, once. ``target`` (of the CPU) has the prices; ``dims`` and ``shapes`` fix open sizes. KeyboardInterrupt
    ends it, and the result says so. Raises UsageError for a target of another device, and what ``compile``,
    ``executor_named`` and ``Records`` raise.

    >>> from pathlib import Path
    >>> graphopt.tune_choices(graph, Path("tuning.sqlite"), graphopt.tuning.Budget(trials=1)).ending
    'done'
    """
    target = target_named(target)
    if not target.device.is_host:
        raise UsageError(f"--choices are measured on the CPU: the target {target.name} is for {target.device.name}")
    graph = model if isinstance(model, Graph) else onnx_io.load(model)
    settings = Settings(target=target, threads=threads, database=database, dims=dims or {}, shapes=shapes or {})
    with Records(database, write=True) as records, _measuring(executor) as measures:
        return _Asking(graph, settings, records, measures, budget, told or _silent).run()


def _measuring(executor: Executor | str | None) -> AbstractContextManager[Executor]:
    return nullcontext(executor) if isinstance(executor, Executor) else executor_named(executor)


def _silent(done: int, now: int) -> None:
    return


def described(call: str) -> str:
    """A call in words: its op, with the types of what it reads."""
    parsed = OpWorkload.parse(call)
    types = ("" if x is None else f"{x.dtype}[{','.join(map(str, x.shape))}]" for x in parsed.inputs)
    return f"{parsed.op}({', '.join(types)})"


@dataclass(frozen=True)
class _Extraction:
    """A choice that the optimizer makes, to be made again."""

    seen: Chosen

    @cached_property
    def every(self) -> list[str]:
        """The calls among which to choose."""
        return calls(self.seen.saturated, self.seen.model, self.seen.saturated.classes)

    @cached_property
    def by_prices(self) -> list[str]:
        """Those that prices alone choose."""
        return self._calls(self.seen.extraction.choice)

    def by(self, target: Target) -> list[str]:
        """Those that are chosen by a target's prices."""
        if target is self.seen.model.target:
            return self.by_prices
        model = CostModel(target, self.seen.model.sizes)
        return self._calls(extract(self.seen.saturated, model, self.seen.growth).choice)

    def doubtful(self, prices: TunedPrices) -> list[str]:
        """The calls that would be chosen if what was not timed were as fast as it may be, and now are not, or the other
        way round."""
        given = self.seen.model.target
        now = self.by(prices(given, self.every, self.by_prices))
        then = self.by(prices.priced(given, self.every, self.by_prices, doubt=-1.0))
        return [text for text in dict.fromkeys((*now, *then)) if (text in now) != (text in then)]

    def _calls(self, choice: Mapping[int, ENode]) -> list[str]:
        return calls(self.seen.saturated, self.seen.model, {c: (node,) for c, node in choice.items()})


class _Stopped(Exception):  # noqa: N818 - it is no error
    """The budget is spent."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending


@dataclass
class _Asking:
    graph: Graph
    settings: Settings
    records: Records
    executor: Executor
    budget: Budget
    told: Told
    asked: dict[str, None] = field(default_factory=dict)
    measured: set[Workload] = field(default_factory=set)
    begun: float = field(default_factory=time.monotonic)

    def run(self) -> Answers:
        """All of it."""
        ending: Ending = "done"
        before, choices = self.explored()
        after = before
        try:
            while self.settled(choices):
                after, choices = self.explored()
        except _Stopped as stopped:
            ending = stopped.ending
            after, _ = self.explored()
        except KeyboardInterrupt:
            ending = "interrupted"
        prices = TunedPrices(self.records.times(self.here))
        questions = tuple(Question(text, prices.timed(text, self.settings.target)) for text in self.asked)
        return Answers(questions, before, after, len(self.measured), time.monotonic() - self.begun, ending)

    def explored(self) -> tuple[Mapping[str, int], list[_Extraction]]:
        """The calls that the model becomes by what is known, and the choices that lead to it."""
        watch = Watch()
        graph = prepared(self.graph, self.settings, watch).graph
        first: dict[int, Chosen] = {}  # by prices alone; what times then chose is the next
        for seen in watch.seen:
            first.setdefault(id(seen.saturated), seen)
        choices = [_Extraction(seen) for seen in first.values()]
        return (_calls(graph, choices[0].seen.model.target) if choices else {}), choices

    def settled(self, choices: Sequence[_Extraction]) -> bool:
        """Whether something was asked, until nothing is left that would change these choices."""
        before = len(self.asked)
        for choice in choices:
            while wanted := self.wanted(choice):
                self.measure(wanted)
        return len(self.asked) > before

    def wanted(self, choice: _Extraction) -> list[str]:
        """The calls that would change a choice, and can be measured and were not, the dearest first."""
        target, prices = choice.seen.model.target, TunedPrices(self.records.times(self.here))
        untimed = {
            text: 0.0
            for text in choice.doubtful(prices)
            if text not in self.asked and prices.found[text] is None and _is_alone(text, target)
        }
        return [row.call.text() for row in sorted(rows(untimed), key=lambda row: -priced(target, target.prices, row))]

    def measure(self, wanted: Sequence[str]) -> None:
        """Measure the default schedules of what calls become, as far as the budget goes."""
        times, new, is_last = self.records.times(self.here), dict[Workload, None](), False
        for text in wanted:
            of_call = {w: None for w in nests(OpWorkload.parse(text)) if w not in times and w not in self.measured}
            count = len(self.measured) + len(new | of_call)
            if is_last := self.budget.trials is not None and count > self.budget.trials:
                break
            self.asked[text] = None
            new |= of_call
        self.told(len(self.measured), len(new))
        end = None if self.budget.seconds is None else self.begun + self.budget.seconds
        for record in measured_by_default(list(new), self.records, self.executor, self.settings.threads, end):
            self.measured.add(record.candidate.workload)
        if end is not None and time.monotonic() >= end:
            raise _Stopped("seconds")
        if is_last:
            raise _Stopped("trials")

    @property
    def here(self) -> Setting:
        """Where programs run that are compiled by these times."""
        return setting_here(self.settings.threads)


def _is_alone(text: str, target: Target) -> bool:
    """Whether a call takes time of its own, in loops that can be measured."""
    call = OpWorkload.parse(text)
    return call.op not in target.within and not is_constant(call) and bool(nests(call))


def _calls(graph: Graph, target: Target) -> Mapping[str, int]:
    """The calls that a graph is, and how many of each."""
    whole, model = as_classes(graph, infer(graph)), CostModel(target, stated_sizes(graph))
    return Counter(text for c, nodes in whole.classes.items() for text in calls(whole, model, {c: nodes}))
