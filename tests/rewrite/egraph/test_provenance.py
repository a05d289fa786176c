"""Every explanation is a chain: each step rewrites what the steps before it left."""

from __future__ import annotations

import pytest

from graphopt.ir.graph import NO_ATTRS
from graphopt.rewrite.egraph.provenance import Applied, Congruent, Provenance, TermSpelling, TermSymbol
from graphopt.rewrite.egraph.saturate import SaturationBudget, saturate
from tests.rewrite.small_graphs import ALGEBRA, random_graph, rules

Tree = tuple[int, tuple["Tree", ...]]


def tree(provenance: Provenance, term: TermSpelling) -> Tree:
    number = term if isinstance(term, int) else term.term
    children = provenance.terms[number][1] if isinstance(term, int) else term.children
    return provenance.terms[number][0], tuple(tree(provenance, c) for c in children)


def at(whole: Tree, site: tuple[int, ...]) -> Tree:
    return at(whole[1][site[0]], site[1:]) if site else whole


def put(whole: Tree, site: tuple[int, ...], part: Tree) -> Tree:
    if not site:
        return part
    children = list(whole[1])
    children[site[0]] = put(children[site[0]], site[1:], part)
    return whole[0], tuple(children)


@pytest.mark.parametrize("seed", range(6))
def test_explanations_are_chains(seed: int) -> None:
    saturated = saturate(random_graph(seed), None, rules(ALGEBRA), SaturationBudget(nodes=150))
    why = saturated.provenance
    for nodes in saturated.classes.values():
        for node in nodes[1:]:
            now = tree(why, nodes[0].id)
            for step in why.explain(nodes[0].id, node.id):
                assert at(now, step.site) == tree(why, step.before)
                now = put(now, step.site, tree(why, step.after))
            assert now == tree(why, node.id)


def terms(n: int) -> Provenance:
    why = Provenance([TermSymbol("x", NO_ATTRS, only=i) for i in range(n)] + [TermSymbol("f", NO_ATTRS)])
    why.terms += [(i, ()) for i in range(n)]
    return why


def test_the_path_between_terms_is_found_whichever_was_joined_first() -> None:
    why = terms(4)
    why.connect(0, 1, Applied("a", 0, 0, 1))
    why.connect(2, 3, Applied("b", 1, 2, 3))
    why.connect(0, 2, Applied("c", 2, 0, 2))
    assert [(s.rule, s.before, s.after, s.backward) for s in why.explain(1, 3)] == [
        ("a", 1, 0, True),
        ("c", 0, 2, False),
        ("b", 2, 3, False),
    ]
    assert [s.rule for s in why.explain(3, 1)] == ["b", "c", "a"]


def test_congruence_is_explained_by_the_children() -> None:
    why = terms(2)
    why.terms += [(2, (0,)), (2, (1,))]
    why.connect(0, 1, Applied("a", 0, 0, 1))
    why.connect(2, 3, Congruent())
    (step,) = why.explain(2, 3)
    assert (step.rule, step.site) == ("a", (0,))


def test_terms_that_are_not_equal_have_no_explanation() -> None:
    with pytest.raises(ValueError, match="not equal"):
        terms(2).explain(0, 1)


def test_deep_terms_are_explained_without_recursion() -> None:
    why = terms(2)
    why.connect(0, 1, Applied("a", 0, 0, 1))
    for i in range(5000):
        left, right = 2 * i, 2 * i + 1
        why.terms += [(2, (left,)), (2, (right,))]
        why.connect(left + 2, right + 2, Congruent())
    (step,) = why.explain(10_000, 10_001)
    assert len(step.site) == 5000
