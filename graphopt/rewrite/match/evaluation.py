"""Constant evaluation: what a node computes from constants, as far as its result is small or worth its bytes.

Sizes are inferred before anything is computed. One repeated element stays one element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.constants import BITS, SMALL, Constant
from graphopt.ir.evaluate import evaluate
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Node, Value
from graphopt.ir.op_table import ops_where
from graphopt.ir.work import APPROXIMATE, effort, sparse_bytes

SMALL_BYTES = 8 << 10
"""Results up to this size are computed whatever they replace."""
KEPT = ops.KEPT | {"SequenceEmpty", "SequenceConstruct"}
"""Ops that are never folded."""
DATA_DEPENDENT = frozenset({"NonZero", "Unique", "Compress"})
"""Ops whose result's size depends on elements but is never much larger than their input."""
SLOW = ops.KINDS["pool"] | frozenset(
    {"Conv", "ConvTranspose", "ConvInteger", "DeformConv", "LSTM", "GRU", "RNN", "Einsum"}
)
"""Ops whose reference implementation is slow: they are computed only where the result is small."""
SLOW_BYTES = 1 << 20
ALL_OPERATIONS = 10**10
"""So many operations may be done ahead for all nodes of a graph together, those of bodies included; slow ones count as
many,"""
QUICK_OPERATIONS, EACH_BYTE = ALL_OPERATIONS // 8, 1000
"""and no more than these, or so many for each byte that the graph stores: a product of two weights takes some hundred,
what a file of a few bytes makes of a Range takes millions."""
APPROXIMATED, WITHOUT_BLAS = 8, 5
"""How many times as long as others ops take that approximate functions, and products of other numbers than float32."""
DEEPEST = 16
"""Down to which depth a value is computed to answer a guard."""
SPLAT_MOVES = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Flatten", "Slice", "Tile", "Cast"})
"""Ops that give one repeated element again when their first input is that."""


ROUNDED = ops.KINDS["elementwise"] & ops_where(is_approximate=False, schema=None) - {"Pow", "Sum"}
"""Ops of which IEEE 754 says how each result is rounded."""
MOVES = ops.KINDS["movement"] | frozenset(
    {"Cast", "CastLike", "ConstantOfShape", "EyeLike", "Identity", "NonZero", "OneHot", "Shape", "Size", "Transpose"}
)
"""Ops that give elements of their inputs, or what no runtime rounds otherwise."""


def is_foldable(node: Node) -> bool:
    """Whether the node may be computed ahead once its inputs are known."""
    if node.op in (INPUT, CONSTANT) or node.op in KEPT or node.bodies or not ops.is_pure(node.op):
        return False
    return ops.schema(node.op) is not None


@dataclass(slots=True)
class OperationBudget:
    """The operations that may be done ahead for a graph and its bodies."""

    left: int
    is_spent: bool = False
    """Whether something was left out since it would take more."""

    @staticmethod
    def of(graph: Graph) -> OperationBudget:
        """What a graph may take, by the bytes that it stores."""
        return OperationBudget(min(ALL_OPERATIONS, max(QUICK_OPERATIONS, EACH_BYTE * sparse_bytes(graph))))

    def takes(self, node: Node, fact: Callable[[Value], Fact], ones: Sequence[bool | None]) -> bool:
        """Whether it takes what a node costs, which it is charged with then."""
        inputs = [None if v is None else fact(v) for v in node.inputs]
        cost = cost_ahead(node.op, node.attrs, inputs, [fact(v) for v in node.outputs], ones)
        if node.op in ops.KINDS["product"]:
            cost *= (
                1 if all(fact(v).dtype in ("float32", "float64", "bfloat16") for v in node.outputs) else WITHOUT_BLAS
            )
        elif node.op in APPROXIMATE:
            cost *= APPROXIMATED
        if cost > self.left:
            self.is_spent = True
            return False
        self.left -= cost
        return True


def cost_ahead(
    op: str, attrs: Attrs, inputs: Sequence[Fact | None], outputs: Sequence[Fact | None], ones: Sequence[bool | None]
) -> int:
    """The operations that it takes to compute a call ahead, of which ``evaluate`` does ``OPERATIONS`` at most; ``ones``
    says of each input whether it is one element repeated."""
    return 1 if is_splat_result(op, len(outputs), ones) else effort(op, attrs, inputs, outputs)


def output_bytes(node: Node, facts: Sequence[Fact], inputs: Sequence[Constant | None]) -> int | None:
    """The bytes that a file needs for what a node computes from these inputs; None where that is not known."""
    return result_bytes(node, facts, ones_of(inputs), sum(c.nbytes for c in inputs if c is not None))


