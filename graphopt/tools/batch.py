"""Batches of models: each is optimized, a failure stops no other, and one summary covers all. A tool, free of the
terminal.

A summary is also what a later run is compared with: in continuous integration it is kept, and the next
run fails where a model got slower than it was then.
"""

from __future__ import annotations

import json
import math
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from graphopt.display import HIDDEN, encoded
from graphopt.errors import GraphoptError, LimitError, ReadError, UsageError
from graphopt.frozen import dataclass
from graphopt.run.derivation import journal_path, reproducer_path
from graphopt.run.report import Report, Speedup, speedup

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

SCHEMA = 1
"""The version of the summary's JSON."""
SLOWER = 9
"""The exit code where a result is slower than it may be."""
CERTIFICATE = ".certificate.json"
"""How the name of the certificate beside a result ends."""
WORST_FIRST = (130, 1, 6, 4, 5, 3, 8, 7, 2, SLOWER)
"""Exit codes; that of the worst model is that of the whole."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A model to optimize, and where to. ``name`` is what a summary calls it: its path in the folder or pattern.

    ``options`` are those of ``graphopt.optimize``; a journal and a certificate are written where that is said.
    """

    name: str
    model: Path
    output: Path
    options: Mapping[str, Any] = field(default_factory=dict, compare=False)
    journal: bool = False
    certificate: bool = False


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What came of one model. Costs are modelled seconds on the target; None is what is not known."""

    model: str
    exit_code: int = 0
    error: str = ""
    ops_before: int | None = None
    ops_after: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    cost_before: float | None = None
    cost_after: float | None = None
    measured: float | None = None
    """How many times as fast as the original the result ran, where that was measured."""
    verification: str = ""
    seconds: float = 0.0
    metric_before: float | None = None
    """What a metric of the user's says of the original, where there is one."""
    metric_after: float | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What to look at where a rewrite was wrong: the rule, a model on which it is wrong by itself, what to run next."""
    is_kept: bool = False
    """Whether it is the result of an earlier run."""
    traceback: str = field(default="", metadata={HIDDEN: True})
    """Where an internal error came from; not part of the JSON."""

    @property
    def speedup(self) -> Speedup | None:
        """How many times as fast the result is, where that is known."""
        return speedup(self.measured, self.cost_before, self.cost_after)


@dataclass(frozen=True, slots=True)
class CostChange:
    """A result beside what it is compared with: ``slower`` is by how many percent it is slower, negative if faster."""

    model: str
    slower: float
    is_measured: bool
    ops: int | None
    """How many ops more it has."""


@dataclass(frozen=True)
class BatchSummary:
    """What came of all models, in order."""

    outcomes: tuple[BatchOutcome, ...] = field(metadata={"name": "models"})
    target: str = "portable"

    @property
    def exit_code(self) -> int:
        """That of the worst model."""
        codes = {outcome.exit_code for outcome in self.outcomes}
        return next((code for code in WORST_FIRST if code in codes), 0)

    def to_junit(self, name: str) -> str:
        """The summary as JUnit's XML: a test suite of that name, with a test for each model."""
        from xml.etree.ElementTree import Element, SubElement, tostring

        broken = [o for o in self.outcomes if o.exit_code in (1, 130)]
        failed = [o for o in self.outcomes if o.exit_code and o not in broken]
        seconds = sum(0.0 if o.is_kept else o.seconds for o in self.outcomes)
        counts = {"tests": len(self.outcomes), "failures": len(failed), "errors": len(broken)}
        suite = Element("testsuite", {"name": name, "time": f"{seconds:.3f}"} | {k: str(v) for k, v in counts.items()})
        _properties(suite, mean_speedups(self))
        for o in self.outcomes:
            case = SubElement(suite, "testcase", classname=name, name=_xml(o.model), time=f"{o.seconds:.3f}")
            _properties(case, () if o.speedup is None else (o.speedup,))
            if o.exit_code:
                kind = "error" if o in broken else "failure"
                found = SubElement(case, kind, type=f"exit code {o.exit_code}", message=_xml(o.error))
                found.text = o.traceback or "\n".join(map(_xml, o.notes))
        return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(suite, encoding="unicode")}\n'

    def to_json(self) -> str:
        """The summary as JSON, with the version of its schema."""
        return json.dumps({"schema": SCHEMA, "exit_code": self.exit_code, **encoded(self)}, indent=2) + "\n"


