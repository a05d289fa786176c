"""Element access: broadcast inputs and typed attributes, shared by all operator descriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import log

from graphopt.ir.dtypes import HALVES
from graphopt.lowering.loops.compute import Requirement, Tensor, compute, require
from graphopt.lowering.loops.expressions import (
    FLOATS,
    Const,
    Expr,
    apply,
    cast,
    conjunction,
    const,
    equal,
    maximum,
    select,
)
from graphopt.lowering.operators.operation import NotLowered, Operation, OperatorLowering

# -- attributes


def number(op: Operation, name: str) -> float:
    """An attribute that is a number."""
    value = op.attr(name)
    if not isinstance(value, (int, float)):
        raise NotLowered(f"{op.op} has no number as its attribute {name}")
    return value


def integer(op: Operation, name: str) -> int:
    """An attribute that is an integer."""
    value = op.attr(name)
    if not isinstance(value, int):
        raise NotLowered(f"{op.op} has no integer as its attribute {name}")
    return value


def text(op: Operation, name: str) -> str:
    """An attribute that is a string; empty where there is none."""
    value = op.attr(name)
    return value if isinstance(value, str) else ""


def label(op: Operation) -> str:
    """A short name for what the op computes, for buffers."""
    return op.op.rpartition("::")[2].partition("@")[0].lower()


# -- elements


def broadcast(tensor: Tensor, shape: Sequence[Expr], at: Sequence[Expr]) -> Expr:
    """The element of the tensor that stands at the indices ``at`` of a shape that it broadcasts to, as numpy does.

    Where it is not known ahead of time whether an axis is repeated, the index asks at run time.
    """
    if tensor.rank > len(at):  # one number, with more axes than it needs
        return tensor[(Const(0),) * tensor.rank]
    skipped = len(at) - tensor.rank
    return tensor[spread(tensor.shape, shape[skipped:], at[skipped:])]


def spread(sizes: Sequence[Expr], shape: Sequence[Expr], at: Sequence[Expr]) -> tuple[Expr, ...]:
    """The indices in axes of these sizes of what stands at ``at`` of a shape of equal rank that they broadcast to."""
    indices: list[Expr] = []
    for size, whole, index in zip(sizes, shape, at, strict=True):
        if size == Const(1):
            indices.append(Const(0))
        elif size == whole or isinstance(size, Const):
            indices.append(index)
        else:
            indices.append(select(equal(size, 1), 0, index))
    return tuple(indices)


def required(condition: Expr, message: str) -> list[Requirement]:
    """The requirement that a condition over sizes holds; nothing where it is known to."""
    if condition == Const(True, "bool"):
        return []
    return [require((), lambda: condition, message)]


def fitting(name: str, sizes: Sequence[Expr], shape: Sequence[Expr]) -> list[Requirement]:
    """The requirements for sizes that broadcast to a shape, where that is not known."""
    skipped = max(len(shape) - len(sizes), 0)
    fits = [
        equal(size, 1) | equal(size, whole)
        for size, whole in zip(sizes, shape[skipped:], strict=False)
        if size not in (whole, Const(1))
    ]
    return required(conjunction(*fits), f"{name}: a size of an input is neither 1 nor that of the result")


def inputs_fitting(op: Operation, inputs: Iterable[int], shape: Sequence[Expr]) -> list[Requirement]:
    """The requirements for all given inputs to broadcast to a shape, where that is not known."""
    return [r for k in inputs if op.has(k) for r in fitting(op.op, op.input(k).shape, shape)]


def wide(dtype: str) -> str:
    """The dtype in which values of a dtype are computed."""
    return "float32" if dtype in HALVES else dtype


SMALLEST_EXPONENTS = {"float32": -126 * log(2) + 0.01, "float64": -1022 * log(2) + 0.01}
"""Numbers whose exponentials are the smallest that are normal, about."""


def decayed(x: Expr) -> Expr:
    """The exponential of a number that is 0 at most, beside others of which the largest is 1, as in softmax: 0 where it
    would be subnormal, which adds nothing to their sum, and for which processors take a hundred times as long."""
    least = const(SMALLEST_EXPONENTS[x.dtype], x.dtype)
    return select(x < least, const(0, x.dtype), apply("exp", maximum(x, least)))


def widened(value: Expr) -> Expr:
    """The value in the dtype in which it is computed."""
    if isinstance(value, Const) and value.dtype in HALVES:
        return const(value.value, "float32")
    return cast(value, wide(value.dtype))


def scalar(op: Operation, k: int) -> Const | None:
    """The element of the k-th input, where it is one number and known: kernels hold it themselves."""
    fact = op.facts[k] if k < len(op.facts) else None
    if fact is None or fact.constant is None or fact.constant.dtype == "string":
        return None
    constant = fact.constant
    if constant.splat is None and constant.size != 1:
        return None
    value = constant.splat if constant.splat is not None else constant.array.reshape(-1)[0]
    return const(value.item(), constant.dtype)


def only(op: Operation, k: int) -> Expr:
    """The only element of the k-th input; a number where it is known."""
    constant, tensor = scalar(op, k), op.input(k)
    return constant if constant is not None else tensor[(Const(0),) * tensor.rank]


def operand(op: Operation, k: int, shape: Sequence[Expr], at: Sequence[Expr]) -> Expr:
    """The element of the k-th input that stands at ``at`` of the shape; a constant where it is one known number."""
    constant = scalar(op, k)
    return constant if constant is not None else broadcast(op.input(k), shape, at)


Formula = Callable[..., Expr]
"""From an operation and an element of each input that is given to an element of its output."""


def elementwise(formula: Formula, exact: bool = False) -> OperatorLowering:
    """An op whose element is ``formula(op, *elements)`` of the elements of the broadcast inputs (None: an absent one).

    What is narrower than float32 is widened first; with ``exact`` elements come as they are stored.
    """

    def describe(op: Operation) -> Tensor:
        shape, dtype = op.shape(), op.dtype()

        def element(*at: Expr) -> Expr:
            operands = [operand(op, k, shape, at) if op.has(k) else None for k in range(len(op.inputs))]
            return cast(formula(op, *(e if exact or e is None else widened(e) for e in operands)), dtype)

        return compute(shape, element, dtype, label(op), inputs_fitting(op, range(len(op.inputs)), shape))

    return describe


def is_float(value: Expr) -> bool:
    """Whether the value is a float."""
    return value.dtype in FLOATS
