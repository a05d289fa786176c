"""Lowering steps: legalize, fuse, lower to programs, schedule, emit and plan memory, each a function of the lowering
state.

Any of them can be run alone, left out for one's own, or followed by one's own: ``Lowered`` is all that they hand on.
``graphopt.compile`` runs them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from graphopt.errors import SENSELESS, UsageError, nearest_or_some, words_of
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph, Value
from graphopt.ir.types import Symbol
from graphopt.kernels.kernel import Kernel
from graphopt.lowering.emit.kernel_source import EmittedKernel, LibraryCall
from graphopt.lowering.fuse.groups import Group, group
from graphopt.lowering.fuse.nests import write, write_sizes
from graphopt.lowering.link.control_flow import moves_of
from graphopt.lowering.link.lowered import (
    Brought,
    Control,
    FusedItem,
    Lowered,
    LoweredScope,
    NestKey,
    Scheduled,
    ScopeItem,
    View,
)
from graphopt.lowering.link.moves import SizeCheck
from graphopt.lowering.link.options import BY_RULE, Options
from graphopt.lowering.link.plan_memory import Planner
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.sizes import symbols_in
from graphopt.lowering.lower.embedded_programs import EmbeddedProgram, label_of
from graphopt.lowering.lower.lower import (
    Bodied,
    Described,
    FactsByValue,
    LoweredNode,
    Sizes,
    Unlowered,
    Viewed,
    inferred,
    lower,
    sizes_name,
)
from graphopt.lowering.lower.unlowered import name_of


def legalize_ops(graph: Graph, options: Options = BY_RULE) -> Lowered:
    """Legalization: a tensor expression, a view, control flow, or a reference call for each node.

    Raises NeedsValues where that depends on the elements of some inputs.
    """
    graph, facts = inferred(graph)
    asked: dict[str, Any] = {"takes": options.takes, "failed": options.failed, "is_for_host": options.is_for_host}
    asked["states"] = options.states
    return Lowered(graph, facts, lower(graph, facts, **asked), options)


class NestFailed(Exception):  # noqa: N818  it is an answer, not an error
    """Something went wrong with the nest of some nodes, which are left to the reference evaluator by ``options``."""

    def __init__(self, options: Options, nodes: Iterable[str], error: Exception) -> None:
        why = f"its lowering failed: {words_of(error)}"
        super().__init__(f"{', '.join(nodes)}: {why}")
        self.options = replace(options, failed={**options.failed, **dict.fromkeys(nodes, why)})


@contextmanager
def _nest_of(options: Options, nodes_of: Callable[[], Collection[str]]) -> Iterator[None]:
    """Within it what goes wrong is raised as NestFailed, where that nodes are left out is something new."""
    try:
        yield
    except SENSELESS as error:
        nodes = nodes_of()
        if nodes and not options.failed.keys() >= set(nodes):
            raise NestFailed(options, nodes, error) from error
        raise


def fuse_ops(program: Lowered) -> Lowered:
    """Operator fusion: groups of nodes that share a nest, and all other items, in order."""
    main = _grouped(program.graph, program.facts, program.lowered, program.options, False)
    shapes = {v: (state, main.facts[v].shape or ()) for state in program.options.states for v in state.windows}
    return replace(program, main=replace(main, strides={v: s.strides(shape) for v, (s, shape) in shapes.items()}))


def _grouped(
    graph: Graph, facts: FactsByValue, lowered: Mapping[int, LoweredNode], options: Options, is_branch: bool
) -> LoweredScope:
    order = needed(graph, lowered, facts)
    groups = {g.sink.node.id: g for g in group(graph, facts, lowered, order, options.fuse)}
    items: list[ScopeItem] = []
    for id in order:
        lowering = lowered[id]
        match lowering:
            case Described():
                items += [groups[id]] if id in groups else []
            case Viewed():
                items.append(View(lowering))
            case Sizes():
                items.append(_shape_function(graph, lowering, options, is_branch))
            case Bodied():
                inside = is_branch or lowering.node.op == "If"
                bodies = {
                    name: _grouped(body.graph, body.facts, body.lowered, options, inside)
                    for name, body in lowering.bodies.items()
                }
                items.append(Control(lowering, bodies))
            case EmbeddedProgram():
                items.append(Brought((name_of(graph, lowering.node),), lowering, lowering.plain))
            case _:
                items.append(lowering)
    left = (low.found for low in lowered.values() if isinstance(low, Sizes))
    return LoweredScope(
        graph, {**facts, **{v: fact for found in left for v, fact in found.items()}}, lowered, tuple(items), is_branch
    )


def _shape_function(graph: Graph, lowering: Sizes, options: Options, is_branch: bool) -> FusedItem:
    names = (sizes_name(graph, lowering.node),)
    with _nest_of(options, lambda: names):
        wrote = write_sizes(lowering, is_branch)
    label = f"sizes of {lowering.node.op}"
    return FusedItem(names, label, wrote, wrote.nest, wrote.nest, {}, binds=lowering.symbols)


def lower_to_programs(program: Lowered) -> Lowered:
    """Lowering to tensor programs: a nest for each group, with prepared constants, and copies for control flow."""

    def written(scope: LoweredScope, item: ScopeItem) -> ScopeItem:
        match item:
            case Group():
                return _fused(scope, item, program.options)
            case View() if scope.is_branch:
                before, after = (
                    scope.facts[v].shape or () for v in (item.lowering.source, Value(item.lowering.node.id))
                )
                return replace(item, check=SizeCheck(item.lowering.node.op, before, after).sized())
            case Control():
                return replace(item, moves=moves_of(scope.facts, item.lowering))
        return item

    return replace(program, main=program.scope.changed(written))


def _fused(scope: LoweredScope, group: Group, options: Options) -> FusedItem:
    nodes = tuple(name_of(scope.graph, m.node) for m in group.members)
    with _nest_of(options, lambda: nodes):
        return _written(scope, group, options, nodes)


def _written(scope: LoweredScope, group: Group, options: Options, nodes: tuple[str, ...]) -> FusedItem:
    # a branch may not be taken
    has_tables = options.is_for_host and not options.is_by_hand(nodes)
    is_branch, is_for_host, strides = scope.is_branch, options.is_for_host, scope.strides
    wrote = write(scope.graph, scope.facts, group, is_branch, is_for_host, strides=strides, has_tables=has_tables)
    reads = zip(wrote.nest.buffers, wrote.inputs, strict=False)
    constants = {b: c for b, v in reads if (c := _constant_of(scope, v)) is not None}
    item = FusedItem(nodes, "+".join(label_of(m.node) for m in group.members), wrote, wrote.nest, wrote.nest, constants)
    if options.is_by_hand(nodes):
        return item
    prepared = options.prepare(item.nest, item.plain)
    laid = options.lay(item.nest if prepared is None else prepared.nest, constants)
    unlaid = item.nest if prepared is None else prepared.nest
    return replace(item, nest=unlaid if laid is None else laid.nest, unlaid=unlaid, prepared=prepared, laid=laid)


def _constant_of(scope: LoweredScope, value: Value) -> Constant | None:
    return scope.graph.constant_of(value) or scope.facts[value].constant


def schedule(program: Lowered) -> Lowered:
    """Scheduling: one or more nests for each nest, by the user's schedule or else the default one; equal nests once.

    Raises UsageError where a node is scheduled by hand that has no nest.
    """
    options, items = program.options, [i for i in program.scope.walk() if isinstance(i, FusedItem | Brought)]
    there = {name for item in items for name in item.nodes}
    for name in options.schedules:
        if name not in there:
            raise UsageError(f"no nest computes a node {name!r}{nearest_or_some(name, sorted(there))}")
    by_hand = {
        (item.nodes, item.nest): nest
        for item in items
        if (nest := options.scheduled_by_hand(item.nest, item.nodes)) is not None
    }
    program = replace(program, by_hand=by_hand)
    parts: dict[NestKey, tuple[Scheduled, ...]] = {}
    for key in dict.fromkeys(program.nests()):
        with _nest_of(options, partial(_nodes_of, program, key)):
            parts[key] = scheduled(*key, options)
    return replace(program, scheduled=parts)


def _nodes_of(program: Lowered, key: NestKey) -> list[str]:
    """The names of the nodes that a nest computes; those of embedded programs have no other way."""
    items = (item for item in program.scope.walk() if isinstance(item, FusedItem))
    return [name for item in items if (item.nest, False) == key for name in item.nodes]


def scheduled(nest: Nest, is_ready: bool, options: Options) -> tuple[Scheduled, ...]:
    """The scheduled nests of a nest; it stays as it is where it ``is_ready``."""
    if is_ready:
        return (Scheduled(nest, nest),)
    return tuple(Scheduled(part, options.schedule(part)) for part in options.parts(nest))


def emit(program: Lowered, begun: Callable[[Kernel], object] | None = None) -> Lowered:
    """Code generation: the kernels of each nest; ``begun`` is called with each as soon as it is emitted."""
    kernels: dict[NestKey, tuple[tuple[Scheduled, EmittedKernel], ...]] = {}
    reported: set[Kernel] = set()
    for key, parts in program.scheduled.items():
        with _nest_of(program.options, partial(_nodes_of, program, key)):
            kernels[key] = emitted(parts, program.options)
        for _, written in kernels[key]:
            if begun is not None and not isinstance(written, LibraryCall) and written.kernel not in reported:
                begun(written.kernel)
                reported.add(written.kernel)
    return replace(program, kernels=kernels)


def emitted(parts: Iterable[Scheduled], options: Options) -> tuple[tuple[Scheduled, EmittedKernel], ...]:
    """The kernels of consecutive nests, each with the nest that determines its operation count."""
    kernels: list[tuple[Scheduled, EmittedKernel]] = []
    for part in parts:
        replacements = options.emit(part.nest)
        kernels += [(Scheduled(part.before if len(replacements) == 1 else n, n), kernel) for n, kernel in replacements]
    return tuple(kernels)


def planner_of(nest: Nest, options: Options, is_ready: bool = False) -> Planner:
    """A memory planner for calls of one nest, which gets the default schedule where it is not ready."""
    parts = scheduled(nest, is_ready, options)
    return Planner({(nest, is_ready): parts}, {(nest, is_ready): emitted(parts, options)})


def needed(graph: Graph, lowered: Mapping[int, LoweredNode], facts: FactsByValue) -> list[int]:
    """The live nodes and shape functions of a graph, in topological order: the outputs depend on their elements, or
    live ones on sizes that they find out, or they have effects."""
    wanted = {v for v in graph.outputs if v is not None}
    sizes: set[Symbol] = set()
    order: list[int] = []
    for id in reversed(list(lowered)):
        lowering = lowered[id]
        if isinstance(lowering, Sizes):
            is_live = not sizes.isdisjoint(lowering.symbols) or any(v in wanted for v in lowering.found)
        else:
            is_live = any(v in wanted for v in lowering.node.outputs) or graph.has_effects(lowering.node)
            if isinstance(lowering, Unlowered | Bodied):
                is_live = is_live or any(symbol in sizes for symbol, *_ in lowering.binds)
        if is_live:
            order.append(id)
            wanted.update(reads(lowering))
            sizes.update(_sizes(lowering, facts))
    return order[::-1]


def _sizes(lowering: LoweredNode, facts: FactsByValue) -> Iterator[Symbol]:
    """The symbols that a lowering may use: those of the values of a node and of its bodies."""
    node = lowering.node
    known = [facts[v] for v in (*node.inputs, *node.outputs) if v is not None]
    if isinstance(lowering, Bodied):
        known += [fact for body in lowering.bodies.values() for fact in body.facts.values()]
    for fact in known:
        for size in (*(fact.shape or ()), *(fact.elements or ())):
            yield from symbols_in(size)


def reads(lowering: LoweredNode) -> Iterable[Value]:
    """The values whose elements a node's lowering reads."""
    match lowering:
        case Described() | Sizes():
            return lowering.reads
        case Viewed():
            return (lowering.source,)
    return tuple(v for v in lowering.node.inputs if v is not None)
