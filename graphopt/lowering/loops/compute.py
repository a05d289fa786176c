"""Tensor expressions: tensors defined by a formula for one element, and the nests that compute them.

``compute((n, m), lambda i, j: x[i, j] + 1.0)`` is a tensor; with a reduction, ``sum(x[i, k], k)`` over
``k = reduce_axis(n)``, each element is what remains of many values. Tensors refer to the tensors that
they read, so a few of them are a program; ``nest`` writes it down, one block for each tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from keyword import iskeyword
from math import inf
from typing import Any, Final, TypeAlias, overload

from graphopt.lowering.loops.expressions import (
    CODES,
    FLOATS,
    INDEX,
    LEAST_CODE,
    Apply,
    Const,
    Expr,
    ExprLike,
    Load,
    Var,
    apply,
    as_expr,
    cast,
    const,
    rewrite,
    select,
    substitute,
    variables,
    wrong,
)
from graphopt.lowering.loops.nest import TRUE, Axis, Buffer, For, Nest, Stmt
from graphopt.lowering.loops.nest_writer import NestWriter, sizes_of
from graphopt.lowering.loops.stages import ComputeStage as ComputeStage
from graphopt.lowering.loops.stages import ElementwiseStage as ElementwiseStage
from graphopt.lowering.loops.stages import Extent as Extent
from graphopt.lowering.loops.stages import IterVar as IterVar
from graphopt.lowering.loops.stages import Procedure as Procedure
from graphopt.lowering.loops.stages import Reduced as Reduced
from graphopt.lowering.loops.stages import ReduceStage as ReduceStage
from graphopt.lowering.loops.stages import Requirement as Requirement
from graphopt.lowering.loops.stages import Tensor as Tensor
from graphopt.lowering.loops.stages import producers_first as producers_first
from graphopt.lowering.loops.stages import reads as reads

_fresh = count()


def _tensor(
    name: str, shape: Sequence[Extent], dtype: str, stage: ComputeStage | None, port: int, number: int
) -> Tensor:
    return Tensor(name, tuple(as_expr(s) for s in shape), dtype, stage=stage, port=port, number=number)


def placeholder(shape: Sequence[Extent], dtype: str = "float32", name: str = "x") -> Tensor:
    """An input tensor."""
    return _tensor(name, shape, dtype, None, 0, next(_fresh))


def _axes(shape: Sequence[Extent], names: Sequence[str] = ()) -> tuple[Axis, ...]:
    extents = [as_expr(extent) for extent in shape]
    if names:
        several = zip(extents, names, strict=True)
        return tuple(IterVar(f"_{next(_fresh)}", INDEX, e, "spatial", label=n).axis for e, n in several)
    return tuple(Axis(Var(f"_{next(_fresh)}"), extent) for extent in extents)


def reduce_axis(extent: Extent | tuple[Extent, Extent], name: str = "") -> IterVar:
    """An axis to reduce over: of ``n`` steps from 0, or of those from ``lower`` up to ``upper``, ``(lower, upper)``.

    It is a value itself: ``sum(x[i, k], axis=k)``. Its ``name`` is that of its loop. ExpressionError for a range that
    runs backwards.
    """
    lower, upper = extent if isinstance(extent, tuple) else (0, extent)
    first, length = as_expr(lower), as_expr(upper) - as_expr(lower)
    if isinstance(length, Const) and length.value < 0:
        raise wrong(f"a reduce axis from {lower} up to {upper} runs backwards")
    return IterVar(f"_{next(_fresh)}", INDEX, length, "reduce", first, name)


def compute(
    shape: Sequence[Extent],
    fn: Callable[..., ExprLike | ReduceStage],
    dtype: str | None = None,
    name: str = "t",
    requirements: Sequence[Requirement] = (),
    is_stored: bool = False,
    axis_names: Sequence[str] = (),
) -> Tensor:
    """A tensor with the formula ``fn(i, j, ...)`` for its element at ``i, j, ...``: an expression or one reduction.

    ``axis_names`` are those of the loops. ExpressionError for a formula that is no expression, of another dtype than
    ``dtype``, or over an axis that is not the tensor's.
    """
    axes = _axes(shape, axis_names)
    element = fn(*(a.var for a in axes))
    _check_axes(name, element, axes)
    if isinstance(element, ReduceStage):
        (tensor,) = _reduced(shape, axes, element, (name,), requirements)
        return tensor
    value = as_expr(element, dtype or _plain_dtype(element))
    if dtype is not None and value.dtype != dtype:
        wanted = f"cast them, as in cast(x, {dtype!r})"
        raise wrong(f"{name}: its elements are {value.dtype}, not {dtype}: {wanted}")
    stage = ElementwiseStage(axes, (value,), tuple(requirements), is_stored)
    return _tensor(name, shape, value.dtype, stage, 0, next(_fresh))


def _check_axes(name: str, element: ExprLike | ReduceStage, axes: tuple[Axis, ...]) -> None:
    """ExpressionError for a named axis in a formula that neither the tensor nor its reduction has."""
    reduced = element.axes if isinstance(element, ReduceStage) else ()
    values = element.values if isinstance(element, ReduceStage) else (element,)
    known = {a.var for a in (*axes, *reduced)}
    for var in {v for value in values if isinstance(value, Expr) for v in variables(value)} - known:
        if isinstance(var, IterVar):
            what = f"the axis {var.label or 'k'}"
            why = (
                f"{what} is not reduced over: sum(..., axis={var.label or 'k'})"
                if var.kind == "reduce"
                else (f"{what} is another tensor's")
            )
            raise wrong(f"{name}: {why}")


def _plain_dtype(value: ExprLike) -> str:
    """The dtype that a number of Python's has where nobody says."""
    return "bool" if isinstance(value, bool) else "float32" if isinstance(value, float) else INDEX


