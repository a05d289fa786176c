"""Checks of a target's file: the type and range of each key, with mistakes that name it and what was expected."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from math import inf
from typing import Any, Final

from graphopt.errors import nearest

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
OP = re.compile(r"(?:[A-Za-z][\w.-]*::)?[A-Za-z]\w*")
PRICED = re.compile(OP.pattern + r"(?:\.[a-z]\w*)?")
"""An op, or a mode of one (``Resize.cubic``)."""
DOMAIN = re.compile(r"[A-Za-z][\w.-]*")

_LARGEST: Final = 1e30


Toml = dict[str, Any]


class _Absent:
    def __str__(self) -> str:
        return "nothing"


_ABSENT: Final = _Absent()


class Checks:
    """Checks of one file: mistakes are collected, and what is around them is read on."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.mistakes: list[str] = []
        self.inherited: dict[str, int] = {}
        """By key, how many groups come before the file's own, by ``like``."""

    def wrong(self, key: str, expected: str, value: object = _ABSENT) -> None:
        """Note a mistake: the key, what was expected there, and what stands there."""
        shown = f", not {_shown(value)}" if value is not _ABSENT else ""
        self.mistakes.append(f"{self.file}: {key}: expected {expected}{shown}")

    def table(self, of: Toml, key: str, keys: Collection[str] | None = None, within: str = "") -> Toml:
        """The table of a key, with none but the known keys; empty where there is none."""
        table, name = of.get(key, {}), f"{within}{key}"
        if not isinstance(table, dict):
            self.wrong(name, "a table", table)
            return {}
        if keys is not None:
            self.keys(table, keys, f"{name}.")
        return table

    def keys(self, table: Toml, keys: Collection[str], within: str = "") -> None:
        """Note the keys of a table that mean nothing."""
        for key in table:
            if key not in keys:
                hint = nearest(key, keys).removeprefix("; ") or f"there are {', '.join(sorted(keys))}"
                self.mistakes.append(f"{self.file}: {within}{key}: expected a known key; {hint}")

    def text(self, of: Toml, key: str, within: str = "", default: str = "", most: int = 300) -> str:
        """A line of text."""
        value = of.get(key, default)
        if isinstance(value, str) and len(value) <= most and value.isprintable():
            return value
        self.wrong(within + key, f"a line of text of {most} characters at most", value)
        return default

    def number(self, value: object, key: str, least: float = 0.0, above: bool = False, infinite: bool = False) -> float:
        """A number of at least so much, or above that."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            if infinite and value == inf:
                return inf
            fits = value > least or (value == least and not above)
            if fits and value <= _LARGEST:  # no number that is none fits
                return float(value)
        self.wrong(key, f"a number {'above' if above else 'of at least'} {least:g}", value)
        return max(least, 1.0)

    def count(self, value: object, key: str, least: int = 1, most: int = 1 << 20) -> int:
        """A whole number."""
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        self.wrong(key, f"a whole number from {least} to {most}", value)
        return least

    def names(self, value: object, key: str, form: re.Pattern[str] = OP, what: str = "ops") -> list[str]:
        """Names with spaces between."""
        if not isinstance(value, str):
            self.wrong(key, f"names of {what} with spaces between, as one text", value)
            return []
        listed = value.split()
        for name in listed:
            if not form.fullmatch(name):
                self.wrong(key, f"names of {what}", name)
        return listed

    def rows(self, table: object, key: str, value: str) -> Iterator[tuple[str, Toml, list[str]]]:
        """Groups of ops: the key of each, the group, its ops."""
        if not isinstance(table, list):
            self.wrong(key, f"groups [[{key}]], each of {value} and ops", table)
            return
        for i, row in enumerate(table):
            at = f"{key}[{i - self.inherited.get(key, 0)}]"
            if not isinstance(row, dict):
                self.wrong(at, f"a table of {value} and ops", row)
                continue
            self.keys(row, (value, "ops", "source"), f"{at}.")
            for needed in (value, "ops"):
                if needed not in row:
                    self.wrong(f"{at}.{needed}", "to be stated")
            yield at, row, self.names(row["ops"], f"{at}.ops", PRICED) if "ops" in row else []

    def by_op(self, table: object, key: str, value: str, unit: float) -> dict[str, float]:
        """Numbers by op, from groups of them; later groups count."""
        result: dict[str, float] = {}
        for at, row, listed in self.rows(table, key, value):
            if value in row:
                result.update(dict.fromkeys(listed, self.number(row[value], f"{at}.{value}") * unit))
        return result


def _shown(value: object) -> str:
    text = repr(value) if value is not None else "nothing"
    return text if len(text) <= 60 else f"{text[:57]}..."
