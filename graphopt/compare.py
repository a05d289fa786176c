"""Compares what two models compute on random inputs: the part of verification that runs in a process of its own."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.engines import ONNX_RUNTIME, EngineError, Feeds, Runner, open_in_onnxruntime, open_model
from graphopt.errors import GraphoptError, LimitError, UsageError
from graphopt.inputs import DISTRIBUTIONS, check_inputs, draw, ranges, sizes
from graphopt.ir.graph import Graph, Node
from graphopt.ir.types import TensorType, symbol, symbols
from graphopt.tolerance import RELATIVE, error, is_inexact

FEW = 3
"""How many kinds of random floats are tried on a model that refuses the first: some must be positive, or below 1."""

PATIENCE = 20.0
"""For how many seconds inputs are sought that the original accepts."""

VARIETY = 200
"""An output of this many elements or more should hold at least half as many different numbers."""

MOVES = 4
"""How often the inputs are moved by one ulp, to see what rounding alone does."""

STEP = 1 / 128
"""The share by which outputs may differ where something on the way is rounded to one of 256 steps: one such step."""

STEPS_OFF = 64
"""By so many ulps the inputs of a quantized model are moved: the first rounding to steps hides a move by one, and what
sums in another order do further on is more than that."""

CHEAP = 1.0
"""A draw within so many seconds is followed by one of other sizes, where a model leaves sizes open."""

STILL = 4
"""How many sizes more are tried on a model whose outputs do not depend on its inputs."""

_UNKNOWN = "NOT_IMPLEMENTED"
"""What ONNX Runtime says of an op that it has no kernel for."""

SLACK = 4.0
"""How many times what such a move does may be put down to rounding."""


class UnverifiedError(Exception):
    """Nothing can be said about the result, for no fault of its own."""


class MismatchError(Exception):
    """The result does not compute what the original does."""


def answer(folder: str) -> None:
    """Read ``request.json`` in the folder, compare the two models, write ``answer.json`` beside it.

    ``phase`` in the folder always holds which of the two is at work, in case this process does not survive it.
    """
    _limit_memory()
    place = Path(folder)
    request = json.loads((place / "request.json").read_text())
    try:
        found = {"status": "verified", **compare(request, (place / "phase").write_text)}
    except (UnverifiedError, LimitError) as refusal:
        found = {"status": "unverified", "reason": str(refusal)}
    except MismatchError as mismatch:
        found = {"status": "wrong", "reason": str(mismatch)}
    except UsageError as mistake:
        found = {"status": "usage", "reason": str(mistake)}
    (place / "answer.part").write_text(json.dumps(found))
    (place / "answer.part").replace(place / "answer.json")


def _limit_memory() -> None:
    """Let a model that wants more memory than the machine has fail here, before it takes other processes down."""
    try:
        import resource
    except ImportError:  # not a Unix
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard == resource.RLIM_INFINITY or hard > memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, hard))


def compare(request: Mapping[str, Any], enter: Callable[[str], object]) -> dict[str, Any]:
    """What a ``Verification`` of two models that agree says: engine, draws, largest error, and what weakens it.

    ``request`` has the paths ``original`` and ``result``, ``names`` for the two in messages, ``draws``, and
    ``inputs``: paths of arrays, or bounds.
    """
    from graphopt.ir.onnx_io import load

    enter("original")
    a, b = request["names"]
    try:
        before, after = load(request["original"]), load(request["result"])
    except GraphoptError as problem:
        raise UnverifiedError(str(problem)) from None
    if before.output_names != after.output_names:
        raise MismatchError(f"the outputs of {b} are called {after.output_names}, those of {a} {before.output_names}")
    asked = {after.names[v] for v in after.inputs if "default" not in after.node(v.node).attrs}
    if new := sorted(asked - {before.names[value] for value in before.inputs}):
        raise MismatchError(f"{b} has inputs that {a} has not: {', '.join(new)}")
    try:
        run, engine = open_model(request["original"])
    except EngineError as refusal:
        raise UnverifiedError(f"{a} does not run ({refusal})") from None
    samples = list(_samples(before, after, run, request))
    drawn = [sample.sizes for sample in samples if sample.sizes]
    del run  # a session is as large as the model
    enter("result")
    known = {after.names[value] for value in after.inputs}
    try:
        run = open_model(request["result"], engine)[0]
        found = [
            run({name: value for name, value in feeds.items() if name in known}) for feeds in (s.feeds for s in samples)
        ]
    except EngineError as refusal:
        if before.opset != after.opset and _UNKNOWN in str(refusal):
            raise UsageError(
                f"{engine} has no kernels for what {b} is in opset {after.opset} ({refusal}): ask for a later --opset, "
                "or say --verify off where another runtime is to run it"
            ) from None
        raise MismatchError(f"{engine} runs {a} but not {b} ({refusal})") from None
    del run
    enter("comparison")
    worst = 0.0
    largest = [0.0] * len(before.output_names)
    for sample, got in zip(samples, found, strict=True):
        errors = list(map(_error, sample.outputs, got))
        largest = list(map(max, largest, errors))
        if max(errors, default=0.0) > 1:
            if not sample.is_finite and max(map(_error_where_finite, sample.outputs, got)) <= 1:
                raise UnverifiedError(
                    f"{a}'s outputs were not finite in {DISTRIBUTIONS} draws, and {b} has NaN or infinity elsewhere; "
                    "give values with --input"
                )
            _explain(request, engine, before, sample.feeds, sample.outputs, got)
        worst = max([worst, *(e for e in errors if e <= 1)])
    reason = ""
    if not all(sample.is_finite for sample in samples):
        reason = "though its outputs are not finite on random inputs: --input can give better ones"
    elif not any(sample.moves for sample in samples):
        reason = "though its outputs do not depend on random inputs: --input can give better ones"
    elif not all(_varies(output) for sample in samples for output in sample.outputs):
        reason = "though its outputs hardly vary on random inputs: --input can give better ones"
    outputs = [(name, e if isfinite(e) else None) for name, e in zip(before.output_names, largest, strict=True)]
    return {
        "reason": reason,
        "engine": engine,
        "draws": len(samples),
        "error": worst,
        "sizes": drawn,
        "outputs": outputs,
    }


# -- inputs that the original accepts


@dataclass(frozen=True, slots=True)
class _Sample:
    """Inputs, the original's outputs on them, the sizes drawn, and whether other inputs give other outputs."""

    feeds: dict[str, Any]
    outputs: list[Any]
    sizes: dict[str, int]
    moves: bool
    is_finite: bool = True


