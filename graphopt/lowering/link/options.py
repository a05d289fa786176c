"""Lowering options: fusion, scheduling, code generation, and the nodes to lower."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from graphopt.errors import UsageError
from graphopt.frozen import dataclass
from graphopt.ir.graph import Node
from graphopt.lowering.cpu.compact_buffers import compacted
from graphopt.lowering.cpu.constant_precompute import PrecomputedNest, prepared
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.cpu.loop_fission import divided, separated
from graphopt.lowering.cpu.weight_packing import Laid, laid_out
from graphopt.lowering.emit.kernel_source import Emitted, EmittedKernel, emit
from graphopt.lowering.fuse.groups import Decision, Group, Member, joins
from graphopt.lowering.loops.nest import Buffer, Nest
from graphopt.lowering.loops.wellformed import check
from graphopt.lowering.lower.kept_states import KeptState
from graphopt.lowering.schedule.decomposed import decomposed
from graphopt.lowering.schedule.schedule import Schedule

ByHand: TypeAlias = "Nest | Callable[[Schedule], object]"
"""A nest that was scheduled already, or what is done to a schedule of it."""


def whole(nest: Nest) -> tuple[Nest, ...]:
    """No split: the nest in one piece."""
    return (nest,)


def as_written(nest: Nest) -> Nest:
    """No schedule: the nest in its serial loops."""
    return nest


def for_the_host(nest: Nest, contract: bool = True) -> tuple[tuple[Nest, Emitted], ...]:
    """The host's kernels of a nest: one for each parallel loop."""
    return tuple((part, emit(part, contract)) for part in divided(decomposed(compacted(nest))))


def as_they_are(nest: Nest, constants: Collection[Buffer]) -> None:
    """No preparation: constants in their own layout."""
    return


def alone(member: Member, group: Group) -> bool:
    """No fusion: no node joins another."""
    return False


def every_node(node: Node) -> bool:
    """No restriction: all nodes are lowered."""
    return True


@dataclass(frozen=True, slots=True)
class Options:
    """Lowering options of a graph; ``schedules`` holds the users' schedules of single nodes, by name."""

    fuse: Decision = joins
    parts: Callable[[Nest], tuple[Nest, ...]] = separated
    """A nest as nests that follow each other,"""
    schedule: Callable[[Nest], Nest] = scheduled
    """each of which is scheduled by itself."""
    emit: Callable[[Nest], Sequence[tuple[Nest, EmittedKernel]]] = for_the_host
    """The kernels of a nest that is scheduled, in order, each with the part of it that it does."""
    lay: Callable[[Nest, Collection[Buffer]], Laid | None] = laid_out
    """The constants with a new layout for a nest with a default schedule."""
    prepare: Callable[[Nest, Collection[Buffer]], PrecomputedNest | None] = prepared
    """The arrays computed from constants ahead of time for such a nest."""
    is_for_host: bool = True
    """Whether ops may be computed in tiles by functions that the host has."""
    takes: Callable[[Node], bool] = every_node
    """The nodes that become loops; others are left to ONNX Runtime, or to the reference evaluator."""
    threads: int = 1
    """The threads of what ONNX Runtime computes."""
    schedules: Mapping[str, ByHand] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    """Why nodes are left out though they have a nest, by name."""
    states: tuple[KeptState, ...] = ()
    """The states of the graph that its program keeps."""

    def is_by_hand(self, nodes: tuple[str, ...]) -> bool:
        """Whether a user schedules one of these nodes."""
        return any(n in self.schedules for n in nodes)

    def scheduled_by_hand(self, nest: Nest, nodes: tuple[str, ...]) -> Nest | None:
        """The nest of these nodes with the user's schedule; None where there is none.

        Raises UsageError for a nest that takes other parameters.
        """
        name = next((n for n in nodes if n in self.schedules), None)
        if name is None:
            return None
        how = self.schedules[name]
        if not isinstance(how, Nest):
            schedule = Schedule(nest)
            how(schedule)
            return schedule.nest
        if how.params != nest.params:
            raise UsageError(
                f"the nest for {name!r} takes {_listed(how)}, and the model needs one that takes {_listed(nest)}: "
                "schedule the one in compiled.nests"
            )
        check(how)
        return how


BY_RULE = Options()
"""All is done by rule."""


def _listed(nest: Nest) -> str:
    return ", ".join(p.name for p in nest.params)
