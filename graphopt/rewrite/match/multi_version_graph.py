"""Multi-version graph: equal values live side by side until one of each is chosen; explored rules are applied in it.

Rules are matched here by the directed matcher, one instance after the other, so that whatever the
e-graph found is looked at once more, guards included, before it becomes the result. A right side is
made beside its left side, and the two are known to be equal from then on; the nodes that are there
never change. In the end one value of each kind is kept and everything reads that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Node, Value, trimmed
from graphopt.rewrite.match.build import Refused, replacements
from graphopt.rewrite.match.journal import ValueSpelling
from graphopt.rewrite.match.matcher import Match, matches
from graphopt.rewrite.match.workspace import Workspace, sharper
from graphopt.rewrite.rule.rule import Rule

_CallKey = tuple[str, Attrs, int, tuple[Value | None, ...]]


@dataclass(frozen=True, slots=True)
class RuleApplication:
    """One application of a rule: its match, number ``way`` at its roots, what was made for them, and by nodes from
    which id on."""

    match: Match
    way: int
    values: tuple[Value, ...]
    first: int


class Alternatives:
    """Equal values of one workspace, and the ``Builder`` of right sides: what is there already is not made again."""

    def __init__(self, space: Workspace) -> None:
        self.space = space
        self.graph: Graph = space.graph
        self.opset = space.opset
        self.first = space.graph.next_id
        """Nodes from this id on were made here."""
        self._above: dict[Value, Value] = {}
        self._members: dict[Value, list[Value]] = {}
        self._calls: dict[_CallKey, int] = {}
        self._constants: dict[Constant, Value] = {}
        for node in space.graph.nodes():
            self._remember(node)

    def _remember(self, node: Node) -> None:
        constant = node.attrs.get("value") if node.op == CONSTANT else None
        if isinstance(constant, Constant):
            self._constants.setdefault(constant, Value(node.id))
        elif node.op != INPUT and not node.bodies and ops.is_pure(node.op, node.attrs):
            self._calls.setdefault(_call(node), node.id)

    # -- what is equal

    def find(self, value: Value) -> Value:
        """The value that stands for all that are equal to this one: the first of them."""
        while (above := self._above.get(value)) is not None:
            value = above
        return value

    def members(self, value: Value) -> list[Value]:
        """All values that are equal to this one."""
        name = self.find(value)
        return self._members.get(name, [name])

    def unite(self, a: Value, b: Value) -> None:
        """Two values are equal from now on, and whatever is known of either is known of both."""
        first, second = sorted((self.find(a), self.find(b)))
        if first == second:
            return
        both = sharper(self.space.fact(first), self.space.fact(second))
        members = self.members(first) + self.members(second)
        self._members.pop(second, None)
        self._above[second] = first
        self._members[first] = members
        for member in members:
            self.space.learn(member, both)

    def same(self, a: int, b: int) -> None:
        """Two nodes apply one op to equal operands: their outputs are equal. Raises Refused where they do not."""
        one, other = self.graph.node(a), self.graph.node(b)
        if (one.op, one.n_outputs) != (other.op, other.n_outputs) or not self._alike(one, other):
            raise Refused(f"{one.op} and {other.op} are not one op with the same attributes")
        if not self._are_equal(one.op, one.inputs, other.inputs):
            raise Refused(f"operands of {one.op} are not known to be equal")
        for left, right in zip(one.outputs, other.outputs, strict=True):
            self.unite(left, right)

    def _alike(self, one: Node, other: Node) -> bool:
        if one.op == CONSTANT:
            return one.attrs == other.attrs
        return ops.canonical(one.op, one.attrs) == ops.canonical(other.op, other.attrs) and ops.is_pure(
            one.op, one.attrs
        )

    def _are_equal(self, op: str, inputs: Sequence[Value | None], others: Sequence[Value | None]) -> bool:
        if len(inputs) != len(others):
            return False
        mine, theirs = ([None if v is None else self.find(v) for v in side] for side in (inputs, others))
        return mine == theirs or (
            ops.is_commutative(op) and None not in mine + theirs and _sorted(mine) == _sorted(theirs)
        )

    # -- left sides

    def respell(self, site: ValueSpelling) -> Value:
        """The value that a place means, made where it is spelled with other operands than any node has.

        Raises Refused where those are not known to be equal to its own.
        """
        if isinstance(site, Value):
            if site.node not in self.graph:
                raise Refused(f"node {site.node} is not there")
            return site
        value = self.respell(site.value)
        node = self.graph.node(value.node)
        inputs = tuple(None if p is None else self.respell(p) for p in site.inputs)
        if inputs == node.inputs:
            return value
        if node.bodies or not ops.is_pure(node.op, node.attrs) or not self._are_equal(node.op, node.inputs, inputs):
            raise Refused(f"operands of {node.op} are not known to be equal")
        copies = self.call(node.op, inputs, node.attrs, [self.space.fact(v) for v in node.outputs])
        for original, copied in zip(node.outputs, copies, strict=True):
            self.unite(original, copied)
        return copies[value.port]

    # -- right sides

    def fact(self, value: Value) -> Fact:
        """What is known of the value."""
        return self.space.fact(value)

    def constant(self, value: Value) -> Constant | None:
        """The value's elements, where they are known or cheap to compute."""
        return self.space.constant(value)

    def uses(self, value: Value) -> int | None:
        """None: how often a value is read is not known before one graph is chosen."""
        return None

    def make_constant(self, constant: Constant) -> Value:
        """A value that is this constant."""
        if constant not in self._constants:
            self._constants[constant] = self.space.make_constant(constant)
        return self._constants[constant]

    def call(self, op: str, inputs: Sequence[Value | None], attrs: Attrs, facts: Sequence[Fact]) -> tuple[Value, ...]:
        """The outputs of an op applied to inputs."""
        key = op, ops.canonical(op, attrs), len(facts), trimmed(op, inputs)
        if key not in self._calls or not ops.is_pure(op, attrs):
            self._calls[key] = self.space.call(op, inputs, attrs, facts)[0].node
        return self.graph.node(self._calls[key]).outputs

    def apply(
        self,
        rule: Rule,
        roots: Sequence[Value],
        way: int | None = None,
        fits: Callable[[Sequence[Value]], bool] | None = None,
    ) -> RuleApplication:
        """Make the right side of a rule beside the left side with these roots: of match number ``way`` there, or of the
        first whose right side can be built and ``fits``. Raises Refused where there is none."""
        why = f"{rule.name} does not match at its site"
        for number, match in self._matches(rule, roots):
            if way is not None and number != way:
                continue
            first = self.graph.next_id
            try:
                values = replacements(rule, match.bindings, match.roots, self)
            except Refused as refused:
                why = str(refused)
                self._undo(first)
                continue
            if fits is not None and not fits(values):
                why = f"{rule.name} makes something else here"
                self._undo(first)
                continue
            for root, value in zip(roots, values, strict=True):
                self.unite(root, value)
            return RuleApplication(match, number, tuple(values), first)
        raise Refused(why)

    def _matches(self, rule: Rule, roots: Sequence[Value]) -> Iterator[tuple[int, Match]]:
        for number, match in enumerate(matches(rule, self.space, self.graph.node(roots[0].node), roots)):
            if match.roots == tuple(roots):
                yield number, match

    def _undo(self, first: int) -> None:
        for node in self.graph.since(first):
            if node.op == CONSTANT:
                self._constants = {c: v for c, v in self._constants.items() if v.node != node.id}
            else:
                self._calls.pop(_call(node), None)
        self.space.undo(first)

    # -- choosing

    def choose(self, kept: Sequence[Value]) -> bool:
        """Let every reader read the value that is kept of those that are equal, and drop what no output rests on.

        Of equal values of which none is kept, the graph's own first one stays. Raises ValueError where
        the kept values read each other in a circle, before anything is changed.
        """
        chosen = {self.find(v): v for v in kept if v.node in self.graph}
        order = self._order(chosen)
        changed = False
        names = dict(self.graph.names)
        for node in order:
            inputs = tuple(None if v is None else self.kept(v, chosen) for v in node.inputs)
            if inputs != node.inputs:
                self.graph.update(node.id, inputs=inputs)
                changed = True
            changed |= node.id >= self.first
        outputs = [None if v is None else self.kept(v, chosen) for v in self.graph.outputs]
        changed |= outputs != self.graph.outputs
        self.graph.outputs = outputs
        changed |= self._drop({n.id for n in order} | {v.node for v in self.graph.inputs})
        self._finish(order, chosen, names)
        self.space.edits += changed
        return changed

    def kept(self, value: Value, chosen: Mapping[Value, Value]) -> Value:
        """Which of the values that are equal to this one is kept."""
        name = self.find(value)
        return chosen.get(name, name)

    def _order(self, chosen: Mapping[Value, Value]) -> list[Node]:
        """The nodes that the outputs rest on, and those with effects, each after those that it reads. ValueError on a
        circle."""
        ordered: dict[int, Node] = {}
        entered: set[int] = set()
        waiting = [self.kept(v, chosen).node for v in reversed(self.graph.outputs) if v is not None]
        waiting += [n.id for n in self.graph.nodes() if self.graph.has_effects(n)]
        while waiting:
            id = waiting[-1]
            node = self.graph.node(id)
            missing = [n for v in node.inputs if v is not None and (n := self.kept(v, chosen).node) not in ordered]
            if id in ordered or not missing:
                ordered.setdefault(id, node)
                waiting.pop()
            elif id in entered:
                raise ValueError(f"the choice has a cycle through node {id} ({node.op})")
            else:
                entered.add(id)
                waiting += reversed(missing)
        return list(ordered.values())

    def _drop(self, needed: set[int]) -> bool:
        gone = [node for node in reversed(self.graph.order()) if node.id not in needed]
        for node in gone:
            self.graph.remove(node.id)
        return any(node.id < self.first for node in gone)

    def _finish(self, order: Sequence[Node], chosen: Mapping[Value, Value], names: Mapping[Value, str]) -> None:
        """New values take the names of those whose place they took, and have types."""
        graph_names = self.graph.names
        for old, name in names.items():
            new = self.kept(old, chosen)
            if old.node not in self.graph and new.node in self.graph and self.graph.node(new.node).n_outputs == 1:
                graph_names.setdefault(new, name)
        for node in order:
            for value in node.outputs if node.id >= self.first and node.op != CONSTANT else ():
                type_ = self.space.fact(value).type
                if type_ is not None:
                    self.graph.types[value] = type_


def _call(node: Node) -> _CallKey:
    return node.op, ops.canonical(node.op, node.attrs), node.n_outputs, node.inputs


def _sorted(values: Sequence[Value | None]) -> list[Value]:
    return sorted(v for v in values if v is not None)
