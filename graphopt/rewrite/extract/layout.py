"""Layout policy of a runtime: which ops compute in its blocked layout, which stay in it, what a convolution takes
along. Apart from the implementations, for it is about one target's layout.

The policy is a function of the op, the types of its operands and the layout of its inputs, as the
target's ``Layout`` describes it. A value may be *had* in the plain layout or in the blocked one, and
it is *made* in one of them; some ops enter the blocked layout by themselves, most only stay in it
where their inputs were made in it. An *anchor* is a convolution together with what the runtime folds
into it: scales and shifts by channel into its weights, a sum and an activation into its last loop.
"""

from __future__ import annotations

from enum import IntEnum

from graphopt.frozen import dataclass
from graphopt.ir.facts import Fact
from graphopt.ir.graph import INPUT
from graphopt.rewrite.egraph.egraph_snapshot import ENode
from graphopt.rewrite.extract.cost import Cost, element_price
from graphopt.rewrite.extract.fusions import Parts
from graphopt.rewrite.extract.terms import Terms
from graphopt.target import Layout

CONVOLUTIONS = ("Conv", "com.microsoft::FusedConv")
"""Ops that are convolutions; the second has its activation, and a tensor that it adds, along already."""


FOLDING = 0.1
"""The part of a call by which what a runtime folds by itself is dearer, so that what is folded already is preferred."""


class LayoutState(IntEnum):
    """In what form a class is wanted, or made."""

    PLAIN = 0
    """Had in the plain layout."""
    BLOCKED = 1
    """Had in the blocked layout."""
    MADE_PLAIN = 2
    """Made in the plain layout."""
    MADE_BLOCKED = 3
    """Made in the blocked layout."""


Needs = tuple[tuple[int, LayoutState], ...]
"""Classes, and the states in which they are wanted."""


@dataclass(frozen=True, slots=True)
class ImplementationStep:
    """What a runtime does at once: the e-nodes of these classes, at a cost, called by its ops."""

    label: str
    cost: Cost
    parts: Parts = ()


@dataclass(frozen=True, slots=True)
class Implementation:
    """A step that makes a class in one layout from others in given states."""

    makes: LayoutState
    needs: Needs
    step: ImplementationStep


@dataclass(frozen=True, slots=True)
class Anchor:
    """A convolution with what was folded into it so far, and what more it can take."""

    way: Implementation
    folds: bool
    """Scales and shifts by channel still go into its weights."""
    sums: bool
    """It can add another tensor to what it writes."""
    activates: bool
    """It can apply an activation to what it writes."""
    grown: bool = False
    """Something was folded into it."""


