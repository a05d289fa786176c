"""Weight packing in modules: constants that all calls of a program hand it, in the form that it reads best.

As in ``graphopt.compile``, what a program computes of them alone is computed ahead (``cpu.constant_precompute``), the
weights of a product are in panels, and the matrices of a stack that they multiply are one (``cpu.weight_packing``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.errors import NestError
from graphopt.frozen import dataclass
from graphopt.ir.annotations import in_region, region_of
from graphopt.ir.constants import Array, Constant
from graphopt.ir.graph import CONSTANT, Graph, Node, Value
from graphopt.lowering.analysis.block_refs import free_name, names_in
from graphopt.lowering.cpu.constant_precompute import PrecomputedNest, prepared
from graphopt.lowering.cpu.weight_packing import Laid, laid_out, with_rows_stacked
from graphopt.lowering.loops.expressions import Const, Expr, Var, rewrite, variables
from graphopt.lowering.loops.nest import Buffer, Nest, map_expressions, rename_buffers
from graphopt.lowering.lower.embedded_programs import attributes, inputs_of
from graphopt.lowering.module.builder import GraphBuilder
from graphopt.lowering.module.module import DOMAIN, Module
from graphopt.lowering.module.subgraph import remove_with_constants, with_bodies

SHAPES_OF_AXES = 15
"""The opset from which on ``Shape`` gives the sizes of some axes."""


@dataclass(frozen=True, slots=True)
class PackedProgram:
    """A program that takes other arguments than before."""

    name: str
    plain: Nest
    """As it was,"""
    nest: Nest
    """and as it is."""
    constants: tuple[Buffer, ...]
    """Those of the inputs that it had that are constants."""
    ahead: PrecomputedNest | None
    laid: Laid | None
    stacked: Mapping[str, tuple[int, ...]]
    """The sizes behind the first axis of buffers, by name, whose first axes became one."""

    def put_in(self, module: Module) -> None:
        """Let the graphs of a module call the program, which is in it by now, with the arguments that it takes."""
        for name, graph in list(module.graphs()):
            module[name] = self._called(module, graph)

    def _called(self, module: Module, given: Graph) -> Graph:
        graph = with_bodies(given, lambda body: self._called(module, body))
        calls = [node for node in given.nodes() if node.op == f"{DOMAIN}::{self.name}"]
        if not calls:
            return graph
        builder = GraphBuilder.over(given.copy() if graph is given else graph, module)
        for node in calls:
            self._call_anew(builder, builder.graph.node(node.id))
        return builder.graph

    def _call_anew(self, builder: GraphBuilder, node: Node) -> None:
        """Put another call in the place of one."""
        graph, mark = builder.graph, builder.graph.next_id
        made = builder.emit(node.op, list(self._arguments(builder, node)))
        results: Sequence[Value] = (made,) if node.n_outputs == 1 else made
        graph.update(results[0].node, origin=node.origin)
        for old, new, buffer in zip(node.outputs, results, self.plain.outputs, strict=True):
            value = self._unstacked(builder, node, buffer, new)
            if (label := graph.names.pop(old, None)) is not None:
                graph.names[value] = label
            graph.replace(old, value)
        for added in [n for n in graph.since(mark) if n.op != CONSTANT]:
            graph.update(added.id, origin=in_region(added.origin, region_of(node)))
        remove_with_constants(graph, node)

    def _arguments(self, builder: GraphBuilder, node: Node) -> Iterator[Any]:
        values = {b.name: v for b, v in zip(inputs_of(self.plain), node.inputs, strict=True) if v is not None}
        arrays = {b: c.array for b in self.constants if (c := builder.graph.constant_of(values[b.name])) is not None}
        if self.ahead is not None:
            arrays |= self.ahead.arrays(arrays)
        for buffer in inputs_of(self.nest):
            packed = self._packed(buffer, arrays)
            if packed is not None:
                yield builder.constant(Constant.of(packed, buffer.dtype))
            elif buffer.name in self.stacked:
                rows = np.array([-1, *self.stacked[buffer.name]])
                yield builder.emit("Reshape", [values[buffer.name], rows])
            else:
                yield values[buffer.name]

    def _packed(self, buffer: Buffer, arrays: Mapping[Buffer, Array]) -> Array | None:
        """The array for an input; None for one that is as it was."""
        if self.laid is not None and buffer.name == self.laid.plain.name:
            return self.laid.array(arrays[self.laid.plain])
        return None if buffer in self.constants else arrays.get(buffer)

    def _unstacked(self, builder: GraphBuilder, node: Node, buffer: Buffer, value: Value) -> Value:
        """A result in the shape that it had."""
        if buffer.name not in self.stacked:
            return value
        rest = self.stacked[buffer.name]
        sizes = [e.value for e in buffer.shape if isinstance(e, Const)]
        if len(sizes) == len(buffer.shape):
            known: Value = builder.emit("Reshape", [value, np.array(sizes)])
            return known
        like = zip(inputs_of(self.plain), node.inputs, strict=True)
        source = next(v for b, v in like if _leading(b, self.stacked) == _leading(buffer, self.stacked))
        leading = builder.emit("Shape", [source], {"start": 0, "end": len(buffer.shape) - len(rest)})
        shape = builder.emit("Concat", [leading, np.array(rest)], {"axis": 0})
        open_: Value = builder.emit("Reshape", [value, shape], {"allowzero": 1})
        return open_


def _leading(buffer: Buffer, stacked: Mapping[str, tuple[int, ...]]) -> tuple[Expr, ...] | None:
    """The axes of a buffer that become one."""
    return buffer.shape[: len(buffer.shape) - len(stacked[buffer.name])] if buffer.name in stacked else None


def pack_constants(module: Module, name: str, nest: Nest) -> PackedProgram | None:
    """A program of a module by the constants that all calls of it hand it; None where it stays as it is."""
    op = f"{DOMAIN}::{name}"
    calls = [known for _, graph in module.graphs() for known in _calls(graph, op)]
    inputs = inputs_of(nest)
    constants = tuple(b for k, b in enumerate(inputs) if calls and all(k < len(c) and c[k] for c in calls))
    if not constants:
        return None
    ahead = prepared(nest, constants)
    made = nest if ahead is None else ahead.nest
    flat, stacked = _with_rows_stacked(made, all(graph.opset >= SHAPES_OF_AXES for _, graph in module.graphs()))
    laid = laid_out(flat, constants, is_stacked=False)
    if laid is not None:
        return PackedProgram(name, nest, laid.nest, constants, ahead, laid, stacked)
    return None if ahead is None else PackedProgram(name, nest, made, constants, ahead, None, {})


def _calls(graph: Graph, op: str) -> Iterator[Sequence[bool]]:
    """Which arguments are constants, for each call of an op."""
    for node in graph.nodes():
        if node.op == op:
            yield [v is not None and graph.node(v.node).op == CONSTANT for v in node.inputs]
        for body in node.bodies.values():
            yield from _calls(body, op)


def _with_rows_stacked(nest: Nest, knows_sizes: bool) -> tuple[Nest, Mapping[str, tuple[int, ...]]]:
    """The nest with the rows of a stack as those of one matrix, and the sizes behind them; where a program cannot take
    such arguments, the nest as it is. The number of rows is a size of its own."""
    flat = with_rows_stacked(nest)
    pairs = [(old, new) for old, new in zip(nest.buffers, flat.buffers, strict=True) if old.shape != new.shape]
    stacked = {new.name: tuple(int(e.value) for e in new.shape[1:] if isinstance(e, Const)) for _, new in pairs}
    are_first = all(old.shape[1 - len(new.shape) :] == new.shape[1:] for old, new in pairs if len(new.shape) > 1)
    are_known = all(len(stacked[new.name]) == len(new.shape) - 1 for _, new in pairs)
    numbers = {new.shape[0] for _, new in pairs}
    if len(numbers) != 1 or Const(0) in numbers or not (are_first and are_known):
        return nest, {}
    (number,) = numbers
    if not isinstance(number, Const):
        if not knows_sizes:
            return nest, {}
        flat = _sized(flat, number)
    try:
        attributes(flat)
    except NestError:  # a size that stood in the stack's axes alone is needed apart
        return nest, {}
    return flat, stacked


def _sized(nest: Nest, number: Expr) -> Nest:
    """The nest with a size of its own in the place of an expression of sizes."""
    size = Var(free_name(names_in(nest), "rows"))

    def sized(e: Expr) -> Expr | None:
        return size if e == number else None

    buffers = {b: replace(b, shape=tuple(rewrite(e, sized) for e in b.shape)) for b in (*nest.buffers, *nest.allocs)}
    body = rename_buffers(map_expressions(nest.body, sized), buffers)
    told = {v for b in buffers.values() for e in b.shape for v in variables(e)}
    sizes = (v for v in (*nest.sizes, size) if v in told)
    params: tuple[Buffer | Var, ...] = (*(buffers[b] for b in nest.buffers), *sizes)
    return replace(nest, params=params, body=body, allocs=tuple(buffers[b] for b in nest.allocs))
