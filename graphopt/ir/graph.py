"""Dataflow graph: nodes that apply ops to values, held as a networkx multigraph holds them, and seen as one.

A node keeps its inputs as an ordered tuple; the networkx edges are the index over those tuples, one
edge for each use, keyed by the position of the input. Node ids are integers in creation order.
Names belong to values and carry no meaning. Graph inputs and constants are nodes like any other
(ops ``Input`` and ``Constant``), so whatever a node reads is a value of the same graph: the bodies
of If, Loop and Scan are closed graphs, and what they capture from outside is listed as the last
``captures`` inputs of the node that owns them, and as the last inputs of each of its bodies.
"""

from __future__ import annotations

import heapq
from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from graphopt.display import Scripted, counted, shortened
from graphopt.frozen import dataclass
from graphopt.ir import custom_ops
from graphopt.ir.constants import Constant
from graphopt.ir.types import Type

if TYPE_CHECKING:
    import networkx as nx

T = TypeVar("T")
Edges: TypeAlias = dict[int, dict[int, dict[int, dict[str, int]]]]
"""The edges from each node, or to it: by the node at the other end, then by key, the data."""

INPUT = "Input"
CONSTANT = "Constant"


class Value(NamedTuple):
    """One output of a node: the thing that edges carry."""

    node: int
    port: int = 0


_made = tuple.__new__
"""A value of its parts, as ``Value`` makes it, by way of no function of Python's: nothing is made as often."""


@dataclass(frozen=True, slots=True)
class AttrRef:
    """Inside a local function: the attribute of the call that stands here. ``kind`` is ONNX's attribute type."""

    name: str
    kind: int


AttrItem: TypeAlias = "int | float | str | bytes | Constant | Graph | Type"
Attr: TypeAlias = "AttrItem | AttrRef | tuple[AttrItem, ...]"


class Attrs(Mapping[str, Attr]):
    """The attributes of a node: an immutable, hashable mapping, in order of name.

    Equal means the same attributes with the same values bit by bit (``-0.0`` is not ``0.0``, ``1`` is not ``1.0``).
    """

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, Attr] | None = None, /, **more: Attr) -> None:
        self._items = dict(sorted({**(items or {}), **more}.items()))
        self._hash: int | None = None

    def __getitem__(self, name: str) -> Attr:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def keys(self) -> KeysView[str]:
        """The names, in order."""
        return self._items.keys()

    def items(self) -> ItemsView[str, Attr]:
        """Names and values, in order of name."""
        return self._items.items()

    def values(self) -> ValuesView[Attr]:
        """The values, in order of name."""
        return self._items.values()

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._items.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Attrs)
            and hash(self) == hash(other)
            and self._items == other._items
            and repr(self._items) == repr(other._items)
        )

    def __repr__(self) -> str:
        return repr(self._items)

    def with_(self, **changes: Attr | None) -> Attrs:
        """A copy with attributes set, or removed where the new value is None."""
        if not changes:
            return self
        merged = {**self._items, **changes}
        return Attrs({k: v for k, v in merged.items() if v is not None})


NO_ATTRS = Attrs()


PLACES = {"Loop": 2}
"""The inputs of an op that have a place whether they are given or not: what follows is counted from behind them."""


def trimmed(op: str, inputs: Sequence[T | None], captures: int = 0) -> tuple[T | None, ...]:
    """The inputs of an op without the places of missing ones at the end, in front of the captures."""
    n_own = count = len(inputs) - captures
    least = PLACES.get(op, 0)
    while count > least and inputs[count - 1] is None:
        count -= 1
    return (*inputs[:count], *(None,) * (least - count), *inputs[n_own:])


@dataclass(frozen=True, slots=True)
class Origin:
    """What a model says of a node beyond its meaning, kept so that saving loses nothing."""

    name: str = ""
    doc: str = ""
    overload: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    form: str = ""
    """For a ``Constant``: how the model spells it (``initializer``, or the attribute of its Constant node)."""
    extra: object = None
    """Whatever else the reader wants to see again when it writes the node."""


NOWHERE = Origin()


