"""Lowering state: a graph, and the results of the lowering steps so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

from graphopt.display import Scripted
from graphopt.frozen import dataclass
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph, Value
from graphopt.ir.types import Size, Symbol
from graphopt.lowering.cpu.constant_precompute import PrecomputedNest
from graphopt.lowering.cpu.weight_packing import Laid
from graphopt.lowering.emit.kernel_source import EmittedKernel
from graphopt.lowering.fuse.groups import Group
from graphopt.lowering.fuse.nests import FusedNest as Wrote
from graphopt.lowering.link.linked import Linked, source_of
from graphopt.lowering.link.moves import Move, Sized
from graphopt.lowering.link.options import BY_RULE, Options
from graphopt.lowering.loops.nest import Buffer as NestBuffer
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import show
from graphopt.lowering.lower.embedded_programs import Called, EmbeddedProgram, label_of
from graphopt.lowering.lower.lower import (
    Appended,
    Bodied,
    Described,
    FactsByValue,
    LoweredNode,
    Sizes,
    Unlowered,
    Viewed,
)
from graphopt.lowering.lower.unlowered import name_of

NestKey: TypeAlias = tuple[Nest, bool]
"""A nest, and whether it is to be compiled as it is."""


@dataclass(frozen=True, slots=True, eq=False)
class FusedItem:
    """A group of nodes computed by one nest."""

    nodes: tuple[str, ...]
    label: str
    wrote: Wrote
    """The nest as users schedule it, with the values that its parameters are."""
    nest: Nest
    """The nest as it is scheduled by rule: with constants laid out for it, and without what is computed from constants
    ahead of time."""
    unlaid: Nest
    """The same, with constants as they are."""
    constants: Mapping[NestBuffer, Constant]
    """The constants that the nest reads."""
    prepared: PrecomputedNest | None = None
    laid: Laid | None = None
    is_ready: bool = False
    binds: tuple[Symbol, ...] = ()
    """The symbols that are known once it ran, as the elements of its first output."""

    @property
    def written(self) -> Nest:
        """The nest before scheduling, as users see it."""
        return self.wrote.nest

    @property
    def plain(self) -> dict[NestBuffer, Constant]:
        """The constants that the nest reads in their own layout."""
        return {b: c for b, c in self.constants.items() if b.dtype == c.dtype}


@dataclass(frozen=True, slots=True, eq=False)
class Brought:
    """A node with an embedded program."""

    nodes: tuple[str, ...]
    lowering: EmbeddedProgram
    nest: Nest

    @property
    def label(self) -> str:
        """The name of the program."""
        return self.nest.name

    @property
    def is_ready(self) -> bool:
        """Whether the program is scheduled already."""
        return self.lowering.is_ready

    @property
    def written(self) -> Nest:
        """The nest before scheduling, as users see it."""
        return self.nest


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A view: a node whose output is a value in another shape, with a check of its size where a branch needs one."""

    lowering: Viewed
    check: Sized | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Control:
    """An If, Loop or Scan: its bodies, and the copies of values into and out of them."""

    lowering: Bodied
    bodies: Mapping[str, LoweredScope]
    moves: Mapping[Move, Sized] = field(default_factory=dict)


ScopeItem: TypeAlias = Group | FusedItem | Brought | View | Appended | Control | Called | Unlowered


@dataclass(frozen=True, slots=True, eq=False)
class LoweredScope:
    """One graph of a program, or body, and its items in execution order."""

    graph: Graph
    facts: FactsByValue
    lowered: Mapping[int, LoweredNode]
    items: tuple[ScopeItem, ...]
    is_branch: bool = False
    """Whether it may not be run at all."""
    strides: Mapping[Value, Sequence[Size]] = field(default_factory=dict)
    """Those of values that do not lie row-major."""

    def walk(self) -> Iterator[ScopeItem]:
        """All items, each before those of its bodies."""
        for item in self.items:
            yield item
            if isinstance(item, Control):
                for body in item.bodies.values():
                    yield from body.walk()

    def changed(self, change: Callable[[LoweredScope, ScopeItem], ScopeItem]) -> LoweredScope:
        """The scope with each item changed, those of bodies first."""
        items = []
        for item in self.items:
            if isinstance(item, Control):
                bodies = {name: body.changed(change) for name, body in item.bodies.items()}
                item = replace(item, bodies=bodies)
            items.append(change(self, item))
        return replace(self, items=tuple(items))


