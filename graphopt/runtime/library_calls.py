"""Library calls of programs: what each function is given, in which order, and what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, Literal, TypeAlias

from graphopt.frozen import dataclass
from graphopt.runtime.steps import LibraryStep

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


@dataclass(frozen=True, slots=True)
class Convolution:
    """``y = epilogue(x * w + bias + residual)``: windows ``w`` that slide over images ``x`` of ``rank`` axes.

    Arguments, in order: the addresses ``x w y``, where ``has_bias`` ``bias``, and where ``has_residual`` ``residual``;
    images, channels of a group of ``x``, channels of ``y`` and groups: ``batch channels filters groups``. For each axis
    ``a`` of the images ``size_a`` of ``x`` and ``made_a`` of ``y``, the elements ``window_a`` of a window, ``stride_a``
    from one window to the next, ``dilation_a`` from one element of it to the next, and the zeros ``before_a`` before an
    image; behind it are as many as windows reach. Then the elements in memory from one neighbour to the next: of ``x``
    along images, channels, and each axis, ``x_batch x_channel x_0`` and so on; of ``w`` along channels of ``y``, those
    of ``x``, and each axis; of ``y`` as of ``x``. The bias has an element for each channel of ``y``, and the residual
    lies as ``y``.

    Operands and results are of ``dtype``; sums are of float32. float32 is rounded to TF32 only where ``tf32``.
    """

    dtype: str = "float32"
    rank: int = 2
    tf32: bool = False
    has_bias: bool = False
    has_residual: bool = False
    epilogue: Literal["", "relu"] = ""

    @property
    def params(self) -> tuple[str, ...]:
        """The names of the arguments."""
        more = [name for name in ("bias", "residual") if getattr(self, f"has_{name}")]
        axes, tensors = (
            range(self.rank),
            {"x": ("batch", "channel"), "w": ("filter", "channel"), "y": ("batch", "channel")},
        )
        sizes = [f"{name}_{a}" for a in axes for name in AXIS]
        strides = [f"{t}_{name}" for t, outer in tensors.items() for name in (*outer, *axes)]
        return "x", "w", "y", *more, "batch", "channels", "filters", "groups", *sizes, *strides


AXIS: Final = ("size", "made", "window", "stride", "dilation", "before")
"""What a convolution is told of each axis."""
Function: TypeAlias = Gemm | Convolution
FUNCTIONS: Final[Mapping[str, type[Function]]] = {"gemm": Gemm, "convolution": Convolution}


def function_of(step: LibraryStep) -> Function:
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
