"""Recipes with bodies that capture values, and with sequences and optional values."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphopt.ir.graph import INPUT, Attrs, Graph, Value
from graphopt.ir.types import TensorType
from tests.recipes.maker import Maker, Misfit, remove_unused
from tests.recipes.movements import alike_but

DEEPEST = 2
"""How many bodies stand in one another."""


def branch(m: Maker) -> None:
    """An If whose bodies capture values."""
    captured = _picked(m, 2)
    bodies = [_branch_body(m, captured) for _ in range(2)]
    if m.random.random() < 0.3:
        condition = m.constant(m.random.random() < 0.5, "bool")
    else:
        x = m.pick("float32")
        is_told = m.trial is not None and x in m.trial.values and m.trial.depends(x)
        level = (
            m.trial.level(x) if m.trial and is_told else 0.5
        )  # a constant beside itself would be one ulp from either
        condition = m.call("Less", (m.call("ReduceMean", (x,), keepdims=0), m.constant(level, "float32")))
    _call(m, "If", (condition, *captured), Attrs(then_branch=bodies[0], else_branch=bodies[1]), 1, captures=2)


def loop(m: Maker) -> None:
    """A Loop of a few rounds with a state, what every round gives, and sometimes an end that data decide."""
    state, captured = _picked(m, 1)[0], _picked(m, m.random.randint(0, 2))
    inner = _begun(m, [TensorType("int64", ()), TensorType("bool", ()), _type(m, state)], captured)
    goes_on, before = inner.values[1:3]
    mean = _mean(inner)
    scalar = inner.call("Reshape", (mean, inner.constant([])))
    after = inner.call("Tanh", (inner.call("Add", (before, scalar)),))
    if m.random.random() < 0.3:
        condition = inner.call("Less", (scalar, inner.constant(m.random.choice((-0.5, 0.0, 0.5)), "float32")))
    else:
        condition = inner.call("Identity", (goes_on,))
    trips = m.constant(m.random.choice((1, 2, 3, 3, 0)))
    runs = None if m.random.random() < 0.5 else m.constant(True, "bool")
    body = _ended(inner, [condition, after, mean])
    _call(m, "Loop", (trips, runs, state, *captured), Attrs(body=body), 2, captures=len(captured))


def scan(m: Maker) -> None:
    """A Scan along the first axis of a value, with a state."""
    x = m.pick("float32", least=2, static=True)
    state, captured = _picked(m, 1)[0], _picked(m, m.random.randint(0, 1))
    sliced = TensorType("float32", m.shape(x)[1:])
    inner = _begun(m, [_type(m, state), sliced], captured)
    before, row = inner.values[:2]
    scalar = inner.call("Reshape", (_mean(inner), inner.constant([])))
    outputs = [inner.call("Tanh", (inner.call("Add", (v, scalar)),)) for v in (before, row)]
    attrs = Attrs(body=_ended(inner, outputs), num_scan_inputs=1)
    _call(m, "Scan", (state, x, *captured), attrs, 2, captures=len(captured))


def sequence(m: Maker) -> None:
    """A sequence of two values, one of which is taken out, or both are put together."""
    x = m.pick("float32", "int64", least=1)
    is_joined, axis = m.random.random() < 0.5, m.random.randrange(len(m.shape(x)))
    y = m.pick(m.dtype(x), rank=len(m.shape(x)))
    if is_joined and not alike_but(m.space.fact(y).shape, m.shape(x), axis):
        y = x
    both = m.space.add("SequenceConstruct", (x, y))[0]
    if is_joined:
        m.call("ConcatFromSequence", (both,), axis=axis)
    else:
        m.call("SequenceAt", (both, m.constant(m.random.choice((0, 1, -1)))))


def optional(m: Maker) -> None:
    """A value in an optional one, and out again."""
    held = m.space.add("Optional", (m.pick("float32", "int64"),))[0]
    m.call(m.random.choice(("OptionalGetElement", "OptionalGetElement", "OptionalHasElement")), (held,))


# -- bodies


def _picked(m: Maker, count: int) -> list[Value]:
    if m.depth >= DEEPEST:
        raise Misfit("nested deep enough")
    return [m.pick("float32", static=True) for _ in range(count)]


def _type(m: Maker, value: Value) -> TensorType:
    kind = m.space.fact(value).type
    assert isinstance(kind, TensorType)
    return kind


def _begun(m: Maker, given: Sequence[TensorType], captured: Sequence[Value]) -> Maker:
    """What grows a body with these inputs and captured values, grown by some steps."""
    inner = Maker(m.random, m.recipes, m.graph.opset, m.special, m.depth + 1)
    types = [*given, *(_type(m, value) for value in captured)]
    for number, kind in enumerate(types):
        inner.new_input(kind.dtype, kind.shape if isinstance(kind.shape, tuple) else None)
        if number >= len(given):
            inner.graph.names[inner.values[-1]] = f"captured{number - len(given)}"
    inner.finished(m.random.randint(1, 5))
    if len(inner.graph.inputs) != len(types):
        raise Misfit("a body with inputs that nobody gives")
    return inner


def _mean(inner: Maker) -> Value:
    """One number of what was made last."""
    last = [v for v in inner.graph.outputs if v is not None and inner.graph.producer(v).op != INPUT]
    values = [*inner.values[::-1], *last] if not last else [*inner.values, *last][::-1]
    floats = [v for v in values if inner.dtype(v) == "float32" and isinstance(inner.space.fact(v).size, int)]
    shape = tuple(s for s in inner.shape(floats[0]) if isinstance(s, int))
    flat = inner.call("Reshape", (floats[0], inner.constant([prod(shape)])))
    return inner.call("ReduceMean", (flat, inner.constant([0])), keepdims=1)


def _ended(inner: Maker, results: Sequence[Value]) -> Graph:
    grown = inner.graph
    del grown.outputs[:], grown.output_names[:]
    grown.types = {v: t for v, t in grown.types.items() if v in grown.inputs}
    for number, value in enumerate(results):
        grown.add_output(f"result{number}", value)
        grown.types[value] = _type(inner, value)
    remove_unused(grown)
    return grown


def _branch_body(m: Maker, captured: Sequence[Value]) -> Graph:
    inner = _begun(m, [], captured)
    return _ended(inner, [_mean(inner)])


def _call(m: Maker, op: str, inputs: Sequence[Value | None], attrs: Attrs, n_outputs: int, captures: int) -> None:
    made = m.space.add(op, tuple(inputs), attrs, n_outputs, captures=captures)
    if any(m.space.fact(value).shape is None for value in made):
        raise Misfit("a result of unknown rank")
    m.values += made
