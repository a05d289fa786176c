"""Proofs of rules that move elements, for all tensors up to a rank: each small instance once, its elements symbols.

The left side is written out in every way: every small shape of its operands, every permutation, axis, slice and the
like. Where the rule fires both sides are computed on symbols, so that one instance stands for all elements. Attributes
that a rule hands on as they are (``**rest``) have their defaults, and an op variable is one op of its kind, which the
computation on symbols knows nothing of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph, Header, Value
from graphopt.proof.evidence import right_expressions
from graphopt.proof.instances import (
    ELEMENTS,
    InstancePlan,
    Plans,
    TooMany,
    handed_on,
    parameter_places,
    parameters_of,
    pattern_of,
)
from graphopt.proof.scalars import headed
from graphopt.proof.symbolic_ops import compute, is_computable
from graphopt.proof.symbols import Algebra, Laws, Opaque
from graphopt.rewrite.checking.check import applied
from graphopt.rewrite.checking.examples import Example
from graphopt.rewrite.checking.examples.pattern import ConcretePattern, Leaf, LiteralLeaf, Tree, variants
from graphopt.rewrite.match.matcher import matches
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.rule import (
    Field,
    FunctionCall,
    Lit,
    NameRef,
    Rule,
    Series,
    Soundness,
    calls,
    subexpressions,
    variables,
)

LIMIT = 500
"""How many instances are written out at most for one way of writing a rule and one rank; of ranks with more, none."""
WEIGHT = 4
"""The work that one instance is counted as."""
DEEPEST = 4
SIZES = ((0, 1, 2, 3, 4), (0, 1, 2), (1, 2, 3), (1, 2))
"""The sizes of axes: of each rank the first of these that has few enough instances, all of which can be computed."""
STARS = (1, 2, 3)
"""How many values a starred variable stands for."""


@dataclass(frozen=True)
class Bounded:
    """What came of it: ``index`` or ``reals``, up to which rank; else why not."""

    kind: str | None
    scope: str = ""
    why: str = ""
    work: int = 0


def prove(rule: Rule, limit: int = LIMIT) -> Bounded:
    """The proof of a rule for all small tensors, or why there is none."""
    values = _decisive(rule)
    if values:
        return Bounded(None, why=f"the right side is computed from the elements of {', '.join(sorted(values))}")
    opaque = {c.op for t in (*rule.lhs, *rule.rhs) for c in calls(t) if not c.is_variable and not is_computable(c.op)}
    if opaque:
        return Bounded(None, why=f"{', '.join(sorted(opaque))} is not computed on symbols")
    kinds = ["index"] + (["reals"] if rule.soundness in (Soundness.REALS, Soundness.APPROX) else [])
    # without the guards that ask for elements, which are symbols, more is proved than is claimed
    parameters = parameters_of(rule)
    loose = replace(rule, where=tuple(g for g in rule.where if not _asked_elements(g) - parameters))
    why = ""
    for kind in kinds:
        reached: list[tuple[int, ...]] = []
        why, work = "", 0
        fired: set[Heads] = set()
        for rank in range(1, DEEPEST + 1):
            try:
                sizes, instances, seen = _largest(loose, rank, kind == "reals", limit, _laws(rule))
            except (TooMany, Opaque, _Different) as unproved:
                why = why if isinstance(unproved, TooMany) and why else str(unproved)
                if not isinstance(unproved, TooMany):
                    reached = []
                break
            work += WEIGHT * instances
            reached.append(sizes)
            fired |= seen
        lacking = {heads for _, heads in written_out(loose)} - fired
        if reached and fired and lacking:
            reached, why = [], f"no small instance fires with {' and '.join(min(lacking))}"
        while reached and not reached[-1]:
            reached.pop()
        if len(reached) > 1 or (reached and not why):
            spans = ", ".join(f"{s[0]} to {s[-1]}" if s else "none" for s in reached)
            return Bounded(kind, f"rank <= {len(reached)}, sizes {spans}", work=work)
    return Bounded(None, why=why or "no small instance fires")


def _largest(rule: Rule, rank: int, is_real: bool, limit: int, laws: Laws) -> tuple[tuple[int, ...], int, set[Heads]]:
    """The sizes at which both sides agree on all instances of this rank, how many there are, and of which ops.

    No sizes where the rule fires on none. Raises what is in the way at the fewest, and where the sides differ at any.
    """
    operands = len({v.name for t in rule.lhs for v in variables(t)} - parameters_of(rule))
    fired, instances = _all_of_rank(rule, rank, SIZES[-1], is_real, limit, laws)
    for sizes in SIZES[:-1]:
        grown = instances * (len(sizes) / len(SIZES[-1])) ** (rank - 1)  # as far as the axes of one operand are free
        if len(sizes) ** (rank * operands) > 4 * limit or grown > limit:
            continue
        with suppress(TooMany, Opaque):
            more, count = _all_of_rank(rule, rank, sizes, is_real, limit, laws)
            return (sizes if more else ()), count, fired | more
    return (SIZES[-1] if fired else ()), instances, fired


class _Different(Exception):  # noqa: N818
    """Symbols differ; over numbers both sides may still be equal."""


def _decisive(rule: Rule) -> set[str]:
    """The operands from whose elements the right side is computed, beyond those that say where elements go."""
    written = [e for side in rule.lhs for call in calls(side) for _, e in call.attrs]
    queried = {name for expr in (*written, *right_expressions(rule)) for name in _asked_elements(expr)}
    return queried - parameters_of(rule) - handed_on(rule)


def _asked_elements(expr: Any) -> set[str]:
    """The operands whose elements an expression asks for."""
    fields = [p for p in subexpressions(expr) if isinstance(p, Field) and p.name in ELEMENTS]
    return {part.of.name for part in fields if isinstance(part.of, NameRef)}


def _laws(rule: Rule) -> Laws:
    """What the guards of a rule say of elements that the algebra of terms has laws of."""
    steps, eight = set(), set()
    for guard in rule.where:
        match guard:
            case FunctionCall("has_step", (Field(NameRef(name), "scalar" | "value"),)):
                steps.add(name)
            case FunctionCall("in", (Field(NameRef(name), "dtype"), Series(items))):
                if all(isinstance(i, Lit) and i.value in ("int4", "uint4", "int8", "uint8") for i in items):
                    eight.add(name)
    return Laws(frozenset(steps), frozenset(eight))


Heads = tuple[str, ...]
"""The ops that the op variables of a rule are."""


def written_out(rule: Rule) -> Iterator[tuple[Rule, Heads]]:
    """Each way of writing a rule out, and the ops that its op variables are."""
    for variant in variants(rule):
        for written in headed(variant):
            pairs = [
                (a, b)
                for x, y in zip(variant.lhs, written.lhs, strict=True)
                for a, b in zip(calls(x), calls(y), strict=True)
            ]
            yield written, tuple(dict.fromkeys(b.op for a, b in pairs if a.is_variable))


def _all_of_rank(
    rule: Rule, rank: int, sizes: Sequence[int], is_real: bool, limit: int, laws: Laws
) -> tuple[set[Heads], int]:
    """With which ops the rule fires on instances of this rank, on all of which both sides agree, and how many."""
    fired: set[Heads] = set()
    instances = 0
    for written, heads in written_out(rule):
        for stars in STARS if any(v.starred for t in rule.lhs for v in variables(t)) else (1,):
            pattern = pattern_of(written, stars)
            if pattern is None:
                continue
            plans = Plans(written, pattern, rank, sizes)
            for count, plan in enumerate(plans.all()):
                if count == limit:
                    raise TooMany(f"more than {limit} instances of rank {rank}")
                if _agrees(rule, pattern, plan, Algebra(is_real, plans.named, laws)):
                    fired.add(heads)
                instances += 1
    return fired, instances


# -- instances


def _agrees(rule: Rule, pattern: ConcretePattern, plan: InstancePlan, algebra: Algebra) -> bool:
    """Whether the rule fires on an instance. Raises _Different where both sides are not the same there."""
    instance = _instance(pattern, plan)
    if instance is None:
        return False
    graph, symbolic = instance
    try:
        space = Workspace(graph)
    except GraphoptError:
        return False
    for match in matches(rule, space, graph.producer(graph.outputs[0])):  # type: ignore[arg-type]
        if list(match.roots) != graph.outputs:
            continue
        other = applied(Example(graph, match, {}))
        if isinstance(other, str):
            continue
        try:
            want = compute(graph, algebra, symbolic)
        except ValueError:  # sizes that must agree do not
            continue
        try:
            got = compute(other, algebra, symbolic)
        except ValueError as error:
            raise _Different(f"the right side has no value: {error}") from error
        for a, b in zip(want, got, strict=True):
            # over the reals there has to be a number where the left side has one
            nowhere = a == algebra.undefined if algebra.is_real else False
            if a.shape != b.shape or not np.all((a == b) | nowhere):
                raise _Different("symbols differ")
        return True
    return False


def _instance(pattern: ConcretePattern, plan: InstancePlan) -> tuple[Graph, dict[Value, str]] | None:
    """The graph of a plan, and which of its values are symbols; None where two roots are one."""
    graph = Graph(header=Header(opsets=(("", pattern.opset), ("com.microsoft", 1))))
    symbolic: dict[Value, str] = {}
    leaves: dict[str, Value] = {}
    steps: dict[int, int] = {}

    def leaf(key: str) -> Value:
        if key not in leaves:
            fact = plan.facts[key]
            if fact.constant is not None:
                leaves[key] = graph.add_constant(fact.constant)
            elif fact.is_const:
                shape = fact.shape or ()
                count = int(np.prod(shape)) if shape else 1  # type: ignore[arg-type]
                elements = (np.arange(count) + 2).reshape(shape).astype(fact.dtype or "float32")  # type: ignore[arg-type]
                leaves[key] = graph.add_constant(Constant.of(elements))
                symbolic[leaves[key]] = key
            else:
                assert fact.type is not None
                leaves[key] = graph.add_input(key, fact.type)
                symbolic[leaves[key]] = key
        return leaves[key]

    def value(tree: Tree | None, dtype: str | None) -> Value | None:
        match tree:
            case None:
                return None
            case Leaf(key):
                return leaf(key)
            case LiteralLeaf(number):
                name = dtype or (
                    "int64" if isinstance(number, int | tuple) and not isinstance(number, bool) else "float32"
                )
                name = "bool" if isinstance(number, bool) else name
                return graph.add_constant(Constant.of(np.asarray(number).astype(name), name))
        if id(tree) not in steps:
            attrs, facts = plan.steps[id(tree)]
            wish = next((f.dtype for k, f in plan.facts.items() if f.constant is None), None)
            inputs = tuple(
                value(t, "int64" if i in parameter_places(tree.op) else wish) for i, t in enumerate(tree.inputs)
            )
            steps[id(tree)] = graph.add(tree.op, inputs, attrs, len(facts)).id
        return Value(steps[id(tree)], tree.call.output)

    for i, root in enumerate(pattern.roots):
        graph_root = value(root, None)
        if graph_root is None or graph_root in graph.outputs:
            return None
        graph.add_output(f"y{i}", graph_root)
    return graph, symbolic
