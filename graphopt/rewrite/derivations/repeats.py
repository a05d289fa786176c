"""Repeated blocks: finds a block that a graph repeats, one copy after the other, as the layers of a transformer are.

Copies are found as a period in the topological order: nodes one period apart apply one op to operands
of one type, which again are one period apart, the same node outside of the copies, or weights and
inputs of their own. A long chain of copies is then *shortened* to four, the first two and the last
two, which is enough to see everything that can happen within a copy, between two, and at both ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field

from graphopt.frozen import dataclass
from graphopt.ir.constants import Constant
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.functions import own_calls
from graphopt.ir.graph import CONSTANT, Graph, Node, Value

FEWEST = 6
"""Fewer copies than this are looked at one by one."""
KEPT = 4
"""Copies of a shortened chain."""
PERIODS = 8
"""So many distances between alike nodes are tried as the length of a copy."""


@dataclass(frozen=True)
class Repeats:
    """Copies of a block: for each the ids of its nodes, in corresponding order, and of what only it reads."""

    graph: Graph
    copies: tuple[tuple[int, ...], ...]
    leaves: tuple[Mapping[int, int], ...]
    """For each copy: the constant or input that stands where copy 1 has this one."""
    positions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """For each node of a copy: the number of the copy, and its position in it."""

    def copies_like(self, id: int) -> int:
        """For how many nodes of the graph one of the shortened graph stands."""
        at, _ = self.positions.get(id, (0, 0))
        return len(self.copies) - KEPT + 1 if at == 1 else 1

    def shortened(self) -> Graph:
        """The graph with all but the first two and the last two copies left out, and the outputs that those make."""
        first, last = 2, len(self.copies) - 2
        graph = self.graph.copy()
        back = {n: self.copies[1][i] for i, n in enumerate(self.copies[last - 1])}
        for id in self.copies[last]:
            inputs = graph.node(id).inputs
            graph.update(id, inputs=tuple(v and Value(back.get(v.node, v.node), v.port) for v in inputs))
        gone = {n for copy in self.copies[first:last] for n in copy}
        kept = [i for i, v in enumerate(graph.outputs) if v is None or v.node not in gone]
        graph.outputs, graph.output_names = [graph.outputs[i] for i in kept], [graph.output_names[i] for i in kept]
        for node in reversed(graph.order()):
            unread = node.op == CONSTANT and not graph.is_used(node.id)
            if node.id in gone or unread:
                graph.remove(node.id)
        return graph


def find_repeats(graph: Graph, facts: Mapping[Value, Fact]) -> Repeats | None:
    """The longest chain of at least ``FEWEST`` copies of one block, or None."""
    order = own_calls(graph)
    if len(order) < FEWEST * 2:
        return None
    finder = _Finder(graph, order, _labels(graph, order, facts))
    return max(
        filter(None, (finder.chain(p) for p in finder.periods())),
        key=lambda repeats: (len(repeats.copies) * len(repeats.copies[0]), -len(repeats.copies[0])),
        default=None,
    )


def _labels(graph: Graph, order: Sequence[Node], facts: Mapping[Value, Fact]) -> list[int]:
    """A number for each node, equal for nodes that apply one op to operands alike."""
    numbers: dict[Hashable, int] = {}
    outputs = set(graph.outputs)

    def operand(value: Value | None) -> Hashable:
        if value is None:
            return None
        constant = graph.constant_of(value)
        if constant is None:
            return str(facts.get(value, NOTHING).type)
        return constant if _is_parameter(constant) else (constant.dtype, constant.shape)

    labels: list[int] = []
    for node in order:
        described = tuple((str(facts.get(v, NOTHING).type), v in outputs) for v in node.outputs)
        label = node.op, node.attrs, node.captures, described, tuple(map(operand, node.inputs))
        labels.append(numbers.setdefault(label, len(numbers)))
    return labels


def _is_parameter(constant: Constant) -> bool:
    """Whether a constant says what is done, and is no weight: a single number, or integers."""
    return constant.size <= 1 or (constant.size <= 64 and constant.dtype == "int64")


class _Finder:
    def __init__(self, graph: Graph, order: Sequence[Node], labels: Sequence[int]) -> None:
        self.graph = graph
        self.order = order
        self.labels = labels
        self.position = {node.id: i for i, node in enumerate(order)}

    def periods(self) -> list[int]:
        """The most frequent distances between nodes alike."""
        counts = Counter(self.labels)
        last: dict[int, int] = {}
        gaps: Counter[int] = Counter()
        for i, label in enumerate(self.labels):
            if counts[label] >= FEWEST:
                if label in last:
                    gaps[i - last[label]] += i - last[label]
                last[label] = i
        return sorted(gap for gap, _ in gaps.most_common(PERIODS))

    def chain(self, period: int) -> Repeats | None:
        """The longest chain of copies of this many nodes."""
        best, start = (0, 0), 0
        n = len(self.order) - period
        for i in range(n + 1):
            if i == n or not self.alike(i, period):
                best = max(best, (i - start, start), key=lambda b: b[0])
                start = i + 1
        length, start = best
        count = length // period + 1
        if count < FEWEST or period < 2:
            return None
        copies = tuple(
            tuple(node.id for node in self.order[start + c * period : start + (c + 1) * period]) for c in range(count)
        )
        return self.checked(copies, start, period)

    def alike(self, i: int, period: int) -> bool:
        """Whether a node and the one a period later apply one op to operands that are a period apart, or shared."""
        if self.labels[i] != self.labels[i + period]:
            return False
        for u, v in zip(self.order[i].inputs, self.order[i + period].inputs, strict=True):
            if u == v:
                continue
            if u is None or v is None or u.port != v.port:
                return False
            near, far = self.position.get(u.node), self.position.get(v.node)
            if (near is None) != (far is None) or (near is not None and far is not None and far - near != period):
                return False
        return True

    def checked(self, copies: tuple[tuple[int, ...], ...], start: int, period: int) -> Repeats | None:
        """The copies with what each of them alone reads; None where one reads further back than the copy before it, or
        something behind reads one in the middle."""
        end = start + len(copies) * period
        positions = {id: (c, i) for c, copy in enumerate(copies) for i, id in enumerate(copy)}
        leaves: list[dict[int, int]] = []
        for c, copy in enumerate(copies):
            leaves_of_copy: dict[int, int] = {}
            for i, id in enumerate(copy):
                for like, value in zip(self.graph.node(copies[1][i]).inputs, self.graph.node(id).inputs, strict=True):
                    if value is None or like is None:
                        continue
                    at = self.position.get(value.node)
                    if at is None:
                        if leaves_of_copy.setdefault(like.node, value.node) != value.node:
                            return None
                    elif start <= at < start + (c - 1) * period or (c and at < start and value != like):
                        return None
            leaves.append(leaves_of_copy)
        for copy in copies[2:-2]:
            for id in copy:
                if any(self.position.get(r, end) >= end for r in self.graph.readers(id)):
                    return None
        return Repeats(self.graph, copies, tuple(leaves), positions)