@dataclass(frozen=True, slots=True)
class Node:
    """An op applied to values. ``op`` is ONNX's name, with its domain where that is not ONNX's own
    (``com.microsoft::Gelu``). A missing optional input is None, and there is none behind the last that is given, or
    behind ``PLACES``, so that a call has one form. Nodes are values: to change one, put
    another in its place (``Graph.update``)."""

    id: int
    op: str
    inputs: tuple[Value | None, ...] = ()
    attrs: Attrs = NO_ATTRS
    n_outputs: int = 1
    captures: int = 0
    origin: Origin = NOWHERE

    def with_(self, **changes: Any) -> Node:
        """A copy with fields changed: as ``dataclasses.replace``, which takes three times as long."""
        fields: dict[str, Any] = {
            "id": self.id, "op": self.op, "inputs": self.inputs, "attrs": self.attrs, "n_outputs": self.n_outputs,
            "captures": self.captures, "origin": self.origin,
        }  # fmt: skip
        fields.update(changes)
        return Node(**fields)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The values that the node makes."""
        if self.n_outputs == 1:
            return (_made(Value, (self.id, 0)),)
        return tuple([_made(Value, (self.id, port)) for port in range(self.n_outputs)])

    @property
    def bodies(self) -> dict[str, Graph]:
        """The subgraphs among the attributes, by attribute name."""
        items = self.attrs._items
        return {name: a for name, a in items.items() if isinstance(a, Graph)} if items else {}


@dataclass(frozen=True, slots=True)
class Function:
    """A function local to the model: a closed graph over its formal inputs and attributes."""

    domain: str
    name: str
    overload: str
    body: Graph
    attributes: tuple[str, ...] = ()
    defaults: Attrs = NO_ATTRS
    opsets: tuple[tuple[str, int], ...] = ()
    origin: Origin = NOWHERE

    @property
    def op(self) -> str:
        """The op name by which nodes call the function."""
        return f"{self.domain}::{self.name}" if self.domain else self.name


@dataclass(frozen=True, slots=True)
class Header:
    """What a model says of itself: versions, producer, metadata, and the opset of each domain ("" is ONNX's)."""

    ir_version: int = 10
    opsets: tuple[tuple[str, int], ...] = (("", 21),)
    producer: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int = 0
    doc: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    extra: object = None

    @property
    def opset(self) -> int:
        """The version of ONNX's own operator set."""
        found = 1
        for domain, version in self.opsets:
            if not domain:
                found = version
        return found


@dataclass(eq=False, repr=False)
class Graph(Scripted):
    """A dataflow graph with named inputs and outputs.

    ``inputs`` are the values of its ``Input`` nodes in order; ``outputs`` are values, with their
    names beside them in ``output_names`` (the caller's names, which no pass changes). ``types``
    holds what is known of the values' types, ``names`` the values' names. ``header`` and
    ``functions`` are those of the model; bodies and functions carry their model's header too.

    >>> graph.opset, [node.op for node in graph.order()]
    (21, ['Input', 'Relu'])
    >>> made = graphopt.Graph("made")
    >>> a = made.add_input("a", graphopt.TensorType("float32", (2,)))
    >>> first = made.next_id
    >>> b = made.add("Neg", (a,)).outputs[0]
    >>> made.add_output("b", b)
    >>> made.users(a), made.readers(a.node), made.is_output(b), made.is_used(b.node), made.has_effects(made.producer(b))
    ([(1, 0)], [1], True, True, False)
    >>> [node.op for node in made.since(first)]
    ['Neg']
    >>> made.update(b.node, op="Abs").op
    'Abs'
    >>> from graphopt.ir.constants import Constant
    >>> c = made.add_constant(Constant.of(np.ones(2, np.float32)))
    >>> made.constant_of(c).size
    2
    >>> made.remove(c.node)
    >>> made.rewind(c.node)
    >>> made.networkx.number_of_edges()
    1
    >>> made.key() == made.copy().key()
    True
    >>> print(made)
    graph made (ir 10, opset 21)
    a: float32[2]
    %0 = Abs(a)
    return %0 as b
    """

    name: str = "graph"
    header: Header = field(default_factory=Header)
    functions: dict[tuple[str, str], Function] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value | None] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)
    names: dict[Value, str] = field(default_factory=dict)
    types: dict[Value, Type] = field(default_factory=dict)
    origin: Origin = NOWHERE

    def __post_init__(self) -> None:
        self._hold({}, {}, {}, [1])
        self._next = 0
        self._order: list[int] | None = None
        """The topological order, as long as it holds; nodes that are gone may stand in it,"""
        self._gone: set[int] = set()
        """and these do."""
        self.version = object()
        """Another one after each edit of nodes; copies have that of their original until then."""
        self.inferred: object = None
        """What inference knew of the graph last, and of which version, for whoever infers again."""
        self.changed: dict[int, Node] | None = None
        """For who sets it: the nodes that are others since then, or gone, as they were."""

    def _hold(self, nodes: dict[int, dict[str, Node]], edges: Edges, sources: Edges, holders: list[int]) -> None:
        """Take the dictionaries of a networkx graph: a look-up through its views costs three times as much. So many
        graphs hold them."""
        self._nodes, self._edges, self._sources, self._holders = nodes, edges, sources, holders

    def _own(self) -> None:
        """Before something is written: copy what other graphs hold too."""
        self.version = object()
        if self._holders[0] == 1:
            return
        self._holders[0] -= 1
        nodes = {id: data.copy() for id, data in self._nodes.items()}
        edges: Edges = {}
        sources: Edges = {id: {} for id in self._nodes}
        for id, readers in self._edges.items():
            edges[id] = {reader: keyed.copy() for reader, keyed in readers.items()} if readers else {}
            for reader, keyed in edges[id].items():
                sources[reader][id] = keyed
        self._hold(nodes, edges, sources, [1])

    # -- reading

    @property
    def opset(self) -> int:
        """The version of ONNX's own operator set that the graph is written in."""
        return self.header.opset

    @property
    def networkx(self) -> nx.MultiDiGraph[int]:
        """The nodes and edges as networkx sees them, for its algorithms: not to be edited, and good until the graph is.
        The data of a node is its ``node``, that of an edge its ``port``."""
        import networkx as nx  # which imports all of its algorithms: no graph needs it in order to be one

        seen: nx.MultiDiGraph[int] = nx.MultiDiGraph()
        seen._node, seen._adj, seen._pred = self._nodes, self._edges, self._sources
        return seen

    def __repr__(self) -> str:
        return f"<Graph {shortened(self.name)}: {counted(len(self), 'node')}>"

    def script(self, constants: list[Constant] | None = None) -> str:
        """The text of the graph, which ``graphopt.ir.text.parse`` reads back.

        Constants too large to be written out are appended to ``constants`` and stand as ``{#n}``, their number there;
        reading wants the same list.
        """
        from graphopt.ir.text import show  # which prints what is defined here

        return show(self, constants)

    def __len__(self) -> int:
        """How many nodes apply an op: inputs and constants are not counted."""
        return sum(n.op not in (INPUT, CONSTANT) for n in self.nodes())

    def __contains__(self, node: int) -> bool:
        return node in self._nodes

    def node(self, id: int) -> Node:
        """The node with this id; KeyError where it is gone."""
        return self._nodes[id]["node"]

    def producer(self, value: Value) -> Node:
        """The node that makes the value."""
        return self.node(value.node)

    def nodes(self) -> Iterator[Node]:
        """All nodes, in creation order."""
        return iter([data["node"] for data in self._nodes.values()])

    def users(self, value: Value) -> list[tuple[int, int]]:
        """Who reads the value, as (node, position of the input), in a fixed order. Graph outputs are not among them."""
        users = [
            (user, index)
            for user, edges in self._edges[value.node].items()
            for index, data in edges.items()
            if data["port"] == value.port
        ]
        users.sort()
        return users

    def is_output(self, value: Value) -> bool:
        """Whether the value is an output of the graph."""
        return value in self.outputs

    def readers(self, id: int) -> list[int]:
        """The nodes that read any output of the node, each once, in a fixed order."""
        edges = self._edges[id]
        return sorted(edges) if len(edges) > 1 else list(edges)

    def since(self, first: int) -> Iterator[Node]:
        """The nodes with ids from ``first`` on, in creation order."""
        return (self.node(id) for id in range(first, self._next) if id in self._nodes)

    @property
    def next_id(self) -> int:
        """The id that the next new node gets: a mark for ``since``."""
        return self._next

    def rewind(self, first: int) -> None:
        """Let new nodes have ids from ``first`` on again, from where on there is no node."""
        self._next = first

    def is_used(self, id: int) -> bool:
        """Whether the node is there for anything: another node reads it, the caller does as an output, or it does more
        than give results."""
        if self._edges[id]:
            return True
        node = self.node(id)
        return self._is_read(node) or self.has_effects(node)

    def _is_read(self, node: Node) -> bool:
        return bool(self._edges[node.id]) or any(map(self.outputs.__contains__, node.outputs))

    def has_effects(self, node: Node) -> bool:
        """Whether a node, in its bodies or as a call of a local function too, does more than give results."""
        return custom_ops.any_effects() and _has_effects(node, self.functions)

    def n_uses(self, value: Value) -> int:
        """How often the value is read, graph outputs included."""
        return len(self.users(value)) + self.outputs.count(value)

    def constant_of(self, value: Value | None) -> Constant | None:
        """The constant that the value is, or None."""
        if value is None:
            return None
        node = self.node(value.node)
        constant = node.attrs.get("value") if node.op == CONSTANT else None
        return constant if isinstance(constant, Constant) else None

    def order(self) -> list[Node]:
        """Topological order, by creation where the edges leave a choice. ValueError on a cycle.

        A constant counts as created with its first reader: a new one does not move the nodes that read it.
        """
        if self._order is None or self._gone:
            self._order = [id for id in self._order if id in self._nodes] if self._order else self._sorted()
            self._gone = set()
        return [self._nodes[id]["node"] for id in self._order]

    def _sorted(self) -> list[int]:
        if self._is_by_age():
            return sorted(self._nodes)
        waiting = {id: sum(v is not None for v in data["node"].inputs) for id, data in self._nodes.items()}
        ready = [(self._age(n), n) for n, degree in waiting.items() if degree == 0]
        heapq.heapify(ready)
        ordered: list[int] = []
        while ready:
            _, id = heapq.heappop(ready)
            ordered.append(id)
            for user, edges in self._edges[id].items():
                waiting[user] -= len(edges)
                if waiting[user] == 0:
                    heapq.heappush(ready, (user, user))
        if len(ordered) != len(waiting):
            stuck = min(n for n, degree in waiting.items() if degree > 0)
            raise ValueError(f"the graph has a cycle through node {stuck} ({self.node(stuck).op})")
        return ordered

    def _is_by_age(self) -> bool:
        """Whether every node was made after those that it reads."""
        return all(source < id for id, sources in self._sources.items() for source in sources)

    def _age(self, id: int) -> int:
        return min(id, *self._edges[id]) if self._edges[id] and self.node(id).op == CONSTANT else id

    def copy(self) -> Graph:
        """A graph of its own with the same ids. Bodies are shared, since a body inside an attribute is never edited;
        nodes and edges are until one of the two graphs is."""
        twin = Graph(
            self.name,
            self.header,
            dict(self.functions),
            list(self.inputs),
            list(self.outputs),
            list(self.output_names),
            dict(self.names),
            dict(self.types),
            self.origin,
        )
        self._holders[0] += 1
        twin._hold(self._nodes, self._edges, self._sources, self._holders)
        twin._next, twin._gone = self._next, set(self._gone)
        twin.version, twin.inferred = self.version, self.inferred
        twin._order = None if self._order is None else list(self._order)
        return twin

    # -- editing

    def add(
        self,
        op: str,
        inputs: tuple[Value | None, ...] = (),
        attrs: Attrs = NO_ATTRS,
        n_outputs: int = 1,
        *,
        captures: int = 0,
        origin: Origin = NOWHERE,
    ) -> Node:
        """Make a node. Its inputs must exist already."""
        self._own()
        node = Node(self._next, op, trimmed(op, inputs, captures), attrs, n_outputs, captures, origin)
        self._next += 1
        self._nodes[node.id], self._edges[node.id], self._sources[node.id] = {"node": node}, {}, {}
        if node.id in self._gone:
            self._order = None
        elif self._order is not None:  # the youngest comes last
            self._order.append(node.id)
        self._link(node)
        return node

    def add_input(
        self, name: str, type: Type | None = None, attrs: Attrs = NO_ATTRS, origin: Origin = NOWHERE
    ) -> Value:
        """Make a graph input. A default value, where it may be overridden, is its attribute ``default``."""
        value = Value(self.add(INPUT, (), attrs, origin=origin).id)
        self.inputs.append(value)
        self.names[value] = name
        if type is not None:
            self.types[value] = type
        return value

    def add_constant(self, constant: Constant, name: str = "", origin: Origin = NOWHERE) -> Value:
        """Make a constant."""
        value = Value(self.add(CONSTANT, (), Attrs(value=constant), origin=origin).id)
        if name:
            self.names[value] = name
        return value

    def add_output(self, name: str, value: Value | None) -> None:
        """Append an output; None stands for one that a function body leaves out."""
        self.outputs.append(value)
        self.output_names.append(name)

    def update(self, id: int, **changes: object) -> Node:
        """Put a changed node in the place of an old one: same id, other op, inputs or attributes."""
        self._own()
        old = self._nodes[id]["node"]
        if self.changed is not None:
            self.changed.setdefault(id, old)
        new = old.with_(**changes)
        if new.inputs != old.inputs:
            trim = trimmed(new.op, new.inputs, new.captures)
            new = new if trim == new.inputs else new.with_(inputs=trim)
            self._order = None
            self._unlink(old)
            self._link(new)
        self._nodes[id]["node"] = new
        return new

    def replace(self, old: Value, new: Value) -> None:
        """Let every user of ``old``, graph outputs included, read ``new`` instead."""
        for user in sorted({user for user, _ in self.users(old)}):
            node = self.node(user)
            self.update(user, inputs=tuple(new if v == old else v for v in node.inputs))
        self.outputs = [new if v == old else v for v in self.outputs]

    def remove(self, id: int) -> None:
        """Delete a node that nobody reads. ValueError where somebody does."""
        node = self.node(id)
        if self._is_read(node):
            raise ValueError(f"node {id} ({node.op}) is still used")
        if self.changed is not None:
            self.changed.setdefault(id, node)
        self._own()
        self._leave_order(node)
        for source in self._sources.pop(id):
            del self._edges[source][id]
        del self._nodes[id], self._edges[id]
        self.inputs = [v for v in self.inputs if v.node != id] if node.op == INPUT else self.inputs
        for value in node.outputs:
            self.names.pop(value, None)
            self.types.pop(value, None)

    def _leave_order(self, node: Node) -> None:
        """Nobody reads the node, so that the others stay in their order, but for what is made for its first reader."""
        if self._order is None or any(v is not None and v.node > node.id for v in node.inputs):
            self._order = None
        elif self._order[-1] == node.id:
            self._order.pop()
        else:
            self._gone.add(node.id)

    def _link(self, node: Node) -> None:
        for index, value in enumerate(node.inputs):
            if value is None:
                continue
            readers = self._edges.get(value.node)
            if readers is None:
                raise ValueError(f"input {index} of {node.op} reads node {value.node}, which does not exist")
            edges = readers.get(node.id)
            if edges is None:  # one dictionary for both directions, as networkx has it
                edges = readers[node.id] = self._sources[node.id][value.node] = {}
            edges[index] = {"port": value.port}

    def _unlink(self, node: Node) -> None:
        for source in self._sources[node.id]:
            del self._edges[source][node.id]
        self._sources[node.id].clear()

    # -- comparing

    def key(self) -> bytes:
        """A hash of the graph's structure: equal for graphs that differ only in node ids, order and inner names."""
        from graphopt.ir.structure import structural_hash

        return structural_hash(self)


def _has_effects(node: Node, functions: Mapping[tuple[str, str], Function]) -> bool:
    callee = functions.get((node.op, node.origin.overload))
    within = [*node.bodies.values(), *([] if callee is None else [callee.body])]
    return custom_ops.has_effects(node.op) or any(_has_effects(n, functions) for body in within for n in body.nodes())
