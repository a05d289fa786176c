"""Operator fusion: groups of nodes that share a nest, so that values between them are never stored.

A group has one node whose outputs leave it; every other member is read inside of the group only (it
is dominated by that node, as in TVM's FuseOps). Nodes are offered in reverse order to the one group
that reads them, and ``joins`` decides: fusing must neither repeat expensive work nor put two heavy
loops into one nest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir.graph import Graph, Node, Value
from graphopt.ir.types import Size
from graphopt.lowering.fuse.kinds import FusionKind, is_repeated, kind_of, loads_of, work
from graphopt.lowering.loops.compute import ElementwiseStage, Reduced, Tensor, producers_first
from graphopt.lowering.lower.lower import Described, FactsByValue, LoweredNode, Sizes

NODES = 48
"""Nodes that a group holds at most."""
INPUTS = 24
"""Values that a group reads at most."""
CHEAP = 4.0
"""Work per element (``kinds.work``) that may as well be done again as stored and read."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node in a group, with the costs that fusion weighs."""

    node: Node
    kind: FusionKind
    work: float
    """About how many multiplications one element takes."""
    shapes: tuple[tuple[Size, ...], ...]
    """The shapes of the outputs."""
    described: Described


@dataclass(frozen=True, slots=True)
class Group:
    """A group: members in order, of which only the last one's outputs leave it."""

    members: tuple[Member, ...]

    @property
    def sink(self) -> Member:
        """The member whose outputs leave the group."""
        return self.members[-1]

    @property
    def heavy(self) -> Member | None:
        """The reduction among the members; None where there is none."""
        return next((m for m in self.members if m.kind >= FusionKind.REDUCTION), None)

    @property
    def kind(self) -> FusionKind:
        """The fusion kind of the group."""
        return max(m.kind for m in self.members)


Decision: TypeAlias = Callable[[Member, Group], bool]
"""Whether a node joins the group that alone reads it."""


def group(
    graph: Graph,
    facts: FactsByValue,
    lowered: Mapping[int, LoweredNode],
    needed: Iterable[int],
    decide: Decision | None = None,
) -> list[Group]:
    """The groups of a graph's nodes, in topological order."""
    decide = joins if decide is None else decide
    order = {id: lowered[id] for id in needed}
    readers = _readers(order)
    inside: dict[int, int] = {}  # from a node to the one whose outputs leave its group
    groups: dict[int, Group] = {}
    for lowering in reversed(order.values()):
        if not isinstance(lowering, Described):
            continue
        member = _member(lowering, facts)
        reading = {r for v in member.node.outputs for r in readers.get(v, ())}
        homes = {inside.get(r) for r in reading}
        home = next(iter(homes)) if len(homes) == 1 else None
        is_kept = any(graph.is_output(v) for v in member.node.outputs)
        if home is not None and not is_kept and _fits(member, groups[home]) and decide(member, groups[home]):
            groups[home] = Group((member, *groups[home].members))
            inside[member.node.id] = home
        else:
            groups[member.node.id] = Group((member,))
            inside[member.node.id] = member.node.id
    return [groups[id] for id in reversed(groups)]


def _readers(order: Mapping[int, LoweredNode]) -> dict[Value, list[int]]:
    """For each value, the nodes and shape functions that read its elements."""
    readers: dict[Value, list[int]] = {}
    for id, lowering in order.items():
        read = lowering.reads if isinstance(lowering, Described | Sizes) else lowering.node.inputs
        for value in read:
            if value is not None:
                readers.setdefault(value, []).append(id)
    return readers


def _member(lowering: Described, facts: FactsByValue) -> Member:
    operations = 0.0
    for tensor in producers_first(lowering.tensors):
        if isinstance(tensor.stage, ElementwiseStage):
            operations += work(tensor.stage.values[tensor.port])
    shapes = tuple(facts[v].shape or () for v in lowering.node.outputs)
    return Member(lowering.node, kind_of(lowering.tensors), operations, shapes, lowering)


def _fits(member: Member, group: Group) -> bool:
    reads = {v for m in (member, *group.members) for v in m.described.reads}
    written = {v for m in (member, *group.members) for v in m.node.outputs}
    return len(group.members) < NODES and len(reads - written) <= INPUTS


def joins(member: Member, group: Group) -> bool:
    """Whether a node joins the group of its only reader: the rules of greedy fusion."""
    if FusionKind.OPAQUE in (member.kind, group.kind) or member.node.n_outputs > 1:
        return False
    if member.kind >= FusionKind.REDUCTION:
        return group.heavy is None and _is_epilogue(member, group)
    return all(_may_inline(member, m) for m in _readers_in(member, group))


def _readers_in(member: Member, group: Group) -> list[Member]:
    written = set(member.node.outputs)
    return [m for m in group.members if not written.isdisjoint(m.described.reads)]


def _is_epilogue(member: Member, group: Group) -> bool:
    """Whether all of the group works element by element on what the node makes."""
    return all(m.kind <= FusionKind.BROADCAST and m.shapes[0] == member.shapes[0] for m in _after(member, group))


def _after(member: Member, group: Group) -> list[Member]:
    """The members that depend on a node."""
    written = set(member.node.outputs)
    after = []
    for m in group.members:
        if not written.isdisjoint(m.described.reads):
            after.append(m)
            written.update(m.node.outputs)
    return after


def _may_inline(member: Member, reader: Member) -> bool:
    """Whether the reader may compute the node's elements where it reads them, instead of loading them."""
    if reader.kind == FusionKind.ANCHOR:
        return False
    if reader.kind == FusionKind.REDUCTION:
        return member.work <= CHEAP or _reads_once(member, reader)
    if reader.kind == FusionKind.INJECTIVE and member.work > CHEAP:
        return _reads_once(member, reader)
    return member.work <= CHEAP or member.shapes[0] == reader.shapes[0]


def _reads_once(member: Member, reader: Member) -> bool:
    """Whether the reader loads each element of the node at most once, as far as can be seen."""
    wanted = {k for k, v in enumerate(reader.node.inputs) if v in member.node.outputs}
    stages = {t.number: t for t in producers_first(reader.described.tensors) if t.stage is not None}
    count = 0
    for tensor in stages.values():
        if isinstance(tensor.stage, (ElementwiseStage, Reduced)):
            loads = dict.fromkeys(e for e in loads_of(tensor.stage) if _is_input(e.buffer, wanted))
            count += len(loads)
            if any(is_repeated(load, tensor.stage) for load in loads):
                return False
    return count <= 1 and len(wanted) == 1


def _is_input(buffer: object, positions: set[int]) -> bool:
    return isinstance(buffer, Tensor) and buffer.stage is None and buffer.name in {f"x{k}" for k in positions}
