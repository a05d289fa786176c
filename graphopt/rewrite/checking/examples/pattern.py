"""Patterns written out: the left side of a rule with everything decided that it leaves open (alternatives, optional
inputs, op variables, stars)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import field, replace
from itertools import islice, product
from random import Random
from typing import Any

from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.graph import Attr, Graph, Value, trimmed
from graphopt.rewrite.checking.examples.hints import Hints
from graphopt.rewrite.checking.examples.sample import ANY, Misfit, Want
from graphopt.rewrite.match.build import family
from graphopt.rewrite.rule.rule import ABSENT, AnyOf, CallPattern, Literal, Rule, Term, VarPattern, calls, variables


@dataclass(eq=False)
class Leaf:
    """An operand that the pattern leaves open."""

    key: str
    name: str


@dataclass(eq=False)
class LiteralLeaf:
    """A literal of the pattern."""

    value: Any
    want: Want = field(default_factory=Want)


@dataclass(eq=False)
class ConcreteCall:
    """A call of the pattern, with everything starred written out."""

    call: CallPattern
    op: str
    inputs: Sequence[Leaf | LiteralLeaf | ConcreteCall | None]
    attrs: dict[str, Attr] = field(default_factory=dict)
    n_outputs: int = 1
    drawn: bool = False
    want: Want = ANY
    """What its result should be."""
    value: Value | None = None
    graph: Graph | None = None

    @property
    def leaves(self) -> list[str]:
        """The operands that are open."""
        return [operand.key for operand in self.inputs if isinstance(operand, Leaf)]


HEADS = ("Relu", "Neg", "Abs", *sorted(ops.SETS["unary"] | ops.SETS["binary"] | ops.SETS["reduce"]))
"""What op variables mostly stand for of which no guard says what they are."""
OTHERS = ("ArgMax", "Concat", "CumSum", "Flatten", "Gather", "MatMul", "Softmax", "Tile", "Transpose")
"""What else they stand for: ops that are not done element by element."""

Tree = Leaf | LiteralLeaf | ConcreteCall
"""A part of the pattern."""


class ConcretePattern:
    """One way of writing a rule's left side out. ``counts``: how many values starred variables stand for."""

    def __init__(self, rule: Rule, hints: Hints, random: Random, opset: int) -> None:
        self.hints, self.random, self.opset = hints, random, opset
        self.counts: dict[str, int] = {}
        self.steps: list[ConcreteCall] = []
        self._present: dict[str, bool] = {}
        self._heads: dict[str, str] = {}
        self._named: dict[str, ConcreteCall] = {}
        self._ports: dict[CallPattern, int] = {}
        self._all = [c for term in rule.lhs for c in calls(term)]
        self._calls = {c.name: c for c in self._all if c.name is not None}
        self.roots = [tree for term in rule.lhs for tree in self._roots(term)]

    def copy(self) -> ConcretePattern:
        """The same, to be changed, of which no values have been made."""
        made: dict[int, Tree] = {}

        def copied(tree: Tree | None) -> Tree | None:
            if tree is None or isinstance(tree, Leaf):
                return tree
            if id(tree) not in made:
                made[id(tree)] = replace(tree)
                if isinstance(tree, ConcreteCall):
                    inputs = [copied(t) for t in tree.inputs]
                    made[id(tree)] = replace(tree, inputs=inputs, attrs=dict(tree.attrs), value=None, graph=None)
            return made[id(tree)]

        pattern: Any = copy(self)
        pattern.counts = dict(self.counts)
        pattern.steps, pattern.roots = [*map(copied, self.steps)], [*map(copied, self.roots)]
        return pattern  # type: ignore[no-any-return]

    def _roots(self, term: Term) -> list[Tree]:
        """The roots that a term stands for."""
        stars = family(term)
        if not stars:
            tree = self._tree(term, None)
            return [] if tree is None else [tree]
        n = self.counts.setdefault(stars[0], self.random.randint(2, 3))
        for name in stars:
            self.counts[name] = n
        return [t for i in range(n) if (t := self._tree(term, i)) is not None]

    def _tree(self, term: Term, index: int | None) -> Tree | None:
        match term:
            case VarPattern("_"):
                return None
            case VarPattern(name, optional, starred):
                if name in self._calls:
                    return self._named.get(name) or self._step(self._calls[name], index)
                if optional and not self._present.setdefault(name, self.random.random() < 0.6):
                    return None
                return Leaf(f"{name}.{index}" if starred else name, name)
            case Literal(value):
                return LiteralLeaf(value)
            case AnyOf(options):
                return self._tree(self.random.choice(options), index)
            case CallPattern():
                return self._step(term, index)
        raise Misfit("a computed constant on the left")

    def _step(self, call: CallPattern, index: int | None) -> ConcreteCall:
        op = call.op
        if call.is_variable:
            wanted = self.hints.heads.get(op) or (OTHERS if self.random.random() < 0.25 else HEADS)
            options = [o for o in wanted if self.takes(o, call)]
            if not options:
                raise Misfit(f"no op for {op}")
            op = self._heads.setdefault(op, self.random.choice(options))
        start = ops.variadic_input(op)
        inputs: list[Tree | None] = []
        for i, term in enumerate(call.inputs):
            stars = family(term) if start is not None and i >= start else ()
            if stars and index is None:
                alone = len(call.inputs) - start == 1 if start is not None else True
                least = 0 if isinstance(term, VarPattern) and not alone else 1
                n = self.counts.get(stars[0]) or self.random.randint(least, 3 if alone else 2)
                self.counts.update(dict.fromkeys(stars, n))
                inputs += [self._tree(term, k) for k in range(n)]
            else:
                inputs.append(self._tree(term, index))
        n_outputs = self._outputs(call) if ops.max_outputs(op) is None else call.output + 1
        step = ConcreteCall(call, op, trimmed(op, inputs), n_outputs=n_outputs)
        self.steps.append(step)
        if call.name is not None:
            return self._named.setdefault(call.name, step)
        return step

    def _outputs(self, call: CallPattern) -> int:
        """How many results a call has: as many wherever the pattern has it, whichever of them is meant there."""
        plain = replace(call, output=0, name=None)
        if plain not in self._ports:
            last = max(c.output for c in self._all if replace(c, output=0, name=None) == plain)
            self._ports[plain] = self.random.randint(last + 1, max(3, last + 2))
        return self._ports[plain]

    def takes(self, op: str, call: CallPattern) -> bool:
        """Whether an op takes as many operands as a call gives it, and its attributes."""
        schema = ops.schema(op, self.opset)
        if schema is None or any(name not in schema.defaults for name, _ in call.attrs):
            return False
        return schema.max_inputs is None or schema.min_inputs <= len(call.inputs) <= schema.max_inputs