def _properties(element: Element, speedups: Iterable[Speedup]) -> None:
    """Speedups as the properties of a test or of a suite of tests."""
    from xml.etree.ElementTree import SubElement

    told = list(speedups)
    properties = SubElement(element, "properties") if told else element
    for found in told:
        SubElement(properties, "property", name=f"{found.kind} speedup", value=f"{found.ratio:.4g}")


def _xml(text: str) -> str:
    """A text without what XML cannot hold."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def find_jobs(sources: Sequence[Path], output: Path | None) -> list[BatchJob]:
    """What to optimize, and where the results go: models keep their places in a folder, or below what is fixed in a
    pattern. Where the results go below a folder of models, what is there already is not optimized again.

    Raises UsageError where nothing is found, two results would be one file, or a result is an input.
    """
    if output is None:
        raise UsageError("several models need -o, the folder for their results")
    if output.exists() and not output.is_dir():
        raise UsageError(f"-o {output}: the results of several models need a folder, and this is a file")
    models_and_roots = [(path, root) for source in sources for path, root in _expanded(source, output)]
    jobs = [BatchJob(p.relative_to(root).as_posix(), p, output / p.relative_to(root)) for p, root in models_and_roots]
    if not jobs:
        raise UsageError(f"no models in {', '.join(map(str, sources))}")
    inputs = {job.model.resolve() for job in jobs}
    jobs_by_output: dict[Path, BatchJob] = {}
    for job in jobs:
        resolved = job.output.resolve()
        if resolved in jobs_by_output:
            raise UsageError(f"{jobs_by_output[resolved].model} and {job.model} would both become {job.output}")
        if resolved in inputs:
            raise UsageError(f"{job.output} would overwrite an input: give another folder")
        jobs_by_output[resolved] = job
    return jobs


def find_checks(sources: Sequence[Path]) -> list[BatchJob]:
    """The models that are to be looked at, of which no result is kept. Raises UsageError where nothing is found."""
    models = dict.fromkeys(path for source in sources for path, _ in _expanded(source, source))
    if not models:
        raise UsageError(f"no models in {', '.join(map(str, sources))}")
    return [BatchJob(str(model), model, model) for model in models]


def is_several(sources: Sequence[Path]) -> bool:
    """Whether these are several models, a folder, or a pattern."""
    return len(sources) != 1 or sources[0].is_dir() or _is_pattern(sources[0])


class Kept(Protocol):
    """Results of earlier runs, and a place for those of this one."""

    def get(self, job: BatchJob) -> BatchOutcome | None:
        """What came of the job, where that still holds."""

    def put(self, job: BatchJob, outcome: BatchOutcome) -> None:
        """Keep what came of it."""


Runs: TypeAlias = Callable[[Sequence[BatchJob]], Iterable[tuple[BatchJob, BatchOutcome]]]
"""Has jobs done, and tells what came of each as it is done."""


def optimize_all(
    jobs: Iterable[BatchJob],
    run: Callable[[BatchJob], Report],
    target: str = "portable",
    told: Callable[[BatchJob], object] = lambda _: None,
    *,
    runs: Runs | None = None,
    checked: Callable[[BatchJob, BatchOutcome], BatchOutcome] = lambda _, outcome: outcome,
    kept: Kept | None = None,
) -> BatchSummary:
    """Optimize each model by ``run``, or all by ``runs``. ``told`` is called with each before its turn.

    ``checked`` may find fault with what came of one; what is ``kept`` of an earlier run is not done again. An
    interruption is an outcome too: that of the model at work, and of all that are left.
    """
    jobs = list(jobs)
    outcomes: dict[str, BatchOutcome] = {}
    for job in jobs if kept is not None else ():
        if (earlier := kept.get(job)) is not None:  # type: ignore[union-attr]
            outcomes[job.name] = replace(earlier, is_kept=True)
    for job, outcome in (runs or partial(in_turn, run=run, told=told))([j for j in jobs if j.name not in outcomes]):
        outcomes[job.name] = checked(job, outcome) if not outcome.exit_code else outcome
        if kept is not None:
            kept.put(job, outcomes[job.name])
    return BatchSummary(tuple(outcomes[job.name] for job in jobs), target)


def in_turn(
    jobs: Sequence[BatchJob], run: Callable[[BatchJob], Report], told: Callable[[BatchJob], object] = lambda _: None
) -> Iterator[tuple[BatchJob, BatchOutcome]]:
    """What comes of each job, one after another, up to an interruption."""
    is_interrupted = False
    for job in jobs:
        if is_interrupted:
            yield job, BatchOutcome(job.name, 130, "interrupted before its turn")
            continue
        told(job)
        outcome = outcome_of(job, run)
        is_interrupted = outcome.exit_code == 130
        yield job, outcome


def optimize_job(job: BatchJob, **options: Any) -> Report:
    """Optimize the model of a job, and write what it asks for."""
    from graphopt.optimize import optimize

    journal = journal_path(job.output) if job.journal else None
    certificate = job.output.with_suffix(CERTIFICATE) if job.certificate else None
    written = {"output": job.output, "journal": journal, "certificate": certificate, "return_report": True}
    written["reproducer"] = reproducer_path(job.output)
    _, report = optimize(job.model, **{**job.options, **written, **options})
    return report  # type: ignore[no-any-return]


def outcome_of(job: BatchJob, run: Callable[[BatchJob], Report]) -> BatchOutcome:
    """What comes of a job, whatever goes wrong with it."""
    start = time.monotonic()
    try:
        return _of(job.name, run(job))
    except GraphoptError as error:
        failed = BatchOutcome(job.name, error.exit_code, str(error), notes=tuple(getattr(error, "__notes__", ())))
    except MemoryError as error:
        failed = BatchOutcome(job.name, LimitError.exit_code, f"out of memory: {error}".rstrip(": "))
    except KeyboardInterrupt:
        failed = BatchOutcome(job.name, 130, "interrupted")
    except OSError as error:
        failed = BatchOutcome(job.name, ReadError.exit_code, str(error))
    except Exception as error:
        what = f"internal error ({type(error).__name__}: {error})"
        failed = BatchOutcome(job.name, 1, what, traceback=traceback.format_exc())
    return replace(failed, seconds=time.monotonic() - start)


def _of(name: str, report: Report) -> BatchOutcome:
    return BatchOutcome(
        name,
        ops_before=sum(report.ops_before.values()),
        ops_after=sum(report.ops_after.values()),
        bytes_before=report.bytes_before,
        bytes_after=report.bytes_after,
        cost_before=report.cost_before,
        cost_after=report.cost_after,
        measured=report.measured.race.ratio if report.measured else None,
        verification="" if report.verification is None else report.verification.status,
        seconds=report.seconds,
        warnings=tuple(map(str, report.warnings)),
        notes=tuple(note for notes in report.notes.values() for note in notes),
    )


def read_summary(path: Path) -> BatchSummary:
    """A summary that an earlier run wrote. Raises ReadError where it is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise ReadError(f"{path}: a summary of schema {content['schema']}; this graphopt reads schema {SCHEMA}")
        return BatchSummary(tuple(map(outcome_from_json, content["models"])), content["target"])
    except OSError as error:
        raise ReadError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ReadError(f"{path}: is no summary that graphopt optimize wrote with --json for several models") from None


