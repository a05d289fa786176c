"""Nests of fused groups: tensor expressions of the nodes composed, with cheap ones inlined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from graphopt.frozen import dataclass
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Graph, Value
from graphopt.ir.types import Size, SizeAtom
from graphopt.lowering.fuse.byte_tables import tabulated
from graphopt.lowering.fuse.groups import CHEAP, Group, Member
from graphopt.lowering.fuse.kinds import is_repeated, loads_of, size, work
from graphopt.lowering.index.arithmetic import polynomial
from graphopt.lowering.loops import compute
from graphopt.lowering.loops.compute import (
    ComputeStage,
    ElementwiseStage,
    Reduced,
    Tensor,
    inline,
    placeholder,
    producers_first,
)
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, const, equal, variables, walk
from graphopt.lowering.loops.nest import (
    Block,
    Buffer,
    Check,
    Nest,
    Seq,
    Stmt,
    expressions,
    rename_buffers,
    seq,
    statements,
)
from graphopt.lowering.loops.sizes import size_of
from graphopt.lowering.lower.lower import FactsByValue, Sizes, inputs_read, is_written, known_tensor
from graphopt.lowering.operators.node import operation_of
from graphopt.lowering.operators.operation import DTYPES, SizeVars, held
from graphopt.lowering.operators.table import describe

PARTS = 240
"""Parts that an expression has at most after others were written into it."""
TWICE = 2 * CHEAP
"""Work per element that is done again where it is read in several places, rather than stored."""


@dataclass(frozen=True, slots=True)
class FusedNest:
    """A nest, and the values of its parameters, in order: inputs, outputs, and sizes."""

    nest: Nest
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    sizes: tuple[SizeAtom, ...]
    conditions: tuple[Check, ...]
    """Conditions on sizes, over the variables of ``atoms``, that the nest does not check itself."""
    atoms: Mapping[Var, SizeAtom]


def write(
    graph: Graph,
    facts: FactsByValue,
    group: Group,
    is_checking: bool = False,
    is_for_host: bool = True,
    *,
    size_vars: type[SizeVars] = SizeVars,
    is_inlined: bool = True,
    strides: Mapping[Value, Sequence[Size]] | None = None,
    has_tables: bool = False,
) -> FusedNest:
    """The nest of a group, with its checks of sizes inside where it ``is_checking``.

    ``is_for_host`` is as in ``Operation``, and ``size_vars`` makes variables of open sizes. All tensors are stored
    where it is not ``is_inlined``. ``strides`` are those of values that do not lie row-major. Functions of one byte are
    looked up where it ``has_tables``.
    """
    # In order of the members: tensors from outside are placeholders, each node's tensors are built on its inputs', and
    # sizes that nothing depends on are no parameters.
    values = (v for m in group.members for v in (*m.node.inputs, *m.node.outputs) if v is not None)
    sizes = size_vars(map(facts.get, values))
    tensors: dict[Value, Tensor] = {}
    sources: dict[Tensor, Value] = {}
    read_from_memory = {v for m in group.members for v in m.described.reads}
    for member in group.members:
        node = member.node
        for value in (*node.inputs, *member.described.found):
            if value is not None and value not in tensors:
                fact = member.described.found.get(value) or facts[value]
                tensors[value] = _source(fact, sizes, value in read_from_memory, f"x{len(sources)}")
                if tensors[value].stage is None:
                    sources[tensors[value]] = value
        tensors.update(zip(node.outputs, _described(graph, facts, member, sizes, tensors, is_for_host), strict=False))
    results = {v: tensors[v] for v in group.sink.node.outputs if v in tensors}
    fits = _fitting(group.sink.node.op, results, facts, sizes)
    return _nest(sources, results, sizes, is_checking, is_inlined, strides or {}, fits, has_tables)


def write_sizes(low: Sizes, is_checking: bool = False) -> FusedNest:
    """The nest of a shape function."""
    return _nest(low.sources, dict(zip(low.found, low.tensors, strict=True)), low.sizes, is_checking)


def _nest(
    sources: Mapping[Tensor, Value],
    results: Mapping[Value, Tensor],
    sizes: SizeVars,
    is_checking: bool,
    is_inlined: bool = True,
    strides: Mapping[Value, Sequence[Size]] = MappingProxyType({}),
    checks: Sequence[Check] = (),
    has_tables: bool = False,
) -> FusedNest:
    """The nest of results, by the values that they are, and that the tensors that are read are; ``checks`` come first
    in it."""
    outputs = inlined([*results.values()]) if is_inlined else tuple(results.values())
    outputs = tuple(map(tabulated, outputs)) if has_tables else outputs
    read = inputs_read(outputs)
    steps = {v: tuple(map(sizes, strides[v])) for v in (*(sources[t] for t in read), *results) if v in strides}
    whole = compute.nest("kernel", read, outputs, tuple(sizes.variables.values()))
    whole = replace(whole, body=seq(*checks, whole.body)) if checks else whole
    if steps:
        values = (*(sources[t] for t in read), *results)
        spaced = {b: replace(b, strides=steps[v]) for b, v in zip(whole.buffers, values, strict=True) if v in steps}
        params = tuple(spaced.get(p, p) if isinstance(p, Buffer) else p for p in whole.params)
        whole = replace(whole, params=params, body=rename_buffers(whole.body, spaced))
    plain, conditions = (whole, ()) if is_checking else without_conditions(whole)
    used = _variables(plain)
    atoms = {var: atom for atom, var in sizes.variables.items()}
    kept = {var: atom for var, atom in atoms.items() if var in used}
    nest = Nest(
        plain.name, tuple(p for p in plain.params if not isinstance(p, Var) or p in kept), plain.body, plain.allocs
    )
    return FusedNest(nest, tuple(sources[t] for t in read), tuple(results), tuple(kept.values()), conditions, atoms)


def _fitting(op: str, results: Mapping[Value, Tensor], facts: FactsByValue, sizes: SizeVars) -> tuple[Check, ...]:
    """Bounds checks of what is written: that each result is as large as the memory for it, which is that of its type,
    where the two are not the same expression."""
    pairs = [
        (extent, sizes(size))
        for value, tensor in results.items()
        for extent, size in zip(tensor.shape, facts[value].shape or (), strict=True)
    ]
    unlike = dict.fromkeys((a, b) for a, b in pairs if polynomial(a) != polynomial(b))
    return tuple(Check(equal(a, b), f"{op} makes more or fewer elements than its type says") for a, b in unlike)


def without_conditions(nest: Nest) -> tuple[Nest, tuple[Check, ...]]:
    """The nest without its unconditional checks of sizes, and these checks, which the program makes before it runs."""
    checks: dict[Check, None] = {}
    names = {v: v.name for v in nest.sizes}

    def left(stmt: Stmt) -> Stmt:
        match stmt:
            case Seq():
                return seq(*map(left, stmt.stmts))
            case Block(axes=(), init=None):
                body = left(stmt.body)
                return body if body == Seq(()) else replace(stmt, body=body)
            case Check():
                try:
                    size_of(stmt.condition, names)
                except ValueError:  # it is of elements too
                    return stmt
                checks[stmt] = None
                return Seq(())
        return stmt

    body = left(nest.body)
    return (replace(nest, body=body), tuple(checks)) if checks else (nest, ())


def _variables(nest: Nest) -> set[Var]:
    """The variables that occur in a nest, in the shapes of its buffers too."""
    vars = {v for s in statements(nest.body) for e in expressions(s) for v in variables(e)}
    for buffer in (*nest.buffers, *nest.allocs):
        for extent in (*buffer.shape, *(buffer.strides or ())):
            vars |= variables(extent)
    return vars


def _source(fact: Fact, sizes: SizeVars, is_read: bool, name: str) -> Tensor:
    """A value from outside of the group: its one element where it is such a constant, its sizes where they are its
    elements, else what is loaded."""
    if fact.constant is not None and fact.constant.size == 1 and (element := _element(fact.constant)) is not None:
        return compute.compute(fact.constant.shape, lambda *i: element, element.dtype)
    if not is_read and is_written(fact):
        return known_tensor(fact, sizes)
    if fact.shape is None or fact.dtype is None:  # nobody reads it, or the node would not have been lowered
        return placeholder((), "float32", name)
    return placeholder(tuple(map(sizes, fact.shape)), held(fact.dtype), name)


def _element(constant: Constant) -> Const | None:
    if constant.dtype not in DTYPES:
        return None
    array = constant.splat if constant.splat is not None else constant.array
    return const(array.reshape(-1)[0].item(), constant.dtype)


def _described(
    graph: Graph,
    facts: FactsByValue,
    member: Member,
    sizes: SizeVars,
    tensors: Mapping[Value, Tensor],
    is_for_host: bool,
) -> Sequence[Tensor]:
    if member.described.is_known:
        return [known_tensor(facts[v], sizes) for v in member.node.outputs]
    found = tuple(tensors[v] for v in member.described.found)
    return describe(operation_of(graph, member.node, facts, sizes, tensors, is_for_host, found))


# ------------------------------------------------------------------ what is written into what reads it


def inlined(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The outputs, with every tensor inlined that need not be stored."""
    order = producers_first(outputs)
    readers: dict[Tensor, list[tuple[ComputeStage, Load]]] = {}
    stages: dict[int, ComputeStage] = {}
    for tensor in order:
        if tensor.stage is not None and tensor.number not in stages:
            stages[tensor.number] = tensor.stage
            if isinstance(tensor.stage, compute.Procedure):
                for source in tensor.stage.inputs:
                    readers.setdefault(source, []).append((tensor.stage, Load(source, ())))
            else:
                for load in loads_of(tensor.stage):
                    if isinstance(load.buffer, Tensor):
                        readers.setdefault(load.buffer, []).append((tensor.stage, load))
    kept = set(outputs)
    costs: dict[Tensor, tuple[float, int]] = {}
    chosen: set[Tensor] = set()
    for tensor in order:
        stage = tensor.stage
        if isinstance(stage, ElementwiseStage):
            costs[tensor] = _cost(stage.values[tensor.port], costs, chosen)
            if tensor not in kept and not stage.is_stored and _is_inlined(costs[tensor], readers.get(tensor, [])):
                chosen.add(tensor)
    return inline(outputs, chosen.__contains__) if chosen else tuple(outputs)


def _cost(value: Expr, costs: Mapping[Tensor, tuple[float, int]], chosen: set[Tensor]) -> tuple[float, int]:
    """Work and parts of an expression with the chosen tensors written out."""
    total, parts = work(value), size(value)
    for e in walk(value):
        if isinstance(e, Load) and isinstance(e.buffer, Tensor) and e.buffer in chosen:
            total += costs[e.buffer][0]
            parts += costs[e.buffer][1]
    return total, parts


def _is_inlined(cost: tuple[float, int], reads: Sequence[tuple[ComputeStage, Load]]) -> bool:
    effort, parts = cost
    if any(isinstance(stage, compute.Procedure) for stage, _ in reads):
        return False
    places = {(id(stage), load.indices) for stage, load in reads}
    if parts * len(reads) > PARTS:
        return False
    if effort == 0:
        return True
    if len(places) > 1:
        return effort <= TWICE and not any(_is_heavily_read(stage, load) for stage, load in reads)
    return effort <= CHEAP or not any(is_repeated(load, stage) for stage, load in reads)


def _is_heavily_read(stage: ComputeStage, load: Load) -> bool:
    return isinstance(stage, Reduced) and is_repeated(load, stage)
