"""Proofs for all sizes: both sides of a rule are computed on tensors of symbolic sizes, in every case."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Header, Value
from graphopt.ir.infer import infer_node
from graphopt.ir.types import Dim, Symbol, TensorType
from graphopt.proof.indices import Bounded, Heads, written_out
from graphopt.proof.instances import (
    ELEMENTS,
    Plans,
    attribute_options,
    handed_on,
    is_handed_on,
    parameter_places,
    pattern_of,
)
from graphopt.proof.sized_ops import Evaluator
from graphopt.proof.sized_terms import (
    ONE,
    Block,
    Choices,
    Different,
    Extent,
    Impossible,
    SizedAlgebra,
    Sizes,
    Tensor,
    indices_of,
    size_of,
)
from graphopt.proof.symbols import Opaque
from graphopt.rewrite.checking.check import applied
from graphopt.rewrite.checking.examples import Example
from graphopt.rewrite.checking.examples.arrays import numpy_dtype
from graphopt.rewrite.checking.examples.pattern import ConcreteCall, ConcretePattern, Leaf, LiteralLeaf, Tree
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.guards.comparison import Unproven
from graphopt.rewrite.match.build import Refused, build
from graphopt.rewrite.match.matcher import Match, matches
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.rule import (
    Field,
    FunctionCall,
    GuardExpr,
    NameRef,
    Rule,
    Soundness,
    calls,
    subexpressions,
    variables,
)

DEEPEST = 4
WEIGHT = 8
"""The work that one case is counted as."""
PATHS = 1000
"""How many ways of giving ranks, attributes and sizes are looked at for one way of writing a rule and one rank."""


def prove(rule: Rule) -> Bounded:
    """The proof of a rule for all sizes, up to a rank, or why there is none."""
    is_open = any(c.is_variable for t in rule.lhs for c in calls(t))  # an unknown op is read as none in particular
    kinds = [False] + ([True] if rule.soundness in (Soundness.REALS, Soundness.APPROX) and not is_open else [])
    why = ""
    for is_real in kinds:
        reached, work = 0, 0
        seen: set[Heads] = set()
        for rank in range(DEEPEST + 1):
            try:
                fired, cases = _all_of_rank(rule, rank, is_real)
            except Opaque as opaque:
                why = f"{opaque} at symbolic sizes"
                if reached < 2 or "cases" not in str(opaque):
                    seen = set()
                break
            except Different as different:
                seen, why = set(), str(different)
                break
            except (GraphoptError, ValueError) as error:
                seen, why = set(), f"symbolic sizes: {error}"
                break
            seen |= fired
            reached, work = rank, work + WEIGHT * cases
        lacking = {heads for _, heads in written_out(rule)} - seen
        if seen and lacking:
            why = f"it fires at no symbolic sizes with {' and '.join(min(lacking))}"
        elif seen:
            return Bounded("reals" if is_real else "index", f"all sizes, rank <= {reached}", work=work)
    return Bounded(None, why=why or "it fires at no symbolic sizes")


def _all_of_rank(rule: Rule, rank: int, is_real: bool) -> tuple[set[Heads], int]:
    """With which ops the rule fires on operands of this rank at the most, and how many cases were looked at."""
    fired: set[Heads] = set()
    cases = 0
    for written, heads in written_out(rule):
        has_stars = any(v.starred for t in rule.lhs for v in variables(t))
        for stars in (1, 2, 3) if has_stars else (1,):
            pattern = pattern_of(written, stars)
            if pattern is None:
                continue
            choices = Choices()
            for _ in choices.runs(PATHS):
                cases += 1
                with suppress(Impossible):
                    if _Case(rule, pattern, choices, rank, SizedAlgebra(is_real)).prove():
                        fired.add(heads)
    return fired, cases


class _Case:
    """One way of giving the left side ranks, attributes and sizes."""

    def __init__(
        self, rule: Rule, pattern: ConcretePattern, choices: Choices, rank: int, algebra: SizedAlgebra
    ) -> None:
        self.rule, self.pattern, self.choices, self.rank = rule, pattern, choices, rank
        self.plans = Plans(rule, pattern, 0)
        self.handed_on = handed_on(rule)
        self.any_number = set(self.handed_on)
        """Names that stand for any number."""
        self.sizes = Sizes(choices)
        self.evaluator = Evaluator(algebra, self.sizes)
        self.algebra = algebra
        self.leaves: dict[str, tuple[str, tuple[Extent, ...]] | Constant] = {}
        self.attrs: dict[str, Any] = {}
        self.steps: dict[int, tuple[Attrs, list[Tensor], tuple[Fact, ...]]] = {}

    def prove(self) -> int:
        """How many matches agree. Raises Different where one does not."""
        for root in self.pattern.roots:
            self.visit(root, None)
        ranks = [len(leaf[1]) for leaf in self.leaves.values() if not isinstance(leaf, Constant)]
        if max(ranks, default=0) != self.rank:
            raise Impossible
        heads = tuple(g for g in self.rule.where if _is_of_head(g))
        loose = replace(self.rule, where=heads)
        fired = 0
        # which of the ways to match comes first does not depend on sizes
        which = self.choices.choose(range(self.ways(loose)))
        for guard in self.rule.where:
            self.assume(guard, loose, which)
        self.fit(loose, which)
        self.sizes.settle()
        graph, space, found = self.matched(loose)
        want = self.compute(graph)
        if which >= len(found):
            raise Opaque("a match that sizes change")
        for match in found[which : which + 1]:
            if any(self.is_false(g, match, space) for g in self.rule.where):
                raise Impossible
            other = applied(Example(graph, match, {}))
            if other == "the right side is the left side":
                continue
            if isinstance(other, str) and _is_ill_typed(other, self.rule):
                raise Impossible  # whatever the sizes are
            if isinstance(other, str):
                raise Opaque(f"the right side ({other})")
            self.agree(want, self.compute(other))
            fired += 1
        return fired

    def matched(self, rule: Rule) -> tuple[Graph, Workspace, list[Match]]:
        """The left side as a graph, and the ways in which a rule matches it as a whole."""
        graph = self.graph()
        try:
            space = Workspace(graph)
        except GraphoptError:
            raise Impossible from None
        found = matches(rule, space, graph.producer(graph.outputs[0]))  # type: ignore[arg-type]
        return graph, space, [m for m in found if list(m.roots) == graph.outputs]

    def ways(self, rule: Rule) -> int:
        """In how many ways a rule matches."""
        return len(self.matched(rule)[2])

    def assume(self, guard: GuardExpr, rule: Rule, which: int) -> None:
        """Let sizes be such that a guard holds, where it says which are equal; other guards are left out."""
        match guard:
            case FunctionCall("and", parts):
                for part in parts:
                    self.assume(part, rule, which)
                return
            case FunctionCall("==", (left, right)):
                pass
            case FunctionCall("or", parts) if not any(_is_about_use(p) for p in parts):
                _, space, found = self.matched(rule)
                if any(_holds(p, found[which], space) for p in parts):
                    return
                options = [p for p in parts if not self.is_false(p, found[which], space)]
                self.assume(self.choices.choose(options), rule, which)
                return
            case _:
                return
        names = {p.name for p in subexpressions(guard) if isinstance(p, NameRef)}
        if _is_about_use(guard) or names & self.any_number:
            return
        _, space, found = self.matched(rule)
        if _holds(guard, found[which], space):
            return
        try:
            sides = [expressions.evaluate(e, found[which].bindings, space) for e in (left, right)]
        except (expressions.Unknown, GraphoptError, ValueError, TypeError, LookupError):
            return
        self.equate(*sides)

    def fit(self, rule: Rule, which: int) -> None:
        """Let sizes be such that the right side has the left one's type, without which a rule does not fire."""
        graph, _, found = self.matched(rule)
        space = Workspace(graph.copy())
        for root, term in zip(found[which].roots, rule.rhs, strict=False):
            try:
                value = build(term, found[which].bindings, space)
            except (Refused, GraphoptError):
                return
            if not isinstance(value, Value):
                return
            wanted, actual = space.fact(root), space.fact(value)
            if wanted.shape is None or actual.shape is None:
                return
            if wanted.rank != actual.rank or wanted.dtype != actual.dtype:
                raise Impossible
            self.equate(wanted.shape, actual.shape)

    def equate(self, a: object, b: object) -> None:
        """Let sizes be equal."""
        if isinstance(a, tuple) and isinstance(b, tuple):
            if len(a) != len(b):
                raise Impossible
            for x, y in zip(a, b, strict=True):
                self.equate(x, y)
            return
        extents = [_extent(s) for s in (a, b)]
        if None in extents or extents[0] == extents[1]:
            return
        left, right = (e for e in extents if e is not None)
        if ONE in (left, right):
            self.sizes.one(left if right == ONE else right)
        else:
            self.sizes.unify(left, right)

    def is_false(self, guard: GuardExpr, found: Match, space: Workspace) -> bool:
        """Whether a guard does not hold, whatever the sizes are. What is not known is assumed to hold."""
        match guard:
            case FunctionCall("and", parts):
                return any(self.is_false(p, found, space) for p in parts)
            case FunctionCall("or", parts):
                return all(self.is_false(p, found, space) for p in parts)
        names = {p.name for p in subexpressions(guard) if isinstance(p, NameRef)}
        if _is_about_use(guard) or names & self.any_number:
            return False
        if _holds(FunctionCall("not", (guard,)), found, space):
            return True
        try:
            expressions.truth(expressions.evaluate(guard, found.bindings, space))
        except Unproven:
            return False
        except expressions.Unknown:  # it asks for an axis that is not there, or for elements
            is_of_several = any(isinstance(bound, tuple) for bound in found.bindings.values.values())
            return not is_of_several and not _is_about_elements(guard)
        except (GraphoptError, ValueError, TypeError, LookupError):
            return False
        return False

    # -- the left side

    def visit(self, tree: Tree | None, wish: str | None) -> tuple[Tensor | None, Fact | None]:
        """What a part of the pattern is."""
        match tree:
            case None:
                return None, None
            case LiteralLeaf(value):
                constant = _literal(value, wish)
                return self.evaluator.constant(constant), Fact(TensorType(constant.dtype, constant.shape), True)
            case Leaf(key):
                if key not in self.leaves and tree.name in self.handed_on:
                    number = self.algebra.stand_in(key)
                    dtype = self.plans.dtype(tree.name, wish)
                    rank = self.choices.choose([0, 1])
                    self.leaves[key] = Constant.of(np.full((1,) * rank, number, numpy_dtype(dtype)), dtype)
                if key not in self.leaves:
                    known = self.plans.hints.rank_of.get(tree.name)
                    ranks = [r for r in range(self.rank + 1) if known is None or r == known]
                    rank = self.choices.choose(ranks)
                    extents = tuple(((f"{key}.{i}",),) for i in range(rank))
                    self.leaves[key] = self.plans.dtype(tree.name, wish), extents
                return self.leaf(key)
        return self.step(tree)

    def leaf(self, key: str) -> tuple[Tensor, Fact]:
        """An operand that the pattern leaves open."""
        leaf = self.leaves[key]
        if isinstance(leaf, Constant):
            return self.evaluator.constant(leaf), Fact(TensorType(leaf.dtype, leaf.shape), True, leaf)
        tensor = self.evaluator.leaf(key, leaf[1])
        return tensor, Fact(TensorType(leaf[0], tuple(map(size_of, tensor.extents))))

    def step(self, step: ConcreteCall) -> tuple[Tensor, Fact]:
        """What a call of the pattern is."""
        if id(step) not in self.steps:
            places = parameter_places(step.op) if step.op not in ("Gather", "Trilu") else ()
            tensors: list[Tensor | None] = [None] * len(step.inputs)
            facts: dict[int, Fact | None] = {}
            for i, tree in enumerate(step.inputs):
                if i not in places:
                    tensors[i], facts[i] = self.visit(tree, self.plans.wish(step.op, i, facts))
            first = next((x for x in tensors if x is not None), None)
            rank = 0 if first is None else first.rank
            attrs = self.attributes(step, rank)
            for i in places:
                if i < len(step.inputs):
                    tensors[i], facts[i] = self.parameter(step, i, rank)
            try:
                results = self.evaluator.apply(step.op, attrs, tensors, step.n_outputs, self.pattern.opset)
                given = [self.refreshed(facts.get(i), x) for i, x in enumerate(tensors)]
                types = infer_node(step.op, attrs, given, step.n_outputs, self.pattern.opset)
            except (GraphoptError, ValueError):
                raise Impossible from None
            self.steps[id(step)] = attrs, results, types
        attrs, results, types = self.steps[id(step)]
        return results[step.call.output], types[step.call.output]

    def refreshed(self, fact: Fact | None, tensor: Tensor | None) -> Fact | None:
        """A fact with the sizes that are known by now."""
        if fact is None or tensor is None or fact.constant is not None or fact.dtype is None:
            return fact
        return Fact(TensorType(fact.dtype, tuple(size_of(self.sizes.of(e)) for e in tensor.extents)), fact.is_const)

    def attributes(self, step: ConcreteCall, rank: int) -> Attrs:
        """The attributes of a call: each that makes a difference."""
        attrs = Attrs()
        shape = (1,) * rank
        for name, expr in step.call.attrs:
            if isinstance(expr, NameRef):
                default = ops.attribute(step.op, Attrs(), name) if ops.schema(step.op) else None
                if expr.name not in self.attrs and isinstance(default, float):
                    if not is_handed_on(self.rule, expr.name):
                        raise Opaque(f"what is computed from the attribute {name} of {step.op}")
                    self.attrs[expr.name] = self.algebra.stand_in(f"attribute {expr.name}")
                    self.any_number.add(expr.name)
                if expr.name not in self.attrs:
                    self.attrs[expr.name] = self.choices.choose(attribute_options(step.op, name, shape, step))
                attrs = attrs.with_(**{name: self.attrs[expr.name]})
            else:
                try:
                    value: Any = expressions.evaluate(
                        expr, self.plans.no_bindings(self.attrs), self.plans.no_operands()
                    )
                except expressions.Unknown:
                    raise Opaque(f"the attribute {name} of {step.op}") from None
                attrs = attrs.with_(**{name: value})
        schema = ops.schema(step.op)
        for name in schema.required if schema else ():
            if name not in dict(step.call.attrs):
                attrs = attrs.with_(**{name: self.choices.choose(attribute_options(step.op, name, shape, step))})
        return ops.canonical(step.op, attrs)

    def parameter(self, step: ConcreteCall, i: int, rank: int) -> tuple[Tensor | None, Fact | None]:
        """An operand that says where elements go: each axis or axes."""
        tree = step.inputs[i]
        if isinstance(tree, Leaf) and tree.key not in self.leaves:
            if step.op == "Unsqueeze":
                options = [a for n in (1, 2) for a in combinations(range(rank + n), n)] + [(-1,)]
            elif step.op == "Squeeze" or step.op in ops.KINDS["reduce"]:
                options = [a for n in range(1, min(rank, 3) + 1) for a in combinations(range(rank), n)]
                options += [(-1,)] if rank else []
            else:
                raise Opaque(f"any operand {i} of {step.op}")
            self.leaves[tree.key] = Constant.of(numpy_array(self.choices.choose(options)))
        tensor, fact = self.visit(tree, "int64")
        if isinstance(tree, Leaf) and fact is not None and fact.constant is None:
            raise Opaque(f"what {step.op} is told by a computation")
        if isinstance(tree, LiteralLeaf):
            constant = _literal(tree.value, "int64")
            fact = Fact(TensorType("int64", constant.shape), True, constant)
        return tensor, fact

    # -- graphs

    def graph(self) -> Graph:
        """The left side as a graph."""
        graph = Graph(header=Header(opsets=(("", self.pattern.opset), ("com.microsoft", 1))))
        made: dict[str, Value] = {}
        steps: dict[int, int] = {}

        def value(tree: Tree | None, dtype: str | None) -> Value | None:
            match tree:
                case None:
                    return None
                case Leaf(key):
                    if key not in made:
                        leaf, fact = self.leaves[key], self.leaf(key)[1]
                        if isinstance(leaf, Constant):
                            made[key] = graph.add_constant(leaf)
                        else:
                            assert fact.type is not None
                            made[key] = graph.add_input(key, fact.type)
                    return made[key]
                case LiteralLeaf(number):
                    return graph.add_constant(_literal(number, dtype))
            if id(tree) not in steps:
                attrs = self.steps[id(tree)][0]
                places = parameter_places(tree.op)
                facts: dict[int, Fact | None] = {}
                inputs = []
                for i, part in enumerate(tree.inputs):
                    is_place = i in places and tree.op not in ("Gather", "Trilu")
                    inputs.append(value(part, "int64" if is_place else self.plans.wish(tree.op, i, facts)))
                    if not is_place:
                        facts[i] = self.visit(part, self.plans.wish(tree.op, i, facts))[1]
                steps[id(tree)] = graph.add(tree.op, tuple(inputs), attrs, tree.n_outputs).id
            return Value(steps[id(tree)], tree.call.output)

        for i, root in enumerate(self.pattern.roots):
            result = value(root, None)
            if result is None or result in graph.outputs:
                raise Impossible
            graph.add_output(f"y{i}", result)
        return graph

    def compute(self, graph: Graph) -> list[Tensor]:
        """The outputs of a graph."""
        values: dict[Value, Tensor] = {}
        for node in graph.order():
            first = Value(node.id)
            if node.op == INPUT:
                leaf = self.leaves[graph.names[first]]
                assert not isinstance(leaf, Constant)
                values[first] = self.evaluator.leaf(graph.names[first], leaf[1])
            elif node.op == CONSTANT:
                constant = graph.constant_of(first)
                assert constant is not None
                values[first] = self.evaluator.constant(constant)
            elif graph.is_used(node.id):
                given = [None if v is None else values[v] for v in node.inputs]
                results = self.evaluator.apply(node.op, node.attrs, given, node.n_outputs, graph.opset)
                values.update(zip(node.outputs, results, strict=False))
        return [values[v] for v in graph.outputs if v is not None]

    def agree(self, want: Sequence[Tensor], got: Sequence[Tensor]) -> None:
        """Raises Different where two sides are not the same at some place."""
        for a, b in zip(want, got, strict=True):
            extents = [self.sizes.of(e) for e in a.extents]
            if extents != [self.sizes.of(e) for e in b.extents]:
                raise Different("sizes differ at symbolic sizes")
            for places, _ in indices_of(extents, self.algebra):
                if a.at(places) != b.at(places):
                    raise Different("terms differ at symbolic sizes")


