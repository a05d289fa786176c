"""Ops as tensor functions: ``op("Conv", [x, w], strides=(2, 2))`` is what the op's lowering makes of given tensors.

The lowering is the very one by which graphs are compiled, so that a function of tensors and the op of its name cannot
differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from graphopt.errors import InvalidModelError
from graphopt.ir import ops
from graphopt.ir.bounds import fact_of, fact_of_type
from graphopt.ir.constants import Array, Constant
from graphopt.ir.dtypes import CODES
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attr, Attrs
from graphopt.ir.infer import infer_node
from graphopt.ir.onnx_io.tensors import numpy_dtype
from graphopt.ir.types import Size, SizeAtom, Symbol, TensorType, symbol, symbols
from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import Const, Expr, const, equal, select, wrong
from graphopt.lowering.loops.sizes import dimension_of
from graphopt.lowering.operators.operation import NotLowered, Operation, SizeVars
from graphopt.lowering.operators.table import describe

Operand: TypeAlias = "Tensor | Array | float | int | bool | Sequence[Expr | int] | None"
"""An input: a tensor, an array or a number that is known, integers (also open sizes), or nothing."""
MOST_KNOWN = 64
"""As many elements at most may an array have that is written into the program."""


def op(name: str, inputs: Sequence[Operand], **attrs: Any) -> Tensor:
    """The output of an ONNX op in its newest form on tensors: ``op("Conv", [x, w], strides=(2, 2))``.

    Attributes that are None are left out. Raises as ``several`` does.

    >>> def celu(x: tensor.Operand):
    ...     return tensor.op("Celu", [x], alpha=0.5)
    >>> celu(x)
    <Tensor celu: float32[n, 8]>
    """
    return several(name, 1, inputs, **attrs)[0]


def several(name: str, n_outputs: int, inputs: Sequence[Operand], **attrs: Any) -> tuple[Tensor, ...]:
    """The first so many outputs of an ONNX op on tensors.

    ExpressionError where the op does not take these inputs or attributes, where no loops can say what it computes, and
    where the sizes of what it gives depend on elements.

    >>> tensor.several("TopK", 2, [x, [2]], axis=1)
    (<Tensor topk: float32[n, 2]>, <Tensor indices: int64[n, 2]>)
    """
    sizes = _GivenSizes()
    dtype = next((x.dtype for x in inputs if isinstance(x, Tensor)), "float32")
    given = [_given(name, x, dtype, sizes) for x in inputs]
    facts = [fact for fact, _ in given]
    attributes = Attrs({n: _attribute(a) for n, a in attrs.items() if a is not None})
    refused = ops.misuse(name, len(inputs), n_outputs, tuple(attributes), ops.LATEST) or ops.refusal(
        name, attributes, facts, ops.LATEST
    )
    if refused:
        raise wrong(f"{name} is not called so: {refused}")
    try:
        outputs = infer_node(name, attributes, facts, n_outputs, ops.LATEST)
        sizes.check(name, outputs)
        tensors = tuple(tensor for _, tensor in given)
        operation = Operation(name, attributes, tensors, tuple(facts), outputs, ops.LATEST, sizes, is_for_host=False)
        results = describe(operation)
    except (InvalidModelError, NotLowered) as error:
        raise wrong(f"{name}: {error}") from None
    return results[:n_outputs]


def _given(name: str, x: Operand, dtype: str, sizes: _GivenSizes) -> tuple[Fact | None, Tensor | None]:
    """What is known of an input, and the tensor."""
    if x is None:
        return None, None
    if isinstance(x, Tensor):
        return fact_of_type(TensorType(x.dtype, tuple(map(sizes.size_of, x.shape)))), x
    if isinstance(x, list | tuple):
        if all(isinstance(e, int) for e in x):
            x = np.array(x, np.int64)
        elif all(isinstance(e, int | Expr) for e in x):
            elements = tuple(sizes.size_of(e if isinstance(e, Expr) else Const(e)) for e in x)
            known = compute((len(x),), lambda i: _chosen([e if isinstance(e, Expr) else Const(e) for e in x], i))
            return Fact(TensorType("int64", (len(x),)), elements=elements), known
    array = np.asarray(x, numpy_dtype(dtype)) if isinstance(x, bool | int | float) else np.asarray(x)
    if array.dtype.name not in CODES:
        raise wrong(f"{name} takes tensors, arrays, numbers and sizes, and not {x!r}")
    if array.size > MOST_KNOWN:
        raise wrong(
            f"{name}: an array of {array.size} elements is too large to be part of a program ({MOST_KNOWN} at most): "
            "make it an input"
        )
    return fact_of(Constant.of(array)), _known(array)


def _known(array: Array) -> Tensor:
    """The tensor of known elements."""
    elements = [const(e.item(), array.dtype.name) for e in array.reshape(-1)]

    def element(*at: Expr) -> Expr:
        place: Expr = Const(0)
        for index, length in zip(at, array.shape, strict=True):
            place = place * length + index
        return _chosen(elements, place) if elements else const(0, array.dtype.name)

    return compute(array.shape, element, array.dtype.name, "known")


def _chosen(elements: Sequence[Expr], at: Expr) -> Expr:
    """The element at an index."""
    chosen = elements[-1]
    for k in reversed(range(len(elements) - 1)):
        chosen = select(equal(at, k), elements[k], chosen)
    return chosen


def _attribute(value: Any) -> Attr:
    if isinstance(value, list | tuple):
        return tuple(_attribute(v) for v in value)  # type: ignore[misc]
    if isinstance(value, bool):
        return int(value)
    return value  # type: ignore[no-any-return]


class _GivenSizes(SizeVars):
    """Sizes that are expressions already: each that is no sum or product of others has a symbol."""

    spells_out = True

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[Expr, str] = {}
        self.expressions: dict[str, Expr] = {}

    def size_of(self, expr: Expr) -> Size:
        """The size that an expression is."""
        return dimension_of(expr, self._symbol)

    def _symbol(self, expr: Expr) -> Size:
        if expr not in self.names:
            self.names[expr] = f"s{len(self.names)}"
            self.expressions[self.names[expr]] = expr
        return symbol(self.names[expr])

    def check(self, name: str, facts: Sequence[Fact]) -> None:
        """ExpressionError for a size that is not told by those that are given."""
        for fact in facts:
            if fact.shape is None:
                raise wrong(f"{name}: nothing tells the shape of what it gives")
            if any(n not in self.expressions for size in fact.shape for n in symbols(size)):
                raise wrong(f"{name}: no formula is known for the sizes of what it gives")

    def _atom(self, atom: SizeAtom) -> Expr:
        match atom:
            case Symbol(name) if name in self.expressions:
                return self.expressions[name]
        return super()._atom(atom)
