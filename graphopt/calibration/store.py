"""Measured times in a file of SQLite: what is measured stays, whatever happens to whoever measures next.

Every measurement is a transaction of its own, so a process may be killed at any moment, and several
may measure into one file. A setting is a machine, a runtime with its version, and a number of threads.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from graphopt.errors import GraphoptError, ReadError

VERSION = 1
"""The version of the tables; a file of a newer one is refused."""

APPLICATION = 0x67724F70
"""Marks a file of SQLite as ours."""

PATIENCE = 30.0
"""Seconds to wait while another process writes."""

TABLES = """
CREATE TABLE setting (
    id INTEGER PRIMARY KEY, machine TEXT NOT NULL, runtime TEXT NOT NULL, threads INTEGER NOT NULL,
    UNIQUE (machine, runtime, threads));
CREATE TABLE time (
    setting INTEGER NOT NULL REFERENCES setting(id) ON DELETE CASCADE, workload TEXT NOT NULL,
    seconds REAL, spread REAL, runs INTEGER NOT NULL,
    PRIMARY KEY (setting, workload)) WITHOUT ROWID;
CREATE TABLE fit (
    setting INTEGER NOT NULL REFERENCES setting(id) ON DELETE CASCADE, target TEXT NOT NULL,
    prices TEXT NOT NULL, quality TEXT NOT NULL,
    PRIMARY KEY (setting, target)) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """Under which circumstances times were measured."""

    machine: str
    runtime: str
    threads: int = 1


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


ANALYTIC, MEASURED, AUTO = "analytic", "measured", "auto"
COSTS = (AUTO, ANALYTIC, MEASURED)
"""Which prices to go by: those that the target comes with, measured ones, or measured ones where there are some."""


def default_path() -> Path:
    """Where the times of this user are."""
    from platformdirs import user_data_path

    return user_data_path("graphopt", appauthor=False) / "calibration.sqlite"


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


class Store:
    """A database of measured times. To be closed; a context manager does.

    Opening one to write makes it where it does not exist. Raises ReadError, in one line, for what is
    no such database, a damaged one, or one of a newer version.
    """

    def __init__(self, path: Path, write: bool = False) -> None:
        self.path = path
        if not write and not path.is_file():
            raise ReadError(f"{path}: there is no such database of measured times; graphopt calibrate makes one")
        with self._guarded():
            if write:
                path.parent.mkdir(parents=True, exist_ok=True)
            mode = "rwc" if write else "rw"  # what a killed process left half done is undone by whoever opens next
            self._connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode={mode}", uri=True, timeout=PATIENCE, isolation_level=None
            )
        try:
            with self._guarded():
                self._check(write)
        except GraphoptError:
            self._connection.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise ReadError(f"{self.path}: cannot use the database of measured times ({error})") from None
        except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
            raise ReadError(
                f"{self.path}: not a database of measured times, or damaged ({error}); delete it and calibrate again"
            ) from None
        except OSError as error:
            raise ReadError(f"{self.path}: cannot use the database ({error.strerror or error})") from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._guarded():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _check(self, write: bool) -> None:
        self._connection.execute("PRAGMA foreign_keys = ON")
        if self._is_ours():
            return
        if not write:
            raise sqlite3.DatabaseError("it holds something else")
        with self._writing():
            if self._is_ours():  # another process was faster
                return
            if self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise sqlite3.DatabaseError("it holds something else")
            for statement in TABLES.split(";\n"):
                self._connection.execute(statement)
            self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
            self._connection.execute(f"PRAGMA user_version = {VERSION}")

    def _is_ours(self) -> bool:
        """Whether the tables are there. Raises ReadError for those of a newer version."""
        version = self._pragma("user_version")
        if self._pragma("application_id") != APPLICATION:
            return False
        if version > VERSION:
            raise ReadError(
                f"{self.path}: written by a newer graphopt (its tables have version {version}, not {VERSION}); "
                "update graphopt, or name another database"
            )
        return version == VERSION

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    def _id(self, setting: Setting, make: bool = False) -> int | None:
        fields = (setting.machine, setting.runtime, setting.threads)
        if make:
            self._connection.execute(
                "INSERT OR IGNORE INTO setting (machine, runtime, threads) VALUES (?, ?, ?)", fields
            )
        row = self._connection.execute(
            "SELECT id FROM setting WHERE machine = ? AND runtime = ? AND threads = ?", fields
        ).fetchone()
        return None if row is None else int(row[0])

    def settings(self) -> list[Setting]:
        """Under what there are times, in order."""
        with self._guarded():
            rows = self._connection.execute("SELECT machine, runtime, threads FROM setting").fetchall()
            return sorted(Setting(str(m), str(r), int(n)) for m, r, n in rows)

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
