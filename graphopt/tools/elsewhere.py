"""Jobs of many models on the workers of a cluster, to which each model goes and from which each result comes as bytes:
no folder needs to be shared."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from graphopt.errors import GraphoptError, ReadError
from graphopt.frozen import dataclass
from graphopt.ir.onnx_io import files_of
from graphopt.saving import whole
from graphopt.tools.batch import BatchJob, BatchOutcome, Runs, optimize_job, outcome_of
from graphopt.tuning.executors import results, workers
from graphopt.verify.inputs import given

AT_ONCE = 2
"""So many jobs for each worker are handed over at once: the next one is there when one is done."""


@dataclass(frozen=True)
class PackedJob:
    """A job with what it reads, for a machine that has none of it."""

    job: BatchJob
    files: Mapping[str, bytes]
    """The model and its data, by their places in the folder of the model."""


@dataclass(frozen=True)
class PackedOutcome:
    """What came of a job, with what it wrote, by the places in the folder of the result."""

    outcome: BatchOutcome
    files: Mapping[str, bytes]


def on_workers(executor: Executor) -> Runs:
    """Has jobs done by an executor."""
    return partial(_done, executor)


def _done(executor: Executor, jobs: Sequence[BatchJob]) -> Iterator[tuple[BatchJob, BatchOutcome]]:
    waiting = list(jobs)
    try:
        while waiting:
            several, failed = [], []
            for job in waiting[: AT_ONCE * workers(executor)]:
                try:
                    several.append(packed(job))
                except (GraphoptError, OSError) as error:
                    code = getattr(error, "exit_code", ReadError.exit_code)
                    failed.append((job, BatchOutcome(job.name, code, str(error))))
            for job, outcome in (*failed, *_round(executor, several)):
                waiting.remove(job)
                yield job, outcome
    except KeyboardInterrupt:
        for job in waiting:
            yield job, BatchOutcome(job.name, 130, "interrupted")


def _round(executor: Executor, several: Sequence[PackedJob]) -> Iterator[tuple[BatchJob, BatchOutcome]]:
    """What came of jobs that are handed over together; all results are written before they are told."""
    left = {packed.job.name: packed.job for packed in several}
    try:
        for done, result in results(executor, several, optimize_packed, (), _lost):
            job = left.pop(done.job.name)
            yield job, replace(_unpacked(job, result), model=job.name)
    except GraphoptError as error:  # of the cluster, to which nothing can be handed any more
        reason = str(error).partition(": ")[2]
        for job in left.values():
            yield job, BatchOutcome(job.name, error.exit_code, f"no worker takes it: {reason}")


def packed(job: BatchJob) -> PackedJob:
    """A job with the files that it reads. Raises ReadError where its model cannot be read."""
    files = files_of(job.model) or [job.model]
    try:
        content = {file.relative_to(job.model.parent).as_posix(): file.read_bytes() for file in files}
    except OSError as error:
        raise ReadError(f"{job.model}: cannot read: {error.strerror}") from None
    options: dict[str, Any] = dict(job.options)
    if options.get("inputs"):
        options["inputs"] = {name: given(value) for name, value in options["inputs"].items()}
    return PackedJob(replace(job, options=options), content)


def optimize_packed(packed: PackedJob) -> PackedOutcome:
    """Do a job on the machine that this is called on."""
    with tempfile.TemporaryDirectory(prefix="graphopt-") as name:
        folder = Path(name)
        model, output = folder / "in" / packed.job.model.name, folder / "out" / packed.job.output.name
        for place, content in packed.files.items():
            file = model.parent / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        output.parent.mkdir()
        outcome = outcome_of(replace(packed.job, model=model, output=output), optimize_job)
        written = [file for file in sorted(output.parent.rglob("*")) if file.is_file()]
        files = {file.relative_to(output.parent).as_posix(): file.read_bytes() for file in written}
        notes = tuple(note.replace(str(output.parent), str(packed.job.output.parent)) for note in outcome.notes)
        error = outcome.error.replace(str(model), str(packed.job.model))
        return PackedOutcome(replace(outcome, error=error, notes=notes), files)


def _unpacked(job: BatchJob, result: PackedOutcome) -> BatchOutcome:
    """What came of a job, once all that it wrote is in its place: the model, which names the rest, in the end."""
    try:
        for place in sorted(result.files, key=lambda place: place == job.output.name):
            file = job.output.parent / place
            file.parent.mkdir(parents=True, exist_ok=True)
            with whole(file) as opened:
                opened.write(result.files[place])
    except (ReadError, OSError) as error:
        return replace(result.outcome, exit_code=ReadError.exit_code, error=str(error))
    return result.outcome


def _lost(reason: str) -> PackedOutcome:
    return PackedOutcome(BatchOutcome("", 1, f"its workers were lost ({reason})"), {})