def _literal(value: Any, wish: str | None) -> Constant:
    name = wish or ("int64" if isinstance(value, int | tuple) and not isinstance(value, bool) else "float32")
    name = "bool" if isinstance(value, bool) else name
    return Constant.of(np.asarray(value).astype(numpy_dtype(name)), name)


def numpy_array(numbers: Sequence[int]) -> Any:
    """Axes as an array."""
    return np.asarray(numbers, np.int64)


def _is_of_head(guard: GuardExpr) -> bool:
    """Whether a guard says which op an op variable is."""
    match guard:
        case FunctionCall("in", (NameRef(), _)):
            return True
    return False


def _is_about_use(guard: GuardExpr) -> bool:
    """Whether a guard asks what is constant or used elsewhere, which symbols for elements do not answer."""
    return any(isinstance(p, Field) and p.name in ("is_const", "uses") for p in subexpressions(guard))


def _extent(size: object) -> Extent | None:
    """A size of a type as a sum of products; None where it is none."""
    if isinstance(size, bool):
        return None
    if isinstance(size, int):
        return ((),) * size if 0 <= size <= 8 else None
    if not isinstance(size, Dim):
        return None
    blocks: list[Block] = []
    for monomial, count in size.terms:
        if count < 0 or not all(isinstance(atom, Symbol) for atom in monomial):
            return None
        blocks += [tuple(atom.name for atom in monomial if isinstance(atom, Symbol))] * count
    return tuple(blocks) if len({n for b in blocks for n in b}) == sum(map(len, blocks)) else None


def _holds(guard: GuardExpr, match: Match, space: Workspace) -> bool:
    """Whether a guard holds, whatever the sizes are."""
    try:
        return expressions.holds(guard, match.bindings, space) is None
    except (GraphoptError, ValueError, TypeError, LookupError):
        return False


def _is_about_elements(guard: GuardExpr) -> bool:
    """Whether a guard asks for elements, of which symbols know nothing."""
    return any(isinstance(p, Field) and p.name in ELEMENTS for p in subexpressions(guard))


def _is_ill_typed(why: str, rule: Rule) -> bool:
    """Whether an op of the right side does not take the types of its operands, by what inference says of the op."""
    written = {call.op for side in rule.rhs for call in calls(side)}
    return any(why.startswith(f"{op} of ") for op in written)
