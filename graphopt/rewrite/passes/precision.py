"""Conversion of a graph between floating-point dtypes, node by node.

Each node is on one side or the other. Between the two stand casts, one for each value and dtype; what only moves
numbers stays on the side that its operand is on. ``graphopt convert`` decides by ranges and precision
(``tools/convert.py``); programs for processors without half precision compute in float32 (``SinglePrecision``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Self

import ml_dtypes
import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir import ops
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Array, Constant
from graphopt.ir.dtypes import CODES, HALVES, dtype_of
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Node, Value
from graphopt.ir.infer import infer, infer_node
from graphopt.ir.types import TensorType
from graphopt.rewrite.match.workspace import facts_within
from graphopt.target import ops as names

SOURCES: Final[Mapping[str, frozenset[str]]] = {
    "float16": frozenset({"float32"}),
    "bfloat16": frozenset({"float32"}),
    "float32": frozenset(HALVES),
}
"""What can be converted to, and from which dtypes."""

MOVING: Final = names("Identity Reshape Transpose Squeeze Unsqueeze Flatten Slice Gather Split Expand Tile")
"""Ops that stay on the side that what they move is on."""


class DtypeConversion(ABC):
    """One graph on its way to another dtype; ``io`` converts its inputs and outputs, too."""

    def __init__(self, graph: Graph, to: str, io: bool = False, facts: Mapping[Value, Fact] | None = None) -> None:
        self.original, self.graph = graph, graph.copy()
        self.before = infer(graph, facts)
        self.to, self.sources, self.io = to, SOURCES[to], io
        self.facts: dict[Value, Fact] = {}
        self.casts: dict[tuple[Value, str], Value] = {}
        self.kept: Counter[str] = Counter()
        self.count = self.saturated = 0

    @abstractmethod
    def reason(self, node: Node) -> str | None:
        """Why the node stays as it is: empty where there is nothing to convert; None where nothing is against it."""

    @abstractmethod
    def inside(self, body: Graph, facts: Mapping[Value, Fact]) -> Self:
        """The same of a body, in which such facts hold of what it captures."""

    def run(self) -> None:
        """Convert all nodes, and put casts where outputs keep their types."""
        for node in self.original.order():
            if node.op in (INPUT, CONSTANT):
                self._leaf(node)
            else:
                self._node(node)
        for i, value in enumerate(self.original.outputs):
            if value is None:
                continue
            name, wanted = self.graph.output_names[i], self.before[value].dtype
            result = value if self.io or wanted is None else self._as(value, wanted)
            if result != value:
                if self.graph.names.get(value) == name:
                    del self.graph.names[value]
                self.graph.outputs[i] = result
                if value in self.original.types:
                    self.graph.types[result] = self.original.types[value]
        for value, declared in self.original.types.items():
            now = self.facts.get(value, NOTHING).dtype
            if isinstance(declared, TensorType) and now is not None and now != declared.dtype:
                self.graph.types[value] = TensorType(now, declared.shape)

    def _leaf(self, node: Node) -> None:
        value = Value(node.id)
        fact = self.before[value]
        if self.io and node.op == INPUT and fact.dtype in self.sources and isinstance(fact.type, TensorType):
            fact = Fact(TensorType(self.to, fact.type.shape))
            default = node.attrs.get("default")
            if isinstance(default, Constant):
                self.graph.update(node.id, attrs=node.attrs.with_(default=self._constant(default, self.to)))
        self.facts[value] = fact

    def _node(self, node: Node) -> None:
        reason = self.reason(node)
        if reason is None and self._apply(node, True):
            self.count += self._has_floats(node)
            return
        if reason is None:
            reason = f"{node.op}: not defined for {self.to}"
        if reason:
            self.kept[reason] += 1
        self._bodies(node)
        self._apply(self.graph.node(node.id), False)

    def _has_floats(self, node: Node) -> bool:
        values = [v for v in (*node.inputs, *node.outputs) if v is not None]
        return any(self.before[v].dtype in self.sources for v in values)

    def _apply(self, node: Node, new: bool) -> bool:
        """Put the node on one side or the other; False where it cannot be there."""
        plan = self._plan(node, new, self.facts)
        if plan is None:
            if new:
                return False
            wanted = [None if v is None else self.before[v].dtype for v in node.inputs]
            plan = wanted, node.attrs, tuple(self.before[v] for v in node.outputs)
        dtypes, attrs, outputs = plan
        pairs = zip(node.inputs, dtypes, strict=True)
        inputs = tuple(v if v is None or d is None else self._as(v, d) for v, d in pairs)
        self.graph.update(node.id, inputs=inputs, attrs=attrs)
        for value, fact in zip(node.outputs, outputs, strict=True):
            self.facts[value] = fact if fact.type is not None else self.before[value]
        return True

    def _plan(
        self, node: Node, new: bool, facts: Mapping[Value, Fact]
    ) -> tuple[list[str | None], Attrs, tuple[Fact, ...]] | None:
        """The dtypes of the node's inputs, its attributes, and what it makes, on one side; None where it has no place
        there."""
        schema = ops.schema(node.op, self.graph.opset)
        dtypes: list[str | None] = []
        for i, value in enumerate(node.inputs):
            dtype = None if value is None else self.before[value].dtype
            if new and dtype in self.sources:
                letter = ops.input_constraint(node.op, i)
                allowed = schema.allowed.get(letter, frozenset()) if schema is not None else frozenset()
                dtype = self.to if self.to in allowed else dtype
            elif not new and moves(node) and value is not None and i == 0:
                dtype = facts[value].dtype  # it moves what there is
            dtypes.append(dtype)
        if new and self.to not in dtypes and any(d in self.sources for d in dtypes):
            return None
        attrs = self._attrs(node) if new else node.attrs
        assumed = [None if v is None else with_dtype(facts[v], d) for v, d in zip(node.inputs, dtypes, strict=True)]
        try:
            if new and ops.refusal(node.op, attrs, assumed, self.graph.opset):
                return None
            return dtypes, attrs, infer_node(node.op, attrs, assumed, node.n_outputs, self.graph.opset)
        except GraphoptError:
            return None

    def _attrs(self, node: Node) -> Attrs:
        """The attributes with the new dtype where they name one that is converted."""
        attrs = node.attrs
        for name in ("to", "dtype", "output_dtype"):
            code = attrs.get(name)
            if isinstance(code, int) and dtype_of(code) in self.sources:
                attrs = attrs.with_(**{name: CODES[self.to]})
        constant = attrs.get("value")
        if isinstance(constant, Constant) and constant.dtype in self.sources:
            attrs = attrs.with_(value=self._constant(constant, self.to))
        return attrs

    def _bodies(self, node: Node) -> None:
        """Convert the bodies inside: what goes in and comes out of them keeps its type."""
        changed: dict[str, Any] = {}
        for name, body in node.bodies.items():
            captured = facts_within(node, body, self.before)
            inner = self.inside(body, captured)
            inner.run()
            changed[name] = inner.graph
            self.kept.update(inner.kept)
            self.count += inner.count
            self.saturated += inner.saturated
        if changed:
            self.graph.update(node.id, attrs=node.attrs.with_(**changed))

    def _as(self, value: Value, dtype: str) -> Value:
        """The value in a dtype: itself, a converted constant, what it was cast from without loss, or a cast of it."""
        now = self.facts[value].dtype
        if now is None or now == dtype or now not in (*self.sources, self.to):
            return value
        cast = self.casts.get((value, dtype))
        if cast is None:
            cast = self.casts[value, dtype] = self._cast(value, dtype)
        return cast

    def _cast(self, value: Value, dtype: str) -> Value:
        constant = self.original.constant_of(value) if value.node in self.original else None
        if constant is not None:
            result = self.graph.add_constant(self._constant(constant, dtype))
            self.facts[result] = fact_of(self.graph.constant_of(result))  # type: ignore[arg-type]
            return result
        result = Value(self.graph.add("Cast", (value,), Attrs(to=CODES[dtype])).id)
        self.facts[result] = with_dtype(self.facts[value], dtype)
        return result

    def _constant(self, constant: Constant, dtype: str) -> Constant:
        """The constant in a dtype; what is too large for it becomes its largest number."""
        target = np.dtype(getattr(ml_dtypes, dtype, dtype))
        if constant.splat is not None:
            return Constant.full(constant.shape, self._rounded(constant.splat, target))
        return Constant.of(self._rounded(constant.array, target), dtype)

    def _rounded(self, array: Array, target: np.dtype[Any]) -> Array:
        info: Any = ml_dtypes.finfo(target)  # type: ignore[no-untyped-call]
        largest = float(info.max)
        wide = np.asarray(array)
        if wide.dtype.itemsize > target.itemsize:
            beyond = np.isfinite(wide) & (np.abs(wide) > largest)
            if beyond.any():
                self.saturated += int(beyond.sum())
                wide = np.where(beyond, np.copysign(np.float32(largest), wide), wide)
        return wide.astype(target)


class SinglePrecision(DtypeConversion):
    """Type legalization: half precision computed in float32, for processors without instructions for it.

    Products with weights are, and all that reads only what was computed so; elementwise ops and normalizations where
    they read any of it. Casts to half precision stay, and so do states and tables: what is read from inputs and only
    moved, or attended to, takes half the bytes. Results are rounded once, where the model's are rounded at each op.
    """

    def __init__(self, graph: Graph, facts: Mapping[Value, Fact] | None = None) -> None:
        super().__init__(graph, "float32", facts=facts)
        self.weights: set[Value] = set()
        for node in graph.order():  # dequantized ones are none that is_const tells
            if node.op == CONSTANT or (node.inputs and all(v is None or v in self.weights for v in node.inputs)):
                self.weights.update(node.outputs)

    def inside(self, body: Graph, facts: Mapping[Value, Fact]) -> Self:
        """The same of a body."""
        return type(self)(body, facts)

    def reason(self, node: Node) -> str | None:
        """Empty where a node stays in half precision."""
        halves = [v for v in node.inputs if v is not None and self.before[v].dtype in self.sources]
        moving = [v for v in halves if v not in self.weights]
        wide = [v for v in moving if self.facts[v].dtype == self.to]
        if node.bodies:
            return f"{node.op}: converted inside"
        if not halves:
            return ""
        if moves(node):
            return None if (len(wide) == len(halves) if node.op == "Concat" else node.inputs[0] in wide) else ""
        if node.op == "DequantizeLinear" or (node.op in WEIGHED and len(moving) < len(halves)):
            return None
        if not wide or (node.op == "Cast" and self.before[node.outputs[0]].dtype in self.sources):
            return ""
        is_light = ops.kind(node.op) in ("unary", "binary", "elementwise", "normalization")
        return None if is_light or len(wide) == len(moving) else ""


WEIGHED: Final = ops.KINDS["product"] | names("LSTM GRU RNN com.microsoft::MatMulNBits")
"""Ops whose time goes into products with weights, where these are constants."""


def in_single_precision(graph: Graph) -> Graph:
    """The graph with half precision computed in float32; the graph itself where it has none."""
    work = SinglePrecision(graph)
    if not any(node.bodies for node in graph.nodes()) and all(f.dtype not in HALVES for f in work.before.values()):
        return graph
    work.run()
    return work.graph if work.count else graph


def moves(node: Node) -> bool:
    """Whether the node only moves elements."""
    return ops.kind(node.op) == "movement" or node.op in MOVING


def with_dtype(fact: Fact, dtype: str | None) -> Fact:
    """The fact of the same tensor in another dtype."""
    if dtype is None or fact.dtype == dtype or not isinstance(fact.type, TensorType):
        return fact
    return Fact(TensorType(dtype, fact.type.shape), fact.is_const)
