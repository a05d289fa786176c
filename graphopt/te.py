"""Tensor expressions, as people write them: ``from graphopt import te``.

``te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))`` is a tensor; ``te.nest("product", [a, b, c])`` is
the program that computes it. The axes of a formula are named as the function's parameters are, and so are its loops.
Examples of the functions have this tensor and axis:

>>> from graphopt import te
>>> n = te.size("n")
>>> x = te.placeholder((n, 8), "float32", "x")
>>> k = te.reduce_axis(8, "k")
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from operator import index as index_of
from typing import Any, TypeAlias

from graphopt.errors import nearest_or_some
from graphopt.lowering.loops import compute as _compute
from graphopt.lowering.loops import expressions as _expressions
from graphopt.lowering.loops.compute import (
    Extent,
    IterVar,
    ReduceStage,
    Tensor,
    all,
    any,
    compute_several,
    highest,
    lowest,
    max,
    min,
    nest,
    prod,
    reduction,
    require,
    sum,
)
from graphopt.lowering.loops.expressions import (
    INDEX,
    Apply,
    Const,
    Expr,
    ExprLike,
    Load,
    ScalarNumber,
    Var,
    apply,
    as_expr,
    equal,
    maximum,
    minimum,
    select,
    wrong,
)
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import WORDS
from graphopt.lowering.loops.script_expressions import DTYPES, INTEGERS, NAMED
from graphopt.lowering.loops.wellformed import DECIDING, AxisRange, is_typed, left

Function: TypeAlias = Callable[[ExprLike], Expr]
if_then_else = select


def size(name: str) -> Var:
    """An open size, known when the program runs: ``n = te.size("n")``.

    >>> te.size("n") * 2
    n * 2
    """
    return Var(_usable(name))


var = size


def reduce_axis(extent: Extent | tuple[Extent, Extent], name: str = "") -> IterVar:
    """An axis to reduce over, ``te.reduce_axis(n, "k")``, or with bounds, ``te.reduce_axis((1, n), name="k")``.

    It stands in expressions as it is: ``te.sum(a[i, k], axis=k)``. ExpressionError for a range that runs backwards.

    >>> te.reduce_axis(8, "k")
    k
    """
    for bound in extent if isinstance(extent, tuple) else (extent,):
        _check_size(f"the axis {name or 'k'}", bound)
    return _compute.reduce_axis(extent, _usable(name) if name else "")


def placeholder(shape: Sequence[Extent], dtype: str = "float32", name: str = "x") -> Tensor:
    """An input tensor. ExpressionError for a shape or dtype that tensor programs do not have.

    >>> te.placeholder((n, 8), "float32", "x")
    <Tensor x: float32[n, 8]>
    """
    _check_shape(name, shape)
    return _compute.placeholder(shape, _known(dtype), _identifier(name))


def cast(value: ExprLike, dtype: str) -> Expr:
    """A conversion to another dtype, as C converts.

    >>> te.cast(x[0, 1], "int64")
    cast(x[0, 1], "int64")
    """
    return _expressions.cast(as_expr(value), _known(dtype))


def const(value: ScalarNumber, dtype: str) -> Const:
    """The number as a constant of the dtype. ExpressionError for one that is none of it.

    >>> te.const(1, "int8")
    int8(1)
    """
    if not isinstance(value, bool | int | float) and not hasattr(value, "__float__"):
        raise wrong(f"{value!r} is no number")
    made = _expressions.const(value, _known(dtype))
    if dtype in INTEGERS and made.value not in INTEGERS[dtype]:
        raise wrong(f"{value} is no {dtype}, which is from {INTEGERS[dtype][0]} to {INTEGERS[dtype][-1]}")
    return made


def compute(shape: Sequence[Extent], fn: Callable[..., Any], dtype: str | None = None, name: str = "t") -> Tensor:
    """A tensor of a shape whose element at ``i, j, ...`` is ``fn(i, j, ...)``: an expression or one reduction.

    Its loops are named as the parameters are. ExpressionError where the function does not take one index for each axis,
    or what it gives is no element.

    >>> te.compute((n, 8), lambda i, j: x[i, j] + 1.0, name="y")
    <Tensor y: float32[n, 8]>
    """

    _check_shape(name, shape)
    if not callable(fn):
        raise wrong(f"{name}: its formula is a function of indices, lambda i, j: ..., and not {fn!r}")

    def formula(*at: Expr) -> Any:
        element = fn(*at)
        reduced, values = (element.axes, element.values) if isinstance(element, ReduceStage) else ((), (element,))
        ranges = _ranges([*zip(at, shape, strict=True), *((a.var, a.extent) for a in reduced)])
        for value in values:
            _check_element(name, as_expr(value), ranges)
        return element

    wanted = None if dtype is None else _known(dtype)
    return _compute.compute(shape, formula, wanted, _identifier(name), axis_names=_labels(fn, len(shape), name))


def _ranges(axes: Sequence[tuple[Expr, Extent]]) -> Mapping[Var, AxisRange] | None:
    """The values that each axis reaches, as far as numbers tell; None where there is no step at all."""
    ranges: dict[Var, AxisRange] = {}
    for var, extent in axes:
        size = as_expr(extent)
        if isinstance(size, Const) and isinstance(var, Var):
            if size.value < 1:
                return None
            ranges[var] = (0, int(size.value) - 1), frozenset([var])
    return ranges


def _check_element(name: str, value: Expr, ranges: Mapping[Var, AxisRange] | None) -> None:
    """ExpressionError for a function that is not defined on what it is given, or an element that there is not.

    What is read only where a condition holds, or nowhere (``ranges`` of axes are None), may lie outside.
    """
    match value:
        case Apply(fn, args):
            if not is_typed(value):
                raise wrong(f"{name}: {fn} is not defined on {args[-1].dtype}: cast it, as in te.cast(x, 'float32')")
            for k, part in enumerate(args):
                _check_element(name, part, None if k and fn in DECIDING else ranges)
        case Load(buffer, indices):
            for axis, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
                if index.dtype != INDEX:
                    raise wrong(
                        f"{name}: an index of {buffer.name} is {index.dtype}: cast it, as in te.cast(x, 'int64')"
                    )
                _check_element(name, index, ranges)
                if ranges is not None and (outside := left(index, extent, ranges)) is not None:
                    what = f"{index} is" if isinstance(index, Const) else f"those {outside} are"
                    raise wrong(f"{name}: {buffer.name} has {extent} elements along axis {axis}, and {what} read")


def _check_shape(name: str, shape: Sequence[Extent]) -> None:
    """ExpressionError for what is no shape."""
    if isinstance(shape, str) or not isinstance(shape, Sequence):
        raise wrong(f"{name}: a shape is a sequence of sizes, as in (n, 8), and not {shape!r}")
    for size in shape:
        _check_size(name, size)
        if not isinstance(size, Expr) and index_of(size) < 0:
            raise wrong(f"{name}: a size is a number from 0 on, and not {size!r}")


def _check_size(name: str, size: Extent) -> None:
    """ExpressionError for what is no whole number, and no expression of sizes."""
    if not (size.dtype == INDEX if isinstance(size, Expr) else hasattr(size, "__index__")):
        raise wrong(f"{name}: a size is a whole number, or an expression of sizes, and not {size!r}")


def _known(dtype: str) -> str:
    """A dtype of tensor programs. ExpressionError for another."""
    if dtype not in DTYPES:
        raise wrong(f"{dtype!r} is no dtype of tensor programs{nearest_or_some(str(dtype), sorted(DTYPES))}")
    return dtype


def _identifier(name: str) -> str:
    """A name that buffers may have. ExpressionError for another."""
    if not isinstance(name, str) or not name.isidentifier():
        raise wrong(f"{name!r} is no name of a tensor: an identifier is expected")
    return name


def _labels(fn: Callable[..., Any], rank: int, name: str) -> list[str]:
    """The names of a function's parameters; none where they are not one for each axis, as in ``lambda *i: ...``."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return []
    if builtins.any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return []
    taken = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in taken if p.default is p.empty]
    if not len(needed) <= rank <= len(taken):
        raise wrong(f"{name}: indices taken by the formula: {len(needed)}, and axes of the shape: {rank}")
    labels = [p.name for p in taken[:rank]]
    return labels if builtins.all(_is_usable(label) for label in labels) else []