def byte_table(entry: Callable[[Expr], ExprLike], codes: str, dtype: str) -> Callable[[Expr], Expr]:
    """Lookup table of a function of a byte, ``entry`` of a code as an index: what finds the element for such a code."""
    least = LEAST_CODE[codes]
    table = compute((CODES,), lambda k: entry(k + least), dtype, "table", is_stored=True)
    return lambda code: table[cast(code, INDEX) - least]


def compute_several(
    shape: Sequence[Extent],
    fn: Callable[..., ReduceStage | Sequence[Expr]],
    names: Sequence[str],
    requirements: Sequence[Requirement] = (),
) -> tuple[Tensor, ...]:
    """Several tensors of one shape, computed by one stage.

    >>> te.compute_several((n, 8), lambda i, j: [x[i, j] + 1.0, x[i, j] > 0.0], ["y", "positive"])
    (<Tensor y: float32[n, 8]>, <Tensor positive: bool[n, 8]>)
    """
    axes = _axes(shape)
    element = fn(*(a.var for a in axes))
    if isinstance(element, ReduceStage):
        return _reduced(shape, axes, element, names, requirements)
    stage, number = ElementwiseStage(axes, tuple(element), tuple(requirements)), next(_fresh)
    return tuple(
        _tensor(n, shape, v.dtype, stage, k, number) for k, (n, v) in enumerate(zip(names, element, strict=True))
    )


def _reduced(
    shape: Sequence[Extent],
    axes: tuple[Axis, ...],
    reduction: ReduceStage,
    names: Sequence[str],
    requirements: Sequence[Requirement],
) -> tuple[Tensor, ...]:
    stage, number = Reduced(axes, reduction, tuple(requirements)), next(_fresh)
    return tuple(
        _tensor(n, shape, v.dtype, stage, k, number)
        for k, (n, v) in enumerate(zip(names, reduction.values, strict=True))
    )


def require(shape: Sequence[Extent], fn: Callable[..., Expr], message: str) -> Requirement:
    """A requirement: ``fn(i, j, ...)`` holds at every point; otherwise the program ends with the message.

    >>> te.require((n,), lambda i: x[i, 0] > 0.0, "the first column is positive").message
    'the first column is positive'
    """
    axes = _axes(shape)
    return Requirement(axes, fn(*(a.var for a in axes)), message)


