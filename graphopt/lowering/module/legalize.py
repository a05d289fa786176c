"""Legalization of modules: calls of tensor programs in place of ops, and notes of how programs fuse.

It is by what ``graphopt.compile`` finds out of each node (``lower``): a program computes what the op's loops do, and is
fused as the op is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from inspect import Parameter, signature
from keyword import iskeyword
from types import MappingProxyType

from graphopt.errors import NestError, UsageError
from graphopt.ir.graph import CONSTANT, INPUT, NO_ATTRS, Graph, Node, Value
from graphopt.lowering.analysis.block_values import NotRaised
from graphopt.lowering.analysis.raising import raised
from graphopt.lowering.fuse.groups import group
from graphopt.lowering.fuse.kinds import FusionKind, kind_of
from graphopt.lowering.fuse.nests import write
from graphopt.lowering.link.lowered import Lowered
from graphopt.lowering.link.passes import legalize_ops
from graphopt.lowering.loops.compute import placeholder
from graphopt.lowering.loops.nest import BY_RULE, FUSION_KIND, Nest
from graphopt.lowering.lower.embedded_programs import attributes, inputs_of
from graphopt.lowering.lower.lower import Bodied, Described, FactsByValue, LoweredNode, NeedsValues
from graphopt.lowering.lower.unlowered import name_of
from graphopt.lowering.module.module import DOMAIN, Module, opened
from graphopt.lowering.module.passes import ModulePass
from graphopt.lowering.module.tensor_functions import NamedSizes, TensorFunction, program_of


def lowered_of(module: Module, name: str) -> Lowered:
    """A graph function as ``LegalizeOps`` of the compiler leaves it; calls of graph functions are left out.

    UsageError where its loops depend on the elements of inputs.
    """
    graph = module.joined(name)
    try:
        return legalize_ops(graph)
    except NeedsValues as needs:
        names = ", ".join(sorted(graph.names[v] for v in needs.inputs))
        raise UsageError(
            f"the loops of {name} depend on what {names} holds: BindParams({{name: array}}) gives it a value"
        ) from None


class LegalizeOps(ModulePass):
    """Ops become calls of tensor programs, one for each op with these attributes and types: ``module::matmul(x, w)``.

    ``table`` has tensor functions by op, which come before those of the op table: they get a tensor for each input
    (None where it is left out) and the node's attributes by name. Without ``others``, ops that are not in it stay.

    Views (``Reshape``), control flow, what depends on elements or computes sizes, and what no loops compute stay
    ops. Raises UsageError for a function that does not take an op's attributes, or gives other types than it.

    >>> print(passes.LegalizeOps()(dense)["main"])
    graph main (ir 10, opset 23, module 1)
    x: float32[n, 4]
    w: float32[4, 2]
    %0: float32[n, 2] = module::matmul(x, w)
    %1: float32[n, 2] = module::relu(%0)
    return %1 as y
    >>> def relu(x):
    ...     return te.compute(x.shape, lambda i, j: te.max(x[i, j], 0.0), name="own")
    >>> print(passes.LegalizeOps({"Relu": relu}, others=False)(dense)["main"])
    graph main (ir 10, opset 23, module 1)
    x: float32[n, 4]
    w: float32[4, 2]
    %0: float32[n, 2] = MatMul(x, w)
    %1: float32[n, 2] = module::relu(%0)
    return %1 as y
    """

    def __init__(self, table: Mapping[str, TensorFunction] = MappingProxyType({}), *, others: bool = True) -> None:
        self.table, self.others = dict(table), others

    def change(self, module: Module) -> Module:
        """The module with programs in place of ops."""
        for name, graph in list(module.graphs()):
            low = lowered_of(module, name)
            module[name] = opened(self._legalized(module, graph, low.facts, low.lowered))
        return module

    def _legalized(
        self, module: Module, given: Graph, facts: FactsByValue, lowered: Mapping[int, LoweredNode]
    ) -> Graph:
        graph = given.copy()
        for node in given.nodes():
            low = lowered.get(node.id)
            if low is None or node.op in (INPUT, CONSTANT) or node.op.startswith(f"{DOMAIN}::"):
                continue
            if isinstance(low, Bodied):
                for attribute, body in low.bodies.items():
                    changed = self._legalized(module, node.bodies[attribute], body.facts, body.lowered)
                    graph.update(node.id, attrs=graph.node(node.id).attrs.with_(**{attribute: changed}))
                continue
            called = self._program(given, node, facts, low)
            if called is None:
                continue
            nest, inputs = called
            graph.update(node.id, op=f"{DOMAIN}::{module.add(nest)}", inputs=inputs, attrs=NO_ATTRS)
            graph.types.update({v: type for v in node.outputs if (type := facts[v].type) is not None})
        used = {v.node for node in graph.nodes() for v in node.inputs if v is not None}
        for node in list(graph.nodes()):
            if node.op == CONSTANT and node.id not in used and not graph.is_output(Value(node.id)):
                graph.remove(node.id)  # it is written into programs
        return graph

    def _program(
        self, graph: Graph, node: Node, facts: FactsByValue, low: LoweredNode
    ) -> tuple[Nest, tuple[Value, ...]] | None:
        """The program of a node, and the values that it takes; None where the node stays."""
        if node.op in self.table:
            nest = _of_user(graph, node, facts, self.table[node.op])
            return nest, tuple(v for v in node.inputs if v is not None)
        is_size = any(facts[v].elements is not None for v in node.outputs)
        if not self.others or not isinstance(low, Described) or low.found or low.is_known or is_size:
            return None
        (alone,) = group(graph, facts, {node.id: low}, [node.id])
        wrote = write(graph, facts, alone, is_checking=True, size_vars=NamedSizes, is_inlined=False)
        if len(wrote.outputs) < node.n_outputs:
            return None
        return _callable(replace(wrote.nest, name=program_name(node.op)), wrote.inputs)


def _callable(nest: Nest, inputs: tuple[Value, ...]) -> tuple[Nest, tuple[Value, ...]] | None:
    """A program to be scheduled by rule, and its arguments; None where its inputs do not tell its sizes."""
    nest = replace(nest, notes=(BY_RULE,))
    try:
        attributes(nest)
    except NestError:
        return None
    return nest, inputs


def program_name(op: str) -> str:
    """A program's name for an op."""
    name = "".join(c if c.isalnum() else "_" for c in op.rpartition("::")[2]).lower()
    return f"{name}_" if iskeyword(name) else name  # Not, And, Or and If, of which scripts are made


