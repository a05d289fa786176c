"""Kept states: inputs of a graph that a program keeps, each with the output that takes its place in the next call.

A state of one shape is handed over, or updated where it lies (``TensorScatter``). One that grows
(``present = Concat(past, new)``) lies in memory with room behind it: ``new`` is written behind the past, and what reads
the past or the present reads that memory, with strides by its capacity. Nothing of the past is copied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TypeAlias

from graphopt.errors import UsageError, nearest_or_some
from graphopt.frozen import dataclass
from graphopt.ir.caches import PASTS, appended
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.types import Size, TensorType, symbol, symbols
from graphopt.lowering.lower.grouped_queries import GROUPED, SCORES, with_heads, without_heads
from graphopt.lowering.operators.indexing import IN_PLACE

Pairs: TypeAlias = "Mapping[str, str] | Iterable[tuple[str, str]]"
"""Inputs with the outputs that follow them, by name."""

RECURRENT = {"LSTM": ((5, 1), (6, 2)), "GRU": ((5, 1),), "RNN": ((5, 1),)}
"""Of ops with states of one shape, which input is followed by which output."""


@dataclass(frozen=True, slots=True)
class KeptState:
    """A state: the input ``past`` and the output ``present``, of one shape, or grown along an ``axis``.

    One of one shape that is updated ``in_place`` lies where it lay: nobody else reads the past.
    """

    past: Value
    present: Value
    axis: int | None = None
    tail: Value | None = None
    """What is new of one that grows: what is written behind the past."""
    capacity: str = ""
    """The symbol of how many rows the memory of one that grows has room for."""
    in_place: bool = False

    @property
    def windows(self) -> tuple[Value, ...]:
        """The values that lie in the memory of one that grows."""
        return () if self.tail is None else (self.past, self.tail, self.present)

    def memory(self, shape: Sequence[Size]) -> tuple[Size, ...]:
        """The shape of the memory in which a value of this shape lies."""
        room = symbol(self.capacity)
        return tuple(room if axis == self.axis else size for axis, size in enumerate(shape))

    def strides(self, shape: Sequence[Size]) -> tuple[Size, ...]:
        """The strides in elements of a value of this shape in that memory."""
        strides: list[Size] = [1]
        for size in reversed(self.memory(shape)[1:]):
            strides.insert(0, strides[0] * size)
        return tuple(strides)


SCATTERS = frozenset({"ScatterElements", "ScatterND", "TensorScatter"})
"""Ops that give their first input with some elements exchanged."""


def pairs_of(graph: Graph) -> dict[str, str]:
    """The inputs that outputs are seen to follow, by name: what an output appends to, and the states of recurrent ops.
    Of several outputs that append to one input, that whose name ends most like the input's."""
    found: dict[str, list[str]] = {}
    for past, present in _seen(graph):
        found.setdefault(graph.names[past], []).extend(
            name for name, value in zip(graph.output_names, graph.outputs, strict=True) if value == present
        )
    taken: dict[str, str] = {}
    for name, outputs in found.items():
        left = [output for output in outputs if output not in taken.values()]
        if left:
            taken[name] = max(left, key=lambda output: _common_end(output, name))
    return taken