def procedure(
    outputs: Sequence[tuple[str, Sequence[Extent], str]],
    inputs: Sequence[Tensor],
    build: Callable[..., Stmt],
    scratch: Sequence[Buffer] = (),
    stores_once: bool = False,
) -> tuple[Tensor, ...]:
    """Tensors (name, shape, dtype) written by the statements ``build(*buffers)``, on buffers for them in order.

    The statements may hold loops and stores without blocks; they run in order, on one thread but for parallel loops.
    """
    buffers = tuple(Buffer(n, tuple(map(as_expr, s)), d) for n, s, d in outputs)
    stage, number = Procedure(build, tuple(inputs), tuple(scratch), stores_once, buffers), next(_fresh)
    return tuple(_tensor(n, s, d, stage, k, number) for k, (n, s, d) in enumerate(outputs))


def fresh(name: str = "i") -> Var:
    """A new variable, for the loops of a procedure."""
    return Var(f"_{name}{next(_fresh)}")


def loop(extent: Extent, body: Callable[[Expr], Stmt], name: str = "i") -> For:
    """A serial loop, for procedures: ``loop(n, lambda i: ...)``."""
    var = fresh(name)
    return For(var, as_expr(extent), body(var))


def lowest(dtype: str) -> Const:
    """The smallest value of a dtype, minus infinity where it has one: the identity of ``max``.

    >>> te.lowest("float32")
    -inf
    """
    return const(-inf if dtype in FLOATS else _limits(dtype)[0], dtype)


def highest(dtype: str) -> Const:
    """The largest value of a dtype, infinity where it has one: the identity of ``min``.

    >>> te.highest("int8")
    int8(127)
    """
    return const(inf if dtype in FLOATS else _limits(dtype)[1], dtype)


