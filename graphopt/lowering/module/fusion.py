"""Operator fusion of modules: groups of calls become graph functions, and these tensor programs.

The groups are those that ``graphopt.compile`` finds (``fuse.groups``).
"""

from __future__ import annotations

from dataclasses import replace

from graphopt.errors import NestError
from graphopt.ir.annotations import is_primitive, primitive
from graphopt.ir.graph import Graph, Value
from graphopt.lowering.fuse.groups import Group, group
from graphopt.lowering.fuse.nests import write
from graphopt.lowering.link.lowered import Control, LoweredScope
from graphopt.lowering.link.passes import fuse_ops, needed
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.lowering.lower.embedded_programs import attributes
from graphopt.lowering.lower.lower import Described
from graphopt.lowering.module.cleanup import DeadCode
from graphopt.lowering.module.legalize import LegalizeOps, lowered_of, program_name
from graphopt.lowering.module.module import DOMAIN, Module, opened
from graphopt.lowering.module.passes import ModulePass
from graphopt.lowering.module.subgraph import called, extracted, remove_with_constants, with_bodies
from graphopt.lowering.module.tensor_functions import NamedSizes

NAMED = 4
"""Members of which the names stand in that of a group."""


class FuseOps(ModulePass):
    """Groups of ops and programs that are to share a kernel become graph functions, which the graph calls instead.

    The functions are ``primitive``: ``FuseTensorPrograms`` makes one program of each. Groups of one stay as they are.
    UsageError where loops depend on the elements of inputs.

    >>> print(passes.FuseOps()(dense))
    graph main (ir 10, opset 23, module 1)
    x: float32[n, 4]
    w: float32[4, 2]
    %0: float32[n, 2] = module::fused_matmul_relu(x, w)
    return %0 as y
    <BLANKLINE>
    graph fused_matmul_relu (ir 10, opset 23, primitive)
    x0: float32[n, 4]
    x1: float32[4, 2]
    %0: float32[n, 2] = MatMul(x0, x1)
    %1: float32[n, 2] = Relu(%0)
    return %1 as y
    """

    def change(self, module: Module) -> Module:
        """The module with functions for groups."""
        for name, graph in list(module.graphs()):
            if not is_primitive(graph):
                module[name] = _grouped(module, graph, fuse_ops(lowered_of(module, name)).scope)
        return module


def _grouped(module: Module, given: Graph, scope: LoweredScope) -> Graph:
    graph = given.copy()
    for item in scope.items:
        if isinstance(item, Control):
            id = item.lowering.node.id
            for attribute, body in item.bodies.items():
                changed = _grouped(module, given.node(id).bodies[attribute], body)
                graph.update(id, attrs=graph.node(id).attrs.with_(**{attribute: changed}))
        elif isinstance(item, Group) and len(item.members) > 1:
            _take_out(module, graph, scope, item)
    return opened(graph)


def _take_out(module: Module, graph: Graph, scope: LoweredScope, group: Group) -> None:
    """Put the call of a function in the place of a group."""
    read = {v for member in group.members for v in member.described.reads}
    nodes, sink = [graph.node(member.node.id) for member in group.members], group.sink.node

    def is_copied(value: Value) -> bool:  # what is written into loops
        constant = graph.constant_of(value)
        return value not in read or (constant is not None and constant.size == 1)

    part, inputs = extracted(graph, scope.facts, nodes, sink.outputs, _name(graph, group), is_copied)
    called(graph, scope.facts, f"{DOMAIN}::{module.add(primitive(part))}", inputs, sink.outputs)
    for node in reversed(nodes):
        remove_with_constants(graph, node)


def _name(graph: Graph, group: Group) -> str:
    labels = [program_name(graph.node(m.node.id).op) for m in group.members]
    more = f"_and_{len(labels) - NAMED}_more" if len(labels) > NAMED else ""
    return "_".join(["fused", *labels[:NAMED]]) + more