@dataclass(frozen=True, slots=True, eq=False)
class Scheduled:
    """A scheduled nest: before, which determines its operation count, and after."""

    before: Nest
    nest: Nest


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Lowered(Scripted):
    """A graph with the results of the lowering steps so far; each step adds one."""

    graph: Graph
    facts: FactsByValue
    lowered: Mapping[int, LoweredNode]
    """The lowering of each node: ``LegalizeOps``."""
    options: Options = BY_RULE
    main: LoweredScope | None = None
    """The items of the program: groups of nodes (``FuseOps``), then nests (``LowerToPrograms``)."""
    by_hand: Mapping[tuple[tuple[str, ...], Nest], Nest] = field(default_factory=dict)
    """The nests of nodes that somebody scheduled by hand: ``Schedule``."""
    scheduled: Mapping[NestKey, tuple[Scheduled, ...]] = field(default_factory=dict)
    """Each nest as the nests that run in its place: ``Schedule``."""
    kernels: Mapping[NestKey, tuple[tuple[Scheduled, EmittedKernel], ...]] = field(default_factory=dict)
    """The kernels of each nest: ``Emit``."""
    linked: Linked | None = None
    """Buffers, and the steps that call kernels: ``PlanMemory``."""

    @property
    def scope(self) -> LoweredScope:
        """The items of the program; fails before they exist."""
        assert self.main is not None, "no nodes are fused yet"
        return self.main

    @property
    def plan(self) -> Linked:
        """The plan of the program; fails before it exists."""
        assert self.linked is not None, "no memory is planned yet"
        return self.linked

    def nests(self) -> Iterator[NestKey]:
        """The nests to be scheduled, in order of first execution, with repetitions."""
        for item in self.scope.walk():
            if isinstance(item, FusedItem | Brought):
                replacement = self.by_hand.get((item.nodes, item.nest))
                yield (item.nest, item.is_ready) if replacement is None else (replacement, True)
            elif isinstance(item, View) and item.check is not None:
                yield item.check[0], False
            elif isinstance(item, Control):
                yield from ((nest, False) for nest, _ in item.moves.values())

    def with_schedules(self, change: Callable[[Nest], Nest]) -> Lowered:
        """The program with each scheduled nest changed, for steps after ``Schedule``."""
        scheduled = {
            key: tuple(replace(part, nest=change(part.nest)) for part in parts) for key, parts in self.scheduled.items()
        }
        return replace(self, scheduled=scheduled)

    def __repr__(self) -> str:
        return f"<Lowered of {self.graph!r}>"

    def script(self) -> str:
        """The result of the last step as text: nodes, groups, nests, kernels, or the plan."""
        if self.linked is not None:
            return self.linked.script()
        if self.kernels:
            return "\n".join(dict.fromkeys(source_of(w) for parts in self.kernels.values() for _, w in parts))
        if self.scheduled:
            return "\n".join(dict.fromkeys(show(part.nest) for parts in self.scheduled.values() for part in parts))
        if self.main is None:
            return "\n".join(f"{name_of(self.graph, low.node)}: {_fate(low)}" for low in self.lowered.values())
        items = list(self.main.walk())
        if any(isinstance(item, Group) for item in items):
            return "\n".join(_group(self.graph, item) for item in items if isinstance(item, Group))
        nests = ((item.nodes, item.nest) for item in items if isinstance(item, FusedItem | Brought))
        return "\n".join(f"# {', '.join(nodes)}\n{show(nest)}" for nodes, nest in nests)


def _group(graph: Graph, group: Group) -> str:
    return " + ".join(f"{label_of(m.node)} ({m.kind.name.lower()})" for m in group.members)


def _fate(lowering: LoweredNode) -> str:
    """The lowering of a node, in words."""
    op = label_of(lowering.node)
    match lowering:
        case Described():
            return f"{op} is computed by loops"
        case Viewed():
            return f"{op} is a view"
        case Appended():
            return f"{op} is written where the state lies"
        case Bodied():
            return f"{op} is control flow"
        case Sizes():
            return f"sizes of {op} are computed before it"
        case Unlowered(reason=reason):
            return f"{op} is left out: {reason}"
        case EmbeddedProgram(reason=reason):
            return f"{op} stays by itself: {reason}"
    return f"{op} brings what computes it"
