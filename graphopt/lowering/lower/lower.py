"""Legalization: decides for each node of a graph whether a nest, a view, control flow or the reference evaluator
computes it.

Nodes are looked at in order, and so it is known at each which sizes a running program knows by then:
those that the inputs' shapes bind, and those that a node that is left out finds out. A node whose
nest would need more is left to reference, unless what is missing are the elements of small inputs of
the graph: then the graph has to be lowered for their values, which ``NeedsValues`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from graphopt.errors import SENSELESS, CompilationError, words_of
from graphopt.ir import ops
from graphopt.ir.bounds import fact_of_type
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.infer_bodies import loop_head, scan_axis
from graphopt.ir.types import Dim, Size, Symbol, TensorType, Type, fresh_symbol, unranked
from graphopt.lowering.loops.compute import Tensor, compute, producers_first
from graphopt.lowering.loops.expressions import INDEX, Expr, cast, equal, select
from graphopt.lowering.loops.sizes import symbols_in, symbols_of
from graphopt.lowering.lower.embedded_programs import Called, EmbeddedProgram, given, in_order
from graphopt.lowering.lower.unlowered import name_of
from graphopt.lowering.operators.node import operation_of
from graphopt.lowering.operators.operation import DTYPES, NotKnown, NotLowered, SizeVars
from graphopt.lowering.operators.table import describe

if TYPE_CHECKING:
    pass

FactsByValue: TypeAlias = Mapping[Value, Fact]

Binds: TypeAlias = "tuple[tuple[Symbol, int, int], ...]"
"""Symbols that are known once something ran, as the sizes of an output's axis: (symbol, output, axis)."""
VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
"""Ops whose output is their first input's elements in the same order."""
SMALL = 64
"""Elements that an input may have for whose value a graph is lowered."""
WRITTEN = 8
"""Elements of a value that are written into a nest where they are sizes that the program knows."""


@dataclass(frozen=True, slots=True)
class Described:
    """A node computed by a nest: tensor expressions for its outputs, on placeholders for its inputs."""

    node: Node
    tensors: tuple[Tensor, ...]
    reads: tuple[Value, ...] = ()
    """The inputs of which the elements are read: not those whose elements are sizes that the program knows."""
    is_known: bool = False
    """Whether the elements of the outputs themselves are such sizes."""


@dataclass(frozen=True, slots=True)
class Viewed:
    """A node whose output is a view: a value in another shape."""

    node: Node
    source: Value


@dataclass(frozen=True, slots=True)
class LoweredBody:
    """A lowered body of a node: the facts of its values, and the lowering of its nodes."""

    graph: Graph
    facts: FactsByValue
    lowered: Mapping[int, LoweredNode]
    binds: Binds = ()
    """Symbols that each round finds out, as the sizes of a state's axis."""


@dataclass(frozen=True, slots=True)
class Bodied:
    """An If, Loop or Scan that runs as part of the program, with its bodies by attribute."""

    node: Node
    bodies: Mapping[str, LoweredBody]
    binds: Binds = ()
    """Symbols that are known once it ran."""

    @property
    def handed(self) -> frozenset[int]:
        """The outputs whose sizes are known only once it ran, which are handed on by Python."""
        return frozenset(port for _, port, _ in self.binds)


@dataclass(frozen=True, slots=True)
class Unlowered:
    """A node that is left to ONNX Runtime or ONNX's reference evaluator, and the reason."""

    node: Node
    reason: str
    binds: Binds = ()
    """Symbols that are known once it ran."""


@dataclass(frozen=True, slots=True)
class Told:
    """Elements of a small integer value that the program reads, to know sizes that are computed of them."""

    node: Node
    """The node that makes the value."""
    value: Value
    symbols: tuple[Symbol | None, ...]
    """What the elements are, in order; None for those that are known, or asked of nobody."""


LoweredNode: TypeAlias = Described | Viewed | Bodied | EmbeddedProgram | Called | Unlowered | Told


class NeedsValues(Exception):  # noqa: N818  it is an answer, not an error
    """The request to lower a graph for given elements of some of its inputs: it cannot be lowered without them."""

    def __init__(self, inputs: Iterable[Value]) -> None:
        super().__init__("the graph is lowered for the elements of some of its inputs")
        self.inputs = frozenset(inputs)


