"""Legalization: decides for each node of a graph whether a nest, a view, control flow or the reference evaluator
computes it.

Nodes are looked at in order, and so it is known at each which sizes a running program knows by then:
those that the inputs' shapes bind, those that a shape function computes from elements, and those that a
node that is left out finds out. A node whose nest would need more is left to reference, unless what is
missing are the elements of small inputs of the graph: then the graph has to be lowered for their values,
which ``NeedsValues`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from graphopt.errors import SENSELESS, CompilationError, UsageError, words_of
from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.bounds import fact_of_type
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.infer_bodies import loop_head, scan_axis
from graphopt.ir.order import in_order
from graphopt.ir.types import Dim, Size, Symbol, TensorType, Type, fresh_symbol, is_anonymous, unranked
from graphopt.lowering.loops.compute import Tensor, compute, producers_first
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, Load, cast, equal, maximum, select
from graphopt.lowering.loops.sizes import symbols_in, symbols_of
from graphopt.lowering.lower.embedded_programs import Called, EmbeddedProgram, given
from graphopt.lowering.lower.kept_states import KeptState
from graphopt.lowering.lower.unlowered import name_of
from graphopt.lowering.operators.node import operation_of, tensor_of
from graphopt.lowering.operators.operation import DTYPES, NotKnown, NotLowered, Shapes, SizeVars
from graphopt.lowering.operators.shape_functions import TABLE as SHAPE_FUNCTIONS
from graphopt.lowering.operators.shape_functions import shapes_of
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
    found: Mapping[Value, Fact] = field(default_factory=dict)
    """What its shape function leaves for it, and what is known of that."""


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """The shape function of a node: a nest that computes sizes from elements before the node runs."""

    node: Node
    symbols: tuple[Symbol, ...]
    """The symbols that are known once it ran: the elements of the first tensor, where there are any."""
    tensors: tuple[Tensor, ...]
    """That tensor, and what is left for the node."""
    sources: Mapping[Tensor, Value]
    sizes: SizeVars
    found: Mapping[Value, Fact]
    """The tensors as values beyond the outputs of the node, and what is known of them."""

    @property
    def reads(self) -> tuple[Value, ...]:
        """The values of which the elements are read."""
        return tuple(dict.fromkeys(self.sources[t] for t in inputs_read(self.tensors)))


@dataclass(frozen=True, slots=True)
class Viewed:
    """A node whose output is a view: a value in another shape."""

    node: Node
    source: Value


@dataclass(frozen=True, slots=True)
class Appended:
    """A node whose output is a state that grows, where it lies: its tail was written behind the past."""

    node: Node
    state: KeptState


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
    handed: frozenset[int] = frozenset()
    """The outputs whose sizes are known only once it ran, which are handed on by Python."""


@dataclass(frozen=True, slots=True)
class Unlowered:
    """A node that is left to ONNX Runtime or ONNX's reference evaluator, and the reason."""

    node: Node
    reason: str
    binds: Binds = ()
    """Symbols that are known once it ran."""


