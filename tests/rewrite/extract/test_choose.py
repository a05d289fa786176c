"""Extraction finds the cheapest DAG, keeps to its limits, and is never dearer than the graph that was explored."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attrs
from graphopt.rewrite.egraph.egraph_snapshot import PROJECTION, ENode, Saturated
from graphopt.rewrite.extract.choose import Growth, SolverLimits, allowance, extract, forced, integer_program, solve
from graphopt.rewrite.extract.cost import CostModel
from graphopt.rewrite.extract.dag import Option, Problem, components, greedy, needed, price, prune
from graphopt.rewrite.extract.terms import Terms
from graphopt.target import CPU, ORT, PORTABLE, Target
from tests.rewrite.dag_problems import brute_force, problem, problems
from tests.rewrite.hand_made import classes_of, constant, e

MODEL = CostModel(PORTABLE)


def test_one_op_is_cheaper_than_two() -> None:
    s = classes_of(
        [e(0, INPUT, node=True)],
        [e(1, "HardSigmoid", 0, node=True)],
        [e(2, "Mul", 0, 1, node=True), e(3, "HardSwish", 0)],
        roots=(2,),
    )
    found = extract(s, MODEL)
    assert {c: n.op for c, n in found.choice.items()} == {0: INPUT, 2: "HardSwish"}
    assert found.changed
    assert found.optimal
    assert found.cost.total.seconds < found.original.total.seconds
    assert found.cost.by_op["HardSwish"][0] == 1


def test_another_choice_can_be_forced() -> None:
    s = classes_of(
        [e(0, INPUT, node=True)],
        [e(1, "HardSigmoid", 0, node=True)],
        [e(2, "Mul", 0, 1, node=True), e(3, "HardSwish", 0), e(4, "Neg", 2)],
        roots=(2,),
    )
    mul, _, circle = s.classes[2]
    found, other = extract(s, MODEL), forced(Terms(s, MODEL), {2: mul})
    assert other is not None
    assert {c: n.op for c, n in other.choice.items()} == {0: INPUT, 1: "HardSigmoid", 2: "Mul"}
    assert other.cost == found.original
    assert forced(Terms(s, MODEL), {2: circle}) is None


def test_what_others_need_anyway_is_shared() -> None:
    # alone, Tanh(x) is cheaper than Neg(Exp(x)); but Exp(x) is an output as well
    s = classes_of(
        [e(0, INPUT, node=True)],
        [e(1, "Exp", 0, node=True)],
        [e(2, "Tanh", 0, node=True), e(3, "Neg", 1)],
        roots=(1, 2),
    )
    assert extract(s, MODEL).choice[2].op == "Neg"
    alone = classes_of(*s.classes.values(), roots=(2,))
    assert extract(alone, MODEL).choice[2].op == "Tanh"


def test_a_circle_is_never_chosen() -> None:
    # both classes are free as transposes of each other, and dear to compute
    s = classes_of(
        [e(0, INPUT, node=True)],
        [e(1, "LRN", 0, node=True), e(3, "Identity", 2)],
        [e(2, "Transpose", 1, node=True), e(4, "LRN", 0)],
        roots=(1, 2),
    )
    found = extract(s, MODEL)
    assert sorted(n.op for n in found.choice.values()) == ["Identity", INPUT, "LRN"]
    assert list(found.choice) == [0, 2, 1]


def test_equals_leave_the_graph_as_it_was() -> None:
    s = classes_of(
        [e(0, INPUT, node=True)],
        [e(3, "Sub", 0, 0, node=True), e(1, "Add", 0, 0)],
        roots=(1,),
    )
    found = extract(s, MODEL)
    assert not found.changed
    assert found.choice[1].op == "Sub"
    assert found.cost == found.original


def test_several_outputs_are_one_op() -> None:
    s = classes_of(
        [e(0, INPUT, node=True)],
        [ENode(1, "Split", Attrs(axis=1), (0,), 2, 1)],
        [e(2, PROJECTION, 1, node=True, index=0)],
        [e(3, PROJECTION, 1, node=True, index=1)],
        [e(4, "Add", 2, 3, node=True)],
        facts={1: Fact()},
        roots=(4,),
    )
    found = extract(s, MODEL)
    assert found.cost.by_op.keys() == {"Split", "Add"}
    assert list(found.choice) == [0, 1, 2, 3, 4]


def folded(size: int, more: int = 0) -> Saturated:
    """A bias that may be added, or folded into other weights of ``size`` elements; ``more`` ops follow."""
    bias, bias_fact = constant(np.ones(64, np.float32))
    wide, wide_fact = constant(np.broadcast_to(np.float32(1), (size,)))
    return classes_of(
        [e(0, INPUT, node=True)],
        [ENode(1, CONSTANT, bias, node=1)],
        [e(2, "Add", 0, 1, node=True)],
        [e(3, "Relu", 2, node=True), e(5, "Relu", 0, 4)],
        [ENode(4, CONSTANT, wide)],
        *([e(5 + n, "Tanh", 4 + n if n else 3, node=True)] for n in range(more)),
        facts={1: bias_fact, 4: wide_fact},
        roots=(4 + more if more else 3,),
    )


def test_constants_cost_only_their_bytes() -> None:
    found = extract(folded(100), MODEL)
    assert list(found.cost.by_op) == ["Relu"]
    assert [n.op for n in found.choice.values()] == [INPUT, CONSTANT, "Relu"]
    assert found.nbytes == 400


def test_constants_may_not_grow_beyond_the_limit() -> None:
    assert extract(folded(3_000_000), MODEL).changed is False
    assert extract(folded(3_000_000), MODEL, growth=Growth(20_000_000, 20_000_000)).changed is True
    assert extract(folded(100), MODEL, growth=Growth(10, 10)).changed is False


def test_more_than_is_free_has_to_pay() -> None:
    assert extract(folded(1000), MODEL, growth=Growth(10, 10_000)).changed is True  # an addition of two ops
    assert extract(folded(1000, more=40), MODEL, growth=Growth(10, 10_000)).changed is False
    assert extract(folded(1000, more=40), MODEL, growth=Growth(10_000, 10_000)).changed is True


def test_the_limit_is_ten_percent_and_ten_megabytes_where_that_pays() -> None:
    assert allowance(0, PORTABLE) == Growth(4096, 10_000_000)
    assert allowance(500_000_000, PORTABLE) == Growth(50_000_000, 50_000_000)
    assert allowance(500_000_000, CPU) == Growth(1_500_000_000, 1_500_000_000)  # a program is no file that is handed on
    assert allowance(500_000_000, PORTABLE, 0.5) == Growth(250_000_000, 250_000_000)


def test_a_constant_that_is_one_element_repeated_takes_no_bytes() -> None:
    s = folded(3_000_000)
    uniform = classes_of(
        *(own if c != 4 else [e(4, "ConstantOfShape", 1)] for c, own in s.classes.items()),
        facts=dict(s.facts),
        roots=(3,),
    )
    assert extract(uniform, MODEL).changed


@settings(max_examples=200, deadline=None)
@given(problems())
def test_solving_is_exact(p: Problem) -> None:
    best = brute_force(p)
    if best is None:
        with pytest.raises(ValueError, match="nothing computes"):
            solve(p, SolverLimits())
    else:
        found = solve(p, SolverLimits())
        assert found.optimal
        assert price(found.choice) == best
        assert needed(found.choice, p.roots) == found.choice


@settings(max_examples=30, deadline=None)
@given(problems())
def test_the_integer_program_is_exact(p: Problem) -> None:
    best = brute_force(p)
    if best is not None:
        p = prune(p)
        found = integer_program(p, components(p.options), SolverLimits())
        assert found is not None
        assert found.optimal
        assert price(found.choice) == pytest.approx(best)


@settings(max_examples=100, deadline=None)
@given(problems())
def test_local_search_gives_a_valid_choice(p: Problem) -> None:
    best = brute_force(p)
    if best is not None:
        found = solve(p, SolverLimits(table=1, unroll=0, options=0))
        assert needed(found.choice, p.roots) == found.choice
        assert price(found.choice) >= best


def test_equal_parts_are_solved_alike() -> None:
    p = problem(
        (2, 5),
        c0=[(1, ())],
        c1=[(1, ())],
        c2=[(2, (0,)), (1, (1,))],
        c3=[(1, ())],
        c4=[(1, ())],
        c5=[(2, (3,)), (1, (4,))],
    )
    found = solve(p, SolverLimits())
    assert sorted(found.choice) == [1, 2, 4, 5]


def test_thousand_classes_with_few_alternatives_are_quick() -> None:
    options: dict[int, tuple[Option, ...]] = {0: (Option(1.0, ()),)}
    for c in range(1, 3000):
        extra = (Option(1.5, (c // 2,)),) if c % 10 == 0 else ()
        options[c] = (Option(1.0, (c - 1, max(c - 2, 0))), *extra)
    from time import process_time

    start = process_time()
    solve(Problem(options, (2999,)), SolverLimits())
    assert process_time() - start < 20


@st.composite
def saturated(draw: st.DrawFn) -> Saturated:
    """Random classes, of which some greedy choice is the graph."""
    p = draw(problems())
    if brute_force(p) is None:
        p = problem((0,), c0=[(1, ())])
    ops, count, given = ("Relu", "Exp", "Log", "LRN", "Reshape"), 0, greedy(p)
    classes: list[list[ENode]] = []
    for c, options in p.options.items():
        own = []
        for option in options:
            original = given.get(c) is option
            own.append(e(count, ops[int(option.cost) % len(ops)], *option.needs, node=original))
            count += 1
        classes.append(own)
    return classes_of(*classes, roots=p.roots)


@settings(max_examples=60, deadline=None)
@given(saturated(), st.sampled_from([PORTABLE, ORT]))
def test_the_result_is_never_dearer_and_always_a_graph(s: Saturated, target: Target) -> None:
    found = extract(s, CostModel(target))
    assert found.cost.total.seconds <= found.original.total.seconds * (1 + 1e-9)
    seen: set[int] = set()
    for c, node in found.choice.items():
        assert node in s.classes[c]
        assert seen.issuperset(n for n in node.children if n is not None)
        seen.add(c)
    assert seen.issuperset(c for c in s.roots if c is not None)
    assert found.changed == (found.choice != {c: s.originals.get(c) for c in found.choice})


def test_the_same_in_every_process() -> None:
    code = (
        "from graphopt.rewrite.extract.cost import CostModel\n"
        "from graphopt.rewrite.extract.choose import extract\n"
        "from graphopt.target import ORT\n"
        "from tests.rewrite.extract.test_implementations import hard_swish\n"
        "print(extract(hard_swish('HardSwish', 'HardSigmoid'), CostModel(ORT)))\n"
    )
    root = Path(__file__).parents[3]
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=root, env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            capture_output=True, check=True, text=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert runs[0] == runs[1]
