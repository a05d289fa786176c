"""The ways in which the left side of a rule can be written out: one for each alternative, and with and without each
optional input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, product

from graphopt.rewrite.rule.rule import ABSENT, AnyOf, Call, Rule, Term, Var, variables

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


def _unique(terms: tuple[Term, ...]) -> tuple[Var, ...]:
    return tuple(v for t in terms for v in variables(t))


def _has_choice(term: Term) -> bool:
    return isinstance(term, AnyOf) or (isinstance(term, Call) and any(map(_has_choice, term.inputs)))


def _options(term: Term, present: Mapping[str, bool]) -> Iterator[Term]:
    match term:
        case AnyOf(options):
            for option in options:
                yield from _options(option, present)
        case Call(inputs=inputs):
            for parts in product(*([*_options(t, present)] for t in inputs)):
                yield replace(term, inputs=_cut(parts))
        case _:
            yield _given(term, present)


def _given(term: Term, present: Mapping[str, bool]) -> Term:
    """The term where optional inputs are there, or are not."""
    match term:
        case Var(name) if name in present:
            return Var(name, starred=term.starred) if present[name] else ABSENT
        case Call(inputs=inputs):
            return replace(term, inputs=_cut(tuple(_given(t, present) for t in inputs)))
        case _:
            return term


def _cut(inputs: tuple[Term, ...]) -> tuple[Term, ...]:
    """Inputs without the absent ones at the end."""
    while inputs and inputs[-1] == ABSENT:
        inputs = inputs[:-1]
    return inputs
