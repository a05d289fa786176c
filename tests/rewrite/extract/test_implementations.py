"""Ops, fusions and layouts are chosen together."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attrs
from graphopt.ir.types import TensorType
from graphopt.rewrite.egraph.egraph_snapshot import ENode, Saturated
from graphopt.rewrite.extract.choose import Extraction, extract
from graphopt.rewrite.extract.cost import CostModel
from graphopt.rewrite.extract.dag import components
from graphopt.rewrite.extract.implementations import key, problem
from graphopt.rewrite.extract.layout import LayoutState
from graphopt.rewrite.extract.terms import Terms
from graphopt.target import ORT, PORTABLE, Target
from tests.rewrite.hand_made import classes_of, e

IMAGE = Fact(TensorType("float32", (1, 32, 56, 56)))


def held(shape: tuple[int, ...], value: float = 1.0) -> tuple[Attrs, Fact]:
    constant = Constant.of(np.full(shape, value, np.float32))
    return Attrs(value=constant), Fact(TensorType("float32", shape), True, constant)


def hard_swish(*spellings: str) -> Saturated:
    """A convolution of hard-swish of a convolution. The graph has it written out; the spellings are equal to that."""
    numbers = {3: 3.0, 4: 0.0, 5: 6.0}
    weights, weights_fact = held((32, 32, 3, 3))
    facts = dict.fromkeys(range(12), IMAGE) | {1: weights_fact} | {c: held((), x)[1] for c, x in numbers.items()}
    equal = {"HardSwish": e(20, "HardSwish", 2), "HardSigmoid": e(21, "Mul", 2, 10)}
    return classes_of(
        [e(0, INPUT, node=True)],
        [ENode(1, CONSTANT, weights, node=1)],
        [e(2, "Conv", 0, 1, node=True)],
        *([ENode(c, CONSTANT, held((), x)[0], node=c)] for c, x in numbers.items()),
        [e(6, "Add", 2, 3, node=True)],
        [e(7, "Clip", 6, 4, 5, node=True)],
        [e(8, "Mul", 2, 7, node=True)],
        [e(9, "Div", 8, 5, node=True), *(equal[s] for s in spellings)],
        [e(22, "HardSigmoid", 2, alpha=1 / 6)],
        [e(11, "Conv", 9, 1, node=True)],
        facts=facts,
        roots=(11,),
    )


def chosen(saturated: Saturated, target: Target) -> Extraction:
    found = extract(saturated, CostModel(target))
    assert found.optimal
    return found


@pytest.mark.parametrize("target", [ORT, PORTABLE])
def test_hard_swish_is_one_op_where_there_is_one(target: Target) -> None:
    found = chosen(hard_swish("HardSwish", "HardSigmoid"), target)
    assert found.choice[9].op == "HardSwish"


@pytest.mark.parametrize("target", [ORT, PORTABLE])
def test_else_it_is_a_product_with_hard_sigmoid(target: Target) -> None:
    found = chosen(hard_swish("HardSigmoid"), target)
    assert found.choice[9].children == (2, 10)
    assert found.choice[10].op == "HardSigmoid"


def test_either_way_nothing_leaves_the_blocked_layout() -> None:
    for spellings, reorders in (((), 4), (("HardSigmoid",), 2), (("HardSwish",), 2)):
        assert chosen(hard_swish(*spellings), ORT).cost.reorders == reorders


def test_what_stays_in_the_layout_beats_what_is_cheaper_by_itself() -> None:
    # alone, an Abs costs less than a Tanh; between convolutions the Tanh goes along with the first
    weights, weights_fact = held((32, 32, 1, 1))
    s = classes_of(
        [e(0, INPUT, node=True)],
        [ENode(1, CONSTANT, weights, node=1)],
        [e(2, "Conv", 0, 1, node=True)],
        [e(3, "Abs", 2, node=True), e(9, "Tanh", 2)],
        [e(4, "Conv", 3, 1, node=True)],
        facts=dict.fromkeys(range(5), IMAGE) | {1: weights_fact},
        roots=(4,),
    )
    assert chosen(s, ORT).choice[3].op == "Tanh"
    assert chosen(s, PORTABLE).choice[3].op == "Abs"


def test_a_convolution_that_others_read_takes_nothing_along() -> None:
    weights, weights_fact = held((32, 32, 1, 1))
    s = classes_of(
        [e(0, INPUT, node=True)],
        [ENode(1, CONSTANT, weights, node=1)],
        [e(2, "Conv", 0, 1, node=True)],
        [e(3, "LeakyRelu", 2, node=True)],
        [e(4, "Conv", 3, 1, node=True)],
        facts=dict.fromkeys(range(5), IMAGE) | {1: weights_fact},
        roots=(4,),
    )
    assert chosen(s, ORT).cost.by_op.keys() == {"Conv", "com.microsoft::FusedConv", "Reorder"}
    both = classes_of(*s.classes.values(), facts=dict(s.facts), roots=(2, 4))
    assert chosen(both, ORT).cost.by_op.keys() == {"Conv", "LeakyRelu", "Reorder"}


def test_layouts_make_no_circles() -> None:
    s = hard_swish("HardSwish", "HardSigmoid")
    found = problem(Terms(s, CostModel(ORT)), 0.0)
    assert not components(found.options)
    assert found.roots == (key(11, LayoutState.PLAIN),)


def test_without_layouts_a_class_is_one_class() -> None:
    found = problem(Terms(hard_swish(), CostModel(PORTABLE)), 0.0)
    assert all(name % len(LayoutState) == LayoutState.PLAIN for name in found.options)