def result_bytes(node: Node, facts: Sequence[Fact], ones: Sequence[bool | None], read: int) -> int | None:
    """The bytes that a file needs for the node's outputs, before they are computed; None where that is not known.

    ``ones`` says of each input whether it is one element repeated, ``read`` how many bytes they have together.
    """
    total = 0
    for fact in facts:
        size = fact.size
        if not isinstance(size, int) or fact.dtype is None:
            return 8 * read if node.op in DATA_DEPENDENT and read <= SMALL_BYTES else None
        if size > SMALL and is_splat_result(node.op, node.n_outputs, ones):
            size = 1
        total += (size * BITS.get(fact.dtype, 64) + 7) // 8
    return None if node.op in SLOW and total > SLOW_BYTES else total


def is_splat_result(op: str, n_outputs: int, ones: Sequence[bool | None]) -> bool:
    """Whether the result is one element repeated, seen from which inputs are (None: absent)."""
    if n_outputs != 1:
        return False
    if op == "ConstantOfShape":
        return True
    if op in SPLAT_MOVES:
        return bool(ones[0])
    given = [one for one in ones if one is not None]
    return op in ops.KINDS["elementwise"] and bool(given) and all(given)


def ones_of(inputs: Sequence[Constant | None]) -> list[bool | None]:
    """Of each input, whether it is one element, repeated or not; None where it is absent."""
    return [None if c is None else is_one_element(c) for c in inputs]


def is_one_element(constant: Constant) -> bool:
    """Whether a constant is one element, repeated or not."""
    return constant.splat is not None or constant.size == 1


def compute(node: Node, inputs: Sequence[Constant | None], opset: int) -> tuple[Constant, ...] | None:
    """The node's outputs, or None where it cannot be computed (an op without reference, a division by zero)."""
    try:
        return tuple(map(_spelled_out, evaluate(node.op, node.attrs, inputs, node.n_outputs, opset)))
    except GraphoptError:
        return None


def may_be_exact(node: Node, dtypes: Iterable[str | None]) -> bool:
    """Whether every runtime gives the same bits for the node, where its inputs and outputs have these dtypes and
    nothing is NaN or a negative zero: it has integers alone, moves elements, or rounds as IEEE 754 says. Runtimes
    keep more digits than half precision has between its ops."""
    floats = {dtype for dtype in dtypes if dtype not in _WHOLE}
    return not floats or node.op in MOVES or (node.op in ROUNDED and floats <= {"float32", "float64"})


def is_exact(node: Node, inputs: Sequence[Constant | None], outputs: Sequence[Constant]) -> bool:
    """Whether every runtime gives the same bits for the node on these inputs."""
    given = [c for c in inputs if c is not None]
    if not may_be_exact(node, [c.dtype for c in (*given, *outputs)]):
        return False
    return node.op in MOVES or all(map(_is_plain, (*given, *outputs)))


_WHOLE = frozenset({"bool", "string", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64))})


def _is_plain(constant: Constant) -> bool:
    """Whether no element is NaN, or a negative zero: runtimes choose between zeros, and among NaN, as they like."""
    if constant.dtype in _WHOLE:
        return True
    elements = constant.array if constant.splat is None or not constant.size else constant.splat
    return not bool(np.any(np.isnan(elements) | ((elements == 0) & np.signbit(elements))))


def _spelled_out(constant: Constant) -> Constant:
    """The constant; where it is small, with its elements one by one even if they are all the same."""
    if constant.splat is None or constant.size > SMALL:
        return constant
    return Constant.of(np.array(constant.array), constant.dtype)


def evaluated(graph: Graph, fact: Callable[[Value], Fact], opset: int, value: Value) -> Constant | None:
    """The elements of a small value that is computed from constants alone, where they can be had quickly."""
    constants: dict[Value, Constant | None] = {}

    def elements(value: Value, depth: int) -> Constant | None:
        if value not in constants:
            constants[value] = computed(value, depth)
        return constants[value]

    def computed(value: Value, depth: int) -> Constant | None:
        of_value = fact(value)
        if of_value.constant is not None or not of_value.is_const or depth == 0:
            return of_value.constant or graph.constant_of(value)
        node = graph.node(value.node)
        if not is_foldable(node):
            return graph.constant_of(value)
        inputs = [None if v is None else elements(v, depth - 1) for v in node.inputs]
        if any(c is None and v is not None for c, v in zip(inputs, node.inputs, strict=True)):
            return None
        size = output_bytes(node, [fact(v) for v in node.outputs], inputs)
        results = compute(node, inputs, opset) if size is not None and size <= SMALL_BYTES else None
        return None if results is None else results[value.port]

    return elements(value, DEEPEST)
