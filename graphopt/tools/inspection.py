"""Inspection of a model, which is not changed: ops, sizes, types, open dimensions, opsets; work and memory by layer;
statistics of weights."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import inf, sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphopt.frozen import dataclass
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.name_scopes import name_scopes
from graphopt.ir.ops import KINDS
from graphopt.ir.types import TensorType, in_words
from graphopt.rewrite.match.describe import name_of, names_of
from graphopt.run.steps import count_ops

if TYPE_CHECKING:
    from graphopt.ir.constants import Constant
    from graphopt.ir.facts import Fact
    from graphopt.rewrite.extract.cost import CostModel


@dataclass(frozen=True, slots=True)
class Inspection:
    """A summary of one model file. ``constants`` maps a dtype to the number of constants and their bytes."""

    model: str
    bytes: int
    ir_version: int
    opsets: tuple[tuple[str, int], ...]
    producer: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    dimensions: tuple[str, ...]
    """Sizes that the model leaves open, each once."""
    ops: dict[str, int]
    constants: dict[str, tuple[int, int]]


def inspect(path: str | Path) -> Inspection:
    """The summary of a model file."""
    from graphopt.ir.onnx_io import load

    graph = load(path)
    header = graph.header
    open_sizes = {
        in_words(size): None
        for value in graph.inputs
        if isinstance(type := graph.types.get(value), TensorType) and isinstance(type.shape, tuple)
        for size in type.shape
        if not isinstance(size, int)
    }
    return Inspection(
        str(path),
        Path(path).stat().st_size,
        header.ir_version,
        header.opsets,
        " ".join(filter(None, (header.producer, header.producer_version))),
        tuple((graph.names[value], _type(graph, value)) for value in graph.inputs),
        tuple(zip(graph.output_names, (_type(graph, value) for value in graph.outputs), strict=True)),
        tuple(open_sizes),
        count_ops(graph),
        _constants(graph),
    )


@dataclass(frozen=True, slots=True)
class LayerSize:
    """What a node takes. Elements and bytes of weights count at the first node that reads them."""

    name: str
    op: str
    type: str
    """Of its first output."""
    flops: float
    """Additions and multiplications of products, each as one; of other arithmetic one for each element; 0 of what only
    moves elements."""
    parameters: int
    """Elements of constants."""
    weights: int
    """Their bytes."""
    activations: float
    """Bytes that it writes."""
    scopes: tuple[str, ...] = ()
    """The modules that it comes from, the outermost first, where the exporter says so (``graphopt.ir.name_scopes``)."""


@dataclass(frozen=True, slots=True)
class ModelSize:
    """What a model takes, by layer and in all, if open dimensions are ``sizes``."""

    model: str
    layers: tuple[LayerSize, ...]
    """In order; bodies stand behind their node, and count once."""
    sizes: Mapping[str, int]
    peak: float
    """The most bytes of values that are there at a time, in the order in which the nodes stand, weights apart."""

    @property
    def flops(self) -> float:
        """Floating-point operations of one run."""
        return sum(layer.flops for layer in self.layers)

    @property
    def parameters(self) -> int:
        """Elements of constants."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def weights(self) -> int:
        """Bytes of constants."""
        return sum(layer.weights for layer in self.layers)


def layer_sizes(
    path: str | Path, shapes: Mapping[str, Sequence[int]] | None = None, dims: Mapping[str, int] | None = None
) -> ModelSize:
    """What each node of a model file takes. Open dimensions count as in modelled costs: 1 for a batch, else 128."""
    from graphopt.ir.onnx_io import load
    from graphopt.rewrite.extract.cost import CostModel, counted_at, stated_sizes
    from graphopt.rewrite.passes.dims import fix_dims
    from graphopt.rewrite.passes.functions import INLINE
    from graphopt.rewrite.passes.simplify import simplify
    from graphopt.target import PORTABLE

    graph = load(path)
    graph = fix_dims(graph, shapes or {}, dims or {}) if shapes or dims else graph
    graph = simplify(graph, (), (INLINE,)) if graph.functions else graph
    model = CostModel(PORTABLE, stated_sizes(graph))
    facts = infer(graph)
    layers = tuple(_layers(graph, facts, model, set(), ""))
    return ModelSize(str(path), layers, counted_at(graph), _peak(graph, facts, model))