LoweredNode: TypeAlias = Described | Viewed | Appended | Bodied | EmbeddedProgram | Called | Unlowered | Sizes


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
    states: Sequence[KeptState] = (),
) -> dict[int, LoweredNode]:
    """The lowering of each node, in order, by the node's id, and before it that of its shape function where it needs
    one, by ``~id``. ``bound`` are the symbols known at the start.

    A node that ``takes`` does not take is left to reference, and so is one that ``failed`` before, which gives the
    reasons by name. ``is_for_host`` is as in ``Operation``. ``states`` are those of the graph that are kept.

    ``facts`` says nothing any more of the shape of what is left out where nobody can tell it.
    Raises NeedsValues where the elements of some inputs have to be known (never for a body), and UsageError for a state
    that grows and that is read by what is no nest.
    """
    return _Lowerer(graph, facts, bound, is_body, takes, failed or {}, is_for_host, states).run()


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
        states: Sequence[KeptState] = (),
    ) -> None:
        self.takes, self.failed, self.is_for_host = takes, failed, is_for_host
        self.graph, self.facts, self.is_body = graph, facts, is_body
        self.bound = {*bound}
        if not is_body:
            self.bound.update(s for v in graph.inputs for s in _bare(facts[v]))
        self.appended = {s.present.node: s for s in states if s.tail is not None}
        self.windows = {v for s in states for v in s.windows}
        """What lies in the memory of states, with strides."""
        self.missing: dict[Value, None] = {}
        self.lowered_nodes: dict[int, LoweredNode] = {}
        self.elements: dict[Symbol, tuple[Value, int]] = {}
        """Where symbols stand as elements of values."""

    def run(self) -> dict[int, LoweredNode]:
        for node in in_order(self.graph):
            if node.op not in (INPUT, CONSTANT):
                self.lowered_nodes[node.id] = self.node(node)
            for value in node.outputs:
                for k, element in enumerate(self.facts[value].elements or ()):
                    if (symbol := _symbol(element)) is not None:
                        self.elements.setdefault(symbol, (value, k))
        if self.missing and not self.is_body:
            raise NeedsValues(self.missing)
        for lowering in self.lowered_nodes.values() if self.windows else ():
            if not isinstance(lowering, Described | Appended | Sizes):
                self.check_dense(lowering.node)
        return self.lowered_nodes

    def check_dense(self, node: Node) -> None:
        """Raises UsageError where something other than a nest reads a state that grows, or writes what is appended."""
        for value in (*node.inputs, *node.outputs):
            if value is not None and value in self.windows:
                what = f"node {name_of(self.graph, node)!r} ({node.op})"
                raise UsageError(f"a state cannot be kept: {what} works on it, and is not compiled to loops")

    def node(self, node: Node) -> LoweredNode:
        brought = given(self.graph, node, self.facts)
        if isinstance(brought, EmbeddedProgram):
            return self.by_program(brought)
        if brought is not None:
            return self.by_user(brought)
        try:
            return self.by_nest(node)
        except NotKnown as why:
            value = node.inputs[why.input] if why.input < len(node.inputs) else None
            roots = None if value is None else self.small_inputs(value)
            if roots:
                self.missing.update(dict.fromkeys(roots))
            return self.unlowered(node, str(why))
        except NotLowered as why:
            return self.unlowered(node, str(why))
        except SENSELESS as error:  # nests rest on what the model may not keep to, as ONNX says it has to
            return self.unlowered(node, f"its lowering failed: {words_of(error)}")

    def by_program(self, brought: EmbeddedProgram) -> LoweredNode:
        """The program of a node as tensor expressions, which are fused as any op's; as it is where it is none."""
        if brought.is_ready:
            return self.by_user(replace(brought, reason="it is scheduled by hand"))
        try:
            return self.by_nest(brought.node)
        except NotLowered as why:
            return self.by_user(replace(brought, reason=str(why)))

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
        if node.id in self.appended:
            self.check_bound(node, outputs, SizeVars())
            return Appended(node, self.appended[node.id])
        if self.is_view(node):
            assert node.inputs[0] is not None
            self.check_bound(node, outputs, SizeVars())
            return Viewed(node, node.inputs[0])
        sizes = SizeVars([*(self.facts[v] for v in node.inputs if v is not None), *outputs])
        constants = [self.size_tensor(f, sizes) for f in outputs]
        if outputs and all(k is not None for k in constants):
            return Described(node, tuple(k for k in constants if k is not None), is_known=True)
        operation = operation_of(self.graph, node, self.facts, sizes, is_for_host=self.is_for_host)
        shapes = shapes_of(operation)
        found = _left(node, shapes)
        left = tuple(tensor_of(fact, sizes, f"found{k}") for k, fact in enumerate(found.values()))
        tensors = describe(replace(operation, found=left))
        self.check_bound(node, outputs, sizes, found=found)
        read = set(inputs_read(tensors))
        pairs = zip(node.inputs, operation.inputs, strict=True)
        reads = [v for v, t in pairs if v is not None and t in read and self.size_tensor(self.facts[v], sizes) is None]
        return Described(node, tensors, (*dict.fromkeys(reads), *found), found=found)

    def bodied(self, node: Node) -> LoweredNode:
        """If, Loop and Scan; a size that an If or a Loop finds out is known behind it."""
        if node.op not in ("If", "Loop", "Scan"):
            raise NotLowered(f"the bodies of {node.op} are no loops")
        outputs = [self.facts[v] for v in node.outputs]
        for value in (*node.inputs, *node.outputs):
            if value is not None and self.facts[value].dtype not in DTYPES:
                raise NotLowered(f"{node.op} takes or gives what is no tensor that kernels compute with")
        binds = () if node.op == "Scan" else self.binds(node)
        found = {symbol for symbol, _, _ in binds}
        sized = [{s for size in self.facts[v].shape or () for s in symbols_in(size)} for v in node.outputs]
        handed = frozenset(port for port, symbols in enumerate(sized) if not symbols.isdisjoint(found))
        lowering = Bodied(node, {}, binds, handed)
        inputs = {name: self.body_inputs(lowering, body) for name, body in sorted(node.bodies.items())}
        within = {name: inferred(node.bodies[name], given) for name, (given, _) in inputs.items()}
        captured = self.captured(facts for _, facts in within.values())
        self.check_bound(node, outputs, SizeVars(), more=found, captured=captured)
        if handed and node.op == "Loop" and self.count_rounds(node, *within["body"]):
            return self.bodied(node)
        bodies = {name: self.body(lowering, *within[name], binds) for name, (_, binds) in inputs.items()}
        self.bound |= found
        return replace(lowering, bodies=bodies)

    def count_rounds(self, node: Node, body: Graph, facts: FactsByValue) -> bool:
        """Whether a Loop now has a shape function that tells its rounds: where nothing ends it before their number."""
        trips, condition, goes_on = node.inputs[0], node.inputs[1], body.outputs[0]
        assert goes_on is not None
        stays = goes_on == body.inputs[1] or facts[goes_on].elements == (1,)
        begins = condition is None or self.facts[condition].elements == (1,)
        stacked = node.outputs[len(node.inputs) - node.captures - 2 :]
        counts = {_symbol((self.facts[v].shape or (0,))[0]) for v in stacked}
        if trips is None or not (stays and begins) or len(counts) != 1 or ~node.id in self.lowered_nodes:
            return False
        (count,) = counts
        if count is None or count in self.bound:
            return False
        sizes = SizeVars()
        tensor = tensor_of(self.facts[trips], sizes)
        number = maximum(cast(Load(tensor, (Const(0),) * tensor.rank), INDEX), 0)
        found = {Value(node.id, node.n_outputs): _vector(1)}
        self.lowered_nodes[~node.id] = Sizes(node, (count,), (_listed([number]),), {tensor: trips}, sizes, found)
        self.bound.add(count)
        return True

    def body(self, lowering: Bodied, body: Graph, facts: dict[Value, Fact], binds: Binds) -> LoweredBody:
        node = lowering.node
        results = [facts[v] for v in body.outputs if v is not None]
        wanted = [self.facts[v] for v in node.outputs]
        if node.op == "Loop":
            if results[0].dtype != "bool":
                raise NotLowered("the condition that the body of Loop gives is no truth value")
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

    def captured(self, inside: Iterable[FactsByValue]) -> list[Symbol]:
        """The sizes within bodies that are elements of values outside, which are computed once."""
        sizes = (size for facts in inside for fact in facts.values() for size in fact.shape or ())
        used = dict.fromkeys(s for size in sizes for s in self.ordered(symbols_in(size)))
        return [s for s in used if s in self.elements]

    def lowered(self, body: Graph, facts: dict[Value, Fact], more: set[Symbol]) -> Mapping[int, LoweredNode]:
        """The lowering of a body's nodes, which know some more symbols."""
        kept: dict[str, Any] = {"takes": self.takes, "failed": self.failed, "is_for_host": self.is_for_host}
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
        if node.inputs[0] in self.windows or Value(node.id) in self.windows:  # what has strides is no view, nor has any
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

    def check_bound(
        self,
        node: Node,
        outputs: Sequence[Fact],
        sizes: SizeVars,
        *,
        more: Collection[Symbol] = (),
        captured: Sequence[Symbol] = (),
        found: Mapping[Value, Fact] | None = None,
    ) -> None:
        """Sees to it that all sizes are known when the node runs, by a shape function where they depend on elements;
        raises NotLowered where that cannot be. ``more`` is known once it ran, ``captured`` are sizes in its bodies, and
        ``found`` is what the function leaves for it."""
        for fact in outputs:
            if fact.shape is None:
                raise self.unknown(node, "the rank of its output is not known")
        of_outputs = [s for fact in outputs for size in fact.shape or () for s in self.ordered(symbols_in(size))]
        within = [s for atom in sizes.variables for s in self.ordered(symbols_of(atom))]
        missing = [s for s in dict.fromkeys((*of_outputs, *within, *captured)) if s not in self.bound and s not in more]
        if not missing and not found:
            return
        why = self.unknown(node, "sizes of its output depend on what its inputs hold")
        # the model may state sizes that hold for given elements only
        if isinstance(why, NotKnown) and not {*missing} <= {*of_outputs, *captured}:
            raise why
        if not self.compute_sizes(node, outputs, missing, found or {}):
            raise why

    def ordered(self, symbols: Iterable[Symbol]) -> list[Symbol]:
        """Symbols in the order in which values have them as elements, which is the same in every process."""
        return sorted(symbols, key=lambda s: (self.elements.get(s, (Value(-1), 0)), len(s.name), s.name))

    def compute_sizes(
        self, node: Node, outputs: Sequence[Fact], missing: Sequence[Symbol], found: Mapping[Value, Fact]
    ) -> bool:
        """Adds the shape function of a node, by which the missing sizes are known; False where that cannot be."""
        if sizes_name(self.graph, node) in self.failed:
            return False
        sizes = SizeVars()
        operation, shapes = None, None
        if any(self.elements.get(s) is None for s in missing) or found:
            operation = operation_of(self.graph, node, self.facts, sizes, is_for_host=self.is_for_host)
            shapes = shapes_of(operation)
        computed: dict[Symbol, Expr] = {}
        for fact, shape in zip(outputs, () if shapes is None else shapes.outputs, strict=False):
            computed |= {s: e for size, e in zip(fact.shape or (), shape, strict=True) if (s := _symbol(size))}
        sources: dict[Tensor, Value] = {}
        for symbol in missing:
            if symbol in self.elements:
                value, k = self.elements[symbol]
                tensor = tensor_of(self.facts[value], sizes)
                sources[tensor] = value
                computed[symbol] = cast(Load(tensor, (Const(k),) * tensor.rank), INDEX)
        if not {s for atom in sizes.variables for s in symbols_of(atom)} <= self.bound or not {*missing} <= {*computed}:
            return False
        if operation is not None:
            sources |= {t: v for t, v in zip(operation.inputs, node.inputs, strict=True) if t and v}
        values = {Value(node.id, node.n_outputs): _vector(len(missing))} if missing else {}
        told = (_listed([computed[s] for s in missing]),) if missing else ()
        left = () if shapes is None else tuple(t for t, _ in shapes.found)
        self.lowered_nodes[~node.id] = Sizes(node, tuple(missing), (*told, *left), sources, sizes, {**values, **found})
        self.bound.update(missing)
        return True

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
        before = self.lowered_nodes.pop(~node.id, None)
        if isinstance(before, Sizes):  # of a control flow whose bodies are no loops
            self.bound -= {*before.symbols}
        binds = self.binds(node)
        self.bound |= {symbol for symbol, _, _ in binds}
        missing: dict[Symbol, None] = {}
        for value in node.outputs:
            fact = self.facts[value]
            sizes = [s for size in fact.shape or () for s in self.ordered(symbols_in(size)) if s not in self.bound]
            if self.elements.keys() >= {*sizes}:
                missing.update(dict.fromkeys(sizes))
            else:  # nobody can tell its size: it is whatever comes
                self.facts[value] = replace(fact, type=TensorType(fact.dtype or "", unranked()), elements=None)
        if missing:
            self.compute_sizes(node, (), [*missing], {})
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


