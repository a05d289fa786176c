"""Vector type of kernels, and functions over values that kernel source calls by name.

A ``Vector(dtype, lanes)`` lives in a register. Python's operators work on it as on scalars; a scalar that meets a
vector is cast to the vector's dtype and taken for every lane, so ``v * 0.5`` is of the dtype of ``v``. Comparisons give
masks, vectors of booleans.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numba import types
from numba.core.datamodel import models
from numba.core.datamodel.registry import register_default
from numba.core.errors import TypingError
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic

from graphopt.kernels import division, values
from graphopt.kernels.memory import Pointer
from graphopt.kernels.values import VectorValue, is_float


class Vector(types.Type):
    """``lanes`` elements of one dtype (float32, float64, an integer, boolean for a mask); a power of two, 2 to 128."""

    def __init__(self, dtype: Any, lanes: int) -> None:
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"Vector({dtype}, {lanes})")


class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Vector) -> None:
        backing = values.llvm_type(fe_type.dtype, fe_type.lanes)
        super().__init__(dmm, fe_type, backing)  # type: ignore[no-untyped-call]


register_default(Vector)(_VectorModel)


def is_scalar(kind: Any) -> bool:
    """Whether a numba type is a dtype that vectors may have."""
    return isinstance(kind, (types.Integer, types.Boolean)) or kind in (types.float32, types.float64)


def vector(dtype: Any, lanes: int) -> Any:
    """The numba type of so many elements, the dtype itself of one. Raises ``TypingError`` but for 1, 2, 4…128."""
    if not 1 <= lanes <= 128 or lanes & (lanes - 1):
        raise TypingError(f"a vector of {lanes} lanes: expected a power of two up to 128")
    return dtype if lanes == 1 else Vector(dtype, lanes)


def plain(kind: Any) -> Any:
    """The type of a value, known when compiling or not."""
    return types.unliteral(kind)  # type: ignore[no-untyped-call]


def dtype_of(kind: Any) -> Any:
    """The dtype of a vector or scalar type."""
    return kind.dtype if isinstance(kind, Vector) else plain(kind)


def lanes_of(kind: Any) -> int:
    """The lanes of a vector or scalar type."""
    return kind.lanes if isinstance(kind, Vector) else 1


def join(kinds: Sequence[Any]) -> tuple[Any, int]:
    """The dtype and lanes in which arguments of these types meet.

    The vectors decide; among scalars, one that numbers in source do not have (they are float64 and int64). Raises
    ``TypingError`` where vectors differ, and where two scalars have different dtypes of that kind.
    """
    vectors = {kind for kind in kinds if isinstance(kind, Vector)}
    lanes = max((kind.lanes for kind in vectors), default=1)
    dtypes = {kind.dtype for kind in vectors}
    if not vectors:
        scalars = {plain(kind) for kind in kinds}
        dtypes = scalars - {types.float64, types.int64} if len(scalars) > 1 else scalars
        if len(dtypes) > 1:
            dtypes -= {types.boolean}
        if not dtypes:
            dtypes = {types.float64}
    if len(dtypes) != 1 or len({kind.lanes for kind in vectors}) > 1:
        raise TypingError(f"operands of different types: {', '.join(map(str, kinds))}; cast one")
    return dtypes.pop(), lanes


def operand(builder: Any, ir: Any, kind: Any) -> Any:
    """An argument of a call: a value, a pointer or a tuple of values; None for what is no value, such as a dtype."""
    if isinstance(kind, types.BaseTuple):
        parts: Any = kind
        return tuple(
            VectorValue(builder, builder.extract_value(ir, k), dtype_of(part), 1) for k, part in enumerate(parts)
        )
    if isinstance(kind, types.CPointer):
        return Pointer(builder, ir, kind.dtype)
    is_value = isinstance(kind, Vector) or is_scalar(plain(kind))
    return VectorValue(builder, ir, dtype_of(kind), lanes_of(kind)) if is_value else None


def meet(x: VectorValue, dtype: Any, lanes: int) -> VectorValue:
    """An argument in the dtype and lanes in which all of them meet."""
    return values.broadcast(values.cast(x, dtype), lanes)


def kind_of(dtype: Any) -> str:
    """One letter: ``f`` a float, ``i`` an integer, ``b`` a boolean."""
    return "f" if is_float(dtype) else "b" if isinstance(dtype, types.Boolean) else "i"


EmitVector = Callable[..., VectorValue]


Define = Callable[..., tuple[Any, Callable[..., Any]]]
"""Called with the types of arguments; returns the type of the result and what appends the instructions: a function of
one operand per argument, a ``VectorValue``, a ``Pointer``, a tuple of values, or None for a dtype. It gives a
``VectorValue``, what LLVM calls one, or None."""


def function(define: Define) -> Any:
    """The function that kernel source calls, by the name of ``define``, with its documentation."""
    return intrinsic(prefer_literal=True)(resolver(define))


def resolver(define: Define) -> Callable[..., Any]:
    """The resolver that numba asks for a function: its type, and the generator of its code."""

    def resolve(typing_context: Any, *args: Any) -> Any:
        result, trace = define(*args)

        def generate(context: Any, builder: Any, sig: Any, irs: Any) -> Any:
            out = trace(*(operand(builder, ir, kind) for ir, kind in zip(irs, sig.args, strict=True)))
            if out is None:
                return context.get_dummy_value()
            return out.ir if isinstance(out, (VectorValue, Pointer)) else out

        # Literals stay: numba finds what was generated by the types of the arguments.
        return result(*args), generate

    resolve.__name__, resolve.__doc__ = define.__name__.removeprefix("_"), define.__doc__
    # numba counts arguments by the signature.
    first = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(define).parameters.values()
    resolve.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
    return resolve


def procedure(
    name: str, parameters: Sequence[str], define: Callable[[Mapping[str, Any]], Callable[[Mapping[str, Any]], None]]
) -> Any:
    """The function that kernel source calls by that name, with so many arguments, for what it does.

    ``define`` is called with their types by parameter, and returns what appends the instructions: a function of the
    operands by parameter (``function``).
    """

    def resolve(*kinds: Any) -> tuple[Any, Callable[..., None]]:
        trace = define(dict(zip(parameters, kinds, strict=True)))
        return types.none, lambda *operands: trace(dict(zip(parameters, operands, strict=True)))

    resolve.__name__, resolve.__doc__ = f"_{name}", f"``{name}({', '.join(parameters)})``"
    declared_parameters = [inspect.Parameter(p, inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in parameters]
    resolve.__signature__ = inspect.Signature(declared_parameters)  # type: ignore[attr-defined]
    return function(resolve)


def elementwise(trace: EmitVector, kinds: str = "f", result: Callable[[Any], Any] | None = None) -> Any:
    """The function over scalars and vectors that kernel source calls: ``trace`` computes each lane by itself.

    ``kinds`` are the letters of the dtypes that it takes, ``result`` gives the dtype of the result from that of the
    arguments (the same where it is left out).
    """
    return function(lane_by_lane(trace, kinds, result))


def lane_by_lane(trace: EmitVector, kinds: str, result: Callable[[Any], Any] | None) -> Define:
    """The definition of such a function."""

    def define(*args: Any) -> Any:
        dtype, lanes = check(trace.__name__, args, kinds)
        out = vector(result(dtype) if result else dtype, lanes)
        return out, lambda *operands: trace(*(meet(x, dtype, lanes) for x in operands))

    define.__name__, define.__doc__ = trace.__name__, trace.__doc__
    define.__signature__ = inspect.signature(trace)  # type: ignore[attr-defined]
    return define


def horizontal(trace: EmitVector, kinds: str = "fi") -> Any:
    """The function that kernel source calls to combine the lanes of one vector into a scalar."""

    def define(v: Any) -> Any:
        dtype, _ = check(trace.__name__, (v,), kinds)
        return dtype, trace

    define.__name__, define.__doc__ = trace.__name__, trace.__doc__
    return function(define)


def check(name: str, args: Sequence[Any], kinds: str) -> tuple[Any, int]:
    """The common type of the arguments. Raises ``TypingError`` where one is no scalar or vector of an allowed kind."""
    for arg in args:
        if not isinstance(arg, Vector) and not is_scalar(plain(arg)):
            raise TypingError(f"{name} of {arg}: expected a scalar or a vector")
    dtype, lanes = join(args)
    if kind_of(dtype) not in kinds:
        raise TypingError(f"{name} of {dtype}: cast it first")
    return dtype, lanes


def literal(kind: Any, name: str) -> int:
    """The number that a literal argument is. Raises ``TypingError`` where it is not known when compiling."""
    if not isinstance(kind, types.IntegerLiteral):
        raise TypingError(f"{name} is {kind}: expected a number written in the source")
    return int(kind.literal_value)


def to_mask(dtype: Any) -> Any:
    """The result's dtype of what is true or false lane by lane."""
    return types.boolean