def _common_end(one: str, other: str) -> int:
    """How many characters two names have in common at their ends."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one[::-1], other[::-1], strict=False)))


def _seen(graph: Graph) -> Iterator[tuple[Value, Value]]:
    inputs = set(graph.inputs)
    appending = {node.outputs[0]: past for past, node in appended(graph)}
    for output in dict.fromkeys(v for v in graph.outputs if v is not None):
        node = graph.producer(output)
        if node.op == "TensorScatter" and node.inputs[0] in inputs:
            assert node.inputs[0] is not None
            yield node.inputs[0], output
        if output in appending:
            yield appending[output], output
        for k, port in RECURRENT.get(node.op, ()):
            state = node.inputs[k] if k < len(node.inputs) else None
            if port == output.port and state is not None and state in inputs:
                yield state, output


def kept(graph: Graph, pairs: Pairs | None = None) -> tuple[Graph, tuple[KeptState, ...]]:
    """The graph with what is appended to states as values of its own, and its states: those of the pairs, or those that
    are seen.

    Raises UsageError for names that are none, for pairs of which one is in another, and where an output has neither the
    shape of its input nor appends to it.
    """
    graph = with_pasts_apart(graph)
    pairs = pairs_of(graph) if pairs is None else pairs
    named = list(pairs.items()) if isinstance(pairs, Mapping) else [(past, present) for past, present in pairs]
    if not named:
        raise UsageError("no output of this model is seen to follow an input: name them, as in {'past': 'present'}")
    inputs = {graph.names[v]: v for v in graph.inputs}
    outputs = {name: v for name, v in zip(graph.output_names, graph.outputs, strict=True) if v is not None}
    for kind, names, known in (("input", [p for p, _ in named], inputs), ("output", [q for _, q in named], outputs)):
        for name in names:
            if name not in known:
                raise UsageError(f"there is no {kind} {name!r}{nearest_or_some(name, sorted(known))}")
            if names.count(name) > 1:
                raise UsageError(f"the {kind} {name!r} is in more than one pair: each state has one of its own")
    graph = graph.copy()
    outputs = _with_copies(graph, dict(named), inputs)
    states = tuple(_state(graph, inputs[past], outputs[present], (past, present)) for past, present in named)
    return graph, states


def _with_copies(graph: Graph, pairs: Mapping[str, str], inputs: Mapping[str, Value]) -> dict[str, Value]:
    """The outputs by name, those that are a state, too, as copies of it: later calls write over it."""
    lying = {inputs[past] for past in pairs}
    presents = set(pairs.values())
    outputs: dict[str, Value] = {}
    # of outputs that are one value, that of the state stays
    for k in sorted(range(len(graph.outputs)), key=lambda k: graph.output_names[k] not in presents):
        name, value = graph.output_names[k], graph.outputs[k]
        if value is None:
            continue
        if value in lying:
            value = graph.outputs[k] = graph.add("Identity", (value,)).outputs[0]
        elif name in presents:
            lying.add(value)
        outputs[name] = value
    return outputs


def with_pasts_apart(graph: Graph) -> Graph:
    """The graph with attention behind a past as attention to keys and values that were appended to it before."""
    inputs: set[Value | None] = {*graph.inputs}
    found = [n for n in graph.order() if n.op in PASTS and _keeps(graph, n, inputs)]
    if not found:
        return graph
    facts = infer(graph)
    graph = graph.copy()
    for node in found:
        _apart(graph, node, facts)
    return graph


def _keeps(graph: Graph, node: Node, inputs: Collection[Value | None]) -> bool:
    """Whether attention appends to inputs of the graph what it gives, and its scores are not asked for."""
    pasts = PASTS[node.op]
    return (
        len(pasts) == 2  # apart
        and len(node.inputs) > pasts[1]
        and all(node.inputs[k] in inputs for k in pasts)
        and not (node.n_outputs > SCORES and _is_read(graph, Value(node.id, SCORES)))
    )


def _is_read(graph: Graph, value: Value) -> bool:
    return graph.is_output(value) or bool(graph.users(value))


def _apart(graph: Graph, node: Node, facts: Mapping[Value, Fact]) -> None:
    parts = [v for v in node.inputs[:3] if v is not None]
    ranks = {facts[v].rank for v in parts}
    if len(parts) < 3 or ranks not in ({3}, {4}):
        return

    def split(x: Value, name: str) -> Value:
        heads = node.attrs.get(name)
        return with_heads(graph, x, heads) if ranks == {3} and isinstance(heads, int) else x

    def behind(*new: Value) -> list[Value]:
        pasts = (node.inputs[k] for k in PASTS[node.op])
        return [graph.add("Concat", (past, x), Attrs(axis=2)).outputs[0] for past, x in zip(pasts, new, strict=True)]

    if node.op == "Attention":
        q, *new = (split(x, f"{kind}_num_heads") for kind, x in zip(("q", "kv", "kv"), parts, strict=True))
        all_tokens = behind(*new)
        # queries stand behind the past: where places count, it is told by how many keys there are
        count = graph.add("Shape", (all_tokens[0],), Attrs(start=2, end=3)).outputs[0]
        batch = graph.add("Shape", (q,), Attrs(start=0, end=1)).outputs[0]
        lengths = graph.add("Expand", (count, batch)).outputs[0]
        attrs = node.attrs.with_(q_num_heads=None, kv_num_heads=None)
        y = graph.add("Attention", (q, *all_tokens, node.inputs[3], None, None, lengths), attrs).outputs[0]
        if ranks == {3}:
            y = without_heads(graph, y)
    else:  # keys and values with their heads apart are all that there are: queries stand at their end
        rest: list[Value | None] = [None if k in PASTS[node.op] else v for k, v in enumerate(node.inputs)][3:]
        is_grouped = node.op == GROUPED
        if not is_grouped and rest[0] is not None:
            if len({facts[v].shape and facts[v].shape[2] for v in parts}) != 1:  # type: ignore[index]
                return
            biases = graph.add("Split", (rest[0],), Attrs(axis=0, num_outputs=3), 3).outputs
            parts = [graph.add("Add", pair).outputs[0] for pair in zip(parts, biases, strict=True)]
            rest[0] = None
        all_tokens = behind(*(split(x, "kv_num_heads" if is_grouped else "num_heads") for x in parts[1:]))
        y = graph.add(node.op, (parts[0], *all_tokens, *rest), node.attrs).outputs[0]
    for port, value in enumerate((y, *all_tokens)):
        graph.replace(Value(node.id, port), value)
    graph.remove(node.id)


def _state(graph: Graph, past: Value, present: Value, names: tuple[str, str]) -> KeptState:
    node = graph.producer(present)
    facts = infer(graph)
    before, after = facts[past].type, facts[present].type
    both = f"input {names[0]!r} ({before}) and output {names[1]!r} ({after})"
    if not isinstance(before, TensorType) or not isinstance(after, TensorType) or before.dtype != after.dtype:
        raise UsageError(f"{both}: a state is a tensor, of one dtype")
    if before == after:
        is_alone = node.op in SCATTERS and node.inputs[0] == past and len(graph.users(past)) == 1
        if not is_alone or graph.is_output(past):
            return KeptState(past, present)
        graph.update(node.id, attrs=node.attrs.with_(**{IN_PLACE: 1}))
        return KeptState(past, present, in_place=True)
    if node.op != "Concat" or node.inputs[0] != past:
        raise UsageError(f"{both}: an output of the shape of its input is expected, or one that appends to it")
    if node.inputs.count(past) > 1:
        raise UsageError(f"{both}: what is appended is the past itself")
    axis = node.attrs["axis"]
    assert isinstance(axis, int)
    shape = facts[past].shape
    assert shape is not None
    axis %= len(shape)
    if symbols(shape[axis]) != {str(shape[axis])}:
        raise UsageError(f"{both}: an open size of its own is expected along axis {axis} of the input")
    rest = tuple(v for v in node.inputs[1:] if v is not None)
    joined = rest[0] if len(rest) == 1 else graph.add("Concat", rest, node.attrs).outputs[0]
    tail = graph.add("Identity", (joined,)).outputs[0]
    graph.update(node.id, inputs=(past, tail))
    return KeptState(past, present, axis, tail, f"capacity of {shape[axis]}")
