"""Places of a rule in a saturated e-graph: wherever its left side came to be, what comes of it there, and why no more.

Nothing is joined here. A right side is built only to see whether it fits, and what it would be made of; then it is
forgotten. Apart from saturation, which decides what to try and is done by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf

from graphopt.errors import SENSELESS, words_of
from graphopt.ir.ops import LATEST
from graphopt.rewrite.egraph.classes import ABSENT, Classes, contradiction
from graphopt.rewrite.egraph.egraph_snapshot import PROJECTION, Call, Place
from graphopt.rewrite.egraph.provenance import TermSpelling, term_of
from graphopt.rewrite.egraph.substitutions import Instance
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.guards.bindings import is_several
from graphopt.rewrite.match.build import Refused, replacements
from graphopt.rewrite.match.matcher import depth


def place(instance: Instance, classes: Classes, held: str = "") -> Place:
    """What comes of a rule where its left side is; ``held`` is why it was not tried there, if it was not."""
    left = instance.left(classes)
    told = Place(
        instance.rule.name,
        tuple(classes.find(r) for r in instance.roots),
        ", ".join(classes.provenance.text(side) for side in left),
    )
    return _Trial(instance, classes, told, left).run(held)


class _Trial:
    """One trial of one rule at one place."""

    def __init__(self, instance: Instance, classes: Classes, told: Place, left: tuple[TermSpelling, ...]) -> None:
        self.instance, self.classes, self.told, self.left = instance, classes, told, left

    def run(self, held: str) -> Place:
        given = self.classes.opset
        with _unlimited(self.classes):
            first, needed = self.outcome(held)
            after = first
            while needed is not None and needed <= LATEST:
                self.classes.opset, self.classes.inferred = needed, {}
                after, more = self.outcome("")
                if not after.why:
                    break
                needed = None if more is None else max(more, needed + 1)
        if needed is None:
            return first
        why = first.why if "opset" in first.why else f"{first.why}: opset {needed} is needed, the model has {given}"
        return replace(after, why=why, opset=needed, right=())

    def outcome(self, held: str) -> tuple[Place, int | None]:
        """What comes of the rule at the opset as it is, and the opset that it needs, where that is in the way."""
        classes, instance = self.classes, self.instance
        mark = classes.begin()
        try:
            for number, guard in enumerate(instance.rule.where):
                if (why := expressions.holds(guard, instance.bindings, classes)) is not None:
                    return replace(self.told, why=why, held=number), None
            terms = replacements(instance.rule, instance.bindings, instance.roots, classes)
            return self.built(list(terms), mark, held), None
        except Refused as refused:
            return replace(self.told, why=str(refused), held=len(instance.rule.where)), refused.opset
        except SENSELESS as error:
            return replace(self.told, why=f"it fails: {words_of(error)}"), None
        finally:
            classes.undo(mark)

    def built(self, terms: list[int], mark: int, held: str) -> Place:
        """The place where the right side fits: are the two sides equal, or why are they not?"""
        classes = self.classes
        pairs = list(zip(terms, self.told.roots, strict=True))
        before = dict.fromkeys(t for reader, row in self.instance.rows for t in reader.terms(row, classes))
        roots = set(self.told.roots)
        told = replace(
            self.told,
            before=tuple(_call(t, classes) for t in before if not classes.fact(t).is_const),
            after=tuple(_call(t, classes) for t in self.made(terms)),
            inner=tuple(dict.fromkeys(c for t in before if (c := classes.find(t)) not in roots)),
        )
        if all(classes.find(t) == root for t, root in pairs):
            return replace(told, right=tuple(classes.first_alike(t) for t in terms))
        if all(t >= mark and classes.has_alike(root, t, mark) for t, root in pairs):
            return replace(told, why="nothing but constants would differ from what is known")
        for term, root in pairs:
            if (why := contradiction(classes.fact(term), classes.fact(root))) is not None:
                return replace(told, why=why)
        return replace(told, why=held)

    def made(self, terms: list[int]) -> Iterator[int]:
        """The terms of the right side that are computed when the model runs, each once, down to its operands."""
        classes, bound = self.classes, self.instance.bindings.values.values()
        leaves = {classes.find(v) for b in bound if b is not None for v in (b if is_several(b) else (b,))}
        levels = max(map(depth, self.instance.rule.rhs))
        waiting: list[tuple[TermSpelling, int]] = [(classes.spelling(t), levels) for t in terms if levels]
        seen: set[int] = set()
        while waiting:
            spelling, left = waiting.pop()
            term = term_of(spelling)
            if term in seen or term == ABSENT or classes.fact(term).is_const:
                continue
            seen.add(term)
            symbol, children = classes.provenance.spell(spelling)
            is_call = symbol.op != PROJECTION
            if is_call:
                yield term
            waiting += [(c, left - is_call) for c in children if left > 1 and classes.find(term_of(c)) not in leaves]


def _call(term: int, classes: Classes) -> Call:
    node = classes.enode(term)
    inputs = tuple(None if c is None else classes.fact(c) for c in node.children)
    return Call(node.op, node.attrs, inputs, tuple(classes.fact(t) for t in classes.outputs(term)))


@contextmanager
def _unlimited(classes: Classes) -> Iterator[None]:
    """As many terms as a trial takes, since they are forgotten; and the opset as it was, afterwards."""
    kept = classes.limit, classes.opset, classes.inferred
    classes.limit = inf
    try:
        yield
    finally:
        classes.limit, classes.opset, classes.inferred = kept