class FuseTensorPrograms(ModulePass):
    """Each ``primitive`` graph function becomes one tensor program, whose values between are written into its loops.

    One that has more results than one node gives, or holds what no loops compute, stays a graph function.

    >>> print(passes.FuseTensorPrograms()(passes.FuseOps()(dense)))
    graph main (ir 10, opset 23, module 1)
    x: float32[n, 4]
    w: float32[4, 2]
    %0: float32[n, 2] = module::fused_matmul_relu(x, w)
    return %0 as y
    <BLANKLINE>
    @program
    def fused_matmul_relu(
        x0: Buffer[("n", 4), "float32"],
        x1: Buffer[(4, 2), "float32"],
        relu: Buffer[("n", 2), "float32"],
        n: size,
    ):
        notes({"schedule": "default"})
        matmul = alloc(("n", 2), "float32")
        for i0, i1, i2 in grid(n, 2, 4):
            with block("matmul"):
                v0, v1, v2 = axis.remap("SSR", [i0, i1, i2])
                with init():
                    matmul[v0, v1] = 0.0
                matmul[v0, v1] = matmul[v0, v1] + x0[v0, v2] * x1[v2, v1]
        for i3, i4 in grid(n, 2):
            with block("relu"):
                v3, v4 = axis.remap("SS", [i3, i4])
                relu[v3, v4] = max(matmul[v3, v4], 0.0)
    """

    def change(self, module: Module) -> Module:
        """The module with programs for functions."""
        for name, graph in list(module.graphs()):
            if not is_primitive(graph) or (made := _program(module, name)) is None:
                continue
            nest, places = made
            module[name] = nest
            for caller, calling in list(module.graphs()):
                module[caller] = _called_by(calling, f"{DOMAIN}::{name}", places)
        return module


def _program(module: Module, name: str) -> tuple[Nest, list[int]] | None:
    """The program of a graph function, and which of the function's inputs it takes; None where there is none."""
    low = lowered_of(module, name)
    graph, lowered = low.graph, low.lowered
    order = needed(graph, lowered, low.facts)
    if not all(isinstance(lowered[id], Described) for id in order):
        return None
    groups = group(graph, low.facts, lowered, order, lambda member, group: True)
    if len(groups) != 1 or list(groups[0].sink.node.outputs) != list(graph.outputs):
        return None
    wrote = write(graph, low.facts, groups[0], is_checking=True, size_vars=NamedSizes)
    if any(value not in graph.inputs for value in wrote.inputs) or len(wrote.outputs) < len(graph.outputs):
        return None
    nest = replace(wrote.nest, name=name, notes=(BY_RULE,))
    try:
        attributes(nest)
    except NestError:  # its inputs do not tell its sizes
        return None
    return nest, [graph.inputs.index(value) for value in wrote.inputs]


def _called_by(given: Graph, op: str, places: list[int]) -> Graph:
    """The graph with only some inputs of each call of an op."""
    graph = with_bodies(given, lambda body: _called_by(body, op, places))
    for node in given.nodes():
        if node.op == op:
            graph = given.copy() if graph is given else graph
            graph.update(node.id, inputs=tuple(node.inputs[k] for k in places))
    return graph


class LowerToPrograms(ModulePass):
    """All that loops compute becomes tensor programs, one for each kernel: ``LegalizeOps``, ``FuseOps``,
    ``FuseTensorPrograms`` and ``DeadCode``. UsageError where loops depend on the elements of inputs.

    >>> print(passes.LowerToPrograms()(dense)["main"])
    graph main (ir 10, opset 23, module 1)
    x: float32[n, 4]
    w: float32[4, 2]
    %0: float32[n, 2] = module::fused_matmul_relu(x, w)
    return %0 as y
    """

    def change(self, module: Module) -> Module:
        """The module with a program for each kernel."""
        return DeadCode()(FuseTensorPrograms()(FuseOps()(LegalizeOps()(module))))
