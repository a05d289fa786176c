"""Type inference of ops with bodies (If, Loop, Scan) and of calls of local functions.

Loops are inferred under states whose types hold in every round: a size that the body changes gets a
symbol that stands for any size, and the body is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from graphopt.ir.bounds import fact_of, fact_of_type
from graphopt.ir.constants import Constant
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import AttrRef, Attrs, Function, Graph, Node
from graphopt.ir.infer_sequences import either_size, join
from graphopt.ir.types import (
    SequenceType,
    Size,
    TensorType,
    Type,
    Unranked,
    fresh_symbol,
    is_open_size,
    is_size,
    symbols,
    unranked,
)

BodyFacts: TypeAlias = Sequence["Fact | None"]
InferBody: TypeAlias = Callable[[Graph, BodyFacts], list[Fact]]
InferBodied: TypeAlias = Callable[[Node, BodyFacts, InferBody], Sequence[Fact]]


def infer_if(node: Node, inputs: BodyFacts, infer_body: InferBody) -> Sequence[Fact]:
    """What holds after either branch, or after the one that is known to be taken."""
    outputs = [infer_body(body, inputs[1:]) for body in branches(node, inputs[0])]
    return [_either(facts) for facts in zip(*outputs, strict=True)]


def branches(node: Node, condition: Fact | None) -> list[Graph]:
    """The bodies of an If of which one runs: both, or the one that is known to be taken."""
    elements = None if condition is None else condition.elements
    skipped = "else_branch" if elements == (1,) else "then_branch" if elements == (0,) else None
    return [body for name, body in sorted(node.bodies.items()) if name != skipped]


def _either(facts: tuple[Fact, ...]) -> Fact:
    """What is known of a value that is one of several."""
    first = facts[0]
    if all(f == first for f in facts):
        return first if first.constant is not None else replace(first, is_const=False)
    type = first.type
    for other in facts[1:]:
        type = join(type, other.type)
    elements = first.elements if all(f.elements == first.elements for f in facts) else None
    return Fact(type, False, None, elements, min(f.low for f in facts), max(f.high for f in facts))


def infer_loop(node: Node, inputs: BodyFacts, infer_body: InferBody) -> Sequence[Fact]:
    """The final states, and what every round gave, stacked."""
    outer = len(inputs) - node.captures
    trips, condition = inputs[:2]
    number, goes = loop_head(node.bodies["body"])
    runs = fact_of(Constant.of(np.full((1,) * (goes.rank or 0), True)))  # a body that runs has a true condition
    head = [Fact(number, elements=(fresh_symbol(),), low=0.0), runs]
    states, results = _settle(node.bodies["body"], head, inputs[2:outer], inputs[outer:], 1, infer_body)
    goes_on = (condition is None or condition.elements == (1,)) and results[0].elements == (1,)
    most = trips.elements[0] if trips is not None and trips.elements else None
    if (isinstance(most, int) and most < 0) or (condition is not None and condition.elements == (0,)):
        most, goes_on = 0, True
    count = most if most is not None and goes_on and is_size(most) else fresh_symbol()
    return _after(states, results[1:], lambda type, _: _stacked(type, count, 0))


LOOPS = frozenset({"Loop", "Scan"})
"""Ops that run their body many times."""


def states_of(node: Node) -> slice:
    """Which inputs of the body of a Loop or Scan are states."""
    outer, scans = len(node.inputs) - node.captures, node.attrs.get("num_scan_inputs", 0)
    return slice(2, outer) if node.op == "Loop" else slice(outer - scans if isinstance(scans, int) else 0)


def loop_head(body: Graph) -> tuple[TensorType, TensorType]:
    """The types in which a Loop's body gets the number of the round and the condition: scalars, or, as ONNX Runtime
    and onnx allow, vectors of one element where the body declares them so."""
    number, condition = (TensorType(d, _single(body, i)) for i, d in enumerate(("int64", "bool")))
    return number, condition


def _single(body: Graph, index: int) -> tuple[int, ...]:
    """The shape of one element as a body's input is declared to hold it."""
    declared = body.types.get(body.inputs[index]) if index < len(body.inputs) else None
    is_vector = isinstance(declared, TensorType) and isinstance(declared.shape, tuple) and len(declared.shape) == 1
    return (1,) if is_vector else ()


def infer_scan(node: Node, inputs: BodyFacts, infer_body: InferBody) -> Sequence[Fact]:
    """The final states, and what every round gave, stacked along the axes that the op names."""
    outer = len(inputs) - node.captures
    n_scans = node.attrs.get("num_scan_inputs")
    if not isinstance(n_scans, int):
        return [NOTHING] * node.n_outputs
    n_states = outer - n_scans
    axes = _axes(node, "scan_input_axes", n_scans)
    count: Size | None = None
    slices: list[Fact | None] = []
    for fact, axis in zip(inputs[n_states:outer], axes, strict=True):
        sliced, size = _sliced(fact.type if fact is not None else None, axis)
        slices.append(fact_of_type(sliced))
        count = size if count is None or isinstance(size, int) else count
    trips = fresh_symbol() if count is None else count
    states, results = _settle(node.bodies["body"], [], inputs[:n_states], [*slices, *inputs[outer:]], 0, infer_body)
    out_axes = _axes(node, "scan_output_axes", len(results) - n_states)
    return _after(states, results, lambda type, i: _stacked(type, trips, out_axes[i]))