def _layers(
    graph: Graph, facts: Mapping[Value, Fact], model: CostModel, counted: set[int], within: str
) -> Iterator[LayerSize]:
    """What each node takes, and those of its bodies; ``counted`` are constants that were met, by identity."""
    from graphopt.rewrite.match.workspace import facts_within

    for node in graph.order():
        if node.op in (INPUT, CONSTANT):
            continue
        inputs, outputs = (
            [None if v is None else facts.get(v) for v in node.inputs],
            [facts.get(v) for v in node.outputs],
        )
        read = [graph.constant_of(v) for v in node.inputs if v is not None]
        mine = {id(c): c for c in read if c is not None and id(c) not in counted}
        counted.update(mine)
        first = outputs[0] if outputs else None
        name = f"{within}{node.origin.name or (name_of(graph, node) if node.outputs else f'%{node.id}')}"
        yield LayerSize(
            name, node.op, str(first.type if first is not None and first.type is not None else "?"),
            0.0 if _is_idle(node) else model.cost(node.op, node.attrs, inputs, outputs).flops,
            sum(c.size for c in mine.values()), sum(c.nbytes for c in mine.values()),
            sum(map(model.nbytes, outputs)), name_scopes(node),
        )  # fmt: skip
        for attribute, body in node.bodies.items():
            known = infer(body, facts_within(node, body, facts))
            yield from _layers(body, known, model, counted, f"{name}/{attribute}/")


def _is_idle(node: Node) -> bool:
    """Whether a node does no arithmetic of its own."""
    from graphopt.rewrite.extract.cost import PARTIAL, VIEWS

    return node.op in VIEWS | PARTIAL or any(node.op in KINDS[kind] for kind in ("movement", "sequence", "control"))


def _peak(graph: Graph, facts: Mapping[Value, Fact], model: CostModel) -> float:
    """The most bytes of values that are there at a time: each from the node that makes it to the last that reads it."""
    order = [node for node in graph.order() if node.op != CONSTANT]
    last = {value: position for position, node in enumerate(order) for value in node.inputs if value is not None}
    last |= {value: len(order) for value in graph.outputs if value is not None}
    dying: dict[int, list[Value]] = {}
    alive = peak = 0.0
    for position, node in enumerate(order):
        for value in node.outputs:
            alive += model.nbytes(facts.get(value))
            dying.setdefault(last.get(value, position), []).append(value)
        peak = max(peak, alive)
        alive -= sum(model.nbytes(facts.get(value)) for value in dying.pop(position, ()))
    return peak


@dataclass(frozen=True, slots=True)
class WeightStatistics:
    """What the elements of a constant are. Numbers are of finite elements, and None where there is none."""

    name: str
    type: str
    bytes: int
    smallest: float | None
    largest: float | None
    mean: float | None
    deviation: float | None
    """The standard deviation."""
    zeros: float
    """The share of elements that are zero."""
    lost: int
    """How many are NaN or infinite."""


CHUNK = 1 << 20
"""Elements that are looked at together."""


def weight_statistics(path: str | Path) -> tuple[WeightStatistics, ...]:
    """The statistics of all constants of a model file that are numbers, the largest first."""
    from graphopt.ir.onnx_io import load

    found: list[WeightStatistics] = []
    waiting = [("", load(path))]
    seen: set[int] = set()
    while waiting:
        within, graph = waiting.pop(0)
        for node in graph.order():
            constant = graph.constant_of(Value(node.id))
            if constant is not None and constant.dtype != "string" and id(constant) not in seen:
                seen.add(id(constant))
                found.append(_statistics(f"{within}{name_of(graph, node)}", constant))
            name = node.origin.name or f"%{node.id}"
            waiting += [(f"{within}{name}/{attribute}/", body) for attribute, body in node.bodies.items()]
    return tuple(sorted(found, key=lambda w: -w.bytes))