def _samples(before: Graph, after: Graph, run: Runner, request: Mapping[str, Any]) -> Iterator[_Sample]:
    """For each draw, inputs on which the original's outputs are finite, if there are any, and those outputs.

    One draw that is asked for is followed by one of other sizes, where there are any and it costs little.
    """
    told = _told(before, request["inputs"])
    bounds = ranges(before)
    candidates = list(sizes(before, _settled(before, after, told)))
    for number in range(request["draws"]):

        def elements(chosen: dict[str, int], kind: int, turn: int = 0, number: int = number) -> dict[str, Any]:
            return draw(before, chosen, bounds, told, 2 * number + turn, (number + kind) % DISTRIBUTIONS)

        start = time.perf_counter()
        position, sample = _accepted(candidates, elements, run)
        yield sample
        if request["draws"] == 1 and time.perf_counter() - start < CHEAP:
            others = [*candidates[position + 1 :], *candidates[:position]]
            try:
                yield _accepted(others, elements, run, CHEAP)[1]
            except UnverifiedError:  # one draw was asked for, and made
                return
        # the next draw tries sizes that were not tried yet, and comes back to those that work
        candidates = [*candidates[position + 1 :], *candidates[: position + 1]]


Elements = Callable[..., dict[str, Any]]
"""Random inputs, given sizes for the open dimensions, the kind of distribution, and which of two turns it is."""


def _accepted(
    candidates: list[dict[str, int]], elements: Elements, run: Runner, patience: float = PATIENCE
) -> tuple[int, _Sample]:
    """The position of the first sizes that the original accepts, with inputs and outputs.

    Sizes on which its outputs depend on the inputs go first, if they come soon.
    """
    refusal = ""
    still: list[tuple[int, _Sample]] = []
    start = time.perf_counter()
    for kind, (position, chosen) in product(range(FEW), enumerate(candidates)):
        try:
            sample = _sample(chosen, elements, run, kind)
        except EngineError as error:
            refusal = refusal or str(error)
        except UnverifiedError:
            if not still:
                raise
        else:
            if sample.moves:
                return position, sample
            still.append((position, sample))
        if time.perf_counter() - start > patience or len(still) > STILL:
            break
    if still:
        return still[0]
    hint = "give values with --input, or sizes with --dim"
    raise UnverifiedError(f"the original does not run on random inputs ({refusal}); {hint}")


