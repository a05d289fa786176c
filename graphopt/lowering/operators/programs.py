"""Lowering of ``graphopt::Nest``: programs in nodes that are not scheduled yet, raised to tensor expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from graphopt.ir.graph import Attrs
from graphopt.ir.infer_nests import NEST, bound_sizes, tensor_types
from graphopt.ir.infer_shapes import spell
from graphopt.ir.types import Size, substitute
from graphopt.lowering.analysis.block_values import NotRaised
from graphopt.lowering.analysis.raising import raised
from graphopt.lowering.loops.compute import Requirement, Tensor, require
from graphopt.lowering.loops.expressions import Expr, equal
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.lowering.loops.script import read
from graphopt.lowering.loops.wellformed import check
from graphopt.lowering.operators.operation import NotLowered, Operation, OperatorLowering


def program_of(attrs: Attrs) -> Nest:
    """The program in the attributes of a ``graphopt::Nest`` node. ScriptError or NestError where it is invalid."""
    return read_program(str(attrs.get("program", "")))


@lru_cache(256)
def read_program(text: str) -> Nest:
    """The program of a text, which is read once. ScriptError or NestError where it is invalid."""
    nest = read(text, "the program of a node")
    check(nest)
    return nest


def _program(op: Operation) -> Sequence[Tensor]:
    nest = program_of(op.attrs)
    if BY_RULE not in nest.notes:
        raise NotLowered("it is scheduled by hand")
    shapes = [None if fact is None else fact.shape for fact in op.facts]
    sizes = bound_sizes(op.attrs, shapes)
    inputs = [op.input(k) for k in range(len(op.inputs))]
    if any(var.name not in sizes for var in nest.sizes):
        raise NotLowered("a size of it is not known")
    try:
        variables = {var: op.size(sizes[var.name]) for var in nest.sizes}
        return raised(nest, inputs, variables, list(_fitting(op, shapes, sizes)))
    except NotRaised as why:
        raise NotLowered(str(why)) from None


def _fitting(op: Operation, shapes: Sequence[tuple[Size, ...] | None], sizes: dict[str, Size]) -> Iterator[Requirement]:
    """The conditions that inputs have the shapes that the program takes, where that shows only when it runs."""
    for type, shape in zip(tensor_types(op.attrs, "params"), shapes, strict=True):
        wanted = type.shape if isinstance(type.shape, tuple) else ()
        for size, given in zip(wanted, shape or (), strict=True):
            if (here := substitute(size, sizes)) != given:
                message = f"the program takes {spell(wanted)}, not {spell(shape or ())}"
                yield require((), _equals(op, here, given), message)


def _equals(op: Operation, a: Size, b: Size) -> Callable[..., Expr]:
    return lambda: equal(op.size(a), op.size(b))


TABLE: dict[str, OperatorLowering] = {NEST: _program}
