"""Embedded programs: nodes with a user's tensor program in their attributes, and calls of registered Python functions.

A program stands in the attributes of a node of the op ``graphopt::Nest``, so that graphs with programs in them are
copied, rewritten, saved and read as any others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphopt.errors import CompilationError, InvalidModelError, NestError
from graphopt.frozen import dataclass
from graphopt.ir import custom_ops
from graphopt.ir.constants import Array
from graphopt.ir.custom_ops import Added, Filling
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs, Graph, Node, Value
from graphopt.ir.infer_nests import NEST, bound_sizes
from graphopt.ir.text.show import show_type
from graphopt.ir.types import Size, TensorType, symbol
from graphopt.lowering.intrinsics.tensor_intrin import descriptions
from graphopt.lowering.loops.expressions import Expr, Var
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import BY_RULE, Buffer, Nest
from graphopt.lowering.loops.script import show
from graphopt.lowering.loops.sizes import dimension_of
from graphopt.lowering.lower.unlowered import name_of
from graphopt.lowering.operators import programs
from graphopt.lowering.operators.operation import DTYPES


@dataclass(frozen=True, slots=True)
class EmbeddedProgram:
    """A node with a program of its own; ``sizes`` are the values of the program's sizes."""

    node: Node
    nest: Nest
    sizes: tuple[Size, ...]
    reason: str = ""
    """Why it is compiled by itself, and not fused with what is around it."""

    @property
    def is_ready(self) -> bool:
        """Whether the program is scheduled already."""
        return BY_RULE not in self.nest.notes

    @property
    def plain(self) -> Nest:
        """The program without that note."""
        return replace(self.nest, notes=tuple(n for n in self.nest.notes if n != BY_RULE))


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a function that a user registered."""

    node: Node
    function: Filling


def given(graph: Graph, node: Node, facts: Mapping[Value, Fact]) -> EmbeddedProgram | Called | None:
    """The program or call of a node; None for a node that is lowered by its op.

    Raises InvalidModelError for a program that does not fit, and CompilationError where nobody says how large the
    outputs of a function are.
    """
    if node.op == NEST:
        return _placed(node, facts, name_of(graph, node))
    user = custom_ops.added(node.op)
    if user is None or user.function is None:
        return None
    for k, value in enumerate(node.outputs):
        fact = facts[value]
        if fact.shape is None or fact.dtype not in DTYPES:
            raise CompilationError(
                f"node {name_of(graph, node)!r}: output {k} of {node.op} has no type: register the function with "
                "outputs=, or declare the type in the graph"
            )
    return Called(node, user.function)


def _placed(node: Node, facts: Mapping[Value, Fact], label: str) -> EmbeddedProgram:
    nest = program_of(node)
    try:
        sizes = bound_sizes(node.attrs, [None if v is None else facts[v].shape for v in node.inputs])
        return EmbeddedProgram(node, nest, tuple(sizes[v.name] for v in nest.sizes))
    except ValueError as error:
        raise InvalidModelError(f"node {label!r}, the program {nest.name}: {error}") from None
    except KeyError as error:
        raise InvalidModelError(f"node {label!r}, the program {nest.name}: no input tells the size {error}") from None


def program_of(node: Node) -> Nest:
    """The program of a ``graphopt::Nest`` node. ScriptError or NestError where it is invalid."""
    return programs.program_of(node.attrs)


def label_of(node: Node) -> str:
    """The name of a node's program; of any other node, its op."""
    return program_of(node).name if node.op == NEST else node.op


# ------------------------------------------------------------------ programs as nodes


def attributes(nest: Nest) -> Attrs:
    """The attributes of a node for a program, whose parameters are the node's inputs in order.

    Raises NestError where an input is also written, or a size is no axis of an input.
    """
    inputs, outputs = inputs_of(nest), nest.outputs
    named = {e.name for b in inputs for e in b.shape if isinstance(e, Var)}
    for var in nest.sizes:
        if var.name not in named:
            raise NestError(f"{nest.name}: the size {var.name} is no axis of an input, and so nobody could tell it")
    custom_ops.add(NEST, Added(function=_interpreted))
    params, types = ("; ".join(show_type(type_of(b)) for b in buffers) for buffers in (inputs, outputs))
    return Attrs(program=show(nest), params=params, types=types)


def inputs_of(nest: Nest) -> tuple[Buffer, ...]:
    """The read-only parameters."""
    written = set(nest.outputs)
    return tuple(b for b in nest.buffers if b not in written)


def type_of(buffer: Buffer) -> TensorType:
    """A buffer's type; its sizes are symbols of the same names."""
    return TensorType(buffer.dtype, tuple(map(size_of, buffer.shape)))


def size_of(expr: Expr) -> Size:
    """An extent as a size. NestError where it is no polynomial of sizes."""
    return dimension_of(expr, _symbol)


def _symbol(expr: Expr) -> Size:
    if isinstance(expr, Var):
        return symbol(expr.name)
    raise NestError(f"an axis of a parameter has the extent {expr}, and a sum or product of sizes is expected")


def _interpreted(*arrays: Array, program: str, **types: str) -> None:
    """The program run by the interpreter."""
    nest = programs.read_program(program)
    order = [b.name for b in (*inputs_of(nest), *nest.outputs)]
    interpret(nest, dict(zip(order, arrays, strict=True)), intrinsics=descriptions(nest))
