"""Cache of parsed rules, as JSON on disk: parsing takes ten times as long. Apart from the parser, so that a cached set
of rules starts without it.

What cannot be read or written is parsed, every time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from graphopt.errors import ReadError, UsageError
from graphopt.rewrite.rule import rule as notions
from graphopt.rewrite.rule.rule import Rule
from graphopt.runtime import disk_cache

_ROOT = Path(__file__).resolve().parents[1]


def parsed(text: str, name: str, parse: Callable[[], list[Rule]], folder: Path | None = None) -> list[Rule]:
    """The rules of a text: those that ``parse`` gave when it was read the last time, or gives now.

    ``folder`` None: that of rules in the cache on disk.
    """
    disk_cache.root()
    try:
        place = (folder or disk_cache.folder("rules")) / f"{disk_cache.key(_sources(), name, text)}.json"
    except UsageError:  # nobody else may have written what is read
        return parse()
    try:
        rules = _decoded(json.loads(disk_cache.read(place) or b"[]"))
        if isinstance(rules, tuple) and all(isinstance(r, Rule) for r in rules):
            return list(rules)
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError):
        pass
    rules = parse()
    with suppress(OSError, ReadError, RuntimeError):
        disk_cache.write(place, json.dumps(_encoded(tuple(rules)), separators=(",", ":")).encode())
    return rules


_PARTS = ("reading", "rule", "guards")
"""The folders beside this one that rules are read by: the notation, what it makes, and which functions there are."""
_SCHEMAS = ("ops.py", "op_table.py", "contrib.py")
"""The modules of ``ir`` that they are read by: which ops there are, in which sets, with which inputs."""


@cache
def _sources() -> str:
    parts = (_ROOT / name for name in _PARTS)
    return disk_cache.digest_of_code((*parts, *(_ROOT.parent / "ir" / name for name in _SCHEMAS)), ("onnx",))


# -- as JSON: each value once, after those that it is made of. A number, a string, a truth value or None is itself; any
# other value is a list: a name (of a notion that rules are made of, ``tuple`` or ``set``), then the places of its parts

_CLASSES: dict[str, Any] = {
    name: kind
    for name, kind in vars(notions).items()
    if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, Enum)) and kind.__module__ == notions.__name__
}
_FIELDS = {name: [f.name for f in fields(kind)] for name, kind in _CLASSES.items() if is_dataclass(kind)}
_MAKERS: dict[str, Callable[..., object]] = {
    **_CLASSES,
    "set": lambda *parts: frozenset(parts),
}


def _encoded(value: object) -> list[object]:
    """The table of a value and of all that it is made of, of which it is the last."""
    places: dict[tuple[Any, ...], int] = {}
    _place(value, places)
    return [key[1] if key[0] == "" else list(key) for key in places]


def _place(value: object, places: dict[tuple[Any, ...], int]) -> int:
    name = type(value).__name__
    if isinstance(value, tuple):
        parts: Iterable[object] = value
        name = "tuple"
    elif isinstance(value, frozenset):
        parts, name = sorted(value), "set"
    elif isinstance(value, Enum):
        parts = (value.value,)
    elif name in _FIELDS:
        parts = [getattr(value, field) for field in _FIELDS[name]]
    else:
        return places.setdefault(("", value, repr(value)), len(places))  # which 1, 1.0 and true differ in
    key = (name, *[_place(part, places) for part in parts])
    return places.setdefault(key, len(places))


def _decoded(table: list[Any]) -> object:
    """The last value of a table."""
    values: list[object] = []
    part = values.__getitem__
    for entry in table:
        if isinstance(entry, list):
            name, *places = entry
            values.append(tuple(map(part, places)) if name == "tuple" else _MAKERS[name](*map(part, places)))
        else:
            values.append(entry)
    return values[-1]
