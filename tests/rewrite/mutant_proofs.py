"""Proofs about mutants: that one is as true as its rule, or equal in what differs; and small graphs on which the sides
of one differ on symbols."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice, product
from random import Random

from graphopt.errors import GraphoptError
from graphopt.ir.graph import Graph
from graphopt.ir.types import TensorType
from graphopt.rewrite.checking.check import (
    Depth,
    applied,
    check_rule,
)
from graphopt.rewrite.checking.examples import Example, examples
from graphopt.rewrite.checking.examples.sample import Want
from graphopt.rewrite.match.matcher import matches
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.notation import show_rule, show_term
from graphopt.rewrite.rule.rule import (
    CallPattern,
    Computed,
    Field,
    FunctionCall,
    GuardExpr,
    Lit,
    Literal,
    NameRef,
    Rule,
    Series,
    Term,
    VarPattern,
    subexpressions,
    variables,
)

TRIED = 96
"""How many graphs are drawn to violate a guard, or to show that a claim is wrong."""
INSTANCES = 4000
"""How many small graphs of a kind are looked at where one is sought in which a mutant is wrong."""


def proved(rule: Rule) -> tuple[str, str]:
    """The fate of a mutant that is proved, or of which a solver's model shows that it is wrong, and why; else empty."""
    from graphopt.proof import indices, scalars
    from graphopt.proof.prove import demonstrate

    try:
        found = scalars.prove(rule, 1000)
        if found.kind is not None:
            return "equivalent", f"as true as the rule: proved {found.kind}"
        if found.counterexample is not None and (shown := demonstrate(rule, found.counterexample)):
            return "killed", f"a solver's model: {shown}"
        bounded = indices.prove(rule)
    except Exception:  # a proof that fails is none
        return "", ""
    return ("equivalent", f"as true as the rule: proved {bounded.kind} ({bounded.scope})") if bounded.kind else ("", "")


def unequal(rule: Rule) -> Iterator[Example]:
    """Small graphs in which a rule applies and its sides differ on symbols, which numbers may still be equal on: all
    shapes, axes and the like, one rank after another, until there are too many."""
    from graphopt.proof import indices
    from graphopt.proof.instances import Plans, TooMany, pattern_of
    from graphopt.proof.symbols import Algebra, Opaque

    starred = any(v.starred for t in rule.lhs for v in variables(t))
    for rank, (written, _), stars in product(
        range(1, indices.DEEPEST), indices.written_out(rule), indices.STARS if starred else (1,)
    ):
        if (pattern := pattern_of(written, stars)) is None:
            continue
        plans = Plans(written, pattern, rank, indices.SIZES[-1])
        with suppress(TooMany, Opaque, GraphoptError):
            for plan in islice(plans.all(), INSTANCES):
                try:
                    indices._agrees(rule, pattern, plan, Algebra(True, plans.named))
                except (indices._Different, Opaque):
                    if (made := indices._instance(pattern, plan)) is not None:
                        yield from _everywhere(rule, made[0])


def _everywhere(rule: Rule, graph: Graph) -> Iterator[Example]:
    """The graph, where a rule applies at its outputs."""
    space = Workspace(graph)
    types = {graph.names[v]: graph.types[v] for v in graph.inputs}
    wants = {name: Want(t.shape, t.dtype) for name, t in types.items() if isinstance(t, TensorType)}
    for match in matches(rule, space, graph.producer(graph.outputs[0])):  # type: ignore[arg-type]
        if list(match.roots) == graph.outputs:
            yield Example(graph, match, wants)
            return


def same(rule: Rule, mutant: Rule) -> tuple[str, str]:
    """The same of a mutant of the right side: what is other there is proved to be equal to what the rule has, by itself
    or in the calls around it. What is computed in both alike may be any constant."""
    for old, new in zip(rule.rhs, mutant.rhs, strict=True):
        for (part, other), deep in product(reversed([*_differing(old, new)]), DEPTHS):
            claim = _claim(rule, part, other, deep)
            if claim is None or not _is_of_one_type(claim):
                continue
            fate, why = proved(claim)
            if fate == "equivalent":
                return fate, f"{show_term(claim.lhs[0])} is {show_term(claim.rhs[0])}: {why.partition(': ')[2]}"
    return "", ""


def _is_of_one_type(claim: Rule) -> bool:
    """Whether the right side of a claim has the type of the left wherever that occurs, and both agree. Where a rule
    applies that is asked of it, and what stands in the midst of a term is not."""
    drawn = [e for e in examples(claim, Random(1), TRIED) if not isinstance(e, str)]
    if not drawn or any(isinstance(applied(example), str) for example in drawn):
        return False
    return check_rule(claim, 1, Depth(8, 0, tries=TRIED)).problem is None


DEPTHS = (9, 1)
"""So many calls deep is looked at what is equal in both, the rest may be anything."""


def _differing(old: Term, new: Term) -> Iterator[tuple[CallPattern, CallPattern]]:
    """The calls of two terms that hold all that differs, the outermost first."""
    if not isinstance(old, CallPattern) or not isinstance(new, CallPattern) or old == new:
        return
    yield old, new
    if replace(old, inputs=new.inputs) == new and len(old.inputs) == len(new.inputs):
        pairs = [(a, b) for a, b in zip(old.inputs, new.inputs, strict=True) if a != b]
        if len(pairs) == 1:
            yield from _differing(*pairs[0])


def _claim(rule: Rule, old: CallPattern, new: CallPattern, deep: int) -> Rule | None:
    """That two terms are equal where those guards of a rule hold that speak of them alone; None where no rule says
    that."""
    names: dict[Term, VarPattern] = {}

    def plain(term: Term, depth: int = 0) -> Term:
        match term:
            case Computed(expr, like):
                with suppress(GraphoptError, TypeError):
                    value = _constant(expr)
                    if like is None:
                        return Literal(value)
                return names.setdefault(term, VarPattern(f"any{len(names)}"))
            case CallPattern() if depth > deep:
                return names.setdefault(term, VarPattern(f"any{len(names)}"))
            case CallPattern(inputs=inputs):
                return replace(term, inputs=tuple(plain(part, depth + 1) for part in inputs))
        return term

    left, right = plain(old), plain(new)
    spoken = {name for side in (left, right) for name in _names(side)}
    where = tuple(g for g in rule.where if {p.name for p in subexpressions(g) if isinstance(p, NameRef)} <= spoken)
    constants = tuple(Field(NameRef(v.name), "is_const") for term, v in names.items() if isinstance(term, Computed))
    claim = replace(rule, lhs=(left,), rhs=(right,), where=(*where, *constants), pays=())
    try:
        (read,) = parse_rules(show_rule(claim), strict=True)
    except GraphoptError:
        return None
    return read


def _names(term: Term) -> Iterator[str]:
    match term:
        case VarPattern(name):
            yield name
        case CallPattern(inputs=inputs, attrs=attrs):
            for part in inputs:
                yield from _names(part)
            yield from (p.name for _, expr in attrs for p in subexpressions(expr) if isinstance(p, NameRef))


def _constant(expr: GuardExpr) -> tuple[int | float, ...] | int | float:
    """The value of an expression that is written out. Raises TypeError where it is not."""
    match expr:
        case Lit(int() | float() as value):
            return value
        case FunctionCall("-", (Lit(int() | float() as value),)):
            return -value
        case Series(items):
            return tuple(_constant(i) for i in items)  # type: ignore[misc]
    raise TypeError(expr)
