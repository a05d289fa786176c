"""Targets as plain data: the ops that each takes, the rules that are for it, and what its work costs.

A target is a frozen value, and a file that anyone can write: ``graphopt/targets`` has those that come with graphopt.
``data`` says what there is to state, ``reading`` makes it of a file, and ``checks`` collect what is wrong in one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from graphopt.errors import UsageError, nearest
from graphopt.target.data import (
    DEVICE_FUNCTIONS,
    DEVICES,
    GPU,
    HOST,
    SIMULATION,
    DeviceKind,
    Layout,
    Prices,
    ProductPrices,
    Target,
    Variant,
    ops,
)
from graphopt.target.reading import FOLDER, SUFFIX, mistakes, read, shipped_names

__all__ = [
    "DEVICES", "DEVICE_FUNCTIONS", "FOLDER", "GPU", "HOST", "SIMULATION", "SUFFIX", "TARGETS",
    "DeviceKind", "Layout", "Prices", "ProductPrices", "Target", "Variant",
    "is_file", "mistakes", "ops", "read", "target",
]  # fmt: skip


@cache
def _shipped(name: str) -> Target:
    return read(FOLDER / (name + SUFFIX))


class _Targets(Mapping[str, Target]):
    """The targets that come with graphopt, each read when it is asked for."""

    def __getitem__(self, name: str) -> Target:
        if name not in shipped_names():
            raise KeyError(name)
        return _shipped(name)

    def __contains__(self, name: object) -> bool:
        return name in shipped_names()

    def __iter__(self) -> Iterator[str]:
        return iter(shipped_names())

    def __len__(self) -> int:
        return len(shipped_names())


TARGETS: Final[Mapping[str, Target]] = _Targets()
"""The targets that come with graphopt, by name; each is read when it is asked for."""

PORTABLE: Target
ORT: Target
CPU: Target
CUDA: Target
SIMULATED: Target
T4: Target


def __getattr__(name: str) -> Target:
    """A target that comes with graphopt, by its name in capitals: ``PORTABLE``."""
    spelled = name.lower().replace("_", "-")
    if not name.isupper() or spelled not in TARGETS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return TARGETS[spelled]


def is_file(name: str) -> bool:
    """Whether a text means a file, and not a target that comes with graphopt."""
    return name.endswith(SUFFIX) or "/" in name or os.sep in name


def target(name: str | os.PathLike[str] | Target, makes_models: bool | None = None) -> Target:
    """The target of this name, that of a file (``mine.toml``), or the target itself.

    UsageError, with the nearest names, where there is none, ReadError where its file is wrong; ``makes_models`` is
    which of them are of use: a name of another kind is refused, too.
    """
    if isinstance(name, Target):
        return name
    if not isinstance(name, str) or is_file(name):
        return read(name)
    if name in TARGETS:
        found = TARGETS[name]
        if makes_models is True and not found.makes_models:
            raise UsageError(f"the target {name} makes programs, no ONNX models: use graphopt compile")
        if makes_models is False and found.makes_models:
            raise UsageError(f"the target {name} makes ONNX models, no programs: use graphopt optimize")
        return found
    there = [t.name for t in TARGETS.values() if makes_models in (None, t.makes_models)]
    hint = nearest(name, there) or f"; there are {', '.join(there)}"
    raise UsageError(f"no target is called {name!r}{hint}")
