"""Cache of parsed rules, as JSON on disk: parsing takes ten times as long. Apart from the parser, so that a cached set
of rules starts without it.

What cannot be read or written is parsed, every time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
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
        rules = _decoded(json.loads(disk_cache.read(place) or b"null"))
        if isinstance(rules, tuple) and all(isinstance(r, Rule) for r in rules):
            return list(rules)
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError):
        pass
    rules = parse()
    with suppress(OSError, ReadError, RuntimeError):
        disk_cache.write(place, json.dumps(_encoded(tuple(rules)), separators=(",", ":")).encode())
    return rules


_SCHEMAS = ("ops.py", "op_table.py", "contrib.py")
"""The modules of ``ir`` that rules are read by: which ops there are, in which sets, with which inputs."""


@cache
def _sources() -> str:
    return disk_cache.digest_of_code((_ROOT, *(_ROOT.parent / "ir" / name for name in _SCHEMAS)), ("onnx",))


# -- as JSON: a list is a tuple, an object is one of the notions that rules are made of

_CLASSES: dict[str, Any] = {
    name: kind
    for name, kind in vars(notions).items()
    if isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, Enum)) and kind.__module__ == notions.__name__
}
_FIELDS = {name: [f.name for f in fields(kind)] for name, kind in _CLASSES.items() if is_dataclass(kind)}


def _encoded(value: object) -> object:
    name = type(value).__name__
    if isinstance(value, tuple):
        return [_encoded(v) for v in value]
    if isinstance(value, frozenset):
        return {"set": sorted(value)}
    if isinstance(value, Enum):
        return {name: value.value}
    return {name: [_encoded(getattr(value, f)) for f in _FIELDS[name]]} if name in _FIELDS else value


def _decoded(value: object) -> object:
    if isinstance(value, list):
        return tuple([_decoded(v) for v in value])
    if not isinstance(value, dict):
        return value
    ((name, inner),) = value.items()
    if name == "set":
        return frozenset(inner)
    return _CLASSES[name](*map(_decoded, inner)) if name in _FIELDS else _CLASSES[name](inner)