def outcome_from_json(entry: Mapping[str, Any]) -> BatchOutcome:
    """An outcome as a summary writes it. TypeError where it is none."""
    return BatchOutcome(**{**entry, **{key: tuple(entry.get(key, ())) for key in ("warnings", "notes")}})


def compare(now: BatchSummary, before: BatchSummary | None) -> tuple[CostChange, ...]:
    """Each result beside that of the same model in an earlier summary; beside its original where there is none.

    Measured speeds are compared where both have one, else modelled costs. A model that failed is not compared.
    """
    earlier: Mapping[str, BatchOutcome] = {} if before is None else {o.model: o for o in before.outcomes}
    changes = []
    for outcome in now.outcomes:
        old = earlier.get(outcome.model)
        if outcome.exit_code or (before is not None and (old is None or old.exit_code)):
            continue
        ratio, is_measured = _slower(outcome, old)
        if ratio is not None:
            ops = outcome.ops_before if old is None else old.ops_after
            more = None if ops is None or outcome.ops_after is None else outcome.ops_after - ops
            changes.append(CostChange(outcome.model, 100 * (ratio - 1), is_measured, more))
    return tuple(changes)


def _slower(now: BatchOutcome, before: BatchOutcome | None) -> tuple[float | None, bool]:
    """How many times as long the result takes, and whether that was measured."""
    if now.measured and (before is None or before.measured):
        return (before.measured or 1.0 if before else 1.0) / now.measured, True
    cost = now.cost_before if before is None else before.cost_after
    if not cost or now.cost_after is None:
        return None, False
    return now.cost_after / cost, False