class LayoutPolicy:
    """Answers for the e-nodes of a saturated e-graph."""

    def __init__(self, layout: Layout, terms: Terms) -> None:
        self.layout = layout
        self.terms = terms
        self._rules: dict[tuple[int, int], tuple[Needs | None, tuple[int, ...] | None]] = {}

    def fact(self, c: int | None) -> Fact | None:
        """What is known of a class."""
        return None if c is None else self.terms.saturated.facts[c]

    def channels(self, c: int | None) -> int | None:
        """The channels of a class that is an image (float32, rank 4, a known number of channels), or None."""
        fact = self.fact(c)
        if fact is None or fact.dtype != "float32" or fact.shape is None or len(fact.shape) != 4:
            return None
        channels = fact.shape[1]
        return channels if isinstance(channels, int) else None

    def rules(self, c: int, node: ENode) -> tuple[Needs | None, tuple[int, ...] | None]:
        """What ``enters`` says, and ``stays`` where that is None."""
        rules = self._rules.get((c, node.id))
        if rules is None:
            enters = self.enters(c, node)
            rules = self._rules[c, node.id] = enters, self.stays(c, node) if enters is None else None
        return rules

    def enters(self, c: int, node: ENode) -> Needs | None:
        """What an op needs that computes in the blocked layout whatever the layout of its inputs; None for others."""
        channels = self.channels(node.children[0] if node.children else None)
        if channels is None or self.channels(c) is None:
            return None
        x = node.children[0]
        assert x is not None
        if node.op in self.layout.pools:
            fits = channels % self.layout.block == 0 and node.n_outputs == 1
            return ((x, LayoutState.BLOCKED),) if fits else None
        if node.op in CONVOLUTIONS:
            state = self._reads(node, channels)
            added = node.children[3] if len(node.children) > 3 else None
            rest = () if added is None else ((added, LayoutState.BLOCKED),)
            return None if state is None else ((x, state), *rest)
        return None

    def _reads(self, node: ENode, channels: int) -> LayoutState | None:
        """In which layout a convolution that computes in the blocked one reads its input; None where it does not."""
        held = node.children[1]
        weights = self.fact(held)
        if weights is None or weights.shape is None or held not in self.terms.constant_bytes:
            return None
        if self.terms.constants[held].op == INPUT:  # a body sees what it captures, but the runtime does not look there
            return None
        out, deep = weights.shape[:2]
        if not isinstance(out, int) or not isinstance(deep, int) or deep == 0:
            return None
        group = channels // deep
        block, multiple = self.layout.block, self.layout.multiple
        if group == 1:
            if channels < block:
                return LayoutState.PLAIN
            return LayoutState.BLOCKED if channels % multiple == 0 else None
        if deep == 1 and out == group:
            return LayoutState.BLOCKED if channels % multiple == 0 else None
        return LayoutState.BLOCKED if deep % block == 0 and out // group % block == 0 else None

    def stays(self, c: int, node: ENode) -> tuple[int, ...] | None:
        """The classes that must have been made blocked for an op to stay in that layout; None where it leaves it."""
        if self.channels(c) is None or not node.children or node.n_outputs > 1:
            return None
        inputs = tuple(n for n in node.children if n is not None)
        images = tuple(n for n in inputs if n not in self.terms.constant_bytes)
        layout = self.layout
        if node.op in layout.keeps or node.op.partition("@")[0] in ("Identity", "Dropout"):
            return images[:1] or None
        if self.scales(c, node) is not None and node.op != "Add":
            return images
        shape = self._shape(c)
        if node.op in layout.joins and len(images) == len(inputs) and all(self._shape(n) == shape for n in inputs):
            return tuple(dict.fromkeys(inputs))
        if node.op == "Concat" and node.attrs.get("axis") in (1, -3):
            even = all((self.channels(n) or 1) % layout.block == 0 for n in inputs)
            return tuple(dict.fromkeys(inputs)) if even and len(images) == len(inputs) else None
        if node.op in ("Resize", "Upsample") and self._enlarges(c, node):
            return images[:1]
        return None

    def scales(self, c: int, node: ENode) -> int | None:
        """The class that an op scales or shifts channel by channel by constants; None where it does something else."""
        constant = self.terms.constant_bytes
        if node.op == "BatchNormalization":
            held = all(n in constant for n in node.children[1:] if n is not None)
            return node.children[0] if held and node.n_outputs == 1 else None
        if node.op not in ("Mul", "Add") or len(node.children) != 2:
            return None
        for x, by in (node.children, node.children[::-1]):
            if x is not None and x not in constant and by in constant and self._by_channel(c, by):
                return x
        return None

    def extend(self, anchor: Anchor, x: int, c: int, node: ENode, parts: Parts) -> Anchor | None:
        """The anchor that makes ``x``, with an op of class ``c`` folded into it that reads ``x``; None where it takes
        no such op. ``parts`` are the e-nodes that the op is."""
        constant = self.terms.constant_bytes
        rest = [n for n in node.children if n is not None and n != x and n not in constant]
        if anchor.folds and self._folds(c, node) == x:
            return self._with(anchor, parts, "", self._folding, folds=True)
        blocked = anchor.way.makes == LayoutState.MADE_BLOCKED
        if anchor.sums and node.op in ("Add", "Sum") and len(node.children) == 2 and len(rest) == 1:
            if self.channels(c) is None or self._shape(rest[0]) != self._shape(x):
                return None
            need = (rest[0], LayoutState.MADE_BLOCKED if blocked else LayoutState.PLAIN)
            seconds = self.terms.cost_model.moving(self.terms.cost_model.nbytes(self.fact(rest[0])))
            return self._with(anchor, parts, "+Add", seconds, need, activates=True)
        if anchor.activates and node.op in self.layout.epilogues and node.children[0] == x and not rest:
            cost_model = self.terms.cost_model
            price = self.layout.epilogues[node.op] if blocked else element_price(cost_model.target.prices, node.op)
            seconds = price * cost_model.elements(self.fact(c))
            return self._with(anchor, parts, f"+{node.op}", seconds + self._folding)
        return None

    @property
    def _folding(self) -> float:
        return FOLDING * self.terms.cost_model.target.prices.node

    def _with(
        self,
        anchor: Anchor,
        parts: Parts,
        label: str,
        seconds: float,
        need: tuple[int, LayoutState] | None = None,
        folds: bool = False,
        activates: bool = False,
    ) -> Anchor:
        way, step = anchor.way, anchor.way.step
        needs = way.needs if need is None else (*way.needs, need)
        larger = ImplementationStep(step.label + label, step.cost + Cost(seconds), (*parts, *step.parts))
        return Anchor(Implementation(way.makes, needs, larger), folds, folds, folds or activates, True)

    def _folds(self, c: int, node: ENode) -> int | None:
        """The class whose convolution takes an op into its weights, or None."""
        constant = self.terms.constant_bytes
        if node.op == "Mul" and len(node.children) == 2:
            for x, by in (node.children, node.children[::-1]):
                if x is not None and x not in constant and by in constant and self._shape(by) == ():
                    return x
        return self.scales(c, node)

    def _by_channel(self, c: int, by: int | None) -> bool:
        fact, whole = self.fact(by), self._shape(c)
        if fact is None or fact.shape is None or whole is None or len(whole) < 3:
            return False
        wanted = (whole[1], *(1,) * (len(whole) - 2))
        return fact.shape in (wanted, (1, *wanted))

    def _shape(self, c: int | None) -> tuple[object, ...] | None:
        fact = self.fact(c)
        return None if fact is None else fact.shape

    def _enlarges(self, c: int, node: ENode) -> bool:
        """Whether a resize is one that the layout has: by whole numbers, linear, or nearest from the upper left."""
        x = node.children[0]
        before, after = self._shape(x) if x is not None else None, self._shape(c)
        if before is None or after is None or before[:2] != after[:2]:
            return False
        sizes = list(zip(before[2:], after[2:], strict=True))
        if not all(isinstance(m, int) and isinstance(n, int) and m and n % m == 0 for m, n in sizes):
            return False
        mode = node.attrs.get("mode", "nearest")
        if mode == "linear":
            return True
        corner = node.attrs.get("coordinate_transformation_mode", "half_pixel") == "asymmetric"
        return mode == "nearest" and corner and node.attrs.get("nearest_mode", "round_prefer_floor") == "floor"
