"""Settings of a compilation, and the report of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from graphopt.calibration.schedule_tables import default_path
from graphopt.display import Displayed, counted
from graphopt.errors import UsageError
from graphopt.frozen import dataclass
from graphopt.progress import Listener
from graphopt.runtime.host import UnloweredNode
from graphopt.target import CPU, Target
from graphopt.verify.verification import OFF, Verification

Dispatch = Literal["auto", "library", "own"]
"""Whoever is faster, the library wherever it can, or our own kernels."""

Tuned = Literal["auto", "require", "off"]
"""By the schedules that were tuned, where some were, or by them alone, or by none of them."""

if TYPE_CHECKING:
    from graphopt.lowering.link.options import ByHand
    from graphopt.lowering.lower.kept_states import KeptState
    from graphopt.lowering.module.passes import Pipeline
    from graphopt.run.report import Report, StepReport
    from graphopt.run.steps import OwnStep


def dispatch_of(text: str) -> Dispatch:
    """The way to dispatch products that is called so. UsageError where there is none."""
    return cast(Dispatch, _word("products are not dispatched", text, get_args(Dispatch)))


def tuned_of(text: str) -> Tuned:
    """The use of tuned schedules that is called so. UsageError where there is none."""
    return cast(Tuned, _word("tuned schedules are not used", text, get_args(Tuned)))


def verify_of(given: int | str) -> int | str:
    """How programs are checked. UsageError for what is no number of random inputs, ``off`` or ``require``."""
    if given in ("off", "require") or (isinstance(given, int) and given >= 0):
        return given
    raise UsageError(f"verify={given!r}: expected a number of draws, 'off', or 'require'")


def _word(complaint: str, text: str, words: Sequence[str]) -> str:
    if text not in words:
        raise UsageError(f"{complaint} {text!r}: there are {', '.join(words)}")
    return text


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
    tuned: Tuned = "auto"
    database: Path | None = None
    """Where tuned schedules are, in place of the user's: ``graphopt.tuning.best_schedules``."""

    verify: int | str = "off"
    """Whether programs are checked against the model: a number of random inputs, ``off`` or ``require``."""

    memory: int | None = None
    """How many bytes running a program may take; None for what its model's size says."""

    steps: Mapping[str, OwnStep] = field(default_factory=dict)
    """Steps of the user's own in the place of others: ``graphopt.run.steps``."""

    states: tuple[KeptState, ...] = ()
    """The states of the graph that its program keeps: ``CompiledModel.bind_state``."""

    @property
    def contract(self) -> bool:
        """Whether kernels may contract products and sums of different ops, which are then rounded once."""
        return self.policy not in ("exact", "finite")

    @property
    def tuned_in(self) -> Path | None:
        """Where tuned schedules are that are to be gone by; None for none."""
        path = self.database or default_path()
        return None if self.tuned == "off" or not (self.demands_tuned or path.exists()) else path

    @property
    def demands_tuned(self) -> bool:
        """Whether it is an error if nothing can be read there."""
        return self.tuned == "require" or self.database is not None


@dataclass(frozen=True, repr=False)
class CompileReport(Displayed):
    """What became of a model, or of one specialization of it."""

    steps: tuple[StepReport, ...]
    """What was done and how long it took; nothing for a program that was compiled before."""
    kernels: int
    """Kernels, equal ones counted once."""
    calls: int
    """Calls of kernels in one run, bodies counted once."""
    unlowered: tuple[UnloweredNode, ...] = ()
    """The nodes that no kernel computes: name, op, why, and whether ONNX Runtime does or ONNX's reference evaluator."""
    rewriting: Report | None = None
    """What was done to the graph before it was lowered; None where nothing was, or the program was compiled before."""
    verification: Verification = OFF
    """How the program compared with the model; for a program that was compiled before, what was found then."""
    unfused: Mapping[str, str] = field(default_factory=dict)
    """The nodes whose tensor programs are compiled by themselves, by name, and why they fuse with nothing."""

    def __repr__(self) -> str:
        return f"<CompileReport: {self.summary}, {counted(len(self.unlowered), 'node')} in no kernel>"

    @property
    def summary(self) -> str:
        """How many kernels there are, and calls of them."""
        return f"{counted(self.kernels, 'kernel')} in {counted(self.calls, 'call')}"

    @property
    def reference(self) -> tuple[tuple[str, str, str], ...]:
        """Deprecated: the names, ops and reasons of ``unlowered``."""
        return tuple(node[:3] for node in self.unlowered)

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for each node that no kernel computes."""
        return tuple(f"{name} ({op}) runs in {engine}: {why}" for name, op, why, engine in self.unlowered)