def lower(
    graph: Graph,
    facts: dict[Value, Fact],
    bound: Iterable[Symbol] = (),
    *,
    is_body: bool = False,
    takes: Callable[[Node], bool] = lambda node: True,
    failed: Mapping[str, str] | None = None,
    is_for_host: bool = True,
    outside: _Lowerer | None = None,
) -> dict[int, LoweredNode]:
    """The lowering of each node, in order, by the node's id; negative ids are reads of sizes (``Told``). ``bound`` are
    the symbols known at the start.

    A node that ``takes`` does not take is left to reference, and so is one that ``failed`` before, which gives the
    reasons by name. ``is_for_host`` is as in ``Operation``, and ``outside`` is
    the lowering that a body belongs to.

    ``facts`` says nothing any more of the shape of what is left out where nobody can tell it.
    Raises NeedsValues where the elements of some inputs have to be known (never for a body).
    """
    return _Lowerer(graph, facts, bound, is_body, takes, failed or {}, is_for_host, outside).run()


class _Lowerer:
    def __init__(
        self,
        graph: Graph,
        facts: dict[Value, Fact],
        bound: Iterable[Symbol],
        is_body: bool,
        takes: Callable[[Node], bool],
        failed: Mapping[str, str],
        is_for_host: bool,
        outside: _Lowerer | None,
    ) -> None:
        self.outside = outside
        """The lowering of the graph that a body stands in."""
        self.takes, self.failed, self.is_for_host = takes, failed, is_for_host
        self.graph, self.facts, self.is_body = graph, facts, is_body
        self.bound = {*bound}
        if not is_body:
            self.bound.update(s for v in graph.inputs for s in _bare(facts[v]))
        self.missing: dict[Value, None] = {}
        self.lowered_nodes: dict[int, LoweredNode] = {}
        self.holders: dict[Symbol, Value] = {}
        """The small value of whose elements a symbol is one, that were computed so far."""
        self.lacking: set[Symbol] = set()
        """The symbols that the node that was looked at last would need."""

    def run(self) -> dict[int, LoweredNode]:
        for node in in_order(self.graph):
            if node.op not in (INPUT, CONSTANT):
                lowered = self.node(node)
                self.lowered_nodes[node.id] = lowered
            self.note_elements(node)
        if self.missing and not self.is_body:
            raise NeedsValues(self.missing)
        return self.lowered_nodes

    def note_elements(self, node: Node) -> None:
        """Note which symbols are elements of what a node gives."""
        for value in node.outputs:
            fact = self.facts[value]
            for element in fact.elements or () if fact.dtype in ("int64", "int32") else ():
                symbol = _symbol(element)
                if symbol is not None and symbol not in self.bound:
                    self.holders.setdefault(symbol, value)

    def tell(self, symbols: set[Symbol], is_for_body: bool = False) -> bool:
        """Let the program read the values of which symbols are elements, outside of bodies if they are there already;
        whether all of them are such. A graph is lowered for the values of its own inputs instead."""
        if self.outside is not None and (held := symbols & self.outside.all_held()):
            if not self.outside.tell(held, is_for_body=True):
                return False
            self.bound |= held
            symbols = symbols - held
            if not symbols:
                return True
        if not symbols or not symbols <= self.holders.keys():
            return False
        are_inputs = any(self.graph.node(self.holders[s].node).op == INPUT for s in symbols)
        if are_inputs and not self.is_body and not is_for_body:
            return False
        for value in dict.fromkeys(self.holders[s] for s in sorted(symbols, key=str)):
            found = [_symbol(element) for element in self.facts[value].elements or ()]
            asked = [s if s in symbols and s not in found[:k] else None for k, s in enumerate(found)]
            self.lowered_nodes[-1 - len(self.lowered_nodes)] = Told(self.graph.node(value.node), value, tuple(asked))
            self.bound |= {s for s in asked if s is not None}
        return True

    def all_held(self) -> set[Symbol]:
        """The symbols that are elements of values here, or outside of this body."""
        return self.holders.keys() | (self.outside.all_held() if self.outside is not None else set())

    def node(self, node: Node) -> LoweredNode:
        brought = given(self.graph, node, self.facts)
        if brought is not None:
            return self.by_user(brought)
        self.lacking = set()
        try:
            return self.by_nest(node)
        except NotKnown as why:
            value = node.inputs[why.input] if why.input < len(node.inputs) else None
            roots = None if value is None else self.small_inputs(value)
            are_sizes = roots is not None and all(map(is_of_sizes, map(self.facts.__getitem__, roots)))
            if (self.is_body or not are_sizes) and self.tell(self.lacking):
                return self.node(node)
            if roots:
                self.missing.update(dict.fromkeys(roots))
            return self.unlowered(node, str(why))
        except NotLowered as why:
            return self.node(node) if self.tell(self.lacking) else self.unlowered(node, str(why))
        except SENSELESS as error:  # nests rest on what the model may not keep to, as ONNX says it has to
            return self.unlowered(node, f"its lowering failed: {words_of(error)}")

    def by_user(self, brought: EmbeddedProgram | Called) -> LoweredNode:
        """The embedded program or registered function of a node. CompilationError where it needs unknown sizes."""
        try:
            self.check_bound(brought.node, [self.facts[v] for v in brought.node.outputs], SizeVars())
        except NotLowered as why:
            raise CompilationError(f"node {name_of(self.graph, brought.node)!r} ({brought.node.op}): {why}") from None
        return brought

    def by_nest(self, node: Node) -> LoweredNode:
        if not self.takes(node):
            raise NotLowered("it was left out")
        if self.failed and (why := self.failed.get(name_of(self.graph, node))):
            raise NotLowered(why)
        if node.bodies:
            return self.bodied(node)
        outputs = [self.facts[v] for v in node.outputs]
        if self.is_view(node):
            assert node.inputs[0] is not None
            self.check_bound(node, outputs, SizeVars())
            return Viewed(node, node.inputs[0])
        sizes = SizeVars()
        constants = [self.size_tensor(f, sizes) for f in outputs]
        if outputs and all(k is not None for k in constants):
            return Described(node, tuple(k for k in constants if k is not None), is_known=True)
        operation = operation_of(self.graph, node, self.facts, sizes, is_for_host=self.is_for_host)
        tensors = describe(operation)
        self.check_bound(node, outputs, sizes)
        read = set(inputs_read(tensors))
        pairs = zip(node.inputs, operation.inputs, strict=True)
        reads = [v for v, t in pairs if v is not None and t in read and self.size_tensor(self.facts[v], sizes) is None]
        return Described(node, tensors, tuple(dict.fromkeys(reads)))

    def bodied(self, node: Node) -> LoweredNode:
        """If, Loop and Scan; a size that an If or a Loop finds out is known behind it."""
        if node.op not in ("If", "Loop", "Scan"):
            raise NotLowered(f"the bodies of {node.op} are no loops")
        outputs = [self.facts[v] for v in node.outputs]
        for value in (*node.inputs, *node.outputs):
            if value is not None and self.facts[value].dtype not in DTYPES:
                raise NotLowered(f"{node.op} takes or gives what is no tensor that kernels compute with")
        binds = () if node.op == "Scan" else self.binds(node)
        self.check_bound(node, outputs, SizeVars(), {symbol for symbol, _, _ in binds})
        lowering = Bodied(node, {}, binds)
        bodies = {name: self.body(lowering, body) for name, body in sorted(node.bodies.items())}
        self.bound |= {symbol for symbol, _, _ in binds}
        return Bodied(node, bodies, binds)

    def body(self, lowering: Bodied, body: Graph) -> LoweredBody:
        node = lowering.node
        given, binds = self.body_inputs(lowering, body)
        facts = infer(body, given)
        results = [facts[v] for v in body.outputs if v is not None]
        wanted = [self.facts[v] for v in node.outputs]
        if node.op == "Loop":
            results, n_states = results[1:], len(node.inputs) - node.captures - 2
            wanted[:n_states] = [facts[v] for v in body.inputs[2 : 2 + n_states]]
        else:
            n_states = len(wanted) if node.op == "If" else _states(node)
        unknown = {symbol for symbol, _, _ in (*lowering.binds, *binds)}
        for k, (fact, want) in enumerate(zip(results, wanted, strict=True)):
            axis = 0 if node.op == "Loop" else scan_axis(node, "scan_output_axes", k - n_states, fact.rank or 0)
            shape = want.shape or ()
            shape = shape if k < n_states else (*shape[:axis], *shape[axis + 1 :])
            fits = (
                fact.dtype == want.dtype
                and len(fact.shape or ()) == len(shape)
                and all(a == b or _symbol(b) in unknown for a, b in zip(fact.shape or (), shape, strict=True))
            )
            if not fits:
                raise NotLowered(f"what the body of {node.op} gives changes its size")
        return LoweredBody(body, facts, self.lowered(body, facts, {symbol for symbol, _, _ in binds}), binds)

    def lowered(self, body: Graph, facts: dict[Value, Fact], more: set[Symbol]) -> Mapping[int, LoweredNode]:
        """The lowering of a body's nodes, which know some more symbols."""
        kept: dict[str, Any] = {"takes": self.takes, "failed": self.failed, "is_for_host": self.is_for_host}
        kept["outside"] = self
        return lower(body, facts, self.bound | more, is_body=True, **kept)

    def body_inputs(self, lowering: Bodied, body: Graph) -> tuple[dict[Value, Fact], Binds]:
        """The facts of a body's inputs that hold in every iteration, and the symbols that are bound in each."""
        node = lowering.node
        binds: list[tuple[Symbol, int, int]] = []
        outer = len(node.inputs) - node.captures
        captured = [NOTHING if v is None else self.facts[v] for v in node.inputs[outer:]]
        inputs: list[Fact] = []
        if node.op == "Loop":
            unknown = {symbol for symbol, _, _ in lowering.binds}
            states = [self.facts[v] for v in node.outputs[: outer - 2]]
            types: list[Type | None] = [fact.type for fact in states]
            for k in lowering.handed & set(range(len(states))):
                sizes = list(states[k].shape or ())
                for axis, size in enumerate(sizes):
                    if _symbol(size) in unknown:
                        sizes[axis] = found = fresh_symbol()
                        binds += [(symbol, k, axis) for symbol in symbols_in(found)]
                types[k] = TensorType(states[k].dtype or "", tuple(sizes))
            inputs = [fact_of_type(t) for t in (*loop_head(body), *types)]
        elif node.op == "Scan":
            n_states = _states(node)
            inputs = [fact_of_type(self.facts[v].type) for v in node.outputs[:n_states]]
            for k, value in enumerate(node.inputs[n_states:outer]):
                shape = self.facts[value].shape if value is not None else None
                if value is None or shape is None:
                    raise NotLowered("a Scan over what has no rank")
                axis = scan_axis(node, "scan_input_axes", k, len(shape))
                dtype = self.facts[value].dtype or ""
                inputs.append(fact_of_type(TensorType(dtype, (*shape[:axis], *shape[axis + 1 :]))))
        return dict(zip(body.inputs, [*inputs, *captured], strict=True)), tuple(binds)

    def is_view(self, node: Node) -> bool:
        """Whether the output is the first input in another shape, or in the same."""
        source, result = (
            self.facts[node.inputs[0]] if node.inputs and node.inputs[0] else None,
            self.facts[Value(node.id)],
        )
        if source is None or source.shape is None or result.shape is None or result.dtype not in DTYPES:
            return False
        if node.op == "Transpose":
            perm = ops.attribute("Transpose", node.attrs, "perm", len(source.shape))
            order = [int(p) for p in perm if isinstance(p, int)] if isinstance(perm, tuple) else []
            moved = [p for p in order if source.shape[p] != 1]
            return bool(order) and moved == sorted(moved)
        return node.op in VIEWS or (node.op in ("Cast", "Expand") and source.type == result.type)

    def size_tensor(self, fact: Fact, sizes: SizeVars) -> Tensor | None:
        """A small integer tensor of which each element is a size that is known when the program runs."""
        if not is_written(fact) or not {s for e in fact.elements or () for s in symbols_in(e)} <= self.bound:
            return None
        return known_tensor(fact, sizes)

    def check_bound(self, node: Node, outputs: Iterable[Fact], sizes: SizeVars, more: Collection[Symbol] = ()) -> None:
        """Raise NotLowered where a size would be needed that nobody knows by then; ``more`` is known as well."""
        needed = {s for atom in sizes.variables for s in symbols_of(atom)}
        for fact in outputs:
            if fact.shape is None:
                raise self.unknown(node, "the rank of its output is not known")
            needed |= {s for size in fact.shape for s in symbols_in(size)}
        self.lacking = needed - self.bound - set(more)
        if self.lacking:
            raise self.unknown(node, "sizes of its output depend on what its inputs hold")

    def unknown(self, node: Node, reason: str) -> NotLowered:
        """The reason as an error: the blame is on the first input after which sizes go."""
        first = 0 if node.op in ("Range", "ConstantOfShape", "Loop") else 1
        for k, value in enumerate(node.inputs):
            fact = None if value is None else self.facts[value]
            if value is None or k < first or fact is None or fact.constant is not None:
                continue
            if fact.dtype is not None and ("int" in fact.dtype or node.op in ("Range", "Resize")):
                roots = self.small_inputs(value)
                if roots:
                    return NotKnown(node.op, k)
        return NotLowered(reason)

    def small_inputs(self, value: Value) -> set[Value] | None:
        """The graph's inputs that the value is computed from, if they are all small; None where one is not."""
        values: set[Value] = set()
        seen: set[int] = set()
        stack = [value.node]
        while stack:
            node = self.graph.node(stack.pop())
            if node.id in seen:
                continue
            seen.add(node.id)
            if node.op == INPUT:
                if not is_small(self.facts[Value(node.id)]):
                    return None
                values.add(Value(node.id))
            elif not ops.is_pure(node.op, node.attrs):
                return None
            elif node.op not in ("Shape", "Size"):
                stack += [v.node for v in node.inputs if v is not None]
        return values

    def unlowered(self, node: Node, reason: str) -> Unlowered:
        """The node that is left out, and what sizes are known from then on."""
        binds = self.binds(node)
        self.bound |= {symbol for symbol, _, _ in binds}
        for value in node.outputs:
            fact = self.facts[value]
            lacking = {symbol for size in fact.shape or () for symbol in symbols_in(size)} - self.bound
            if lacking and not self.tell(lacking):  # nobody can tell its size: it is whatever comes
                self.facts[value] = replace(fact, type=TensorType(fact.dtype or "", unranked()), elements=None)
        return Unlowered(node, reason, binds)

    def binds(self, node: Node) -> Binds:
        """The symbols that are known once a node ran."""
        found: dict[Symbol, tuple[Symbol, int, int]] = {}
        for port, value in enumerate(node.outputs):
            for axis, size in enumerate(self.facts[value].shape or ()):
                symbol = _symbol(size)
                if symbol is not None and symbol not in self.bound:
                    found.setdefault(symbol, (symbol, port, axis))
        return tuple(found.values())


