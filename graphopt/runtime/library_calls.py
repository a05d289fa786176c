"""The functions of libraries that programs call: what each is given, in which order, and what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeAlias

from graphopt.runtime.steps import Attribute, Library

Epilogue: TypeAlias = Literal["", "relu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class Gemm:
    """``c = epilogue(alpha * (a @ b) + beta * c + bias)`` for each of ``batch`` products, ``a`` of ``m`` by ``k``.

    Arguments, in order: the addresses ``a b c`` and, where ``has_bias``, ``bias``; the sizes ``m n k``; the elements
    from one row to the next of what lies in memory ``lda ldb ldc``; ``batch``; the elements from one product to the
    next ``step_a step_b step_c``, 0 for an operand that all share. All is row-major, ``a`` lies as ``k`` by ``m`` where
    ``transpose_a``. The bias has ``n`` elements, one for each column. ``c`` is not read where ``beta`` is 0.

    Operands and results are of ``dtype``; sums are of float32 for float16 and bfloat16. float32 operands are rounded to
    TF32 only where ``tf32``. ``gelu_tanh`` is the approximation of gelu by tanh.
    """

    dtype: str = "float32"
    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0
    beta: float = 0.0
    tf32: bool = False
    has_bias: bool = False
    epilogue: Epilogue = ""

    @property
    def params(self) -> tuple[str, ...]:
        """The names of the arguments."""
        bias = ("bias",) if self.has_bias else ()
        return "a", "b", "c", *bias, "m", "n", "k", "lda", "ldb", "ldc", "batch", "step_a", "step_b", "step_c"


Function: TypeAlias = Gemm
FUNCTIONS: Final[Mapping[str, type[Function]]] = {"gemm": Gemm}


def function_of(step: Library) -> Function:
    """What a step calls; raises ``ValueError`` where there is no such function, or it takes other arguments."""
    kind = FUNCTIONS.get(step.name)
    if kind is None:
        raise ValueError(f"there is no library function {step.name!r}: there are {', '.join(FUNCTIONS)}")
    given: Mapping[str, Any] = dict(step.attributes)
    unknown = sorted(given.keys() - {f.name for f in fields(kind)})
    if unknown:
        raise ValueError(f"{step.name} has no attribute {unknown[0]!r}")
    function = kind(**given)
    if len(step.args) != len(function.params):
        raise ValueError(f"{step.name} takes {', '.join(function.params)}, and {len(step.args)} arguments are given")
    return function


def attributes_of(function: Function) -> tuple[tuple[str, Attribute], ...]:
    """What a step that calls it has as attributes: those that are not as they are by default."""
    pairs = ((f.name, getattr(function, f.name), f.default) for f in fields(function))
    return tuple((name, value) for name, value, default in pairs if value != default)
