"""Recipes from what there is: a node once more, bodies that capture values, and instances of the rules' left sides."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod

from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Value
from graphopt.ir.types import TensorType, Unranked
from graphopt.rewrite.checking.examples import examples
from graphopt.rewrite.rule.rule import CallPattern, Rule, calls
from graphopt.rewrite.ruleset import standard
from tests.recipes.maker import Maker, Misfit, remove_unused


@cache
def rules() -> tuple[Rule, ...]:
    """Those whose left sides may be in a model, as ops of ours may not."""
    return tuple(
        rule
        for rule in standard().rules
        if not any(call.op.startswith("graphopt::") for term in rule.lhs for call in calls(term))
    )


def branch(m: Maker) -> None:
    """An If whose bodies capture values."""
    if m.depth:
        raise Misfit("nested deep enough")
    captured = [m.pick("float32", static=True), m.pick("float32", static=True)]
    bodies = [body(m, captured) for _ in range(2)]
    if m.random.random() < 0.3:
        condition = m.constant(m.random.random() < 0.5, "bool")
    else:
        x = m.pick("float32")
        level = m.trial.level(x) if m.trial and x in m.trial.values else 0.5
        condition = m.call("Less", (m.call("ReduceMean", (x,), keepdims=0), m.constant(level, "float32")))
    attrs = Attrs(then_branch=bodies[0], else_branch=bodies[1])
    made = m.space.add("If", (condition, *captured), attrs, captures=2)
    if m.space.fact(made[0]).shape is None:
        raise Misfit("the branches have no shape in common")
    m.values += made


def body(m: Maker, captured: Sequence[Value]) -> Graph:
    inner = Maker(m.random, m.recipes, m.graph.opset, m.special, m.depth + 1)
    for i, value in enumerate(captured):
        kind = m.space.fact(value).type
        assert isinstance(kind, TensorType)
        inner.new_input(kind.dtype, kind.shape if isinstance(kind.shape, tuple) else None)
        inner.graph.names[inner.values[-1]] = f"captured{i}"
    grown = inner.finished(m.random.randint(1, 5))
    last = [v for v in grown.outputs if v is not None and grown.producer(v).op != INPUT]
    floats = [v for v in last if inner.dtype(v) == "float32" and isinstance(inner.space.fact(v).size, int)]
    value = floats[-1] if floats else inner.values[0]
    shape = tuple(s for s in inner.shape(value) if isinstance(s, int))
    flat = inner.call("Reshape", (value, inner.constant([prod(shape)])))
    inner.call("ReduceMean", (flat, inner.constant([0])), keepdims=1)
    del grown.outputs[:], grown.output_names[:]
    grown.add_output("result", inner.values[-1])
    grown.types[inner.values[-1]] = TensorType("float32", (1,))
    remove_unused(grown)
    return grown


def twin(m: Maker) -> None:
    """The same op once more."""
    node = m.graph.node(m.pick().node)
    if node.op in (INPUT, CONSTANT) or node.bodies:
        raise Misfit("nothing to repeat")
    m.calls(node.op, node.inputs, node.attrs, node.n_outputs)


def left_side(m: Maker) -> None:
    """An instance of a rule's left side, its inputs bound to values of the graph where some fit."""
    rule = m.random.choice(rules())
    if any("com.microsoft" in t.op for t in rule.lhs if isinstance(t, CallPattern)):
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