def _states(node: Node) -> int:
    """The number of states of a Scan."""
    scans = node.attrs.get("num_scan_inputs")
    return len(node.inputs) - node.captures - (scans if isinstance(scans, int) else 0)


def is_small(fact: Fact) -> bool:
    """Whether a tensor of this type is small enough for a graph to be lowered for its elements."""
    size = fact.size
    return (
        fact.rank is not None
        and fact.rank <= 1
        and fact.dtype is not None
        and fact.dtype in DTYPES
        and (not isinstance(size, int) or size <= SMALL)
    )


def is_of_sizes(fact: Fact) -> bool:
    """Whether a small tensor is one of so many integers, as those are that hold sizes or axes."""
    return isinstance(fact.size, int) and fact.dtype is not None and "int" in fact.dtype


def is_written(fact: Fact) -> bool:
    """Whether all elements are sizes, and few enough to be inlined."""
    return fact.elements is not None and fact.dtype in ("int64", "int32") and len(fact.elements) <= WRITTEN


def known_tensor(fact: Fact, sizes: SizeVars) -> Tensor:
    """The tensor expression of a small integer value whose elements are expressions over sizes."""
    assert fact.elements is not None
    assert fact.shape is not None
    elements, dtype = [cast(sizes(e), fact.dtype or INDEX) for e in fact.elements], fact.dtype or INDEX
    if not elements or not fact.shape:
        return compute(tuple(map(sizes, fact.shape)), lambda *i: elements[0] if elements else 0, dtype)

    def element(i: Expr) -> Expr:
        return reduce(lambda rest, k: select(equal(i, k), elements[k], rest), range(len(elements) - 1), elements[-1])

    return compute((len(elements),), element, dtype)


def _symbol(size: Size) -> Symbol | None:
    """The symbol that the size is, if it is one alone."""
    match size:
        case Dim(terms=((((Symbol() as symbol),), 1),)):
            return symbol
    return None


def _bare(fact: Fact) -> Iterable[Symbol]:
    return (s for s in map(_symbol, fact.shape or ()) if s is not None)


def inputs_read(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The direct inputs of tensors' computations, in order of first use."""
    return [t for t in producers_first(list(tensors)) if t.stage is None]