def judged(summary: BatchSummary, changes: Iterable[CostChange], percent: float) -> BatchSummary:
    """The summary, in which models that are slower by more than so many percent have failed."""
    slow = {change.model: change for change in changes if change.slower > percent}
    return replace(
        summary,
        outcomes=tuple(
            replace(o, exit_code=SLOWER, error=f"slower by {slow[o.model].slower:.1f} %") if o.model in slow else o
            for o in summary.outcomes
        ),
    )


def judged_optimized(summary: BatchSummary, percent: float) -> BatchSummary:
    """The summary, in which models have failed whose results are faster by more than so many percent: as measured, or
    else as modelled."""

    def judged_one(o: BatchOutcome) -> BatchOutcome:
        found = o.speedup
        if o.exit_code or (found is None and (not o.cost_before or o.cost_after is None)):
            return o
        if found is not None and 100 * (1 - 1 / found.ratio) <= percent:
            return o
        gain = "free, modelled" if found is None else f"{found.text} as fast, {found.kind}"
        return replace(o, exit_code=SLOWER, error=f"is not optimized: it would be {gain}")

    return replace(summary, outcomes=tuple(map(judged_one, summary.outcomes)))


def mean_speedups(summary: BatchSummary) -> dict[Speedup, int]:
    """The geometric means of how many times as fast the results are: that of those that were measured, and that of the
    others as modelled, each with the number of its models."""
    known = [o.speedup for o in summary.outcomes if o.speedup is not None]
    means: dict[Speedup, int] = {}
    for is_measured in (True, False):
        ratios = [found.ratio for found in known if found.is_measured is is_measured]
        if ratios:
            means[Speedup(math.exp(sum(map(math.log, ratios)) / len(ratios)), is_measured)] = len(ratios)
    return means


def _expanded(source: Path, output: Path) -> list[tuple[Path, Path]]:
    """The models that a path means, each with the folder that its name is told from."""
    if source.is_dir():
        results = output.resolve()
        is_inside = results != source.resolve() and results.is_relative_to(source.resolve())
        files = sorted(source.rglob("*.onnx"))
        return [(p, source) for p in files if not is_inside or not p.resolve().is_relative_to(results)]
    if not _is_pattern(source):
        return [(source, source.parent)]
    fixed = Path(*_before_magic(source.parts))
    return [(path, fixed) for path in map(Path, sorted(glob(str(source), recursive=True))) if path.is_file()]


def _before_magic(parts: Sequence[str]) -> Iterable[str]:
    for part in parts[:-1]:
        if has_magic(part):
            return
        yield part


def _is_pattern(source: Path) -> bool:
    return has_magic(str(source)) and not source.exists()