def _is_usable(name: str) -> bool:
    return name.isidentifier() and not (name.startswith("_") or iskeyword(name) or name in WORDS or name in NAMED)


def _usable(name: str) -> str:
    """A name that scripts may use. ExpressionError for another."""
    if not isinstance(name, str) or not _is_usable(name):
        raise wrong(f"{name!r} is no name for an axis or a size: an identifier that scripts do not use is expected")
    return name


def create_prim_func(tensors: Sequence[Tensor], name: str = "main") -> Nest:
    """The program of tensors, inputs first: ``te.nest`` by the name that TVM has for it.

    >>> te.create_prim_func([x, te.compute((n,), lambda i: x[i, 0], name="y")])
    <Nest main(x: float32[n, 8], y: float32[n], n): 1 block>
    """
    return nest(name, tensors)


def _function(fn: str) -> Function:
    def call(x: ExprLike) -> Expr:
        return apply(fn, as_expr(x, "float32"))

    call.__name__ = call.__qualname__ = fn
    call.__doc__ = f"``{fn}`` of a value.\n\n>>> te.{fn}(x[0, 1])\n{fn}(x[0, 1])\n"
    return call


abs, sign, floor, ceil, trunc, round = map(_function, ("abs", "sign", "floor", "ceil", "trunc", "round"))
exp, expm1, log, log1p, sqrt = map(_function, ("exp", "expm1", "log", "log1p", "sqrt"))
sigmoid, tanh, erf = map(_function, ("sigmoid", "tanh", "erf"))
sin, cos, tan, asin, acos, atan = map(_function, ("sin", "cos", "tan", "asin", "acos", "atan"))
sinh, cosh, asinh, acosh, atanh = map(_function, ("sinh", "cosh", "asinh", "acosh", "atanh"))
isnan, isinf = map(_function, ("isnan", "isinf"))


