"""Recipes from what there is: a node once more, and instances of the rules' left sides."""

from __future__ import annotations

from functools import cache
from math import prod

from graphopt.ir.graph import CONSTANT, INPUT, Value
from graphopt.ir.types import TensorType, Unranked
from graphopt.rewrite.checking.examples import examples
from graphopt.rewrite.rule.rule import Rule, calls
from graphopt.rewrite.ruleset import standard
from tests.recipes.maker import FLOATS, Maker, Misfit


@cache
def rules() -> tuple[Rule, ...]:
    """Those whose left sides may be in a model, as ops of ours may not."""
    return tuple(
        rule
        for rule in standard().rules
        if not any(call.op.startswith("graphopt::") for term in rule.lhs for call in calls(term))
    )


def twin(m: Maker) -> None:
    """The same op once more."""
    node = m.graph.node(m.pick().node)
    if node.op in (INPUT, CONSTANT) or node.bodies:
        raise Misfit("nothing to repeat")
    m.calls(node.op, node.inputs, node.attrs, node.n_outputs)


def left_side(m: Maker) -> None:
    """An instance of a rule's left side, its inputs bound to values of the graph where some fit."""
    rule = m.random.choice(rules())
    if any("com.microsoft" in call.op for term in rule.lhs for call in calls(term)):
        raise Misfit("an op of ONNX Runtime")
    example = next((e for e in examples(rule, m.random, 4) if not isinstance(e, str)), None)
    if example is None:
        raise Misfit("no example")
    copies: dict[Value, Value] = {}
    for node in example.graph.order():
        value = Value(node.id)
        if node.op == INPUT:
            kind = example.graph.types[value]
            assert isinstance(kind, TensorType)
            copies[value] = bound(m, kind)
        elif node.op == CONSTANT:
            constant = example.graph.constant_of(value)
            assert constant is not None
            copies[value] = m.space.make_constant(constant)
        else:
            inputs = [None if v is None else copies[v] for v in node.inputs]
            if node.op == "Cast" and m.special:
                raise Misfit("NaN has no integer")
            if node.op == "Pow" and len({m.dtype(v) in FLOATS for v in inputs if v is not None}) == 2:
                raise Misfit("nor has a root of a negative integer, which is another on each device")
            copies.update(zip(node.outputs, m.calls(node.op, inputs, node.attrs, node.n_outputs), strict=True))


def bound(m: Maker, kind: TensorType) -> Value:
    """A value of this type: one that there is, one reshaped, a constant, or a new input."""
    alike = [v for v in m.values if m.space.fact(v).type == kind]
    if alike and m.random.random() < 0.8:
        return m.random.choice(alike)
    shape = kind.shape
    assert not isinstance(shape, Unranked)
    numbers = [s for s in shape if isinstance(s, int)]
    sized = [v for v in m.values if m.dtype(v) == kind.dtype and m.space.fact(v).size == prod(numbers)]
    if sized and m.random.random() < 0.8:
        return m.call("Reshape", (m.random.choice(sized), m.constant(numbers)))
    if m.depth:
        return m.weight(numbers, kind.dtype)
    return m.new_input(kind.dtype, shape)
