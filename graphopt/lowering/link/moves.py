"""Copies in control flow, and checks of view sizes: nests without a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir.facts import Fact
from graphopt.ir.types import Size, SizeAtom
from graphopt.lowering.loops import compute
from graphopt.lowering.loops.compute import Tensor, placeholder
from graphopt.lowering.loops.expressions import Expr, Var, const
from graphopt.lowering.loops.nest import Nest, Stmt, Store
from graphopt.lowering.operators.indices import equally_many
from graphopt.lowering.operators.operation import SizeVars

Sized: TypeAlias = tuple[Nest, Mapping[Var, SizeAtom]]
"""A nest, and what its sizes are."""


@dataclass(frozen=True, slots=True)
class Move:
    """A copy of a whole tensor, of its slice in this iteration (``slice``), or of this iteration's result into the
    tensor of all of them (``stack``)."""

    kind: Literal["copy", "slice", "stack"]
    dtype: str
    shape: tuple[Size, ...]
    """The shape of the whole tensor."""
    axis: int = 0
    """The axis along which rounds go, and whether they do so from its end."""
    is_backward: bool = False

    @staticmethod
    def of(kind: Literal["copy", "slice", "stack"], fact: Fact, axis: int = 0, is_backward: bool = False) -> Move:
        """The move of a tensor of which this is known."""
        return Move(kind, fact.dtype or "", fact.shape or (), axis, is_backward)

    def sized(self) -> Sized:
        """The nest, which takes what it reads, the number of the round for all but copies, and what it writes."""
        size = SizeVars()
        shape, axis = tuple(map(size, self.shape)), self.axis
        rest = (*shape[:axis], *shape[axis + 1 :])
        x = placeholder(rest if self.kind == "stack" else shape, self.dtype, "x0")
        if self.kind == "copy":
            copy = compute.compute(x.shape, lambda *i: x[i] if i else x[()], self.dtype)
            return _sized([x], copy, size)
        n = placeholder((), "int64", "x1")
        at = shape[axis] - 1 - n[()] if self.is_backward else n[()]
        if self.kind == "slice":
            copy = compute.compute(rest, lambda *i: x[(*i[:axis], at, *i[axis:])], self.dtype)
        else:
            copy = _written_at(x, n, shape, axis, at)
        return _sized([x, n], copy, size)


@dataclass(frozen=True, slots=True)
class SizeCheck:
    """A check that a view has the size of its source."""

    op: str
    before: tuple[Size, ...]
    after: tuple[Size, ...]

    def sized(self) -> Sized | None:
        """The nest of the check; None where there is nothing to check."""
        size = SizeVars()
        before, after = tuple(map(size, self.before)), tuple(map(size, self.after))
        fits = equally_many(before, after, f"{self.op}: its input has another number of elements than its output")
        if not fits:
            return None
        seen = compute.compute((), lambda: const(True, "bool"), "bool", requirements=fits)
        return _sized([], seen, size)


def _sized(inputs: list[Tensor], tensor: Tensor, size: SizeVars) -> Sized:
    nest = compute.nest("kernel", inputs, [tensor], tuple(size.variables.values()))
    return nest, {var: atom for atom, var in size.variables.items()}


def _written_at(x: Tensor, n: Tensor, shape: tuple[Expr, ...], axis: int, at: Expr) -> Tensor:
    """A tensor of which only the slice at an index is written."""

    def build(whole: Tensor) -> Stmt:
        def inside(done: tuple[Expr, ...]) -> Stmt:
            if len(done) == x.rank:
                return Store(whole, (*done[:axis], at, *done[axis:]), x[done])
            return compute.loop(x.shape[len(done)], lambda i: inside((*done, i)))

        return inside(())

    (tensor,) = compute.procedure([("t", shape, x.dtype)], [x, n], build)
    return tensor
