"""Workloads of tuning: a nest before it is scheduled, and the values of its open sizes for measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256

from graphopt.errors import UsageError
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read, show


@dataclass(frozen=True)
class Workload:
    """A nest as its script, and its open sizes in order: equal nests of any models are one workload."""

    script: str
    sizes: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(nest: Nest, sizes: Mapping[str, int] | None = None) -> Workload:
        """The workload that a nest is. UsageError where a size of it is missing."""
        given = dict(sizes or {})
        names = [var.name for var in nest.sizes]
        if missing := [name for name in names if name not in given]:
            raise UsageError(
                f"{nest.name} has open sizes ({', '.join(missing)}): say what they are where it is measured"
            )
        return Workload(show(nest), tuple((name, int(given[name])) for name in names))

    @cached_property
    def nest(self) -> Nest:
        """The nest. ScriptError where the script is none."""
        return _read(self.script)

    @cached_property
    def key(self) -> str:
        """A digest of the script and the sizes: 40 hexadecimal digits."""
        return sha256(repr((self.script, self.sizes)).encode()).hexdigest()[:40]


@lru_cache(maxsize=256)
def _read(script: str) -> Nest:
    return read(script)