def _sample(chosen: dict[str, int], elements: Elements, run: Runner, first: int) -> _Sample:
    """Inputs and outputs, if possible such that the outputs vary, and whether they move with the inputs.

    Raises EngineError where the model refuses these sizes, UnverifiedError where nothing can be drawn.
    """
    found = strange = None
    for kind in range(first, first + DISTRIBUTIONS):
        try:
            feeds = elements(chosen, kind)
        except ValueError as problem:
            raise UnverifiedError(str(problem)) from None
        try:
            outputs = run(feeds)
        except EngineError:
            if found is None:
                raise
            continue
        if all(isinstance(output, np.ndarray) and output.size == 0 for output in outputs):
            raise EngineError("the outputs are empty")
        if all(map(_is_finite, outputs)):
            is_varied = all(map(_varies, outputs))
            if found is None or is_varied:
                found = kind, feeds, outputs
            if is_varied:
                break
        else:
            strange = strange or (feeds, outputs)
    if found is not None:
        kind, feeds, outputs = found
        return _Sample(feeds, outputs, chosen, _moves(feeds, outputs, elements(chosen, kind, 1), run))
    assert strange is not None  # an engine that refuses the first draw has ended this
    return _Sample(*strange, chosen, moves=True, is_finite=False)


def _moves(feeds: Feeds, outputs: list[Any], others: Feeds, run: Runner) -> bool:
    """Whether an output changes with the inputs, a float where there is one; unless refuted, it does."""
    if _is_equal(list(feeds.values()), list(others.values())):
        return True
    try:
        changed = run(others)
    except EngineError:
        return True
    floats = [i for i, output in enumerate(outputs) if isinstance(output, np.ndarray) and is_inexact(output)]
    return not all(_is_equal(outputs[i], changed[i]) for i in floats or range(len(outputs)))


def _is_equal(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_is_equal, a, b))
    return np.array_equal(a, b) if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else bool(a == b)


def _told(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The user's inputs, arrays read."""
    check_inputs(graph, inputs)
    return {k: np.load(v, allow_pickle=False) if isinstance(v, str) else tuple(v) for k, v in inputs.items()}


def _settled(before: Graph, after: Graph, told: Mapping[str, Any]) -> dict[str, int]:
    """The open sizes that the user's arrays or the types of the result's inputs settle."""
    fixed: dict[str, int] = {}
    types = {after.names[value]: after.types.get(value) for value in after.inputs}
    for value in before.inputs:
        name, type = before.names[value], before.types.get(value)
        array, other = told.get(name), types.get(name)
        known = array.shape if isinstance(array, np.ndarray) else getattr(other, "shape", ())
        if not isinstance(type, TensorType) or not isinstance(type.shape, tuple) or not isinstance(known, tuple):
            continue
        for size, number in zip(type.shape, known, strict=False):
            for free in symbols(size):
                if size == symbol(free) and isinstance(number, int):
                    fixed[free] = number
    return fixed


def _is_finite(output: Any) -> bool:
    if isinstance(output, (list, tuple)):
        return all(map(_is_finite, output))
    if not isinstance(output, np.ndarray) or not is_inexact(output):
        return True
    return bool(np.isfinite(output if output.dtype.kind in "fc" else output.astype(np.float32)).all())


def _varies(output: Any) -> bool:
    """Whether the elements are not mostly one number: saturated outputs would hide any difference."""
    if not isinstance(output, np.ndarray) or not is_inexact(output):
        return True
    elements = output.reshape(-1)[:100_000]
    return 2 * len(set(elements.tolist())) >= min(len(elements), VARIETY)


# -- judging differences


def _error(want: Any, got: Any, coarsest: float = 0.0) -> float:
    """``tolerance.error``, over sequences and absent values too."""
    if isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)):
        if len(want) != len(got):
            return inf
        return max((_error(a, b, coarsest) for a, b in zip(want, got, strict=True)), default=0.0)
    if want is None or got is None or isinstance(want, dict):
        return 0.0 if want == got else inf
    return error(np.asarray(want), np.asarray(got), coarsest)


def _error_where_finite(want: Any, got: Any) -> float:
    """The same, of elements that are wanted to be finite."""
    if isinstance(want, np.ndarray) and isinstance(got, np.ndarray) and is_inexact(want) and want.shape == got.shape:
        finite = np.isfinite(want)
        want, got = want[finite], got[finite]
    return _error(want, got)


