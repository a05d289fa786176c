"""Evaluation of Loop and Scan, in the place of onnx's own: apart, for it is written against onnx's evaluator.

onnx's reference implementation stacks what is not a vector wrongly, gives nothing for no rounds, takes a Loop without a
condition for one that ends at once, and goes only forwards along first axes. A Loop that is given no condition starts
with a true one, and ends by the one that its body gives, as in ONNX Runtime: ONNX's text says that it is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from graphopt.ir.constants import Array


def loop(op: Any, *given: Any, context: Any = None, attributes: Any = None, bindings: Any = None) -> tuple[Any, ...]:
    """What a Loop gives: its last states, and what its rounds gave. ``op`` is the node as onnx's evaluator has it."""
    trips, condition, *states = (*given, None, None)[: max(len(given), 2)]
    number, going, *names = op.body.input_names
    limit = None if trips is None else int(np.reshape(trips, ()))
    goes_on, rounds, n = True if condition is None else bool(np.reshape(condition, ())), 0, len(states)
    stacks: list[list[Any]] = [[] for _ in op.body.output_names[1 + n :]]
    while goes_on and (limit is None or rounds < limit):
        head = (number, np.array(rounds, np.int64)), (going, np.array(goes_on))
        seen = {name: _as_declared(value, op.body, i) for i, (name, value) in enumerate(head)}
        seen.update(zip(names, states, strict=True))
        kept, *results = op._run_body({**(context or {}), **seen}, attributes=attributes, bindings=bindings)
        goes_on, rounds, states = bool(np.reshape(kept, ())), rounds + 1, results[:n]
        _push(stacks, results[n:])
    return (*states, *_stacked(op.body, stacks, [0] * len(stacks)))


def _as_declared(value: Array, body: Any, index: int) -> Array:
    """A scalar, or a vector of one element where the body's input is declared to be a vector."""
    type = body.input_types[index].tensor_type
    return value.reshape(1) if type.HasField("shape") and len(type.shape.dim) == 1 else value


def scan(op: Any, *given: Any, context: Any = None, attributes: Any = None, bindings: Any = None) -> tuple[Any, ...]:
    """What a Scan gives: its last states, and what its rounds gave."""
    n = len(given) - op.num_scan_inputs
    states, scanned = list(given[:n]), given[n:]
    axes = op.scan_input_axes or [0] * len(scanned)
    slices = [
        _slices(x, axis, backward)
        for x, axis, backward in zip(scanned, axes, op.scan_input_directions or [0] * len(scanned), strict=True)
    ]
    stacks: list[list[Any]] = [[] for _ in op.body.output_names[n:]]
    for parts in zip(*slices, strict=True):
        seen = dict(zip(op.body.input_names, [*states, *parts], strict=True))
        results = op._run_body({**(context or {}), **seen}, attributes=attributes, bindings=bindings)
        states = list(results[:n])
        _push(stacks, results[n:])
    for stack, backward in zip(stacks, op.scan_output_directions or [], strict=False):
        if backward:
            stack.reverse()
    return (*states, *_stacked(op.body, stacks, op.scan_output_axes or [0] * len(stacks)))


def _slices(x: Array, axis: int, backward: int) -> Iterator[Array]:
    return iter(np.flip(np.moveaxis(x, axis, 0), 0) if backward else np.moveaxis(x, axis, 0))


def _push(stacks: Sequence[list[Any]], values: Sequence[Any]) -> None:
    for stack, value in zip(stacks, values, strict=True):
        stack.append(value)


def _stacked(body: Any, stacks: Sequence[list[Any]], axes: Sequence[int]) -> Iterator[Array]:
    first = len(body.output_names) - len(stacks)
    for type, stack, axis in zip(body.output_types[first:], stacks, axes, strict=True):
        yield np.stack(stack, axis) if stack else _nothing(type, axis)


def _nothing(type: Any, axis: int) -> Array:
    """What no rounds gave: open sizes are taken to be 0."""
    from onnx import helper

    sizes = [dim.dim_value for dim in type.tensor_type.shape.dim]
    sizes.insert(axis % (len(sizes) + 1), 0)
    return np.empty(sizes, helper.tensor_dtype_to_np_dtype(type.tensor_type.elem_type))


@cache
def classes() -> tuple[type, ...]:
    """Both as onnx's reference evaluator wants to have its ops."""
    from onnx.reference.op_run import OpRun

    def made(name: str, run: Any) -> type:
        def _run(
            self: Any, *given: Any, context: Any = None, attributes: Any = None, bindings: Any = None, **_: Any
        ) -> Any:
            return run(self, *given, context=context, attributes=attributes, bindings=bindings)

        return type(name, (OpRun,), {"op_domain": "", "need_context": lambda self: True, "_run": _run})

    return made("Loop", loop), made("Scan", scan)
