"""Measured selection of results: candidates and the original run side by side, and slower rewrites are taken back.

Runs take turns, so that whatever else the machine does falls on all alike; what counts is the ratio of
two models within a turn. Of many turns the median ratio counts, with an interval around it that holds
for any distribution. A candidate is kept where it is not slower than the original by more than a
margin. Where none is, its rewrites are taken back region by region: half of the regions at a time, and
half of those, as long as the model without them is faster than with them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from graphopt.errors import VerificationError
from graphopt.frozen import dataclass
from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.ir.onnx_io import save
from graphopt.ir.structure import structural_hash
from graphopt.rewrite.extract.cost import UNKNOWN, graph_cost, stated_sizes
from graphopt.rewrite.match.journal import Action, Entry
from graphopt.run.report import MARGIN, SECONDS, Measured, Race, Report
from graphopt.run.steps import count_ops
from graphopt.target import PORTABLE, Target
from graphopt.verify.runtimes import EngineError, open_for_timing

if TYPE_CHECKING:
    from graphopt.verify.inputs import Given

BURST = 0.02
"""Seconds that a model runs at a turn, once or more; the fastest of these runs counts."""

TURNS = (7, 61)
"""How many turns at least and at most decide between two models."""

CONFIDENCE = 0.95

ORIGINAL, REST = "original", "the rest"

Run = Callable[[], None]
Opened = Callable[[Path, Mapping[str, Any], int], Run]


class Derived(Protocol):
    """A derivation, as far as measuring cares."""

    @property
    def entries(self) -> Sequence[Entry]:
        """What was done, in order."""

    def apply(self, graph: Graph, without: Collection[int] = ()) -> Any:
        """An object whose ``graph`` is the result without these entries; ``lost`` are entries that went with them."""


@dataclass(frozen=True)
class MeasuredCandidate:
    """A result to measure, what it is called, and how it came about."""

    name: str
    graph: Graph
    derivation: Derived | None = None


@dataclass(frozen=True)
class Verdict:
    """Which candidate to keep (None: the original), the graph to write, and what was measured.

    ``taken_back`` are the ids of the entries of its derivation that are left out of the graph.
    """

    candidate: MeasuredCandidate | None
    graph: Graph
    taken_back: frozenset[int]
    measured: Measured


def measure(
    original: Graph,
    candidates: Sequence[MeasuredCandidate],
    *,
    base: Graph | None = None,
    read: Graph | None = None,
    inputs: Mapping[str, Given] | None = None,
    margin: float = MARGIN,
    seconds: float = SECONDS,
    threads: int = 1,
    opened: Opened = open_for_timing,
    clock: Callable[[], float] = time.perf_counter,
    stopwatch: Callable[[], float] | None = None,
) -> Verdict:
    """Which of the candidates to keep, the first being the likeliest.

    ``base`` is what is written in place of the original, and ``read`` the graph to which derivations apply, where they
    are others. Raises
    MissingDependencyError without a runtime, VerificationError where it does not run the original.
    """
    with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
        track = _Track(Path(folder), opened, clock, stopwatch, seconds, margin, threads)
        sizes = track.find_inputs(original, inputs or {})
        track.enter(ORIGINAL, original)
        races: list[Race] = []
        standing: list[tuple[MeasuredCandidate, Race]] = []
        for candidate in _different(candidates):
            try:
                track.enter(candidate.name, candidate.graph)
            except EngineError as refusal:
                races.append(Race(candidate.name, refusal=str(refusal)))
                continue
            race = track.race(ORIGINAL, candidate.name)
            races.append(race)
            standing.append((candidate, race))
            if len(standing) > 1:
                track.leave(min(standing, key=lambda pair: pair[1].ratio)[0].name)
        kept = [pair for pair in standing if track.is_kept(pair[1])]
        best = _best(kept or standing, margin)
        measured = Measured(ORIGINAL, Race(ORIGINAL), tuple(races), margin, dict(sizes), threads)
        if best is None:
            return Verdict(None, base or original, frozenset(), measured)
        candidate, race = best
        if kept:
            return Verdict(candidate, candidate.graph, frozenset(), replace(measured, kept=candidate.name, race=race))
        if candidate.derivation is None:
            return Verdict(None, base or original, frozenset(), measured)
        track.leave(candidate.name)
        start = original if read is None else read
        graph, dropped, count, late = track.without_slow_regions(candidate.derivation, start)
        measured = replace(measured, regions=count, undecided=late)
        if structural_hash(graph) == structural_hash(base or original):
            return Verdict(None, base or original, frozenset(), measured)
        track.enter(REST, graph)
        race = track.race(ORIGINAL, REST)
        if not track.is_kept(race):
            return Verdict(None, base or original, frozenset(), replace(measured, races=(*races, race)))
        measured = replace(measured, kept=candidate.name, race=race, taken_back=tuple(sorted(dropped)))
        return Verdict(candidate, graph, frozenset(dropped), measured)


def _best(standing: Sequence[tuple[MeasuredCandidate, Race]], margin: float) -> tuple[MeasuredCandidate, Race] | None:
    """The first, or one that did better by more than noise."""
    best: tuple[MeasuredCandidate, Race] | None = None
    for pair in standing:
        if best is None or pair[1].ratio > best[1].ratio * (1 + margin):
            best = pair
    return best


def _different(candidates: Sequence[MeasuredCandidate]) -> Iterator[MeasuredCandidate]:
    """The candidates, each graph once."""
    seen: set[bytes] = set()
    for candidate in candidates:
        digest = structural_hash(candidate.graph)
        if digest not in seen:
            seen.add(digest)
            yield candidate


def regions(entries: Sequence[Entry]) -> list[tuple[int, ...]]:
    """The rewrites in groups that can be taken back apart from each other: those that need one another are in one.

    What native passes do by themselves (dead nodes, equal constants, orders of axes) is in none.
    """
    leader: dict[int, int] = {e.id: e.id for e in entries}

    def find(id: int) -> int:
        while leader[id] != id:
            id = leader[id]
        return id

    rewrites = [e for e in entries if e.is_rewrite]
    for entry in rewrites:
        for need in entry.needs:
            if need in leader:
                a, b = sorted((find(need), find(entry.id)))
                leader[b] = a
    groups: dict[int, list[Entry]] = {}
    for entry in rewrites:
        groups.setdefault(find(entry.id), []).append(entry)
    changing = (Action.REWRITE, Action.EQUAL)
    return [tuple(e.id for e in group) for group in groups.values() if any(e.action in changing for e in group)]


def interval(ratios: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Between which two of the ratios their median lies, whatever their distribution, with at least this confidence
    (the least and the greatest, where they are too few for it)."""
    from scipy.stats import binom

    ordered = sorted(ratios)
    n = len(ordered)
    below = int(binom.ppf((1 - confidence) / 2, n, 0.5))
    k = max(below - 1, 0) if binom.cdf(below, n, 0.5) > (1 - confidence) / 2 else below
    return ordered[k], ordered[n - 1 - k]