OPERATORS: list[tuple[Any, Any, EmitVector, str, Callable[[Any], Any] | None]] = [
    (operator.add, operator.iadd, operator.add, "fi", None),
    (operator.sub, operator.isub, operator.sub, "fi", None),
    (operator.mul, operator.imul, operator.mul, "fi", None),
    (operator.truediv, operator.itruediv, operator.truediv, "f", None),
    (operator.floordiv, operator.ifloordiv, division.floor_quotient, "fi", None),
    (operator.mod, operator.imod, division.floor_remainder, "fi", None),
    (operator.and_, operator.iand, operator.and_, "ib", None),
    (operator.or_, operator.ior, operator.or_, "ib", None),
    (operator.xor, operator.ixor, operator.xor, "ib", None),
    (operator.lshift, operator.ilshift, operator.lshift, "i", None),
    (operator.rshift, operator.irshift, operator.rshift, "i", None),
    (operator.lt, None, operator.lt, "fib", to_mask),
    (operator.le, None, operator.le, "fib", to_mask),
    (operator.gt, None, operator.gt, "fib", to_mask),
    (operator.ge, None, operator.ge, "fib", to_mask),
    (operator.eq, None, values.equal, "fib", to_mask),
    (operator.ne, None, values.not_equal, "fib", to_mask),
    (operator.neg, None, operator.neg, "fi", None),
    (operator.invert, None, operator.invert, "ib", None),
    (abs, None, values.absolute, "fi", None),
]
"""Python's operators on vectors: the operator, its in-place form, what it does, the kinds that it takes, the result."""


