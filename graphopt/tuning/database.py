"""Database of tuned schedules, a file of SQLite: a measurement that was finished stays, however its process ends."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

from graphopt.calibration.measured_file import Setting
from graphopt.calibration.schedule_tables import Tables
from graphopt.errors import ReadError
from graphopt.frozen import dataclass
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import show
from graphopt.lowering.lower.embedded_programs import inputs_of, type_of
from graphopt.saving import whole
from graphopt.tuning import jsonl
from graphopt.tuning.record import Candidate, Outcome, Record, Timed
from graphopt.tuning.workload import Workload

FIELDS = "r.trace, r.target, r.seconds, r.beside, r.features, r.problem, r.verified"


@dataclass(frozen=True)
class TunedWorkload:
    """What is known of a workload under a setting: how many candidates were measured, how many of them failed, and the
    best; ``types`` are those of what it reads and makes."""

    workload: Workload
    setting: Setting
    types: str
    measured: int
    failed: int
    best: Record | None


class Records(Tables):
    """A database of tuned schedules: what was measured of workloads under settings, and cost models that were learned.

    Traces of a workload under a setting are each there once. A workload is found by its script and its sizes, which
    its key, a digest, only makes quick.

    >>> records = tuning.Records(Path("tuning.sqlite"), write=True)
    >>> candidate = Candidate(workload, graphopt.Schedule(nest).trace.to_json())
    >>> record = Record(candidate, setting_here(), Outcome((1e-6,) * 5, (2e-6,) * 5))
    >>> records.keep(record)
    >>> records.workloads(), len(records.known())
    ([<Workload <Nest plus_one(x: float32[4, 8], y: float32[4, 8]): 1 block>>], 1)
    >>> len(records.history(workload, setting_here())), len(records.ranked(workload, setting_here()))
    (1, 1)
    >>> records.best(workload, setting_here()).outcome.gain
    2.0
    >>> len(records.times(setting_here())), records.at_any_size(nest, setting_here())
    (1, [<Workload <Nest plus_one(x: float32[4, 8], y: float32[4, 8]): 1 block>>])
    >>> records.export(Path("records.jsonl"))
    1
    >>> with tuning.Records(Path("other.sqlite"), write=True) as other:
    ...     print(other.import_records(Path("records.jsonl")), other.merge(Path("tuning.sqlite")), other.take([record]))
    1 0 0
    >>> records.keep_model(setting_here(), b"learned")
    >>> records.model(setting_here())
    b'learned'
    >>> records.prune(best=0)
    1
    >>> records.close()
    """

    # -- keeping

    def keep(self, record: Record) -> None:
        """Keep what was measured, in place of what was known of the candidate. Once this returns, it stays."""
        with self._writing():
            self._keep(record)

    def _keep(self, record: Record, is_newer: bool = True) -> bool:
        """The same within a transaction; whether it is kept: an older one is not where the candidate is known."""
        candidate, outcome = record.candidate, record.outcome
        row = (
            self._workload(candidate.workload, make=True),
            self._id(record.setting, make=True),
            candidate.target,
            candidate.trace,
            *(json.dumps(numbers) for numbers in (outcome.seconds, outcome.beside, outcome.features)),
            outcome.problem,
            record.verified,
            outcome.gain,
        )
        done = self._connection.execute(
            f"INSERT OR {'REPLACE' if is_newer else 'IGNORE'} INTO record (workload, setting, target, trace, seconds, "
            "beside, features, problem, verified, gain) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        return done.rowcount > 0

    def take(self, records: Iterable[Record]) -> int:
        """Keep what was measured elsewhere, all or nothing, as not verified; how many candidates were not known."""
        with self._writing():
            return sum(
                self._keep(Record(r.candidate, r.setting, r.outcome, verified=False), is_newer=False) for r in records
            )

    def merge(self, other: Path) -> int:
        """Take the records of another database, as ``take`` does. ReadError where it is damaged."""
        with Records(other) as records:
            return self.take(jsonl.read(jsonl.line(record), str(other)) for record in records)

    def export(self, path: Path) -> int:
        """Write all records into a file of JSON lines; how many they are."""
        lines = [jsonl.line(record) for record in self]
        with whole(path) as file:
            file.writelines(f"{line}\n".encode() for line in lines)
        return len(lines)

    def import_records(self, path: Path) -> int:
        """Take the records of a file that ``export`` wrote, as ``take`` does. ReadError, which names the line, where
        it holds anything else."""
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise ReadError(f"{path}: cannot be read ({error.strerror or error})") from None
        return self.take(jsonl.read(line, f"{path}:{number}") for number, line in enumerate(lines, 1))

    def prune(self, *, runtime: str | None = None, best: int | None = None, failed: bool = False) -> int:
        """Forget records: those of other versions than the runtime's, all but so many best ones of a workload under a
        setting, and those with problems. How many they were; what then nothing is known of goes, too."""
        clauses = {
            "setting IN (SELECT id FROM setting WHERE runtime != :runtime)": runtime is not None,
            "problem != ''": failed,
            "id NOT IN (SELECT id FROM (SELECT id, row_number() OVER "
            "(PARTITION BY workload, setting ORDER BY gain DESC, id) AS rank FROM record) WHERE rank <= :best)": best
            is not None,
        }
        with self._writing():
            count = 0
            for clause in (c for c, is_asked in clauses.items() if is_asked):
                done = self._connection.execute(
                    f"DELETE FROM record WHERE {clause}", {"runtime": runtime, "best": best}
                )
                count += done.rowcount
            self._connection.execute("DELETE FROM workload WHERE id NOT IN (SELECT workload FROM record)")
            self._connection.execute(
                "DELETE FROM setting WHERE id NOT IN (SELECT setting FROM record) "
                "AND (runtime != ? OR id NOT IN (SELECT setting FROM model))",
                (runtime,),
            )
        with self._guarded():
            self._connection.execute("VACUUM")
        return count

    # -- finding

    def history(self, workload: Workload, setting: Setting) -> list[Record]:
        """All that was measured of a workload, in the order of measuring, what failed too."""
        return self._records(workload, setting, "", "r.id")

    def ranked(self, workload: Workload, setting: Setting) -> list[Record]:
        """What is faster than the default schedule, verified or not, by what it surely gains: ``Outcome.gain``."""
        return self._records(workload, setting, "AND r.gain > 1", "r.gain DESC, r.id")

    def best(self, workload: Workload, setting: Setting) -> Record | None:
        """The first of those that is verified; None where there is none."""
        return next((r for r in self.ranked(workload, setting) if r.verified), None)

    def _records(self, workload: Workload, setting: Setting, clause: str, order: str) -> list[Record]:
        with self._guarded():
            ids = self._workload(workload), self._id(setting)
            query = f"SELECT {FIELDS} FROM record r WHERE r.workload = ? AND r.setting = ? {clause} ORDER BY {order}"
            return [_record(workload, setting, row) for row in self._connection.execute(query, ids)]

    def __iter__(self) -> Iterator[Record]:
        """All records: by workload and setting, in the order of measuring."""
        for tuned in self.known():
            yield from self.history(tuned.workload, tuned.setting)

    def workloads(self, setting: Setting | None = None) -> list[Workload]:
        """What something is known of, under a setting or any, by key."""
        return list(dict.fromkeys(k.workload for k in self.known() if setting in (None, k.setting)))

    def known(self) -> list[TunedWorkload]:
        """What is known, by workload and setting."""
        with self._guarded():
            query = """
                SELECT w.script, w.sizes, w.types, s.machine, s.runtime, s.threads, count(*), sum(r.problem != '')
                FROM record r JOIN workload w ON w.id = r.workload JOIN setting s ON s.id = r.setting
                GROUP BY w.id, s.id ORDER BY w.key, s.machine, s.runtime, s.threads"""
            rows = self._connection.execute(query).fetchall()
            listed = [
                (Workload(str(script), _sizes(sizes)), Setting(str(m), str(r), int(n)), str(types), int(all), int(bad))
                for script, sizes, types, m, r, n, all, bad in rows
            ]
        return [TunedWorkload(*about, self.best(about[0], about[1])) for about in listed]

    def times(self, setting: Setting) -> dict[Workload, Timed]:
        """What runs of workloads take under a setting: by the best record, else as any that counts has it beside."""
        times: dict[Workload, Timed] = {}
        for tuned in self.known():
            if tuned.setting != setting:
                continue
            counting = (r for r in self.history(tuned.workload, setting) if r.verified and r.outcome.gain)
            record = tuned.best or next(counting, None)
            if record is not None:
                default = median(record.outcome.beside)
                times[tuned.workload] = Timed(default / max(record.outcome.gain, 1.0), default)
        return times

    def at_any_size(self, nest: Nest, setting: Setting) -> list[Workload]:
        """The workloads of a nest that something is known of under a setting, those of the largest sizes first."""
        script = show(nest)
        with self._guarded():
            query = """
                SELECT script, sizes FROM workload w WHERE program = ?
                AND EXISTS (SELECT 1 FROM record WHERE workload = w.id AND setting = ?)"""
            rows = self._connection.execute(query, (_digest(script), self._id(setting))).fetchall()
            workloads = [Workload(script, _sizes(sizes)) for text, sizes in rows if text == script]
            return sorted(workloads, key=_extent, reverse=True)

    def _workload(self, workload: Workload, make: bool = False) -> int | None:
        """The number of a workload; None where it is not there, and is not to be made."""
        sizes = json.dumps(workload.sizes)
        row = self._connection.execute(
            "SELECT id FROM workload WHERE key = ? AND script = ? AND sizes = ?", (workload.key, workload.script, sizes)
        ).fetchone()
        if row is not None or not make:
            return None if row is None else int(row[0])
        fields = workload.key, _digest(workload.script), workload.script, sizes, types(workload.nest)
        done = self._connection.execute(
            "INSERT INTO workload (key, program, script, sizes, types) VALUES (?, ?, ?, ?, ?)", fields
        )
        return done.lastrowid

    # -- cost models

    def keep_model(self, setting: Setting, data: bytes) -> None:
        """Keep a cost model that was learned under a setting, in place of what there was."""
        with self._writing():
            self._connection.execute("INSERT OR REPLACE INTO model VALUES (?, ?)", (self._id(setting, True), data))

    def model(self, setting: Setting) -> bytes | None:
        """The cost model that was kept; None where none was. Models are neither merged nor exported."""
        with self._guarded():
            row = self._connection.execute("SELECT data FROM model WHERE setting = ?", (self._id(setting),)).fetchone()
            return None if row is None else bytes(row[0])


def _record(workload: Workload, setting: Setting, row: tuple[Any, ...]) -> Record:
    trace, target, seconds, beside, features, problem, verified = row
    outcome = Outcome(_numbers(seconds), _numbers(beside), str(problem), _numbers(features), setting.machine)
    return Record(Candidate(workload, str(trace), setting.threads, str(target)), setting, outcome, bool(verified))


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, json.loads(text)))


def _sizes(text: str) -> tuple[tuple[str, int], ...]:
    return tuple((str(name), int(size)) for name, size in json.loads(text))


def _extent(workload: Workload) -> tuple[int, tuple[tuple[str, int], ...]]:
    product = 1
    for _, size in workload.sizes:
        product *= size
    return product, workload.sizes


def _digest(script: str) -> str:
    return sha256(script.encode()).hexdigest()[:40]


def types(nest: Nest) -> str:
    """What a nest reads and makes: ``float32[n, 4] -> y: float32[n, 4]``."""
    read = ", ".join(str(type_of(b)) for b in inputs_of(nest))
    return f"{read} -> {', '.join(f'{b.name}: {type_of(b)}' for b in nest.outputs)}"
