"""Evaluation of a part of a graph in float64: what it computes over the reals, near enough to judge narrower floats by.

float32, float16 and bfloat16 are widened wherever they occur: in what is given, in constants, in what casts and fills
make.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from math import inf
from typing import Any, TypeAlias

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.frozen import dataclass
from graphopt.ir.constants import Array, Constant
from graphopt.ir.evaluate import EvaluationError, compute
from graphopt.ir.graph import CONSTANT, Graph, Node, Value

Evaluation: TypeAlias = "Callable[[Node, list[Any], Ulps | None], tuple[Any, ...]]"


@dataclass(frozen=True, slots=True)
class Ulps:
    """Units in the last place by which numbers are moved, up or down by chance.

    With ``digits`` in a significand, so is whatever a node makes (Monte Carlo arithmetic: D. S. Parker, 1997).
    """

    random: np.random.Generator
    digits: int | None = None


_NARROW, _DOUBLE = (1, 10, 16), 11
"""ONNX's numbers of the dtypes."""
ROUNDS = 64
"""A Loop of more is not evaluated."""
SIZES = 64
"""Elements that sizes, and what they are computed of, have at most."""
DIGITS = {"float32": 23, "float16": 10, "bfloat16": 7}
"""Of the significands of the dtypes that are widened, in binary."""


def evaluated(
    graph: Graph,
    given: Mapping[Value, Any],
    wanted: Iterable[Value],
    ulps: Ulps | None = None,
    rounded: Container[Value] = (),
) -> dict[Value, Any]:
    """Everything on the way from values that are given to those that are wanted; with ``ulps``, after constants
    of narrower floats, attributes, and what is given and was ``rounded``, were moved by one unit in the last place.

    EvaluationError where an op cannot be computed so.
    """
    values: dict[Value, Any] = {
        value: widened(array, ulps if value in rounded else None) for value, array in given.items()
    }
    sizes: dict[Value, Any] = {}
    for node in within(graph, given, wanted):
        if node.op == CONSTANT:
            constant = node.attrs["value"]
            assert isinstance(constant, Constant)
            values[node.outputs[0]] = widened(constant.array, ulps)
            if constant.size <= SIZES:
                sizes[node.outputs[0]] = constant.array
            continue
        arrays = [None if value is None else values[value] for value in node.inputs]
        compute_node: Evaluation = _WITH_BODIES.get(node.op, _computed)
        outputs = _as_arrays(compute_node(node, arrays, ulps))
        if ulps is not None and ulps.digits is not None:
            outputs = tuple(_nudged(output, ulps.digits, ulps) if _is_double(output) else output for output in outputs)
        values.update(zip(node.outputs, outputs, strict=False))
        own = outputs if node.op in ("Shape", "Size") else _in_own_precision(node, sizes)
        for value, array in zip(node.outputs, own, strict=False):
            if isinstance(array, np.ndarray) and array.size <= SIZES:
                sizes[value] = array
                if not _is_double(array) and array.dtype.name not in DIGITS:
                    values[value] = array
    return values


def _in_own_precision(node: Node, sizes: Mapping[Value, Any]) -> tuple[Any, ...]:
    """What a node makes of sizes and constants alone, rounded as the model rounds: the floor of 20 * 0.35 is 7 in
    float32 and 6 in float64, and so may be the size of all that follows."""
    if node.bodies or not node.inputs or not all(value is None or value in sizes for value in node.inputs):
        return ()
    try:
        arrays = [None if value is None else sizes[value] for value in node.inputs]
        return _as_arrays(compute(node.op, node.attrs, arrays, node.n_outputs))
    except GraphoptError:
        return ()


def _as_arrays(made: Iterable[Any]) -> tuple[Any, ...]:
    """Arrays for the numbers that numpy makes of arrays without axes; other things as they are."""
    return tuple(np.asarray(output) if isinstance(output, np.generic) else output for output in made)


