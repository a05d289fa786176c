"""Structural equality: a hash of what a graph computes and how, and the first difference in words.

A node's hash is made of its op, its attributes and the hashes of its inputs, so that ids, order and inner
names do not matter. What the caller sees does: the names, order and types of inputs and outputs. The hash of a graph
counts all its nodes, and so tells shared work from repeated work.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TypeAlias

import numpy as np

from graphopt.ir import ops
from graphopt.ir.annotations import PRIMITIVE, is_primitive
from graphopt.ir.constants import SMALL, Constant
from graphopt.ir.graph import CONSTANT, INPUT, Attr, AttrRef, Graph, Node, Value
from graphopt.ir.types import (
    OpaqueType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    Type,
    Unranked,
    substitute,
    symbol,
    symbols,
)

SHOWN = 8
"""Constants of so many elements are shown in words."""

Context: TypeAlias = "tuple[tuple[bytes, int] | None, ...]"
"""The hashes of the values that a body captures."""


def structural_hash(graph: Graph, by_identity: bool = False) -> bytes:
    """A hash of 16 bytes, equal for graphs that are the same.

    Weights are hashed by their elements, each once; with ``by_identity`` large ones count by the object
    that holds them, which takes no time but holds in one process only.
    """
    return _Hasher(by_identity).graph(graph)


def same(a: Graph, b: Graph) -> str | None:
    """None where the graphs are the same, else the first difference in words."""
    if a is b:
        return None
    hasher = _Hasher(by_identity=False)
    if hasher.graph(a) == hasher.graph(b):
        return None
    return _interface_difference(a, b) or _difference(a, b, hasher) or "they differ"


def node_hashes(graph: Graph) -> dict[int, bytes]:
    """The hashes of a graph's nodes by id: equal in two graphs where the same ops make the same of the same constants
    and of inputs at the same positions."""
    return _Hasher(by_identity=False).nodes(graph)


class _Hasher:
    """Hashes graphs and remembers the hash of each of their nodes."""

    def __init__(self, by_identity: bool) -> None:
        self.by_identity = by_identity
        self._bodies: dict[tuple[int, Context], tuple[Graph, bytes, dict[int, bytes]]] = {}

    def graph(self, graph: Graph) -> bytes:
        """The hash of a model."""
        functions = [
            (key, f.attributes, [(n, self.attr(v)) for n, v in f.defaults.items()], f.opsets, self.body(f.body))
            for key, f in sorted(graph.functions.items())
        ]
        kind = [PRIMITIVE] if is_primitive(graph) else []
        return _hash("model", graph.header.opsets, interface(graph), functions, self.body(graph), *kind)

    def body(self, graph: Graph, context: Context = ()) -> bytes:
        """The hash of a graph whose last inputs are the values of ``context``; the others count by position."""
        return self._hashed(graph, context)[1]

    def nodes(self, graph: Graph, context: Context = ()) -> dict[int, bytes]:
        """The hashes of the nodes by id."""
        return self._hashed(graph, context)[2]

    def _hashed(self, graph: Graph, context: Context) -> tuple[Graph, bytes, dict[int, bytes]]:
        key = id(graph), context
        if key not in self._bodies:  # the graph is kept there too, so that nobody else gets its id
            self._bodies[key] = graph, *self._hash_body(graph, context)
        return self._bodies[key]

    def _hash_body(self, graph: Graph, context: Context) -> tuple[bytes, dict[int, bytes]]:
        n_formal = len(graph.inputs) - len(context)
        heads: dict[int, object] = {value.node: index for index, value in enumerate(graph.inputs[:n_formal])}
        heads |= {value.node: outer for value, outer in zip(graph.inputs[n_formal:], context, strict=True)}
        hashes: dict[int, bytes] = {}
        draws: Counter[bytes] = Counter()
        for node in graph.order():
            operands = tuple(None if v is None else (hashes[v.node], v.port) for v in node.inputs)
            n_own = len(operands) - node.captures
            attrs = [(name, self.attr(value, operands[n_own:])) for name, value in node.attrs.items()]
            head = heads.get(node.id)
            digest = _hash(node.op, node.origin.overload, head, operands[:n_own], attrs, node.n_outputs)
            if not ops.is_pure(node.op):  # two draws are not one
                draws[digest] += 1
                digest = _hash(digest, draws[digest])
            hashes[node.id] = digest
        outputs = [None if v is None else (hashes[v.node], v.port) for v in graph.outputs]
        working = sorted(hashes[node.id] for node in graph.nodes() if node.op not in (INPUT, CONSTANT))
        return _hash("graph", n_formal, outputs, working), hashes

    def attr(self, value: Attr, context: Context = ()) -> object:
        """What stands for an attribute in a hash."""
        match value:
            case tuple():
                return [self.attr(item, context) for item in value]
            case Constant() if self.by_identity and value.size > SMALL and value.splat is None:
                return "constant", id(value)
            case Constant():
                return "constant", value.digest
            case Graph():
                return "graph", self.body(value, context)
            case AttrRef(name, kind):
                return "reference", name, kind
            case TensorType() | SparseTensorType() | SequenceType() | OptionalType() | OpaqueType():
                return "type", spell(value, {})
            case _:
                return type(value).__name__, value


def _hash(*parts: object) -> bytes:
    return blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def interface(graph: Graph) -> tuple[object, ...]:
    """Names and types of inputs, and names of outputs; sizes that nobody named are numbered."""
    numbers: dict[str, str] = {}
    inputs = []
    for value in graph.inputs:
        type = graph.types.get(value)
        default = graph.node(value.node).attrs.get("default")
        spelled = None if type is None else spell(type, numbers)
        inputs.append((graph.names.get(value), spelled, default.digest if isinstance(default, Constant) else None))
    return tuple(inputs), tuple(graph.output_names)


def spell(type: Type, numbers: dict[str, str]) -> str:
    """The type as text that is the same in every run: symbols without a name are numbered as they come."""
    match type:
        case TensorType(dtype, shape) | SparseTensorType(dtype, shape):
            kind = "" if isinstance(type, TensorType) else "sparse "
            if isinstance(shape, Unranked):
                return f"{kind}{dtype}[*]"
            for name in (name for size in shape for name in sorted(symbols(size)) if name.startswith("?")):
                numbers.setdefault(name, f"?{len(numbers)}")
            renamed = {name: symbol(number) for name, number in numbers.items()}
            return f"{kind}{dtype}[{', '.join(str(substitute(size, dict(renamed))) for size in shape)}]"
        case SequenceType(element):
            return f"sequence of {spell(element, numbers)}"
        case OptionalType(element):
            return f"optional {spell(element, numbers)}"
        case OpaqueType(text):
            return f"opaque {text!r}"


# -- differences in words


def _interface_difference(a: Graph, b: Graph) -> str | None:
    if a.header.opsets != b.header.opsets:
        return f"opsets are {_opsets(a)}, and {_opsets(b)} in the other"
    if is_primitive(a) != is_primitive(b):
        return "only one of them is primitive"
    (inputs_a, outputs_a), (inputs_b, outputs_b) = interface(a), interface(b)
    return (
        _list_difference("input", inputs_a, inputs_b)
        or _list_difference("output", outputs_a, outputs_b)
        or _function_difference(a, b)
    )


def _opsets(graph: Graph) -> str:
    return ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in graph.header.opsets)


def _list_difference(what: str, a: object, b: object) -> str | None:
    assert isinstance(a, tuple)
    assert isinstance(b, tuple)
    if len(a) != len(b):
        return f"{len(a)} {what}{'s' * (len(a) != 1)}, and {len(b)} in the other"
    for index, (x, y) in enumerate(zip(a, b, strict=True)):
        if x != y:
            return f"{what} {index} is {_words(x)}, and {_words(y)} in the other"
    return None


def _words(item: object) -> str:
    if not isinstance(item, tuple):
        return repr(item)
    name, type, default = item
    return f"{name!r} of type {type}" + (" with a default" if default else "")


def _function_difference(a: Graph, b: Graph) -> str | None:
    for key in sorted(a.functions.keys() | b.functions.keys()):
        if key not in a.functions or key not in b.functions:
            return f"only one of them has the function {key[0]!r}"
        f, g = a.functions[key], b.functions[key]
        if (f.attributes, f.opsets) != (g.attributes, g.opsets):
            return f"function {key[0]!r} has other attributes or opsets"
        hasher = _Hasher(by_identity=False)
        if hasher.body(f.body) != hasher.body(g.body):
            return f"function {key[0]!r}: {_difference(f.body, g.body, hasher) or 'its inputs or outputs differ'}"
    return None


def _difference(a: Graph, b: Graph, hasher: _Hasher, context_a: Context = (), context_b: Context = ()) -> str | None:
    """The first difference on the way from the outputs up."""
    left, right = _Side(a, hasher, context_a), _Side(b, hasher, context_b)
    for name, x, y in zip(a.output_names, a.outputs, b.outputs, strict=False):
        if left.hash(x) != right.hash(y):
            return f"output {name!r}: {_value_difference(left, right, x, y)}"
    counts_a, counts_b = _count(a), _count(b)
    for op in sorted(counts_a.keys() | counts_b.keys()):
        if counts_a[op] != counts_b[op]:
            return f"{counts_a[op]} {op} nodes, and {counts_b[op]} in the other, which compute the same"
    return None


def _count(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph.nodes() if node.op not in (INPUT, CONSTANT))


class _Side:
    """One of the two graphs that are compared."""

    def __init__(self, graph: Graph, hasher: _Hasher, context: Context) -> None:
        self.graph, self.hasher, self.nodes = graph, hasher, hasher.nodes(graph, context)

    def hash(self, value: Value | None) -> tuple[bytes, int] | None:
        """The hash of a value."""
        return None if value is None else (self.nodes[value.node], value.port)

    def own_inputs(self, node: Node) -> list[Value | None]:
        """The inputs that are not captured."""
        return list(node.inputs[: len(node.inputs) - node.captures])

    def context(self, node: Node) -> Context:
        """The hashes of what the node's bodies capture."""
        return tuple(map(self.hash, node.inputs[len(node.inputs) - node.captures :]))

    def label(self, value: Value | None) -> str:
        """How messages call a value."""
        if value is None:
            return "nothing"
        node = self.graph.producer(value)
        name = self.graph.names.get(value) or node.origin.name
        port = f", output {value.port}" if node.n_outputs > 1 else ""
        return f"{node.op} {name!r}{port}" if name else f"{node.op}{port}"


