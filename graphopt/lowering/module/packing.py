"""Weight packing in modules: constants that all calls of a program hand it, in the form that it reads best.

What a program computes of them alone is computed ahead, as ``graphopt.compile`` does (``cpu.constant_precompute``), and
the weights of a product are in panels (``cpu.weight_packing``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphopt.ir.constants import Array, Constant
from graphopt.ir.graph import CONSTANT, Graph, Node, Value
from graphopt.lowering.cpu.constant_precompute import PrecomputedNest, prepared
from graphopt.lowering.cpu.weight_packing import Laid, laid_out
from graphopt.lowering.loops.nest import Buffer, Nest
from graphopt.lowering.lower.embedded_programs import inputs_of
from graphopt.lowering.module.module import DOMAIN, Module


@dataclass(frozen=True, slots=True)
class PackedProgram:
    """A program that takes other constants than before."""

    name: str
    plain: Nest
    """As it was,"""
    nest: Nest
    """and as it is."""
    constants: tuple[Buffer, ...]
    """Those of the inputs that it had that are constants."""
    ahead: PrecomputedNest | None
    laid: Laid | None

    def put_in(self, module: Module) -> None:
        """Let the graphs of a module call the program with the constants that it takes."""
        for name, graph in list(module.graphs()):
            module[name] = self._handed(graph)

    def _handed(self, given: Graph) -> Graph:
        graph = given
        for node in given.nodes():
            for attribute, body in node.bodies.items():
                if (changed := self._handed(body)) is not body:
                    graph = given.copy() if graph is given else graph
                    graph.update(node.id, attrs=graph.node(node.id).attrs.with_(**{attribute: changed}))
            if node.op == f"{DOMAIN}::{self.name}":
                graph = given.copy() if graph is given else graph
                graph.update(node.id, inputs=tuple(self._inputs(graph, node)))
                for id in dict.fromkeys(v.node for v in node.inputs if v is not None):
                    if id in graph and graph.node(id).op == CONSTANT and not graph.is_used(id):
                        graph.remove(id)
        return graph

    def _inputs(self, graph: Graph, node: Node) -> Iterator[Value]:
        """The arguments of a call."""
        values = {b.name: v for b, v in zip(inputs_of(self.plain), node.inputs, strict=True) if v is not None}
        arrays = {b: c.array for b in self.constants if (c := graph.constant_of(values[b.name])) is not None}
        if self.ahead is not None:
            arrays |= self.ahead.arrays(arrays)
        for buffer in inputs_of(self.nest):
            packed = self._packed(buffer, arrays)
            yield values[buffer.name] if packed is None else graph.add_constant(Constant.of(packed, buffer.dtype))

    def _packed(self, buffer: Buffer, arrays: Mapping[Buffer, Array]) -> Array | None:
        """The array for an input; None for one that is as it was."""
        if self.laid is not None and buffer.name == self.laid.plain.name:
            return self.laid.array(arrays[self.laid.plain])
        return None if buffer in self.constants else arrays.get(buffer)


def pack_constants(module: Module, name: str, nest: Nest) -> PackedProgram | None:
    """A program of a module by the constants that all calls of it hand it; None where it stays as it is."""
    calls = [inputs for _, graph in module.graphs() for inputs in _calls(graph, f"{DOMAIN}::{name}")]
    inputs = inputs_of(nest)
    constants = tuple(b for k, b in enumerate(inputs) if calls and all(k < len(c) and c[k] for c in calls))
    if not constants:
        return None
    ahead = prepared(nest, constants)
    made = nest if ahead is None else ahead.nest
    laid = laid_out(made, constants, is_stacked=False)
    if ahead is None and laid is None:
        return None
    return PackedProgram(name, nest, made if laid is None else laid.nest, constants, ahead, laid)


def _calls(graph: Graph, op: str) -> Iterator[Sequence[bool]]:
    """Which arguments are constants, for each call of an op."""
    for node in graph.nodes():
        if node.op == op:
            yield [v is not None and graph.node(v.node).op == CONSTANT for v in node.inputs]
        for body in node.bodies.values():
            yield from _calls(body, op)
