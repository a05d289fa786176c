"""Database of measured times, a file of SQLite: what was measured stays, however a later process ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from graphopt.calibration import ANALYTIC, COSTS, measured_file
from graphopt.calibration.measured_file import FileFormat, MeasuredFile
from graphopt.calibration.measured_file import Setting as Setting
from graphopt.frozen import dataclass

FORM = FileFormat(
    name="database of measured times",
    tables="""
CREATE TABLE time (
    setting INTEGER NOT NULL REFERENCES setting(id) ON DELETE CASCADE, workload TEXT NOT NULL,
    seconds REAL, spread REAL, runs INTEGER NOT NULL,
    PRIMARY KEY (setting, workload)) WITHOUT ROWID;
CREATE TABLE fit (
    setting INTEGER NOT NULL REFERENCES setting(id) ON DELETE CASCADE, target TEXT NOT NULL,
    prices TEXT NOT NULL, quality TEXT NOT NULL,
    PRIMARY KEY (setting, target)) WITHOUT ROWID;
""",
    version=1,
    application=0x67724F70,
    made_by="graphopt calibrate",
    remedy="delete it and calibrate again",
)


@dataclass(frozen=True, slots=True)
class Time:
    """What a workload took: that of the fastest tenth of some runs, and how far the upper quartile is from it.

    ``seconds`` is None for a workload that the runtime does not run, or not as the target expects.
    """

    seconds: float | None
    spread: float = 0.0
    runs: int = 0


@dataclass(frozen=True)
class Fit:
    """Prices that were fitted to the times, and how well they predict them before and after."""

    prices: Mapping[str, object]
    quality: Mapping[str, float]


def default_path() -> Path:
    """Where the times of this user are."""
    return measured_file.default_path("calibration.sqlite")


def database(costs: str | Path) -> Path:
    """Where the measured prices are that are to be gone by."""
    return default_path() if costs in COSTS else Path(costs)


def digest(costs: str | Path) -> str:
    """What changes when measured prices do; empty where none are gone by."""
    if costs == ANALYTIC:
        return ""
    path = database(costs)
    kept = [file.read_bytes() for file in (path, path.with_name(f"{path.name}-wal")) if file.exists()]
    return sha256(b"\0".join(kept)).hexdigest() if kept else ""


class TimesDatabase(MeasuredFile):
    """A database of measured times."""

    form = FORM

    def times(self, setting: Setting) -> dict[str, Time]:
        """What was measured under a setting, by workload, in order."""
        with self._guarded():
            rows = self._connection.execute(
                "SELECT workload, seconds, spread, runs FROM time WHERE setting = ? ORDER BY workload",
                (self._id(setting),),
            ).fetchall()
            return {str(w): Time(None if s is None else float(s), float(d), int(n)) for w, s, d, n in rows}

    def put(self, setting: Setting, workload: str, time: Time) -> None:
        """Keep a time, in place of what there was."""
        with self._writing():
            self._connection.execute(
                "INSERT OR REPLACE INTO time VALUES (?, ?, ?, ?, ?)",
                (self._id(setting, make=True), workload, time.seconds, time.spread, time.runs),
            )

    def fit(self, setting: Setting, target: str) -> Fit | None:
        """The prices that were fitted for a target."""
        with self._guarded():
            row = self._connection.execute(
                "SELECT prices, quality FROM fit WHERE setting = ? AND target = ?", (self._id(setting), target)
            ).fetchone()
            return None if row is None else Fit(json.loads(row[0]), json.loads(row[1]))

    def put_fit(self, setting: Setting, target: str, fit: Fit) -> None:
        """Keep fitted prices, in place of what there were."""
        texts = json.dumps(fit.prices, sort_keys=True), json.dumps(fit.quality, sort_keys=True)
        with self._writing():
            self._connection.execute(
                "INSERT OR REPLACE INTO fit VALUES (?, ?, ?, ?)", (self._id(setting, make=True), target, *texts)
            )

    def clear(self, setting: Setting | None = None) -> int:
        """Forget the times of a setting, or all; how many there were."""
        with self._writing():
            where, fields = ("", ()) if setting is None else (" WHERE setting = ?", (self._id(setting),))
            count = self._connection.execute(f"SELECT count(*) FROM time{where}", fields).fetchone()[0]
            where = where.replace("setting", "id")
            self._connection.execute(f"DELETE FROM setting{where}", fields)
            return int(count)
