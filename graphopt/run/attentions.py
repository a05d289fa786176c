"""Attentions of a result: how many are one op, and what stood in the way of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from graphopt.ir.facts import Fact
from graphopt.ir.graph import Graph, Node, Value
from graphopt.rewrite.extract.cost import ATTENTIONS
from graphopt.rewrite.match.build import Refused, replacements
from graphopt.rewrite.match.matcher import Matcher, root_ops
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.rule import Rule, calls
from graphopt.target import ops

BETWEEN = ops(
    "Add Sub Mul Div Where Cast CastLike Clip Tanh Min Max Reshape Transpose Squeeze Unsqueeze Dropout Identity IsNaN"
)
"""Ops between the products of an attention and its softmax: scales, masks, caps, guards, and other views of heads."""
PRODUCTS = frozenset(("MatMul", "com.microsoft::FusedMatMul", "Einsum"))
LAST = 1 << 20
"""How far a match came of which only the right side does not fit."""
FAR = 8
"""Nodes between a product and the softmax."""
CHEAPER = "costs less as products"
SHARED = "heads share values, which products read without repeating them"


@dataclass(frozen=True, slots=True)
class Attentions:
    """The attentions of a graph: how many are one op, and for the others why they are not, and how many are so.

    >>> from graphopt.run.attentions import Attentions
    >>> Attentions(12, (("heads 24 and 96 differ", 2),)).told
    '12 of 14 are one op; 2 not: heads 24 and 96 differ'
    """

    fused: int
    left: tuple[tuple[str, int], ...] = ()

    @property
    def told(self) -> str:
        """A line of text; empty where there are none."""
        total = self.fused + sum(count for _, count in self.left)
        parts = [f"{self.fused} of {total} are one op" if total else ""]
        return "; ".join(filter(None, [*parts, *(f"{count} not: {why}" for why, count in self.left)]))


def attentions(graph: Graph, facts: Mapping[Value, Fact], rules: Iterable[Rule]) -> Attentions:
    """The attentions of a graph outside of its bodies, when these were the rules; none where no rule makes one."""
    made = [rule for rule in rules if any(c.op in ATTENTIONS for side in rule.rhs for c in calls(side))]
    making = [rule for rule in made if (root_ops(rule) or frozenset()) & PRODUCTS]
    fused = sum(node.op in ATTENTIONS for node in graph.nodes())
    if not making:
        return Attentions(fused)
    left = [node for node in graph.order() if node.op in PRODUCTS and _attends(graph, node)]
    space = Workspace(graph.copy(), facts) if left else None
    reasons = Counter(_reason(making, space, node) for node in left if space is not None)
    return Attentions(fused, tuple(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))))


def _attends(graph: Graph, node: Node) -> bool:
    """Whether a product weighs values by a softmax of another product."""
    return any(
        inner.op in PRODUCTS
        for softmax in _behind(graph, node.inputs[:1], frozenset(("Softmax",)))
        for inner in _behind(graph, softmax.inputs[:1], PRODUCTS)
    )


def _behind(graph: Graph, values: Iterable[Value | None], wanted: frozenset[str]) -> Iterator[Node]:
    """The nodes of some ops from which values come, with nothing between but scales, masks and views."""
    waiting, seen = [v for v in values if v is not None], set[int]()
    while waiting and len(seen) < FAR:
        node = graph.node(waiting.pop(0).node)
        if node.id in seen:
            continue
        seen.add(node.id)
        if node.op in wanted:
            yield node
        elif node.op in BETWEEN:
            waiting += [v for v in node.inputs if v is not None]


def _reason(rules: Iterable[Rule], space: Workspace, node: Node) -> str:
    """Why a product is not made an attention: what the rule that came furthest says."""
    for softmax in _behind(space.graph, node.inputs[:1], frozenset(("Softmax",))):
        weights, values = (space.fact(v).shape for v in (softmax.outputs[0], node.inputs[1]) if v is not None)
        if weights and values and len(weights) == len(values) == 4 and weights[1] != values[1]:
            return SHARED
    misses: list[tuple[int, str]] = []
    for rule in rules:
        matcher = Matcher(rule, space, reasons=[])
        for match in matcher.run(node):
            first = space.graph.next_id
            try:
                replacements(rule, match.bindings, match.roots, space)
                return CHEAPER
            except Refused as refused:
                misses.append((LAST, str(refused)))
            finally:
                space.undo(first)
        misses += matcher.reasons or ()
    return max(misses, key=lambda miss: miss[0])[1] if misses else "no rule knows its form"
