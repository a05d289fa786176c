"""Results of many models that a run finished, so that another run goes on where it stopped.

They stand in a file in the folder of the results, each under a digest of all that it rests on: the model with its data
files, the options with what they name, and graphopt itself. A result counts as long as that, and what was written, is
the same; what failed is done again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.display import encoded
from graphopt.errors import ReadError
from graphopt.rewrite.rule.notation import show_rule
from graphopt.rewrite.ruleset import Ruleset
from graphopt.run.certificate import digest
from graphopt.runtime.disk_cache import digest_of_code
from graphopt.saving import whole
from graphopt.tools.batch import BatchJob, BatchOutcome, outcome_from_json

FILE = ".graphopt-results.json"
"""The name of the file."""
SCHEMA = 1
_ROOT = Path(__file__).resolve().parents[1]


class KeptResults:
    """The results that are kept in a folder. ``more`` says of a job what else its result rests on."""

    def __init__(self, folder: Path, more: Mapping[str, object] | None = None, fresh: bool = False) -> None:
        """``fresh`` takes none of those that are there. Raises ReadError where their file is of something else."""
        self.path = folder / FILE
        self.more = more or {}
        self._keys: dict[str, str] = {}
        self._entries = {} if fresh else self._read()

    def get(self, job: BatchJob) -> BatchOutcome | None:
        """What came of a job, where it rests on the same as now and its result is still there."""
        entry = self._entries.get(job.name)
        if entry is None or entry["key"] != self._key(job) or entry["result"] != _digest(job.output):
            return None
        return outcome_from_json(entry["outcome"])

    def put(self, job: BatchJob, outcome: BatchOutcome) -> None:
        """Keep what came of a job, where nothing is wrong with it."""
        if outcome.exit_code:
            self._entries.pop(job.name, None)
        else:
            told = encoded(replace(outcome, is_kept=False))
            self._entries[job.name] = {"key": self._key(job), "result": _digest(job.output), "outcome": told}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with whole(self.path) as file:
            file.write(json.dumps({"schema": SCHEMA, "results": self._entries}, indent=1).encode())

    def _read(self) -> dict[str, Any]:
        try:
            told = json.loads(self.path.read_text(encoding="utf-8"))
            if told["schema"] != SCHEMA:
                return {}
            entries = {str(name): dict(entry) for name, entry in told["results"].items()}
            for entry in entries.values():
                outcome_from_json(entry["outcome"]), entry["key"], entry["result"]
            return entries
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ReadError(f"{self.path}: cannot be read ({error.strerror})") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ReadError(f"{self.path}: holds no results of graphopt; remove it, or give another folder") from None

    def _key(self, job: BatchJob) -> str:
        """A digest of what the result of a job rests on; as the job began, where its model is written over."""
        if job.name not in self._keys:
            written = job.journal, job.certificate
            said = _code(), _digest(job.model), _said(job.options), written, self.more.get(job.name)
            self._keys[job.name] = sha256(repr(said).encode()).hexdigest()
        return self._keys[job.name]


@cache
def _code() -> str:
    return digest_of_code([_ROOT], ("onnx", "onnx_ir", "numpy"))


def _digest(path: Path) -> str:
    """A digest of a file, with the data files that it names where it is a model; nothing where one is not there."""
    try:
        return digest(path)
    except ReadError:
        return ""


def _said(value: object) -> object:
    """A value of an option as text that is equal for equal values, with the contents of files that it names."""
    match value:
        case Ruleset():
            return [*map(show_rule, value.rules), *(p.name for p in value.passes)]
        case np.ndarray():
            return f"{value.dtype} {value.shape} {sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
        case str() | Path() if (path := Path(value)).is_file():
            return f"{value} {_digest(path)}"
        case Mapping():
            return sorted((str(name), repr(_said(inner))) for name, inner in value.items())
        case list() | tuple():
            return [_said(inner) for inner in value]
    return str(value)
