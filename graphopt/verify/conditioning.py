"""Conditioning: what rounding does to the outputs of a model, seen from moves by an ulp and from other kernels.

A result that differs from the original by no more than the original from itself, when its inputs or weights move by one
unit in the last place, is no wrong one. Nor is one as near to what float64 makes of the original as what it makes with
every result on the way moved by an ulp of the finest of its floats, which shows where terms cancel inside.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, Graph, Value
from graphopt.ir.infer import infer
from graphopt.ir.tolerance import error, is_inexact
from graphopt.ir.work import OPERATIONS, effort, input_facts
from graphopt.verify.coarsest import quantizes
from graphopt.verify.double import DIGITS, Ulps, evaluated, within
from graphopt.verify.inputs import known_sizes
from graphopt.verify.rounding import is_within
from graphopt.verify.runtimes import (
    ONNX_RUNTIME,
    REFERENCE,
    EngineError,
    Feeds,
    Runner,
    open_in_onnxruntime,
    open_model,
)

MOVES, MOVES_OF_WEIGHTS, MOVES_INSIDE = 4, 2, 16
"""How often the inputs, or the weights, are moved by one ulp, to see what rounding alone does; and how often all
results on the way at most: each element has to be reached, and a Relu hides every other move."""

STEPS_OFF = 64
"""By so many ulps the inputs of a quantized model are moved: the first rounding to steps hides a move by one, and what
sums in another order do further on is more than that."""

SIGNIFICANDS = {"float64": np.finfo(np.float64).nmant, **DIGITS}
"""The binary digits of the significands of floats."""

SLACK = 4.0
"""How many times what such a move does may be put down to rounding."""

_FLOATS = ("float16", "float32", "float64")


def moved_weights(graph: Graph, ulps: int, rng: np.random.Generator) -> Graph:
    """The graph with every float of its constants moved by some ulps, up or down."""
    twin = graph.copy()
    for node in graph.nodes():
        constant = node.attrs.get("value") if node.op == CONSTANT else None
        if isinstance(constant, Constant) and constant.dtype in _FLOATS and not is_whole(constant.array):
            array = nudged(constant.array, ulps, rng)
            twin.update(node.id, attrs=node.attrs.with_(value=Constant.of(array)))
    return twin


def nudged(array: Array, ulps: int, rng: np.random.Generator) -> Array:
    """Floats moved by some ulps, each up or down; but 0 stays, since zeros are exact, and what is not finite."""
    toward = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
    toward = np.where((array == 0) | ~np.isfinite(array), array, toward)
    for _ in range(ulps):
        array = np.asarray(np.nextafter(array, toward))
    return array


def is_whole(array: Array) -> bool:
    """Whether all the floats are whole numbers: indices, lengths and flags that are held as floats, which are exact."""
    return bool((array == np.rint(array)).all())


def off(want: Any, got: Any, coarsest: float = 0.0) -> float:
    """How far an output is from the one that is wanted, in units of the tolerance: up to 1 is right."""
    if isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)):
        if len(want) != len(got):
            return inf
        return max((off(a, b, coarsest) for a, b in zip(want, got, strict=True)), default=0.0)
    if want is None or got is None or isinstance(want, dict):
        return 0.0 if type(want) is type(got) and want == got else inf
    return error(np.asarray(want), np.asarray(got), coarsest)


def explained_by_rounding(
    original: str | Path,
    engine: str,
    graph: Graph,
    run: Runner,
    feeds: Feeds,
    once: Sequence[Any],
    got: Mapping[int, Any],
    coarsest: Mapping[int, float],
) -> dict[int, tuple[str, list[Any]]]:
    """Which of the outputs in question, ``got`` by their places, differ from the original's, ``once``, by no more than
    rounding makes these differ from themselves, with the way that shows it, and the output as it is then, each time:

    - the inputs are moved by some ulps; whole numbers are not, as they may be indices;
    - other kernels compute them, where nothing is quantized;
    - the weights are moved;
    - where halves are among the floats, ONNX's reference computes them: runtimes may keep halves in single precision;
    - float64 takes the place of all floats, and every result on the way is moved (``_in_double``).

    ``coarsest``: the largest share of tolerance among the dtypes on the way to each output (``coarsest_shares``).
    """
    is_quantized = any(map(quantizes, graph.order()))
    ulps = STEPS_OFF if is_quantized else 1
    by = "one ulp" if ulps == 1 else f"{ulps} ulps"
    ways: dict[str, Callable[[], Iterator[list[Any]]]] = {
        f"its inputs move by {by}": lambda: map(run, moved_inputs(feeds, ulps))
    }
    if engine == ONNX_RUNTIME and not is_quantized:  # its products of bytes may saturate, which is no rounding
        ways[f"{engine} optimizes it"] = lambda: iter([open_in_onnxruntime(str(original), optimized=True)(feeds)])
    ways[f"its weights move by {by}"] = lambda: _with_weights_moved(engine, graph, feeds, ulps)
    found: dict[int, tuple[str, list[Any]]] = {}
    for what, way in ways.items():
        try:
            moved_outputs = list(way()) if len(found) < len(got) else []
        except (EngineError, MemoryError, GraphoptError):
            continue
        for index in got.keys() - found.keys():
            moved = [outputs[index] for outputs in moved_outputs]
            if any(is_rounding(once[index], got[index], output) for output in moved):
                found[index] = what, moved
    if len(found) < len(got) and not is_quantized and (facts := _facts(graph, feeds)):
        rounded: Sequence[Any] = ()
        if engine != REFERENCE and any(fact.dtype in ("float16", "bfloat16") for fact in facts.values()):
            with suppress(EngineError, MemoryError, GraphoptError):
                rounded = open_model(original, REFERENCE)[0](feeds)
        for index in got.keys() - found.keys():
            wanted = [outputs[index] for outputs in (once, rounded) if outputs]
            if any(not isinstance(a, np.ndarray) or not is_inexact(a) for a in (got[index], *wanted)):
                continue
            if rounded and off(rounded[index], got[index], coarsest[index]) <= 1:
                found[index] = f"{REFERENCE} computes it", [rounded[index]]
            elif moved := _in_double(graph, facts, feeds, index, wanted, got[index]):
                found[index] = "float64 takes the place of its floats, and results on the way move by one ulp", moved
    return found


def _facts(graph: Graph, feeds: Feeds) -> Mapping[Value, Fact]:
    """What is known of the values of a graph that the reference implementation computes in a second or so, as far as
    types tell; else nothing."""
    if graph.functions or any(node.bodies for node in graph.nodes()):
        return {}
    facts = infer(graph, input_facts(graph, known_sizes(graph, feeds)))
    work = 0
    for node in graph.nodes():
        inputs = [None if v is None else facts.get(v) for v in node.inputs]
        work += effort(node.op, node.attrs, inputs, [facts.get(v) for v in node.outputs])
    return facts if work <= OPERATIONS else {}


def _in_double(
    graph: Graph, facts: Mapping[Value, Fact], feeds: Feeds, index: int, wanted: Sequence[Array], got: Array
) -> list[Array]:
    """An output as float64 makes it, and as it does when all results on the way move by an ulp of the finest of their
    dtypes, if each element that was made is among these, or is what a runtime makes where one is not finite; else
    nothing."""
    value = graph.outputs[index]
    if value is None or any(a.dtype != got.dtype or a.shape != got.shape for a in wanted):
        return []
    given = {v: feeds[graph.names[v]] for v in graph.inputs if graph.names[v] in feeds}
    nodes = within(graph, given, [value])
    dtypes = {
        facts[v].dtype or "" for node in nodes for v in (*node.inputs, *node.outputs) if v is not None and v in facts
    }
    digits = max((SIGNIFICANDS[dtype] for dtype in dtypes & SIGNIFICANDS.keys()), default=None)
    ulps = Ulps(np.random.default_rng(0), digits)
    moved: list[Array] = []
    with suppress(GraphoptError, MemoryError, ValueError, KeyError), np.errstate(all="ignore"):
        wide = evaluated(graph, given, [value])[value]
        if wide.shape != got.shape:
            return []
        known = np.any([(a == got) | (np.isnan(a) & np.isnan(got)) for a in (wide, *wanted)], axis=0)
        if not (known | (np.isfinite(wide) & np.isfinite(got))).all():
            return []
        while len(moved) < MOVES_INSIDE:
            moved.append(evaluated(graph, given, [value], ulps, given)[value])
            if is_within(wide, got, moved):
                return [a.astype(got.dtype) for a in (wide, *moved)]
    return []


def moved_inputs(feeds: Feeds, ulps: int = 1) -> Iterator[Feeds]:
    """The inputs with their floats moved by some ulps, each up or down."""
    floats = [n for n, v in feeds.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f" and not is_whole(v)]
    rng = np.random.default_rng(0)
    for _ in range(MOVES if floats else 0):
        yield {**feeds, **{name: nudged(feeds[name], ulps, rng) for name in floats}}


def _with_weights_moved(engine: str, graph: Graph, feeds: Feeds, ulps: int) -> Iterator[list[Any]]:
    """The original's outputs with weights moved by some ulps."""
    from graphopt.ir.onnx_io import save

    rng = np.random.default_rng(0)
    for _ in range(MOVES_OF_WEIGHTS):
        with tempfile.TemporaryDirectory(prefix="graphopt-") as name:
            save(moved_weights(graph, ulps, rng), Path(name) / "moved.onnx")
            yield open_model(Path(name) / "moved.onnx", engine)[0](feeds)


def is_rounding(want: Any, got: Any, moved: Any) -> bool:
    """Whether moving the inputs changes an output about as much as the rewriting did."""
    if isinstance(want, (list, tuple)):
        return len(want) == len(got) == len(moved) and all(map(is_rounding, want, got, moved))
    if not isinstance(want, np.ndarray) or not isinstance(got, np.ndarray):
        return False
    if want.dtype != got.dtype or want.ndim != got.ndim:
        return False
    if want.shape != got.shape:
        return bool(want.shape != moved.shape)
    if want.shape != moved.shape:  # which says nothing of what kept its shape
        return False
    if not is_inexact(want):
        return bool((want != got).sum() <= SLACK * (want != moved).sum())
    a, b, c = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (want, got, moved))
    finite = [np.isfinite(x) for x in (a, b, c)]
    if (finite[0] != finite[1]).sum() > SLACK * (finite[0] != finite[2]).sum():
        return False
    all_finite = finite[0] & finite[1] & finite[2]
    return bool(np.abs(a - b)[all_finite].max(initial=0) <= SLACK * np.abs(a - c)[all_finite].max(initial=0))
