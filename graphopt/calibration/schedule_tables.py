"""Tables of a database of tuned schedules: their form and path, and a digest of what decides how models are compiled.

Nothing of schedules is imported here, because a program that was compiled before starts without them.
"""

from __future__ import annotations

from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from graphopt.calibration import measured_file
from graphopt.calibration.machine import machine
from graphopt.calibration.measured_file import FileFormat, MeasuredFile, Setting

FORM = FileFormat(
    name="database of tuned schedules",
    tables="""
CREATE TABLE workload (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, program TEXT NOT NULL, script TEXT NOT NULL, sizes TEXT NOT NULL,
    types TEXT NOT NULL);
CREATE INDEX by_key ON workload (key);
CREATE INDEX by_program ON workload (program);
CREATE TABLE record (
    id INTEGER PRIMARY KEY,
    workload INTEGER NOT NULL REFERENCES workload(id) ON DELETE CASCADE,
    setting INTEGER NOT NULL REFERENCES setting(id) ON DELETE CASCADE,
    target TEXT NOT NULL, trace TEXT NOT NULL, seconds TEXT NOT NULL, beside TEXT NOT NULL, features TEXT NOT NULL,
    problem TEXT NOT NULL, verified INTEGER NOT NULL, gain REAL NOT NULL,
    UNIQUE (workload, setting, target, trace));
CREATE INDEX by_gain ON record (setting, workload, verified, gain);
CREATE TABLE model (
    setting INTEGER PRIMARY KEY REFERENCES setting(id) ON DELETE CASCADE, data BLOB NOT NULL);
""",
    version=1,
    application=0x67724F71,
    made_by="graphopt tune",
    remedy="move it away and tune again",
)


def default_path() -> Path:
    """Where the tuned schedules of this user are."""
    return measured_file.default_path("tuning.sqlite")


def runtime() -> str:
    """What runs tuned schedules here, with its versions: what was measured with others is not gone by."""
    return ", ".join(f"{name} {_version(name)}" for name in ("graphopt", "numba"))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # a saved program needs none
        return "missing"


def setting_here(threads: int = 1, where: str = "") -> Setting:
    """What is measured here with so many threads: on this machine's processor, or on what is called so."""
    return Setting(where or machine(), runtime(), threads)


class Tables(MeasuredFile):
    """A database of tuned schedules, as a file."""

    form = FORM

    def state(self, setting: Setting, is_whole: bool) -> list[tuple[Any, ...]]:
        """What decides how models are compiled: of each workload by its key the fastest traces, verified and not, of
        those that are faster than the default schedules, with what they gain; what the default one took beside them, or
        beside the first that counts; and workloads with none where that decides: with open sizes, or all of them where
        it is to be whole."""
        with self._guarded():
            query = """
                SELECT w.key, r.verified, r.trace, max(r.gain), r.beside, (
                    SELECT beside FROM record WHERE setting = :setting AND workload = w.id AND verified AND gain > 0
                    ORDER BY id LIMIT 1) AS first
                FROM workload w
                LEFT JOIN record r ON r.workload = w.id AND r.setting = :setting AND r.gain > 1
                WHERE EXISTS (SELECT 1 FROM record WHERE setting = :setting AND workload = w.id)
                GROUP BY w.id, r.verified
                HAVING :whole OR w.sizes != '[]' OR r.trace IS NOT NULL OR first IS NOT NULL ORDER BY 1, 2"""
            named = {"setting": self._id(setting), "whole": is_whole}
            return [tuple(row) for row in self._connection.execute(query, named).fetchall()]


def digest(database: Path, setting: Setting, is_whole: bool) -> str:
    """What changes when models are to be compiled otherwise under a setting; empty where nothing is known there. Where
    it ``is_whole``, it also changes with what is known without being of use. ReadError where there is no database."""
    with Tables(database) as tables:
        state = tables.state(setting, is_whole)
    return sha256(repr((is_whole, state)).encode()).hexdigest() if state or is_whole else ""