def _value_difference(a: _Side, b: _Side, x: Value | None, y: Value | None) -> str:
    """Walk up from two values that differ to the nodes that make the difference."""
    while True:
        if x is None or y is None:
            return f"{a.label(x)}, and {b.label(y)} in the other"
        m, n = a.graph.producer(x), b.graph.producer(y)
        inputs_m, inputs_n = a.own_inputs(m), b.own_inputs(n)
        if (m.op, x.port, len(inputs_m)) != (n.op, y.port, len(inputs_n)):
            return f"{a.label(x)}, and {b.label(y)} in the other"
        if (of_attrs := _attr_difference(a, b, m, n)) is not None:
            return f"{a.label(x)}: {of_attrs}"
        differing = [(p, q) for p, q in zip(inputs_m, inputs_n, strict=True) if a.hash(p) != b.hash(q)]
        if not differing:
            return f"{a.label(x)}: it is another input, overload, or number of outputs"
        x, y = differing[0]


def _attr_difference(a: _Side, b: _Side, m: Node, n: Node) -> str | None:
    context_m, context_n = a.context(m), b.context(n)
    for name in sorted(m.attrs.keys() | n.attrs.keys()):
        p, q = m.attrs.get(name), n.attrs.get(name)
        if p is None or q is None:
            return f"only one of them has the attribute {name}"
        if a.hasher.attr(p, context_m) != b.hasher.attr(q, context_n):
            if isinstance(p, Graph) and isinstance(q, Graph):
                inner = _difference(p, q, a.hasher, context_m, context_n)
                return f"in {name}: {inner or 'its inputs or outputs differ'}"
            return f"{name} is {_show(p)}, and {_show(q)} in the other{_apart(p, q)}"
    return None