def _limits(dtype: str) -> tuple[int, int]:
    if dtype == "bool":
        return 0, 1
    bits = int(dtype.lstrip("uint"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


ReduceAxes: TypeAlias = "IterVar | Axis | Sequence[IterVar | Axis]"
"""One axis made by ``reduce_axis``, or several."""


def _is_axis(x: object) -> bool:
    return isinstance(x, Axis) or (isinstance(x, IterVar) and x.kind == "reduce")


_OF_CONDITIONS: Final = {"all": "; conditions are joined by &: a & b", "any": "; conditions are joined by |: a | b"}


def _reduced_over(fn: str, axes: Sequence[Any], axis: Any) -> list[IterVar | Axis]:
    """The axes of a reduction. ExpressionError where there are none, or what is given is none."""
    given = [*axes, *(() if axis is None else axis if isinstance(axis, list | tuple) else (axis,))]
    for a in given:
        if not _is_axis(a):
            raise wrong(f"{fn} is over axes that reduce_axis makes, and not over {a!r}{_OF_CONDITIONS.get(fn, '')}")
    if not given:
        raise wrong(f"nothing says over which axes {fn} is: {fn}(x[i, k], axis=k){_OF_CONDITIONS.get(fn, '')}")
    if len({a.var for a in given}) < len(given):
        raise wrong(f"{fn} is over one axis twice")
    return given


def _counted(axes: Sequence[IterVar | Axis], values: Sequence[Expr]) -> tuple[tuple[Axis, ...], tuple[Expr, ...]]:
    """Axes that count from 0, and the values over these."""
    moved: dict[Var, Expr] = {a: a + a.lower for a in axes if isinstance(a, IterVar) and a.lower != Const(0)}
    plain = tuple(a.axis if isinstance(a, IterVar) else a for a in axes)
    return plain, tuple(substitute(v, moved) for v in values) if moved else tuple(values)


def _reduction(
    fn: str, value: ExprLike, axes: Sequence[IterVar | Axis], identity: Callable[[str], Expr]
) -> ReduceStage:
    over, (element,) = _counted(axes, (as_expr(value, _plain_dtype(value)),))
    a, b = Var("_acc", element.dtype), Var("_step", element.dtype)
    combined = Apply(fn, (a, b), element.dtype)
    return ReduceStage(over, (element,), (identity(element.dtype),), (a,), (b,), (combined,))


def sum(value: ExprLike, *axes: IterVar | Axis, axis: ReduceAxes | None = None) -> ReduceStage:
    """The sum over the axes: ``sum(x[i, k], axis=k)``.

    >>> te.sum(x[0, k], axis=k)
    sum(x[0, k], axis=k)
    """
    return _reduction("add", value, _reduced_over("sum", axes, axis), lambda dtype: const(0, dtype))


def prod(value: ExprLike, *axes: IterVar | Axis, axis: ReduceAxes | None = None) -> ReduceStage:
    """The product over the axes.

    >>> te.prod(x[0, k], axis=k)
    prod(x[0, k], axis=k)
    """
    return _reduction("mul", value, _reduced_over("prod", axes, axis), lambda dtype: const(1, dtype))


@overload
def max(value: ExprLike, *axes: IterVar | Axis, axis: ReduceAxes) -> ReduceStage: ...
@overload
def max(value: ExprLike, *axes: IterVar | Axis) -> ReduceStage: ...  # type: ignore[overload-overlap]
@overload
def max(value: ExprLike, *axes: ExprLike) -> Expr: ...
def max(value: ExprLike, *axes: Any, axis: ReduceAxes | None = None) -> ReduceStage | Expr:
    """The maximum over the axes, ``max(x[i, k], axis=k)``, or of two values, ``max(x[i], 0.0)``; NaN where one value is
    NaN.

    >>> te.max(x[0, k], axis=k)
    max(x[0, k], axis=k)
    >>> te.max(x[0, 1], 0.0)
    max(x[0, 1], 0.0)
    """
    if axis is None and len(axes) == 1 and not _is_axis(axes[0]):
        return apply("max", value, axes[0])
    return _reduction("max", value, _reduced_over("max", axes, axis), lowest)


@overload
def min(value: ExprLike, *axes: IterVar | Axis, axis: ReduceAxes) -> ReduceStage: ...
@overload
def min(value: ExprLike, *axes: IterVar | Axis) -> ReduceStage: ...  # type: ignore[overload-overlap]
@overload
def min(value: ExprLike, *axes: ExprLike) -> Expr: ...
def min(value: ExprLike, *axes: Any, axis: ReduceAxes | None = None) -> ReduceStage | Expr:
    """The minimum over the axes, or of two values; NaN where one value is NaN.

    >>> te.min(x[0, k], axis=k)
    min(x[0, k], axis=k)
    >>> te.min(x[0, 1], 0.0)
    min(x[0, 1], 0.0)
    """
    if axis is None and len(axes) == 1 and not _is_axis(axes[0]):
        return apply("min", value, axes[0])
    return _reduction("min", value, _reduced_over("min", axes, axis), highest)


def any(value: Expr, *axes: IterVar | Axis, axis: ReduceAxes | None = None) -> ReduceStage:
    """Logical or over the axes.

    >>> te.any(x[0, k] > 0.0, axis=k)
    any(x[0, k] > 0.0, axis=k)
    """
    return _reduction("or", value, _reduced_over("any", axes, axis), lambda dtype: Const(False, "bool"))


def all(value: Expr, *axes: IterVar | Axis, axis: ReduceAxes | None = None) -> ReduceStage:
    """Logical and over the axes.

    >>> te.all(x[0, k] > 0.0, axis=k)
    all(x[0, k] > 0.0, axis=k)
    """
    return _reduction("and", value, _reduced_over("all", axes, axis), lambda dtype: TRUE)


def reduction(
    axes: Sequence[IterVar | Axis],
    values: Sequence[Expr],
    identities: Sequence[Expr],
    combine: Callable[[tuple[Var, ...], tuple[Var, ...]], Sequence[Expr]],
) -> ReduceStage:
    """A reduction of several values at once: ``combine(accumulators, steps)`` says what the accumulators become.

    >>> te.reduction([k], [x[0, k]], [te.const(0, "float32")], lambda total, step: [total[0] + step[0] * step[0]])
    reduction(x[0, k], axis=k)
    """
    accumulators = tuple(Var(f"_acc{k}", v.dtype) for k, v in enumerate(values))
    steps = tuple(Var(f"_step{k}", v.dtype) for k, v in enumerate(values))
    combined = tuple(combine(accumulators, steps))
    over, elements = _counted(axes, values)
    return ReduceStage(over, elements, tuple(identities), accumulators, steps, combined)


# ------------------------------------------------------------------ from tensors to nests


def inline(outputs: Sequence[Tensor], chosen: Callable[[Tensor], bool]) -> tuple[Tensor, ...]:
    """The outputs with the chosen tensors inlined: their formulas replace their loads.

    Only tensors of which each element stands by itself can be chosen; requirements move to the readers.
    """
    inlined: dict[Tensor, Tensor] = {}
    stages: dict[int, ComputeStage] = {}
    for tensor in producers_first(outputs):
        inlined[tensor] = _inlined(tensor, inlined, stages, chosen)
    return tuple(inlined[t] for t in outputs)


def _inlined(
    tensor: Tensor, inlined: Mapping[Tensor, Tensor], stages: dict[int, ComputeStage], chosen: Callable[[Tensor], bool]
) -> Tensor:
    stage = tensor.stage
    if stage is None:
        return tensor
    if tensor.number not in stages:
        if isinstance(stage, Procedure):
            stages[tensor.number] = stage  # its statements are renamed to what became of its inputs when they are built
        else:
            stages[tensor.number] = _inlined_stage(stage, tensor, inlined, chosen)
    after = stages[tensor.number]
    return tensor if after is stage else replace(tensor, stage=after)


def _inlined_stage(
    stage: ElementwiseStage | Reduced,
    tensor: Tensor,
    inlined: Mapping[Tensor, Tensor],
    chosen: Callable[[Tensor], bool],
) -> ComputeStage:
    moved: dict[Requirement, None] = {}

    def part(e: Expr) -> Expr | None:
        if not (isinstance(e, Load) and isinstance(e.buffer, Tensor)):
            return None
        source = inlined[e.buffer]
        if isinstance(source.stage, ElementwiseStage) and chosen(e.buffer):
            moved.update(dict.fromkeys(source.stage.requirements))
            points = {a.var: i for a, i in zip(source.stage.axes, e.indices, strict=True)}
            return substitute(source.stage.values[source.port], points)
        return Load(source, e.indices)

    requirements = tuple(replace(r, condition=rewrite(r.condition, part)) for r in stage.requirements)
    if isinstance(stage, ElementwiseStage):
        values = tuple(rewrite(v, part) for v in stage.values)
        return ElementwiseStage(stage.axes, values, tuple(dict.fromkeys((*moved, *requirements))), stage.is_stored)
    values = tuple(rewrite(v, part) for v in stage.reduction.values)
    return Reduced(stage.axes, replace(stage.reduction, values=values), tuple(dict.fromkeys((*moved, *requirements))))


def nest(
    name: str,
    inputs: Sequence[Tensor] | None = None,
    outputs: Sequence[Tensor] | None = None,
    sizes: Sequence[Var] | None = None,
) -> Nest:
    """The program from inputs to outputs: one block for each tensor, in plain serial loops.

    Given one list of tensors, those that nothing computes are the inputs; where no inputs are given at all, they are
    the tensors that are read, in order. ``sizes`` are the open sizes that it takes: those in the tensors where they are
    not given. ExpressionError where there is no output, or a tensor is read that is not among the inputs.

    Buffers, loops and axes get names of their own, in order, so that equal programs are equal nests; axes with names
    keep them.

    >>> te.nest("first", [x, te.compute((n,), lambda i: x[i, 0], name="y")])
    <Nest first(x: float32[n, 8], y: float32[n], n): 1 block>
    """
    if not name.isidentifier() or iskeyword(name):
        raise wrong(f"{name!r} is no name of a program: an identifier is expected")
    if isinstance(inputs, Tensor) or isinstance(outputs, Tensor):
        raise wrong(f"{name} is given a tensor, and a list of tensors is expected")
    if outputs is None:
        given = tuple(inputs or ())
        inputs, outputs = [t for t in given if t.stage is None], [t for t in given if t.stage is not None]
        inputs = inputs or None
    if not outputs:
        raise wrong(f"{name} has no output: none of its tensors is computed")
    order = producers_first(outputs)
    if inputs is None:
        inputs = [t for t in order if t.stage is None]
    for tensor in order:
        if tensor.stage is None and tensor not in inputs:
            raise wrong(f"{name}: {tensor.name} is read, but is not among the inputs")
    if sizes is None:
        sizes = sizes_of([*inputs, *order])
    return NestWriter(inputs, outputs, sizes).nest(name)


__all__ = [
    "Tensor",
    "all",
    "any",
    "compute",
    "compute_several",
    "highest",
    "inline",
    "loop",
    "lowest",
    "max",
    "min",
    "nest",
    "placeholder",
    "procedure",
    "prod",
    "reduce_axis",
    "reduction",
    "require",
    "select",
    "sum",
]
