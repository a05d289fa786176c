"""How a formula over values becomes a function of kernels for GPUs: as in ``vector_type.py``, of scalars."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from numba import types

from graphopt.kernels.cuda.target import intrinsic
from graphopt.kernels.values import Value
from graphopt.kernels.vector_type import check, dtype_of, meet, operand


def function(define: Callable[..., tuple[Any, Callable[..., Any]]]) -> Any:
    """The function that kernel source calls, by the name of ``define``, with its documentation.

    ``define`` is called with the types of the arguments and returns the type of the result and what appends the
    instructions: a function of one operand per argument, a ``Value``, a ``Pointer``, a tuple of values, or None for
    what is no value; it returns a value, what LLVM calls one, or None.
    """

    def resolve(typing_context: Any, *args: Any) -> Any:
        result, trace = define(*args)

        def generate(context: Any, builder: Any, sig: Any, irs: Any) -> Any:
            out = trace(*(_operand(builder, ir, kind) for ir, kind in zip(irs, sig.args, strict=True)))
            if out is None:
                return context.get_dummy_value()
            return out.ir if isinstance(out, Value) else out

        return result(*args), generate

    resolve.__name__, resolve.__doc__ = define.__name__.removeprefix("_"), define.__doc__
    # numba counts arguments by the signature.
    first = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    own = inspect.signature(define).parameters.values()
    resolve.__signature__ = inspect.Signature([first, *own])  # type: ignore[attr-defined]
    return intrinsic(resolve)


def elementwise(trace: Callable[..., Value], kinds: str = "f", result: Callable[[Any], Any] | None = None) -> Any:
    """The function of scalars that kernel source calls, by the name of ``trace``, which appends the instructions.

    ``kinds`` are the letters of the dtypes that it takes (``f i b``), ``result`` gives the dtype of the result from
    that in which the arguments meet (the same where it is left out).
    """

    def define(*args: Any) -> Any:
        dtype, _ = check(trace.__name__, args, kinds)
        return result(dtype) if result else dtype, lambda *operands: trace(*(meet(x, dtype, 1) for x in operands))

    define.__name__, define.__doc__ = trace.__name__.removeprefix("_"), trace.__doc__
    define.__signature__ = inspect.signature(trace)  # type: ignore[attr-defined]
    return function(define)


def _operand(builder: Any, ir: Any, kind: Any) -> Any:
    """An argument of a call, which may be a tuple."""
    if not isinstance(kind, types.BaseTuple):
        return operand(builder, ir, kind)
    parts: Any = kind
    return tuple(Value(builder, builder.extract_value(ir, k), dtype_of(part), 1) for k, part in enumerate(parts))
