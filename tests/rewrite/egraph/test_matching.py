"""The e-graph finds what the directed matcher finds, and nothing else."""

from __future__ import annotations

import random

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.graph import Attrs, Graph, Value
from graphopt.ir.infer import infer
from graphopt.ir.types import TensorType
from graphopt.rewrite.egraph.classes import Classes
from graphopt.rewrite.egraph.matching import Matching
from graphopt.rewrite.egraph.saturate import SaturationBudget, _Run
from graphopt.rewrite.egraph.substitutions import Instance, independent
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.guards.bindings import Bindings, is_several
from graphopt.rewrite.match.matcher import matches
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule
from tests.rewrite.small_graphs import ALGEBRA, random_graph, rules

RULES = parse_rules(
    """
# nested calls [A1] exact
nested: Relu(Neg(x)) => x
# commutative, twice [A1] exact
factor: Add(Mul(a, b), Mul(a, c)) => a
# a literal on either side [A1] exact
plus-one: Add(x, 1.0) => x
# a literal deep down [A1] exact
scaled: Mul(Add(x, 1.0), 2.0) => x
# the same value twice [A1] exact
doubled: Add(x, x) => x
# an attribute and a guard [A1] exact
turned: Transpose(Transpose(x, perm=p), perm=q) => x where p == q
# a default attribute [A1] exact
plain: Transpose(x) => x
# rest of the attributes [A1] exact
any-turn: Transpose(x, **rest) => x
# optional inputs [A1] exact
clip: Clip(x, lo?, hi?) => x
# an absent input [A1] exact
below: Clip(x, _, hi) => x
# all of a variadic op [A1] exact
joined: Concat(a*, axis=k) => Concat(a*, axis=k)
# a family under a variadic op [A1] exact
all-relu: Concat(Relu(a*), axis=k) => Concat(a*, axis=k)
# one among others [A1] exact
inner: Concat(a*, Concat(b*, axis=k), c*, axis=k) => Concat(a*, b*, c*, axis=k)
# a variadic op without order [A1] exact
max-relu: Max(Relu(x), a*) => x
# an op variable [A1] exact
unary-neg: Neg(f(x)) => x where f in unary
# an op variable twice [A1] exact
both: Add(f(x), f(y)) => f(Add(x, y)) where f in unary
# alternatives [A1] exact
either: Neg((Relu(x) | Neg(x))) => x
# an output of several [A1] exact
second: Relu(Split(x, s, axis=k)[1]) => x
# two roots [A1] exact
two: Relu(x), Neg(x) => Relu(x), Neg(x)
# two roots with calls below [A1] exact
two-deep: Add(x, Relu(y)), Mul(x, Relu(y)) => x, x
# a name for a term [A1] exact
named: Mul(Relu(x) as r, y) => r where r.rank == 2
""",
    strict=False,
)


def graph(seed: int) -> Graph:
    """A random graph of small float matrices, without equal nodes: those are one to the e-graph."""
    pick = random.Random(seed)
    g = Graph()
    square = TensorType("float32", (2, 2))
    values = [g.add_input(f"x{i}", square) for i in range(2)]
    ones = [
        g.add_constant(Constant.of(np.full(shape, n, np.float32))) for shape, n in [((), 1), ((1, 1), 2), ((1,), 1)]
    ]
    sizes = g.add_constant(Constant.of(np.array([1, 1], np.int64)))

    made_before: dict[object, tuple[Value, ...]] = {}

    def add(op: str, *inputs: Value | None, n_outputs: int = 1, **attrs: object) -> tuple[Value, ...]:
        key = (op, tuple(sorted(map(repr, inputs))) if op in ("Add", "Mul", "Max") else inputs, repr(attrs))
        if key not in made_before:
            made_before[key] = g.add(op, inputs, Attrs(attrs), n_outputs).outputs  # type: ignore[arg-type]
        return made_before[key]

    def several() -> list[Value]:
        return pick.choices(values, k=pick.randint(1, 3))

    joined: list[list[Value]] = [[], []]
    for _ in range(40):
        x, y = pick.choices(values[-5:], k=2)
        match pick.choice([0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 7, 8]):
            case 0 | 1:
                made = add(pick.choice(["Relu", "Neg"]), x)
            case 2 | 3:
                made = add(pick.choice(["Add", "Mul"]), *pick.sample([x, pick.choice([y, *ones])], 2))
            case 4:
                made = add("Transpose", x, **pick.choice([{"perm": (0, 1)}, {}]))  # type: ignore[arg-type]
            case 5:
                made = add("Clip", x, *pick.choice([(), (ones[0],), (None, ones[0]), (ones[0], ones[0])]))
            case 6:
                made = add("Max", *several())
            case 7:
                axis = pick.choice([0, 1])
                parts = [*several(), *pick.sample(joined[axis], min(1, len(joined[axis])))]
                joined[axis] += add("Concat", *pick.sample(parts, len(parts)), axis=axis)
                continue
            case _:
                halves = add("Split", x, sizes, n_outputs=2, axis=0)
                made = add("Concat", *halves, axis=0)
                g.add_output("", add("Relu", halves[1])[0])
        values += made
    x, y = values[-2:]
    (r,) = add("Relu", y)
    (t,) = add("Transpose", x)
    values += [*add("Add", r, x), *add("Mul", x, r), *add("Transpose", t)]
    g.add_output("y", values[-1])
    return g