def _apart(p: Attr, q: Attr) -> str:
    """Where two constants of one type that are too large to be shown differ, and by how much."""
    if not isinstance(p, Constant) or not isinstance(q, Constant) or p.size <= SHOWN:
        return ""
    if (p.dtype, p.shape) != (q.dtype, q.shape):
        return ""
    a, b = p.array, q.array
    if p.dtype == "string":
        differ, far = a != b, None
    else:
        wide = a.dtype if a.dtype.kind in "biuc" else np.dtype(np.float64)
        a, b = a.astype(wide), b.astype(wide)
        differ = (a != b) & ~((a != a) & (b != b))
        far = np.abs(np.subtract(a, b, dtype=np.complex128 if wide.kind == "c" else np.float64))
    if not differ.any():
        return ", which differ in bits that compare as equal: signs of 0, or NaNs"
    most = differ if far is None else np.where(differ, np.nan_to_num(far, nan=np.inf), -1.0)
    at = np.unravel_index(int(np.argmax(most)), p.shape)
    where = ", ".join(map(str, map(int, at)))
    return f": {int(differ.sum())} of {p.size} elements differ, the most at [{where}]: {a[at]} and {b[at]}"


def _show(value: Attr) -> str:
    if isinstance(value, Constant) and value.size <= SHOWN:
        return f"{value!r} {value.array.tolist()}"
    return repr(value)