def power(base: Expr, exponent: ExprLike) -> Expr:
    """A power.

    >>> te.power(x[0, 1], 2.0)
    x[0, 1] ** 2.0
    """
    return apply("pow", base, exponent)


def fmod(a: ExprLike, b: ExprLike) -> Expr:
    """The remainder of a division, with the sign of what is divided, as in C.

    >>> te.fmod(x[0, 1], 2.0)
    fmod(x[0, 1], 2.0)
    """
    return apply("fmod", a, b)


def rsqrt(x: Expr) -> Expr:
    """One over the square root.

    >>> te.rsqrt(x[0, 1])
    1.0 / sqrt(x[0, 1])
    """
    return 1.0 / apply("sqrt", x)


__all__ = [
    "INDEX",
    "Expr",
    "IterVar",
    "ReduceStage",
    "Tensor",
    "abs",
    "acos",
    "acosh",
    "all",
    "any",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cast",
    "ceil",
    "compute",
    "compute_several",
    "const",
    "cos",
    "cosh",
    "create_prim_func",
    "equal",
    "erf",
    "exp",
    "expm1",
    "floor",
    "fmod",
    "highest",
    "if_then_else",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "lowest",
    "max",
    "maximum",
    "min",
    "minimum",
    "nest",
    "placeholder",
    "power",
    "prod",
    "reduce_axis",
    "reduction",
    "require",
    "round",
    "rsqrt",
    "select",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "size",
    "sqrt",
    "sum",
    "tan",
    "tanh",
    "trunc",
    "var",
]
