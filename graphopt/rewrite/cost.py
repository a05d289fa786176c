"""What an op costs on a target: a roofline of bytes and multiplications, with prices by op where arithmetic is dear.

The price of an op is the price of the call, plus the longer of moving its bytes and doing its
arithmetic. It depends on the op, its attributes and the types of what it reads and writes, never on
elements, so that equal terms cost the same wherever they stand. Sizes that are not known count as
stated numbers, in costs only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphopt.ir.constants import BITS
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Node, Value
from graphopt.ir.types import Dim, Size, TensorType, substitute, symbols
from graphopt.target import Target, ops

BATCH = 1
"""What the leading size of a graph's inputs counts as, where it is not known."""
UNKNOWN = 128
"""What any other size counts as that is not known."""

VIEWS = ops("Reshape Flatten Squeeze Unsqueeze Identity Dropout Shape Size Optional OptionalGetElement")
"""Ops that move no data."""

PARTIAL = ops("Slice Gather GatherElements GatherND Split Compress")
"""Ops that read no more of their first input than they write."""

KINDS_OF_PRODUCT = {
    "dense": "matrix products, and convolutions of many channels",
    "narrow": "convolutions of fewer than eight input channels",
    "grouped": "convolutions in groups",
    "depthwise": "convolutions of one channel each",
    "recurrent": "LSTM, GRU and RNN: many small products in a row",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What something costs: seconds, floating-point operations, bytes read and written."""

    seconds: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.seconds + other.seconds, self.flops + other.flops, self.bytes + other.bytes)


@dataclass(frozen=True)
class Breakdown:
    """What a graph costs, in all and by op: how many, and what they cost together."""

    total: Cost = Cost()
    by_op: Mapping[str, tuple[int, Cost]] = field(default_factory=dict)
    reorders: int = 0
    """Changes of layout among the nodes, where the target has layouts."""

    @staticmethod
    def of(parts: Sequence[tuple[str, Cost]], reorders: int = 0) -> Breakdown:
        """The sum of these parts, the dearest op first."""
        counts = Counter(op for op, _ in parts)
        sums: dict[str, Cost] = {}
        total = Cost()
        for op, cost in parts:
            sums[op] = sums.get(op, Cost()) + cost
            total = total + cost
        order = sorted(sums, key=lambda op: (-sums[op].seconds, op))
        return Breakdown(total, {op: (counts[op], sums[op]) for op in order}, reorders)


class CostModel:
    """Prices ops for a target. ``sizes`` says what named sizes count as."""

    def __init__(self, target: Target, sizes: Mapping[str, int] | None = None) -> None:
        self.target = target
        self.sizes = dict(sizes or {})
        self._known: dict[Dim, int] = {}

    def size(self, size: Size) -> int:
        """A number for a size."""
        if isinstance(size, int):
            return size
        found = self._known.get(size)
        if found is None:
            numbers: dict[str, Size] = {name: self.sizes.get(name, UNKNOWN) for name in symbols(size)}
            try:
                result = substitute(size, numbers)
            except ValueError:  # the stated numbers do not fit each other
                result = max((n for n in numbers.values() if isinstance(n, int)), default=UNKNOWN)
            found = self._known[size] = max(result, 1) if isinstance(result, int) else UNKNOWN
        return found

    def shape(self, fact: Fact | None) -> tuple[int, ...]:
        """Numbers for a shape; that of a tensor about which nothing is known is one unknown size."""
        shape = (fact or NOTHING).shape
        return (UNKNOWN,) if shape is None else tuple(self.size(n) for n in shape)

    def elements(self, fact: Fact | None) -> int:
        """How many elements a tensor has; an absent one has none."""
        return 0 if fact is None else product(self.shape(fact))

    def nbytes(self, fact: Fact | None) -> float:
        """How many bytes a tensor takes; an absent one takes none."""
        if fact is None:
            return 0.0
        return self.elements(fact) * BITS.get(fact.dtype or "float32", 128) / 8

    def cost(self, op: str, attrs: Attrs, inputs: Sequence[Fact | None], outputs: Sequence[Fact | None]) -> Cost:
        """What one call of the op costs."""
        if op in (INPUT, CONSTANT):
            return Cost()
        prices = self.target.prices
        if op in VIEWS:
            return Cost(prices.node)
        written = sum(map(self.nbytes, outputs))
        read = written if op in PARTIAL else sum(map(self.nbytes, inputs))
        moved = (read + written) * prices.movement.get(op, 1.0) / prices.bandwidth
        flops, kind = self._products(op, attrs, inputs, outputs)
        if kind:
            compute = flops / (prices.flops * prices.efficiency[kind])
        else:
            flops = float(max([*map(self.elements, outputs), *map(self.elements, inputs[:1])], default=0))
            compute = flops * prices.elements.get(op, 0.0)
        return Cost(prices.node + max(moved, compute), flops, read + written)

    def _products(
        self, op: str, attrs: Attrs, inputs: Sequence[Fact | None], outputs: Sequence[Fact | None]
    ) -> tuple[float, str]:
        """Operations of an op that multiplies and adds, and its kind; the kind is empty for other ops."""
        if op not in PRODUCTS or len(inputs) < 2:
            return 0.0, ""
        a, b = self.shape(inputs[0]), self.shape(inputs[1])
        out = self.elements(outputs[0]) if outputs else 0
        name = op.rpartition("::")[2]
        if name in ("MatMul", "MatMulInteger", "FusedMatMul", "Gemm", "FusedGemm"):
            across = bool(attrs.get("transA", 0)) and len(a) > 1
            return 2.0 * out * (a[-2] if across else a[-1] if a else 1), "dense"
        if name in ("Conv", "FusedConv", "ConvInteger", "QLinearConv"):
            return 2.0 * out * product(b[1:]), self._kind_of_convolution(a, b)
        if name == "ConvTranspose":
            return 2.0 * product(a) * product(b[1:]), self._kind_of_convolution(a, b)
        if name == "Einsum":
            return 2.0 * self._indices_of_einsum(str(attrs.get("equation", "")), inputs), "dense"
        steps = a[0] * a[1] if len(a) > 1 else 1
        return 2.0 * steps * sum(map(self.elements, inputs[1:3])), "recurrent"

    def _kind_of_convolution(self, a: tuple[int, ...], weights: tuple[int, ...]) -> str:
        if len(a) < 2 or len(weights) < 2:
            return "dense"
        if weights[1] < a[1]:
            return "depthwise" if weights[1] == 1 else "grouped"
        return "narrow" if a[1] < 8 else "dense"

    def _indices_of_einsum(self, equation: str, inputs: Sequence[Fact | None]) -> float:
        sizes: dict[str, int] = {}
        for term, fact in zip(equation.split("->")[0].replace(" ", "").split(","), inputs, strict=False):
            if "." not in term:
                for letter, n in zip(term, self.shape(fact), strict=False):
                    sizes[letter] = max(n, sizes.get(letter, 1))
        return float(product(tuple(sizes.values())))


PRODUCTS = ops(
    "MatMul MatMulInteger Gemm Conv ConvInteger QLinearConv ConvTranspose Einsum LSTM GRU RNN "
    "com.microsoft::FusedMatMul com.microsoft::FusedGemm com.microsoft::FusedConv"
)
"""Ops that multiply and add along an axis."""


def product(sizes: Sequence[int]) -> int:
    """The product of the sizes."""
    total = 1
    for n in sizes:
        total *= n
    return total


def stated_sizes(graph: Graph) -> dict[str, int]:
    """What the graph's named sizes count as in costs: 1 for what leads the shape of an input, as a batch does."""
    found: dict[str, int] = {}
    for value in graph.inputs:
        kind = graph.types.get(value)
        if isinstance(kind, TensorType) and isinstance(kind.shape, tuple) and len(kind.shape) > 1:
            found.update(dict.fromkeys(symbols(kind.shape[0]), BATCH))
    return found


def graph_cost(graph: Graph, facts: Mapping[Value, Fact], target: Target) -> Breakdown:
    """What the graph costs on the target, by op. What is computed from constants alone costs nothing."""
    return nodes_cost(graph.order(), facts, CostModel(target, stated_sizes(graph)))


def nodes_cost(nodes: Sequence[Node], facts: Mapping[Value, Fact], model: CostModel) -> Breakdown:
    """What these nodes, in topological order, cost together."""
    parts: list[tuple[str, Cost]] = []
    for node in nodes:
        outputs = [facts.get(v) for v in node.outputs]
        if node.op in (INPUT, CONSTANT) or all(f is not None and f.is_const for f in outputs):
            continue
        inputs = [None if v is None else facts.get(v, NOTHING) for v in node.inputs]
        parts.append((node.op, model.cost(node.op, node.attrs, inputs, outputs)))
    return Breakdown.of(parts)