def _register(key: Any, trace: EmitVector, kinds: str, result: Callable[[Any], Any] | None) -> None:
    """Teaches numba one operator on vectors."""

    def generic(self: Any, args: Any, kws: Any) -> Any:
        if not any(isinstance(arg, Vector) for arg in args):
            return None
        dtype, lanes = check(key.__name__, args, kinds)
        out = vector(result(dtype) if result else dtype, lanes)
        return signature(out, *map(plain, args))  # type: ignore[no-untyped-call]

    template = type(f"Vector_{key.__name__}", (AbstractTemplate,), {"key": key, "generic": generic})
    infer_global(key)(template)  # type: ignore[no-untyped-call]

    def generate(context: Any, builder: Any, sig: Any, irs: Any) -> Any:
        dtype, lanes = join(sig.args)
        operands = [operand(builder, ir, kind) for ir, kind in zip(irs, sig.args, strict=True)]
        return trace(*(meet(x, dtype, lanes) for x in operands)).ir

    if key in (operator.neg, operator.invert, abs):
        patterns: list[tuple[Any, ...]] = [(Vector,)]
    else:
        patterns = [(Vector, Vector), (Vector, types.Any), (types.Any, Vector)]
    for pattern in patterns:
        lower_builtin(key, *pattern)(generate)  # type: ignore[no-untyped-call]


for _key, _in_place, _trace, _kinds, _result in OPERATORS:
    _register(_key, _trace, _kinds, _result)
    if _in_place is not None:
        _register(_in_place, _trace, _kinds, _result)