def _statistics(name: str, constant: Constant) -> WeightStatistics:
    type_ = f"{constant.dtype}[{', '.join(map(str, constant.shape))}]"
    flat = (constant.array if constant.splat is None else constant.splat).reshape(-1)
    count = sums = squares = 0.0
    zeros = lost = 0
    low, high, shift = inf, -inf, 0.0
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        numbers = np.abs(part) if part.dtype.kind == "c" else part.astype(np.float64)
        finite = numbers[np.isfinite(numbers)]
        lost += numbers.size - finite.size
        zeros += int((finite == 0).sum())
        if finite.size:
            shift = shift if count else float(finite[0])  # squares of what is far from zero would lose their digits
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
            count += finite.size
            sums += float((finite - shift).sum())
            squares += float(((finite - shift) ** 2).sum())
    share = zeros / flat.size if flat.size else 0.0
    if not count:
        return WeightStatistics(name, type_, constant.nbytes, None, None, None, None, share, lost)
    mean = sums / count
    spread = sqrt(max(squares / count - mean**2, 0.0))
    return WeightStatistics(name, type_, constant.nbytes, low, high, mean + shift, spread, share, lost)


@dataclass(frozen=True, slots=True)
class ListedNode:
    """A node of a model: its number, op and name, and the values that it makes, each with its type."""

    number: int
    op: str
    name: str
    outputs: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        outputs = ", ".join(f"{name}: {type}" for name, type in self.outputs)
        return f"%{self.number}  {self.op}  {self.name or '-'}  ->  {outputs}"


def list_nodes(path: str | Path) -> Iterator[ListedNode]:
    """The nodes of a model, in order."""
    from graphopt.ir.onnx_io import load

    graph = load(path)
    facts = infer(graph)
    for node in graph.order():
        if node.op not in (INPUT, CONSTANT):
            outputs = tuple((name_of(graph, node, v.port), str(facts[v].type or "?")) for v in node.outputs)
            yield ListedNode(node.id, node.op, node.origin.name or "", outputs)


def node_names(path: str | Path) -> set[str]:
    """The names by which nodes of a model can be called: their own, and those of the values that they make."""
    from graphopt.ir.onnx_io import load

    graph = load(path)
    return {name for n in graph.nodes() if n.op not in (INPUT, CONSTANT) for name in names_of(graph, n)}


def heirs(graph: Graph, name: str, left: Collection[str]) -> tuple[str, ...]:
    """What a node of a model became part of when it was rewritten: of the names that are left, those of the nearest
    nodes that compute with what it makes.

    Empty where the model has no node of that name, or of a value of that name.
    """
    waiting = [n for n in graph.nodes() if n.op not in (INPUT, CONSTANT) and name in names_of(graph, n)]
    seen = {node.id for node in waiting}
    while waiting:
        successors = dict.fromkeys(called for node in waiting for called in names_of(graph, node) if called in left)
        if successors:
            return tuple(successors)
        users = {user for node in waiting for value in node.outputs for user, _ in graph.users(value)} - seen
        seen |= users
        waiting = [graph.node(user) for user in sorted(users)]
    return ()


def _constants(graph: Graph) -> dict[str, tuple[int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    waiting = [graph]
    while waiting:
        graph = waiting.pop()
        for node in graph.nodes():
            constant = graph.constant_of(Value(node.id))
            if constant is not None:
                number, count = counts.get(constant.dtype, (0, 0))
                counts[constant.dtype] = (number + 1, count + constant.nbytes)
            waiting += node.bodies.values()
    return dict(sorted(counts.items(), key=lambda item: -item[1][1]))


def _type(graph: Graph, value: Value | None) -> str:
    type = graph.types.get(value) if value is not None else None
    return "?" if type is None else str(type)