def _is_double(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64


def _taken(node: Node, arrays: list[Any], ulps: Ulps | None) -> tuple[Any, ...]:
    """What the branch of an If makes that its condition takes."""
    body = node.bodies["then_branch" if bool(np.asarray(arrays[0]).reshape(-1)[0]) else "else_branch"]
    wanted = [v for v in body.outputs if v is not None]
    made = evaluated(body, dict(zip(body.inputs, arrays[1:], strict=True)), wanted, ulps)
    return tuple(made[v] for v in wanted)


def _looped(node: Node, arrays: list[Any], ulps: Ulps | None) -> tuple[Any, ...]:
    """What the rounds of a Loop make, if they are few."""
    body, n_states = node.bodies["body"], len(arrays) - 2 - node.captures
    count, goes_on, states, captured = arrays[0], arrays[1], arrays[2 : 2 + n_states], arrays[2 + n_states :]
    most = inf if count is None else int(count.reshape(-1)[0])
    rounds: list[list[Any]] = []
    while len(rounds) < most and (goes_on is None or bool(goes_on.reshape(-1)[0])):
        if len(rounds) == ROUNDS:
            raise EvaluationError(f"a Loop of more than {ROUNDS} rounds")
        wanted = [v for v in body.outputs if v is not None]
        given = [np.array(len(rounds)), np.array(True), *states, *captured]
        made = evaluated(body, dict(zip(body.inputs, given, strict=True)), wanted, ulps)
        outputs = [made[v] for v in wanted]
        goes_on = np.asarray(outputs.pop(0))
        states, scanned = outputs[:n_states], outputs[n_states:]
        rounds.append(scanned)
    if not rounds:
        raise EvaluationError("a Loop of no rounds")
    return *states, *(np.stack(parts) for parts in zip(*rounds, strict=True))


def within(graph: Graph, given: Container[Value], wanted: Iterable[Value]) -> list[Node]:
    """The nodes, in order, that make values of those that are given."""
    done, entered, order = set[int](), set[int](), list[Node]()
    waiting = [value.node for value in wanted if value not in given]
    while waiting:
        id = waiting[-1]
        node = graph.node(id)
        below = [v.node for v in node.inputs if v is not None and v not in given and v.node not in done]
        if id in done or (id in entered and not below):
            waiting.pop()
            if id not in done:
                done.add(id)
                order.append(node)
            continue
        entered.add(id)
        waiting += below
    return order


def widened(value: Any, ulps: Ulps | None = None) -> Any:
    """Narrower floats as float64, if asked for after they were moved by one ulp; other things as they are."""
    if isinstance(value, list):
        return [widened(item, ulps) for item in value]
    if not isinstance(value, np.ndarray) or (digits := DIGITS.get(value.dtype.name)) is None:
        return value
    wide = value.astype(np.float64)
    return wide if ulps is None else _nudged(wide, digits, ulps)


def _nudged(wide: Array, digits: int, ulps: Ulps) -> Array:
    """float64 numbers that are not whole, up or down by one unit in the last of so many binary digits."""
    step = np.ldexp(1.0, np.frexp(wide)[1] - 1 - digits)
    moves = np.isfinite(wide) & (wide != 0) & (wide != np.rint(wide))
    return np.where(moves, wide + step * np.where(ulps.random.random(wide.shape) < 0.5, -1, 1), wide)


def _computed(node: Node, arrays: list[Any], ulps: Ulps | None = None) -> tuple[Any, ...]:
    if node.bodies:
        raise EvaluationError(f"{node.op} has bodies, which are evaluated as graphs of their own")
    attrs = node.attrs
    if attrs.get("to") in _NARROW:
        attrs = attrs.with_(to=_DOUBLE)
    if ulps is not None:  # attributes are single precision: a sixth is rounded as well as a constant is
        floats = {name: np.asarray(value, np.float32) for name, value in attrs.items() if isinstance(value, float)}
        attrs = attrs.with_(**{name: float(widened(value, ulps)) for name, value in floats.items()})
    if node.op == "Conv" and (fast := _convolution(node, arrays)) is not None:
        return (fast,)
    try:
        outputs = compute(node.op, attrs, arrays, node.n_outputs)
    except GraphoptError:  # ops that are defined over float32 only
        narrow = [a.astype(np.float32) if isinstance(a, np.ndarray) and a.dtype == np.float64 else a for a in arrays]
        outputs = compute(node.op, node.attrs, narrow, node.n_outputs)
    return tuple(widened(output) for output in outputs)


_WITH_BODIES: dict[str, Evaluation] = {"If": _taken, "Loop": _looped}
"""Ops whose bodies are evaluated, too."""


def _convolution(node: Node, arrays: list[Any]) -> Array | None:
    """A convolution over two axes as one product; None for any other, and for what needs no haste."""
    x, w = arrays[:2]
    if x.ndim != 4 or node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", b"NOTSET") or x.size < 1 << 12:
        return None
    attrs: Mapping[str, Any] = node.attrs
    group, strides = attrs.get("group", 1), attrs.get("strides", (1, 1))
    dilations, pads = attrs.get("dilations", (1, 1)), attrs.get("pads", (0, 0, 0, 0))
    if x.shape[1] != w.shape[1] * group or min(pads) < 0:
        return None
    top, left, bottom, right = pads
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    if any(n < span for n, span in zip(padded.shape[2:], spans, strict=True)):
        return None
    windows = np.lib.stride_tricks.sliding_window_view(padded, spans, (2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    n, _, rows, columns = windows.shape[:4]
    by_group = windows.reshape(n, group, w.shape[1], rows, columns, *w.shape[2:])
    taps = by_group.transpose(1, 0, 3, 4, 2, 5, 6).reshape(group, n * rows * columns, -1)
    with np.errstate(all="ignore"):
        product = taps @ w.reshape(group, w.shape[0] // group, -1).transpose(0, 2, 1)
    y = product.reshape(group, n, rows, columns, -1).transpose(1, 0, 4, 2, 3).reshape(n, w.shape[0], rows, columns)
    if len(arrays) > 2 and arrays[2] is not None:
        y = y + arrays[2].reshape(1, -1, 1, 1)
    return np.asarray(y)
