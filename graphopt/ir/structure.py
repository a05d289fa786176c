"""When two graphs are the same: a hash of what a graph computes and how, and the first difference in words.

A node's hash is made of its op, its attributes and the hashes of its inputs, so that ids, order and inner
names do not matter. What the caller sees does: the names, order and types of inputs and outputs. The hash of a graph
counts all its nodes, and so tells shared work from repeated work.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b

from graphopt.ir import ops
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


class _Hasher:
    """Hashes graphs and remembers the hash of each of their nodes."""

    def __init__(self, by_identity: bool) -> None:
        self.by_identity = by_identity
        self.nodes: dict[int, dict[int, bytes]] = {}
        """Hashes of nodes by id, for each graph by its own ``id``."""
        self._bodies: dict[int, tuple[Graph, bytes]] = {}

    def graph(self, graph: Graph) -> bytes:
        """The hash of a model."""
        functions = [
            (key, f.attributes, [(n, self.attr(v)) for n, v in f.defaults.items()], f.opsets, self.body(f.body))
            for key, f in sorted(graph.functions.items())
        ]
        return _hash("model", graph.header.opsets, interface(graph), functions, self.body(graph))

    def body(self, graph: Graph) -> bytes:
        """The hash of a graph whose inputs count by their position."""
        if id(graph) not in self._bodies:
            self._bodies[id(graph)] = graph, self._body(graph)
        return self._bodies[id(graph)][1]

    def _body(self, graph: Graph) -> bytes:
        position = {value.node: index for index, value in enumerate(graph.inputs)}
        found = self.nodes.setdefault(id(graph), {})
        for node in graph.order():
            head: object = position[node.id] if node.op == INPUT else len(found) if not ops.is_pure(node.op) else None
            operands = [None if v is None else (found[v.node], v.port) for v in node.inputs]
            attrs = [(name, self.attr(value)) for name, value in node.attrs.items()]
            found[node.id] = _hash(node.op, node.origin.overload, head, operands, attrs, node.n_outputs, node.captures)
        outputs = [None if v is None else (found[v.node], v.port) for v in graph.outputs]
        working = sorted(found[node.id] for node in graph.nodes() if node.op not in (INPUT, CONSTANT))
        return _hash("graph", len(position), outputs, working)

    def attr(self, value: Attr) -> object:
        """What stands for an attribute in a hash."""
        match value:
            case tuple():
                return [self.attr(item) for item in value]
            case Constant() if self.by_identity and value.size > SMALL and value.splat is None:
                return "constant", id(value)
            case Constant():
                return "constant", value.digest
            case Graph():
                return "graph", self.body(value)
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
            own = {name: symbol(number) for name, number in numbers.items()}
            return f"{kind}{dtype}[{', '.join(str(substitute(size, dict(own))) for size in shape)}]"
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
        return f"{len(a)} {what}s, and {len(b)} in the other"
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


def _difference(a: Graph, b: Graph, hasher: _Hasher) -> str | None:
    """The first difference on the way from the outputs up."""
    hasher.body(a)
    hasher.body(b)
    hashes_a, hashes_b = hasher.nodes[id(a)], hasher.nodes[id(b)]
    pairs = zip(a.output_names, a.outputs, b.outputs, strict=False)
    for name, x, y in pairs:
        if _value_hash(x, hashes_a) != _value_hash(y, hashes_b):
            return f"output {name!r}: {_value_difference(a, b, x, y, hasher)}"
    counts_a, counts_b = _count(a), _count(b)
    for op in sorted(counts_a.keys() | counts_b.keys()):
        if counts_a[op] != counts_b[op]:
            return f"{counts_a[op]} {op} nodes, and {counts_b[op]} in the other, which compute the same"
    return None


def _count(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph.nodes() if node.op not in (INPUT, CONSTANT))


def _value_hash(value: Value | None, hashes: dict[int, bytes]) -> object:
    return None if value is None else (hashes[value.node], value.port)


def _value_difference(a: Graph, b: Graph, x: Value | None, y: Value | None, hasher: _Hasher) -> str:
    """Walk up from two values that differ to the nodes that make the difference."""
    hashes_a, hashes_b = hasher.nodes[id(a)], hasher.nodes[id(b)]
    while True:
        if x is None or y is None:
            return f"{_label(a, x)}, and {_label(b, y)} in the other"
        m, n = a.producer(x), b.producer(y)
        if (m.op, x.port, len(m.inputs)) != (n.op, y.port, len(n.inputs)):
            return f"{_label(a, x)}, and {_label(b, y)} in the other"
        if (found := _attr_difference(m, n, hasher)) is not None:
            return f"{_label(a, x)}: {found}"
        pairs = list(zip(m.inputs, n.inputs, strict=True))
        x, y = next(((p, q) for p, q in pairs if _value_hash(p, hashes_a) != _value_hash(q, hashes_b)), (None, None))
        if x is None and y is None:
            return f"{_label(a, m.outputs[0])}: another input, overload or number of outputs"


def _attr_difference(m: Node, n: Node, hasher: _Hasher) -> str | None:
    for name in sorted(m.attrs.keys() | n.attrs.keys()):
        p, q = m.attrs.get(name), n.attrs.get(name)
        if p is None or q is None:
            return f"only one of them has the attribute {name}"
        if hasher.attr(p) != hasher.attr(q):
            if isinstance(p, Graph) and isinstance(q, Graph):
                return f"in {name}: {_difference(p, q, hasher) or 'its inputs or outputs differ'}"
            return f"{name} is {_show(p)}, and {_show(q)} in the other"
    return None


def _show(value: Attr) -> str:
    if isinstance(value, Constant) and value.size <= 8:
        return f"{value!r} {value.array.tolist()}"
    return repr(value)


def _label(graph: Graph, value: Value | None) -> str:
    if value is None:
        return "nothing"
    node = graph.producer(value)
    name = graph.names.get(value) or node.origin.name
    port = f", output {value.port}" if node.n_outputs > 1 else ""
    return f"{node.op} {name!r}{port}" if name else f"{node.op}{port}"