class _Track:
    """Where models run: files of theirs in a folder, the inputs, and the time that is left."""

    def __init__(
        self,
        folder: Path,
        opened: Opened,
        clock: Callable[[], float],
        stopwatch: Callable[[], float] | None,
        seconds: float,
        margin: float,
        threads: int,
    ) -> None:
        self.folder = folder
        self.opened = opened
        self.clock = clock
        # one thread runs in this one: what it waits for a processor is not the model's
        self.stopwatch = stopwatch or (time.thread_time if threads == 1 else time.perf_counter)
        self.end = clock() + seconds
        self.floor = 1 / (1 + margin)
        self.margin = margin
        self.threads = threads
        self.runs: dict[str, Run] = {}
        self.feeds: Mapping[str, Any] = {}

    def find_inputs(self, graph: Graph, inputs: Mapping[str, Given]) -> Mapping[str, int]:
        """Draw inputs that the original takes; the sizes of its open dimensions."""
        from graphopt.verify.inputs import draw, given, ranges, sizes

        path = self.folder / "original.onnx"
        save(graph, path)
        given_inputs = {name: given(value) for name, value in inputs.items()}
        refusal: Exception = EngineError("no input fits")
        for chosen in sorted(sizes(graph, {}), key=lambda chosen: _rarity(graph, chosen)):
            try:
                self.feeds = draw(graph, chosen, ranges(graph), given_inputs, seed=0, kind=1)
                self.opened(path, self.feeds, self.threads)()
            except (EngineError, ValueError) as error:
                refusal = error
                continue
            return chosen
        raise VerificationError(f"--measure: the runtime does not run the model, on any input tried ({refusal})")

    def enter(self, name: str, graph: Graph) -> None:
        """Load a graph as a model. Raises EngineError where the runtime refuses it, now or when it is run."""
        folder = self._place(name)
        folder.mkdir()
        save(graph, folder / "model.onnx")
        run = self.opened(folder / "model.onnx", self.feeds, self.threads)
        run()
        self.runs[name] = run

    def leave(self, name: str) -> None:
        """Unload a model, and remove its files: a large one is written as often as it is tried."""
        self.runs.pop(name, None)
        rmtree(self._place(name), ignore_errors=True)

    def _place(self, name: str) -> Path:
        return self.folder / name.replace("/", " ")

    def race(self, first: str, second: str) -> Race:
        """How many times as fast the second model is as the first: until that is decided, or time is up."""
        ratios: list[float] = []
        times: tuple[list[float], list[float]] = ([], [])
        while len(ratios) < TURNS[1]:
            pair = (first, second) if len(ratios) % 2 else (second, first)
            seconds = {name: self._burst(self.runs[name]) for name in pair}
            times[0].append(seconds[first])
            times[1].append(seconds[second])
            ratios.append(log(seconds[first] / seconds[second]))
            if len(ratios) < TURNS[0]:
                continue
            low, high = interval(ratios)
            if exp(low) >= max(self.floor, 1.0) or exp(high) < self.floor or self.clock() > self.end:
                break
        low, high = interval(ratios)
        return Race(second, exp(median(ratios)), exp(low), exp(high), len(ratios), median(times[0]), median(times[1]))

    def is_kept(self, race: Race) -> bool:
        """Whether a race shows that a model is not slower: surely by no more than the margin, or more likely faster."""
        return race.low >= self.floor or race.ratio >= 1.0

    def without_slow_regions(self, derivation: Derived, read: Graph) -> tuple[Graph, set[int], int, bool]:
        """The graph with those regions that do not make it slower, the ids that are left out, how many regions there
        are, and whether time was up before all were decided; what was not decided is left out."""
        groups = regions(derivation.entries)
        dropped = {id for group in groups for id in group}
        done = derivation.apply(read, dropped)
        current = ORIGINAL
        waiting = [*_halves(groups)]
        tries = 0
        while waiting and self.clock() < self.end:
            group = waiting.pop(0)
            wanted = dropped - {id for region in group for id in region}
            tries += 1
            name = f"with {tries}"
            tried = derivation.apply(read, wanted)
            if self._is_no_slower(current, name, tried.graph):
                if current != ORIGINAL:
                    self.leave(current)
                dropped, done, current = wanted, tried, name
            else:
                self.leave(name)
                waiting = [*_halves(group), *waiting]
        return done.graph, dropped | {e.id for e in done.lost}, len(groups), bool(waiting)

    def _is_no_slower(self, current: str, name: str, graph: Graph) -> bool:
        try:
            self.enter(name, graph)
        except EngineError:
            return False
        return self.is_kept(self.race(current, name))

    def _burst(self, run: Run) -> float:
        """Seconds of the fastest of some runs."""
        best, start = float("inf"), self.stopwatch()
        while True:
            before = self.stopwatch()
            run()
            now = self.stopwatch()
            best = min(best, now - before)
            if now - start >= BURST:
                return max(best, 1e-9)