MOST = 64
"""How many ways are looked at, at most."""


def variants(rule: Rule) -> list[Rule]:
    """The rule once for each way of writing it out: without alternatives and optional inputs. The guards stay."""
    optional = [v.name for v in _unique(rule.lhs) if v.optional]
    if not optional and not any(_has_choice(t) for t in rule.lhs):
        return [rule]
    written_out = (
        replace(rule, lhs=lhs, rhs=tuple(_given(t, present) for t in rule.rhs))
        for present in _presences(optional)
        for lhs in product(*([*_options(t, present)] for t in rule.lhs))
    )
    return list(dict.fromkeys(islice(written_out, MOST)))


def _presences(optional: list[str]) -> Iterator[dict[str, bool]]:
    for there in product((True, False), repeat=len(optional)):
        yield dict(zip(optional, there, strict=True))


def _unique(terms: tuple[Term, ...]) -> tuple[VarPattern, ...]:
    return tuple(v for t in terms for v in variables(t))


def _has_choice(term: Term) -> bool:
    return isinstance(term, AnyOf) or (isinstance(term, CallPattern) and any(map(_has_choice, term.inputs)))


def _options(term: Term, present: Mapping[str, bool]) -> Iterator[Term]:
    match term:
        case AnyOf(options):
            for option in options:
                yield from _options(option, present)
        case CallPattern(inputs=inputs):
            for parts in product(*([*_options(t, present)] for t in inputs)):
                yield replace(term, inputs=_cut(parts))
        case _:
            yield _given(term, present)


def _given(term: Term, present: Mapping[str, bool]) -> Term:
    """The term where optional inputs are there, or are not."""
    match term:
        case VarPattern(name) if name in present:
            return VarPattern(name, starred=term.starred) if present[name] else ABSENT
        case CallPattern(inputs=inputs):
            return replace(term, inputs=_cut(tuple(_given(t, present) for t in inputs)))
        case _:
            return term


def _cut(inputs: tuple[Term, ...]) -> tuple[Term, ...]:
    """Inputs without the absent ones at the end."""
    while inputs and inputs[-1] == ABSENT:
        inputs = inputs[:-1]
    return inputs