def _of_user(graph: Graph, node: Node, facts: FactsByValue, function: TensorFunction) -> Nest:
    label = f"LegalizeOps: node {name_of(graph, node)!r} ({node.op})"
    named = signature(function).parameters
    takes_all = any(p.kind is Parameter.VAR_KEYWORD for p in named.values())
    for name in node.attrs:
        if not takes_all and name not in named:
            raise UsageError(f"{label} has the attribute {name}, and the function for it takes {', '.join(named)}")
    inputs = [None if v is None else facts[v] for v in node.inputs]
    try:
        nest = program_of(function, inputs, "", node.attrs)
        types = str(attributes(nest)["types"])
    except (UsageError, NestError) as error:
        raise UsageError(f"{label}: {error}") from None
    given, wanted = [b.dtype for b in nest.outputs], [facts[v].dtype for v in node.outputs]
    ranks = [len(b.shape) for b in nest.outputs], [facts[v].rank for v in node.outputs]
    if given != wanted or ranks[0] != ranks[1]:
        wants = ", ".join(str(facts[v].type) for v in node.outputs)
        raise UsageError(f"{label} gives {wants}, and the function for it {types}")
    return nest


class AnnotateKinds(ModulePass):
    """Programs that are not scheduled get a note of how they fuse: ``notes({"fusion_kind": "elementwise"})``.

    Kinds are ``elementwise``, ``broadcast``, ``injective``, ``reduction``, ``anchor`` (products) and ``opaque`` (not
    fused). The compiler finds them itself; the notes tell.

    >>> print(passes.Sequential([passes.LegalizeOps(), passes.AnnotateKinds()])(dense)["relu"])
    @program
    def relu(x0: Buffer[("n", 2), "float32"], relu: Buffer[("n", 2), "float32"], n: size):
        notes({"schedule": "default", "fusion_kind": "elementwise"})
        for i0, i1 in grid(n, 2):
            with block("relu"):
                v0, v1 = axis.remap("SS", [i0, i1])
                relu[v0, v1] = max(x0[v0, v1], 0.0)
    """

    def change(self, module: Module) -> Module:
        """The module with the notes."""
        for name, nest in list(module.programs()):
            if BY_RULE in nest.notes:
                kind = fusion_kind(nest).name.lower()
                module[name] = replace(
                    nest, notes=(*(n for n in nest.notes if n[0] != FUSION_KIND), (FUSION_KIND, kind))
                )
        return module


def fusion_kind(nest: Nest) -> FusionKind:
    """The fusion kind of a tensor program, found from its loops.

    >>> passes.fusion_kind(passes.LegalizeOps()(dense)["matmul"]).name
    'ANCHOR'
    """
    inputs = [placeholder(b.shape, b.dtype, f"x{k}") for k, b in enumerate(inputs_of(nest))]
    try:
        return kind_of(raised(nest, inputs, {var: var for var in nest.sizes}))
    except NotRaised:
        return FusionKind.OPAQUE