def _rarity(graph: Graph, sizes: Mapping[str, int]) -> tuple[bool, bool]:
    """Orders sizes: first those at which costs count, a batch of one, and of them those with something large."""
    stated = stated_sizes(graph)
    is_other = any(sizes.get(name, n) != n for name, n in stated.items())
    return is_other, max(sizes.values(), default=UNKNOWN) < UNKNOWN


def _halves(groups: Sequence[tuple[int, ...]]) -> Iterator[Sequence[tuple[int, ...]]]:
    """Both halves of some regions, in order; nothing where there is but one."""
    if len(groups) > 1:
        middle = len(groups) // 2
        yield groups[:middle]
        yield groups[middle:]


def fastest(
    results: Mapping[str, tuple[Graph, Report]],
    original: Graph,
    base: Graph,
    read: Graph,
    inputs: Mapping[str, Given] | None = None,
    margin: float = MARGIN,
    seconds: float = SECONDS,
    target: Target = PORTABLE,
) -> tuple[Graph, Report]:
    """Of some results, by name, that which is to be written, and its report with what was measured.

    See ``measure`` for the graphs. The first result is that which costs say is best; its report is the one of the
    original, with every rewrite taken back, where none is kept.
    """
    candidates = [MeasuredCandidate(name, graph, report.derivation) for name, (graph, report) in results.items()]
    verdict = measure(original, candidates, base=base, read=read, inputs=inputs, margin=margin, seconds=seconds)
    name = verdict.candidate.name if verdict.candidate is not None else next(iter(results))
    graph, report = results[name]
    if verdict.candidate is not None and not verdict.taken_back:
        return graph, replace(report, measured=verdict.measured)
    entries = report.derivation.entries if report.derivation is not None else ()
    gone = verdict.taken_back if verdict.candidate is not None else frozenset(e.id for e in entries)
    return verdict.graph, replace(
        report,
        ops_after=count_ops(verdict.graph),
        cost_after=graph_cost(verdict.graph, infer(verdict.graph), target, profiles=report.profiles).total.seconds,
        rewrites=tuple(r for r in report.rewrites if r.id not in gone),
        derivation=report.derivation and replace(report.derivation, without=tuple(sorted(gone))),
        measured=verdict.measured,
    )
