"""How a model is compiled, and what is said of it afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from graphopt.errors import UsageError
from graphopt.progress import Listener
from graphopt.target import CPU, Target

Dispatch = Literal["auto", "library", "own"]
"""Whoever is faster, the library wherever it can, or our own kernels."""

if TYPE_CHECKING:
    from graphopt.lowering.options import ByHand
    from graphopt.lowering.passes import Pipeline
    from graphopt.report import Step


def dispatch_of(text: str) -> Dispatch:
    """The way to dispatch products that is called so. UsageError where there is none."""
    for way in get_args(Dispatch):
        if way == text:
            found: Dispatch = way
            return found
    raise UsageError(f"products are not dispatched {text!r}: there are {', '.join(get_args(Dispatch))}")


@dataclass(frozen=True)
class Settings:
    """How a model is compiled: the options of ``graphopt.compile``."""

    threads: int = 1
    strict: bool = False
    jobs: int | None = None
    optimize: bool = True
    target: Target = CPU
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    listener: Listener | None = None
    pipeline: Pipeline | None = None
    """What is done to the graph, in place of what ``optimize`` and ``target`` say."""
    schedules: Mapping[str, ByHand] = field(default_factory=dict)
    costs: str | Path = "auto"
    """The prices to go by: ``graphopt.calibration.table.priced``."""
    dispatch: Dispatch = "auto"
    """Who computes products on a device: ``graphopt.lowering.cuda.dispatch``."""
    policy: str = "reals"
    """The weakest class of rules that rewrite the model: ``graphopt.optimize.soundness``."""


@dataclass(frozen=True)
class CompileReport:
    """What became of a model, or of one specialization of it."""

    steps: tuple[Step, ...]
    """What was done and how long it took; nothing for a program that was compiled before."""
    kernels: int
    """Kernels, equal ones counted once."""
    calls: int
    """Calls of kernels in one run, bodies counted once."""
    reference: tuple[tuple[str, str, str], ...] = ()
    """Of each node that is left to the reference evaluator: its name, its op, and why."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for each node that is left to the reference evaluator."""
        return tuple(f"{name} ({op}) runs by reference, which is slow: {why}" for name, op, why in self.reference)
