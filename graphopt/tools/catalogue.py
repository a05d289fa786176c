"""Catalogue of the families of rewrites known in the field, read from the file beside the standard rules."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache

from graphopt.frozen import dataclass
from graphopt.rewrite.ruleset import standard_folder


@dataclass(frozen=True, slots=True)
class Family:
    """Rewrites of one kind: what rules are counted by."""

    id: str
    name: str
    meaning: str
    sound: str
    """E exact, P exact under a precondition, R exact over the reals, A changes the function, L layout or graph only."""
    who: str
    """Who else has it, in the abbreviations that the file explains."""
    apart: str = ""
    """Where graphopt does it in a place that leaves no entry in a report; empty where rules and passes do it."""


@cache
def catalogue() -> Mapping[str, Family]:
    """All families by ID, in order."""
    entries = tomllib.loads((standard_folder() / "families.toml").read_text(encoding="utf-8"))
    return {id: Family(id, **entry) for id, entry in entries.items()}


def ids(families: str) -> tuple[str, ...]:
    """The families that a rule, pass or rewrite names: ``D1,D2`` names two."""
    return tuple(family for family in families.split(",") if family)
