"""What a database of tuned schedules is, where it lies, and what of it decides how models are compiled.

A program that was compiled before starts without what schedules work with, so that nothing here imports any of it.
"""

from __future__ import annotations

from contextlib import closing
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, get_args

from graphopt.calibration import measured_file
from graphopt.calibration.machine import machine
from graphopt.calibration.measured_file import Form, MeasuredFile, Setting
from graphopt.errors import ReadError, UsageError

Tuned = Literal["auto", "require", "off"]
"""Which schedules a model is compiled with: tuned ones where there are some, tuned ones alone, or none of them."""

FORM = Form(
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


def tuned_of(text: str) -> Tuned:
    """The use of tuned schedules that is called so. UsageError where there is none."""
    for way in get_args(Tuned):
        if way == text:
            found: Tuned = way
            return found
    raise UsageError(f"tuned schedules are not used {text!r}: there are {', '.join(get_args(Tuned))}")


def runtime() -> str:
    """What runs tuned schedules here, with its versions: what was measured with others is not gone by."""
    return ", ".join(f"{name} {_version(name)}" for name in ("graphopt", "numba"))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # a saved program needs none
        return "missing"


def setting_here(threads: int = 1, machine_name: str = "") -> Setting:
    """What is measured here with so many threads; on this machine's processor where no other name is given."""
    return Setting(machine_name or machine(), runtime(), threads)


class Tables(MeasuredFile):
    """A database of tuned schedules, as a file."""

    form = FORM

    def state(self, setting: Setting, is_whole: bool) -> list[tuple[str, int | None, str | None]]:
        """What decides how models are compiled: of each workload by its key the fastest traces, verified and not, of
        those that are faster than the default schedules; and workloads with none where that decides: with open sizes,
        or all of them where it is to be whole."""
        with self._guarded():
            query = """
                SELECT w.key, r.verified, r.trace, max(r.gain) FROM workload w
                LEFT JOIN record r ON r.workload = w.id AND r.setting = :setting AND r.gain > 1
                WHERE EXISTS (SELECT 1 FROM record WHERE setting = :setting AND workload = w.id)
                GROUP BY w.id, r.verified HAVING :whole OR w.sizes != '[]' OR r.trace IS NOT NULL ORDER BY 1, 2"""
            rows = self._connection.execute(query, {"setting": self._id(setting), "whole": is_whole}).fetchall()
            return [(str(key), verified, trace) for key, verified, trace, _ in rows]


def digest(tuned: Tuned, database: Path | None, threads: int) -> str:
    """What changes when models are to be compiled on this machine's processor with other schedules; empty where no
    tuned ones are gone by. ReadError where there is no such database though it is asked for."""
    path = database or default_path()
    if tuned == "off" or (tuned == "auto" and not path.exists() and database is None):
        return ""
    try:
        with closing(Tables(path)) as tables:
            state = tables.state(setting_here(threads), is_whole=tuned == "require")
    except ReadError:
        if tuned == "require" or database is not None:
            raise
        return ""  # who compiles warns of it
    return sha256(repr((tuned, state)).encode()).hexdigest() if state or tuned == "require" else ""
