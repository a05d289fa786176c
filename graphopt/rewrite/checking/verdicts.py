"""Verdict cache: results of rule checks on disk, so that a rule is checked again only when it or graphopt changed.

The table is SQLite in the cache on disk, one for each digest of graphopt's own sources that a check rests on and of the
versions of onnx and numpy. A verdict stands under a digest of the rule's content. Two processes may use it at once;
where it cannot be used, rules are checked without it.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from graphopt.errors import UsageError
from graphopt.rewrite.checking.check import QUICK, CheckReport, Depth, check_rule
from graphopt.rewrite.rule.rule import Rule
from graphopt.rewrite.rule.rule_digest import content
from graphopt.runtime import disk_cache

_ROOT = Path(__file__).resolve().parents[2]
_SCHEMA = "CREATE TABLE IF NOT EXISTS verdicts (key TEXT PRIMARY KEY, verdict TEXT NOT NULL)"


class Verdicts:
    """Verdicts that were reached before, and those that are added."""

    def __init__(self, file: Path | None = None) -> None:
        """``file`` None: in the cache on disk."""
        self.hits = 0
        self._connection: sqlite3.Connection | None = None
        with suppress(sqlite3.Error, OSError, UsageError):
            path = file or _cache_file()
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=10, isolation_level=None)
            self._connection.execute(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def check(self, rule: Rule, seed: int = 0, depth: Depth = QUICK) -> CheckReport:
        """The report of a check, from the table where it is there."""
        key = _key(rule, seed, depth)
        verdict = self._get(key)
        if verdict is not None:
            with suppress(ValueError, TypeError):
                report = CheckReport(rule, **json.loads(verdict))
                self.hits += 1
                return report
        report = check_rule(rule, seed, depth)
        fields = {n: v for n, v in asdict(replace(report, rule=None)).items() if n != "rule"}  # type: ignore[arg-type]
        if not report.is_late:
            self._put(key, json.dumps(fields))
        return report

    def _get(self, key: str) -> str | None:
        if self._connection is None:
            return None
        with suppress(sqlite3.Error):
            row = self._connection.execute("SELECT verdict FROM verdicts WHERE key = ?", (key,)).fetchone()
            return None if row is None else str(row[0])
        return None

    def _put(self, key: str, verdict: str) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?)", (key, verdict))


def _cache_file() -> Path:
    path = disk_cache.folder("verdicts") / f"{_around()}.sqlite"
    disk_cache.use(path)
    return path


def _key(rule: Rule, seed: int, depth: Depth) -> str:
    return disk_cache.key(_around(), content(rule), rule.name, rule.stage.value, str(seed), str(depth))


_PARTS = ("guards", "rule", "match", "extract/terms.py", "checking/check.py", "checking/examples", "passes/simplify.py")
"""The parts of ``rewrite`` that a verdict rests on."""


@cache
def _around() -> str:
    """What a verdict rests on beside the rule: versions, and the sources that draw, match, build and compute."""
    return disk_cache.digest_of_code((_ROOT / "ir", *(_ROOT / "rewrite" / name for name in _PARTS)), ("onnx", "numpy"))
