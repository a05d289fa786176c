"""Attentions of a result: how many are one op, and what stood in the way of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from graphopt.frozen import dataclass
from graphopt.ir.graph import Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.ops import KINDS, QUANTIZING
from graphopt.rewrite.egraph.egraph_snapshot import Saturated
from graphopt.rewrite.extract.cost import ATTENTIONS, VIEWS
from graphopt.rewrite.match.build import Refused, replacements
from graphopt.rewrite.match.matcher import GUARD, Matcher, root_ops
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.rule import Rule, calls

BETWEEN = KINDS["elementwise"] | VIEWS | {"Transpose"}
"""Ops between the products of an attention and its softmax: scales, masks, caps, guards, and other views of heads."""
PRODUCTS = frozenset(("MatMul", "com.microsoft::FusedMatMul", "Einsum"))
FAR = 64
"""Nodes that are looked at between a product and the softmax, masks among them."""
CHEAPER = "costs less as products"
QUANTIZED = "quantized inside"
"""Numbers that are rounded between the products of an attention are others without that: no rewrite takes it away."""


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


def explored_reason(saturated: Saturated) -> str:
    """Reason why attentions that an exploration came to, by whatever rewrites, are none of the result: their price, or
    the opset that they wait for; empty where it came to none."""
    if any(node.op in ATTENTIONS for nodes in saturated.classes.values() for node in nodes):
        return CHEAPER
    waiting = (p.why for p in saturated.waiting if any(call.op in ATTENTIONS for call in p.after))
    return next(waiting, "")


def attentions(before: Graph, after: Graph, rules: Iterable[Rule], explored: str) -> Attentions:
    """The attentions of a result outside of its bodies, when these were the rules, of those that were written out in
    the graph that was explored. None are missed where no rule makes one.

    ``explored`` is the reason of explorations that came to an attention: then a pattern that does not fit the graph as
    it was is none, for other rewrites lead to it.
    """
    fused = _count(after)
    making = [rule for rule in rules if _makes(rule) and (root_ops(rule) or frozenset()) & PRODUCTS]
    written = [node for node in before.order() if node.op in PRODUCTS and _attends(before, node)] if making else []
    left = len(written) - (fused - _count(before))
    if left <= 0:
        return Attentions(fused)
    space = Workspace(before.copy(), infer(before))
    reasons = Counter(_reason(making, space, node, explored) for node in written)
    fitting = reasons.pop(CHEAPER, 0)
    told = [(why, min(count, left)) for why, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))]
    missed = [(why, count) for why, count in told if count] if sum(c for _, c in told) <= left else told[:1]
    if (rest := min(fitting, left - sum(count for _, count in missed))) > 0:
        missed.append((CHEAPER, rest))
    return Attentions(fused, tuple(missed))


def _count(graph: Graph) -> int:
    return sum(node.op in ATTENTIONS for node in graph.nodes())


def _makes(rule: Rule) -> bool:
    return any(call.op in ATTENTIONS for side in rule.rhs for call in calls(side))


def _attends(graph: Graph, node: Node, between: frozenset[str] = BETWEEN | QUANTIZING) -> bool:
    """Whether a product weighs values by a softmax of another product."""
    return any(
        inner.op in PRODUCTS
        for softmax in _behind(graph, node.inputs[:1], frozenset(("Softmax",)), between)
        for inner in _behind(graph, softmax.inputs[:1], PRODUCTS, between)
    )


def _behind(
    graph: Graph, values: Iterable[Value | None], wanted: frozenset[str], between: frozenset[str]
) -> Iterator[Node]:
    """The nodes of some ops from which values come, with nothing between but scales, masks, views, and such ops."""
    waiting, seen = [v for v in values if v is not None], set[int]()
    while waiting and len(seen) < FAR:
        node = graph.node(waiting.pop(0).node)
        if node.id in seen:
            continue
        seen.add(node.id)
        if node.op in wanted:
            yield node
        elif node.op in between:
            waiting += [v for v in node.inputs if v is not None]


def _reason(rules: Iterable[Rule], space: Workspace, node: Node, explored: str) -> str:
    """Why a product is not made an attention: what the rule that came furthest says."""
    if not _attends(space.graph, node, BETWEEN):
        return QUANTIZED
    misses: list[tuple[int, str]] = []
    for rule in rules:
        matcher = Matcher(rule, space, reasons=[])
        for match in matcher.run(node):
            first = space.graph.next_id
            try:
                replacements(rule, match.bindings, match.roots, space)
                return CHEAPER
            except Refused as refused:
                misses.append((GUARD, str(refused)))
            finally:
                space.undo(first)
        misses += matcher.reasons or ()
    depth, why = max(misses, key=lambda miss: miss[0], default=(0, "no rule knows its form"))
    if depth < GUARD and explored:
        return explored
    operand, _, what = why.partition(" is ")
    return f"an operand is {what}" if operand in set(space.graph.names.values()) else why  # one reason at many places