def inferred(graph: Graph, given: FactsByValue | None = None) -> tuple[Graph, dict[Value, Fact]]:
    """What is known of the values of a graph, and the graph without the sizes that it states of values that depend on
    elements: these may say otherwise."""
    told = [v for node in graph.nodes() if node.op in SHAPE_FUNCTIONS for v in node.outputs]
    graph = _ranks_alone(graph, told)
    facts = infer(graph, given)
    dependent = {v for v in told if _is_found_out(graph.producer(v), facts, v)}
    if not dependent:
        return graph, facts
    for node in graph.order():
        if not dependent.isdisjoint(node.inputs):
            dependent.update(node.outputs)
    changed = _ranks_alone(graph, sorted(dependent))
    return changed, facts if changed is graph else infer(changed, given)


def _is_found_out(node: Node, facts: FactsByValue, value: Value) -> bool:
    """Whether sizes of a value are none of those of the inputs of its node."""
    known = {s for v in node.inputs if v is not None for size in facts[v].shape or () for s in symbols_in(size)}
    return any(symbols_in(size) - known for size in facts[value].shape or ())


def _ranks_alone(graph: Graph, values: Iterable[Value]) -> Graph:
    """The graph with no sizes stated of some values; the graph itself where none are."""
    stated = {v: graph.types.get(v) for v in values}
    types = {
        v: TensorType(type.dtype, tuple(fresh_symbol() for _ in type.shape))
        for v, type in stated.items()
        if isinstance(type, TensorType) and isinstance(type.shape, tuple) and not all(map(is_anonymous, type.shape))
    }
    if not types:
        return graph
    graph = graph.copy()
    graph.types.update(types)
    return graph


def sizes_name(graph: Graph, node: Node) -> str:
    """The name of a node's shape function in messages and profiles."""
    return f"sizes of {name_of(graph, node)}"


def _left(node: Node, shapes: Shapes | None) -> dict[Value, Fact]:
    """What the shape function of a node leaves for it, as values beyond its outputs and the one of its sizes."""
    found = () if shapes is None else shapes.found
    first = node.n_outputs + 1
    return {
        Value(node.id, first + k): fact_of_type(TensorType(tensor.dtype, shape))
        for k, (tensor, shape) in enumerate(found)
    }


def _vector(length: int) -> Fact:
    return fact_of_type(TensorType(INDEX, (length,)))


def _listed(elements: Sequence[Expr], dtype: str = INDEX) -> Tensor:
    """A vector of these elements."""

    def element(i: Expr) -> Expr:
        return reduce(lambda rest, k: select(equal(i, k), elements[k], rest), range(len(elements) - 1), elements[-1])

    return compute((len(elements),), element, dtype)


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

    return _listed(elements, dtype)


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