def summary(roots: tuple[object, ...], bindings: Bindings[int]) -> object:
    values = tuple(sorted((n, v) for n, v in bindings.values.items()))
    attrs = tuple(sorted((n, repr(a)) for n, a in bindings.attrs.items()))
    return roots, values, attrs, tuple(sorted((n, repr(h)) for n, h in bindings.heads.items()))


def directed(rule: Rule, space: Workspace, classes: Classes) -> set[object]:
    def name(value: object) -> object:
        if is_several(value):
            return tuple(map(name, value))
        return classes.find(classes.values[value]) if isinstance(value, Value) else value

    found = set()
    for node in space.graph.nodes():
        for m in matches(rule, space, node):
            roots = tuple(name(r) for r in m.roots)
            if not any(classes.fact(r).is_const for r in roots):  # type: ignore[arg-type]
                renamed = Bindings(
                    {n: name(v) for n, v in m.bindings.values.items()}, m.bindings.attrs, m.bindings.heads
                )
                found.add(summary(roots, renamed))  # type: ignore[arg-type]
    return found


def explored(matching: Matching, index: int, classes: Classes) -> set[object]:
    result = set()
    for found in matching.relations[index]:
        for row in found.waiting:
            instance = found.reader.read(row, classes)
            if (
                isinstance(instance, Instance)
                and not any(classes.fact(r).is_const for r in instance.roots)
                and (len(instance.roots) == 1 or independent(instance, classes))
                and not any(expressions.holds(g, instance.bindings, classes) for g in instance.rule.where)
            ):
                result.add(summary(instance.roots, instance.bindings))
    return result


@pytest.mark.parametrize("seed", range(12))
def test_finds_what_the_directed_matcher_finds(seed: int) -> None:
    g = graph(seed)
    facts = infer(g)
    classes, space = Classes(g, facts, 10_000), Workspace(g, facts)
    matching = Matching(classes, RULES)
    matching.search(range(len(RULES)))
    for index, rule in enumerate(RULES):
        assert explored(matching, index, classes) == directed(rule, space, classes), rule.name


def test_every_kind_of_pattern_matches_somewhere() -> None:
    unmatched = {rule.name for rule in RULES}
    for seed in range(12):
        g = graph(seed)
        classes = Classes(g, infer(g), 10_000)
        matching = Matching(classes, RULES)
        matching.search(range(len(RULES)))
        unmatched -= {rule.name for i, rule in enumerate(RULES) if explored(matching, i, classes)}
    assert not unmatched


@pytest.mark.parametrize("seed", range(4))
def test_egglog_and_this_side_agree_on_what_is_equal(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphopt.rewrite.egraph.matching.DECLARING", 0)
    g = random_graph(seed)
    run = _Run(g, infer(g), rules(ALGEBRA), SaturationBudget(nodes=200), None)
    run.run()
    run.matching.search([])
    classes, _ = run.matching._engine.read([])
    assert classes == {term: run.classes.find(term) for term in range(len(run.classes.terms))}


@pytest.mark.parametrize("seed", range(6))
def test_queries_that_are_not_asked_have_nothing_new(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphopt.rewrite.egraph.matching.DECLARING", 0)
    g = random_graph(seed)
    found = [rule for rule in rules(ALGEBRA) if rule.name != "regroup"]
    run = _Run(g, infer(g), found, SaturationBudget(nodes=2000), None)
    assert run.run() == "saturated"
    matching = run.matching
    matching.search([])
    declared = [name for name, relation in matching._by_name.items() if relation.left is None]
    matching._engine.run(declared)
    for name, rows in matching._engine.read(declared)[1].items():
        assert set(rows) <= matching._by_name[name].seen.keys()