def _coarsest(graph: Graph) -> list[float]:
    """For each output, the largest share of tolerance among the dtypes in which anything was computed for it."""
    from graphopt.ir.infer import infer

    facts = infer(graph)
    shares: dict[int, float] = {}
    for node in graph.order():
        made = [RELATIVE.get(facts[v].dtype or "", 0.0) for v in node.outputs if v in facts and not facts[v].is_const]
        if _quantizes(node):
            made.append(STEP)
        shares[node.id] = max([*made, *(shares[v.node] for v in node.inputs if v is not None)], default=0.0)
    return [0.0 if value is None else shares[value.node] for value in graph.outputs]


def _quantizes(node: Node) -> bool:
    return "Quantize" in node.op or "QLinear" in node.op or node.op.endswith("QGemm")


def _explain(
    request: Mapping[str, Any], engine: str, graph: Graph, feeds: Feeds, wanted: list[Any], got: list[Any]
) -> None:
    """Come back only where rounding explains the errors beyond the tolerance."""
    errors = list(map(_error, wanted, got, _coarsest(graph)))
    if max(errors) <= 1:
        return
    original, (a, b) = request["original"], request["names"]
    run = open_model(original, engine)[0]
    once, again = run(feeds), run(feeds)  # ONNX Runtime's first random numbers are the same in every session
    moved = list(_moved(original, engine, run, feeds, STEPS_OFF if any(map(_quantizes, graph.order())) else 1))
    for index, name in enumerate(graph.output_names):
        if errors[index] <= 1:
            continue
        if _error(once[index], again[index]) > 0:
            raise UnverifiedError(f"the output {name!r} of {a} is another each time that it runs")
        if not any(_is_rounding(wanted[index], got[index], outputs[index]) for outputs in moved):
            times = f"{errors[index]:.3g} times the tolerance"
            size = times if isfinite(errors[index]) else _in_kind(wanted[index], got[index])
            raise MismatchError(
                f"output {name!r} of {b} differs from that of {a} by {size}, in {engine} on random inputs"
            )


def _moved(original: str, engine: str, run: Runner, feeds: Feeds, ulps: int) -> Iterator[list[Any]]:
    """The original's outputs with inputs moved by some ulps or, where none is a float, as other kernels round them."""
    floats = [name for name, value in feeds.items() if isinstance(value, np.ndarray) and value.dtype.kind == "f"]
    if not floats and engine == ONNX_RUNTIME:
        yield open_in_onnxruntime(original, optimized=True)(feeds)
    rng = np.random.default_rng(0)
    for _ in range(MOVES if floats else 0):
        moved = dict(feeds)
        for name in floats:
            toward = np.where(rng.random(feeds[name].shape) < 0.5, -np.inf, np.inf).astype(feeds[name].dtype)
            near = feeds[name]
            for _ in range(ulps):
                near = np.asarray(np.nextafter(near, toward))
            moved[name] = near
        yield run(moved)


def _is_rounding(want: Any, got: Any, moved: Any) -> bool:
    """Whether moving the inputs changes an output about as much as the rewriting did."""
    if isinstance(want, (list, tuple)):
        return len(want) == len(got) == len(moved) and all(map(_is_rounding, want, got, moved))
    if not isinstance(want, np.ndarray) or want.dtype != got.dtype or want.ndim != got.ndim:
        return False
    if want.shape != got.shape:
        return bool(want.shape != moved.shape)
    if want.shape != moved.shape:
        return True
    if not is_inexact(want):
        return bool((want != got).sum() <= SLACK * (want != moved).sum())
    a, b, c = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (want, got, moved))
    finite = [np.isfinite(x) for x in (a, b, c)]
    if (finite[0] != finite[1]).sum() > SLACK * (finite[0] != finite[2]).sum():
        return False
    all_finite = finite[0] & finite[1] & finite[2]
    return bool(np.abs(a - b)[all_finite].max(initial=0) <= SLACK * np.abs(a - c)[all_finite].max(initial=0))


def _in_kind(want: Any, got: Any) -> str:
    """How two outputs differ where no tolerance applies."""
    if not isinstance(want, np.ndarray) or not isinstance(got, np.ndarray):
        return "its kind of value"
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"its type: {_described(got)} instead of {_described(want)}"
    if is_inexact(want):
        return "where it is NaN or infinite"
    return f"{int((want != got).sum())} of {want.size} elements"


def _described(array: np.ndarray[Any, Any]) -> str:
    return f"{array.dtype.name}{list(array.shape)}"
