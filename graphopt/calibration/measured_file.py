"""Database files of measurements under some settings, in SQLite: opened, checked, and written to without loss.

What is written is a transaction of its own, so a process may be killed at any moment, and several may write into one
file. There is no log beside it (as with ``journal_mode = WAL``), so that it is read in a folder that is read-only and
shared over a network. A setting is a machine, a runtime with its version, and a number of threads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from graphopt.errors import GraphoptError, ReadError
from graphopt.frozen import dataclass

PATIENCE = 30.0
"""Seconds to wait while another process writes."""

SETTINGS = """
CREATE TABLE setting (
    id INTEGER PRIMARY KEY, machine TEXT NOT NULL, runtime TEXT NOT NULL, threads INTEGER NOT NULL,
    UNIQUE (machine, runtime, threads));
"""


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """Under which circumstances times were measured."""

    machine: str
    runtime: str
    threads: int = 1


@dataclass(frozen=True, slots=True)
class FileFormat:
    """What a kind of file holds: statements that make its tables, beside that of settings, and their version, of which
    a newer one is refused; and a number that marks a file as one of this kind.

    Errors call it ``name``, say how one comes about (``made_by``), and what to do about a damaged one (``remedy``).
    """

    name: str
    tables: str
    version: int
    application: int
    made_by: str
    remedy: str


def default_path(name: str) -> Path:
    """Where the file of this user is that is called so."""
    from platformdirs import user_data_path

    return user_data_path("graphopt", appauthor=False) / name


def _schema(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    """All that is in a file, by the statements that made it."""
    rows = connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite^_%' ESCAPE '^'"
    )
    return sorted((*map(str, row[:3]), " ".join(str(row[3]).split())) for row in rows)


@cache
def _schema_of(statements: str) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(statements)
        return _schema(connection)


class MeasuredFile:
    """Such a file. To be closed; a context manager does.

    Opening one to write makes it where it does not exist. Raises ReadError, in one line, for what is
    no such file, a damaged one, or one of a newer version.
    """

    form: FileFormat
    """Which kind of file it is."""

    def __init__(self, path: Path, write: bool = False) -> None:
        self.path = path
        if not write and not path.is_file():
            raise ReadError(f"{path}: there is no such {self.form.name}; {self.form.made_by} makes one")
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

    def __enter__(self) -> Self:
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
            if (
                getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            ):  # Python raises some itself, without one
                raise ReadError(
                    f"{self.path}: there is no room for more on its disk; what was kept before is there: make room, "
                    "or name a file elsewhere"
                ) from None
            raise ReadError(f"{self.path}: cannot use the {self.form.name} ({error})") from None
        except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
            raise ReadError(f"{self.path}: not a {self.form.name}, or damaged ({error}); {self.form.remedy}") from None
        except OSError as error:
            raise ReadError(f"{self.path}: cannot use the database ({error.strerror or error})") from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._guarded():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends one by itself where a disk is full
                    self._connection.execute("ROLLBACK")
                raise

    def _check(self, write: bool) -> None:
        self._connection.execute("PRAGMA trusted_schema = OFF")
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
            for statement in (SETTINGS + self.form.tables).split(";\n"):
                self._connection.execute(statement)
            self._connection.execute(f"PRAGMA application_id = {self.form.application}")
            self._connection.execute(f"PRAGMA user_version = {self.form.version}")

    def _is_ours(self) -> bool:
        """Whether the tables are there. Raises ReadError for those of a newer version."""
        version = self._pragma("user_version")
        if self._pragma("application_id") != self.form.application:
            return False
        if version > self.form.version:
            raise ReadError(
                f"{self.path}: written by a newer graphopt (its tables have version {version}, not "
                f"{self.form.version}); update graphopt, or name another database"
            )
        if version != self.form.version:
            return False
        if _schema(self._connection) != _schema_of(SETTINGS + self.form.tables):
            raise sqlite3.DatabaseError("its tables are others")  # a view, a trigger: what it would do is a stranger's
        return True

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
        """Under what something was measured, in order."""
        with self._guarded():
            rows = self._connection.execute("SELECT machine, runtime, threads FROM setting").fetchall()
            return sorted(Setting(str(m), str(r), int(n)) for m, r, n in rows)
