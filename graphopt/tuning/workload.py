"""Workloads of tuning: a nest before it is scheduled, and the values of its open sizes for measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from hashlib import sha256
from numbers import Integral

from graphopt.errors import UsageError
from graphopt.frozen import dataclass
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.lowering.loops.script import read, show


@dataclass(frozen=True, repr=False)
class Workload:
    """A nest as its script, and its open sizes in order: equal nests of any models are one workload.

    >>> tuning.Workload.of(nest)
    <Workload <Nest plus_one(x: float32[4, 8], y: float32[4, 8]): 1 block>>
    >>> workload.nest == nest
    True
    """

    script: str
    sizes: tuple[tuple[str, int], ...] = ()

    def __repr__(self) -> str:
        at = f" at {', '.join(f'{name}={n}' for name, n in self.sizes)}" if self.sizes else ""
        return f"<Workload {self.nest!r}{at}>"

    @staticmethod
    def of(nest: Nest, sizes: Mapping[str, int] | None = None) -> Workload:
        """The workload that a nest is, whether or not it is noted to be scheduled by default. UsageError where a size
        of it is missing, or is no size."""
        given = dict(sizes or {})
        names = [var.name for var in nest.sizes]
        if missing := [name for name in names if name not in given]:
            raise UsageError(
                f"{nest.name} has open sizes ({', '.join(missing)}): say what they are where it is measured, as in "
                f"sizes={{{missing[0]!r}: 64}}"
            )
        for name in names:
            if not isinstance(given[name], Integral) or given[name] < 0:
                raise UsageError(f"{name} is a size of {nest.name}, a number from 0 on, and not {given[name]!r}")
        plain = replace(nest, notes=tuple(n for n in nest.notes if n != BY_RULE))
        return Workload(show(plain), tuple((name, int(given[name])) for name in names))

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