def _axes(node: Node, name: str, count: int) -> tuple[int, ...]:
    axes = node.attrs.get(name)
    return axes if isinstance(axes, tuple) else (0,) * count  # type: ignore[return-value]


def scan_axis(node: Node, name: str, k: int, rank: int) -> int:
    """The axis that a Scan goes along in its ``k``-th scanned input, or output, of the rank."""
    axes = node.attrs.get(name)
    axis = axes[k] if isinstance(axes, tuple) and k >= 0 else 0
    return axis % max(rank + (name == "scan_output_axes"), 1) if isinstance(axis, int) else 0


def _sliced(type: Type | None, axis: int) -> tuple[Type | None, Size | None]:
    """The type of one slice along an axis, and how many there are."""
    if not isinstance(type, TensorType):
        return None, None
    if isinstance(type.shape, Unranked):
        return TensorType(type.dtype, unranked()), None
    at = axis % len(type.shape)
    return TensorType(type.dtype, type.shape[:at] + type.shape[at + 1 :]), type.shape[at]


def _stacked(type: Type | None, count: Size, axis: int) -> Type | None:
    if not isinstance(type, TensorType):
        return None
    if isinstance(type.shape, Unranked):
        return TensorType(type.dtype, unranked())
    at = axis % (len(type.shape) + 1)
    return TensorType(type.dtype, (*type.shape[:at], count, *type.shape[at:]))


class _States:
    """The types of a loop's states, and what in them changes from round to round."""

    def __init__(self, types: list[Type | None]) -> None:
        self.types = types
        self.given_up: set[int] = set()
        self.varying: set[str] = set()

    def widen(self, results: Sequence[Type | None]) -> bool:
        """Give up what the body changes; whether there was anything."""
        before = list(self.types)
        for i, (type, result) in enumerate(zip(self.types, results, strict=True)):
            if type != result and i not in self.given_up:
                self.types[i] = self._wider(i, type, result)
        return self.types != before

    def _wider(self, index: int, type: Type | None, result: Type | None) -> Type | None:
        if isinstance(type, TensorType) and isinstance(result, TensorType) and type.dtype == result.dtype:
            old, new = type.shape, result.shape
            if isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new):
                return TensorType(type.dtype, tuple(map(self._either, old, new)))
            self.given_up.add(index)
            return TensorType(type.dtype, unranked(is_open=isinstance(old, tuple) and isinstance(new, tuple)))
        self.given_up.add(index)
        if isinstance(type, SequenceType) and isinstance(type.element, TensorType):
            return SequenceType(TensorType(type.element.dtype, unranked()))
        return None

    def _either(self, old: Size, new: Size) -> Size:
        """The size, or a symbol for one that changes; one that was given up before stays."""
        if old == new or symbols(old) & self.varying:
            return old
        either = either_size(old, new)
        self.varying |= symbols(either)
        return either

    def afterwards(self, type: Type | None) -> Type | None:
        """The type after the last round: what changed from round to round is some size of its own."""
        if isinstance(type, TensorType) and isinstance(type.shape, tuple):
            sizes = tuple(fresh_symbol(is_open_size(s)) if symbols(s) & self.varying else s for s in type.shape)
            return type if sizes == type.shape else TensorType(type.dtype, sizes)
        return type


def _settle(
    body: Graph, head: BodyFacts, states: BodyFacts, tail: BodyFacts, skip: int, infer_body: InferBody
) -> tuple[_States, list[Fact]]:
    """The states' types that hold in every round, and what is known of the body's outputs under them."""
    stable = _States([None if f is None else f.type for f in states])
    while True:
        results = infer_body(body, [*head, *map(fact_of_type, stable.types), *tail])
        if not stable.widen([f.type for f in results[skip : skip + len(stable.types)]]):
            return stable, results


def _after(states: _States, results: Sequence[Fact], stack: Callable[[Type | None, int], Type | None]) -> list[Fact]:
    n = len(states.types)
    finals = [states.afterwards(type) for type in states.types]
    stacked = [states.afterwards(stack(fact.type, i)) for i, fact in enumerate(results[n:])]
    return [fact_of_type(type) for type in [*finals, *stacked]]


# -- local functions


def infer_function(function: Function, node: Node, inputs: BodyFacts, infer_body: InferBody) -> Sequence[Fact]:
    """What is known of the outputs of a function's body for these inputs and attributes."""
    given = [*inputs, *[None] * (len(function.body.inputs) - len(inputs))]
    return infer_body(_with_attributes(function.body, function.defaults, node.attrs), given)[: node.n_outputs]


def _with_attributes(body: Graph, defaults: Attrs, attrs: Attrs) -> Graph:
    """The body with references to the call's attributes replaced by what they refer to."""
    changed: Graph | None = None
    for inner in body.nodes():
        references = {name: a for name, a in inner.attrs.items() if isinstance(a, AttrRef)}
        if references:
            changed = changed or body.copy()
            values = {n: attrs.get(a.name, defaults.get(a.name)) for n, a in references.items()}
            changed.update(inner.id, attrs=inner.attrs.with_(**values))
    return changed or body
