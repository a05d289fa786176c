"""Compares what two models compute on random inputs: the part of verification that runs in a process of its own."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.engines import ONNX_RUNTIME, EngineError, Feeds, Runner, open_in_onnxruntime, open_model
from graphopt.errors import GraphoptError, UsageError
from graphopt.inputs import DISTRIBUTIONS, draw, ranges, sizes
from graphopt.ir.graph import Graph
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
    except UnverifiedError as refusal:
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

    ``request`` has the paths ``original`` and ``result``, ``draws``, and ``inputs``: paths of arrays, or bounds.
    """
    from graphopt.ir.onnx_io import load

    enter("original")
    try:
        before, after = load(request["original"]), load(request["result"])
    except GraphoptError as problem:
        raise UnverifiedError(str(problem)) from None
    if before.output_names != after.output_names:
        raise MismatchError(f"the outputs are called {after.output_names}, in the original {before.output_names}")
    try:
        run, engine = open_model(request["original"])
    except EngineError as refusal:
        raise UnverifiedError(f"the original does not run ({refusal})") from None
    samples = list(_samples(before, after, run, request))
    del run  # a session is as large as the model
    enter("result")
    known = {after.names[value] for value in after.inputs}
    try:
        run = open_model(request["result"], engine)[0]
        found = [run({name: value for name, value in feeds.items() if name in known}) for feeds, _ in samples]
    except EngineError as refusal:
        raise MismatchError(f"{engine} runs the original but not the result ({refusal})") from None
    del run
    enter("comparison")
    worst = 0.0
    for (feeds, wanted), got in zip(samples, found, strict=True):
        errors = [_error(a, b) for a, b in zip(wanted, got, strict=True)]
        if max(errors, default=0.0) > 1:
            _explain(request["original"], engine, before, feeds, wanted, got)
        worst = max([worst, *(e for e in errors if e <= 1)])
    weak = not all(_varies(output) for _, wanted in samples for output in wanted)
    reason = "though its outputs hardly vary on random inputs: --input can give better ones" if weak else ""
    return {"reason": reason, "engine": engine, "draws": len(samples), "error": worst}


# -- inputs that the original accepts


def _samples(
    before: Graph, after: Graph, run: Runner, request: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """For each draw, inputs on which the original's outputs are finite, and those outputs."""
    told = _told(before, request["inputs"])
    bounds = ranges(before)
    candidates = list(sizes(before, _settled(before, after, told)))
    for number in range(request["draws"]):

        def elements(chosen: dict[str, int], kind: int, number: int = number) -> dict[str, Any]:
            return draw(before, chosen, bounds, told, number, (number + kind) % DISTRIBUTIONS)

        position, sample = _accepted(candidates, elements, run)
        yield sample
        # the next draw tries sizes that were not tried yet, and comes back to those that work
        candidates = [*candidates[position + 1 :], *candidates[: position + 1]]


Elements = Callable[[dict[str, int], int], dict[str, Any]]
"""Random inputs, given sizes for the open dimensions and the kind of distribution."""


def _accepted(
    candidates: list[dict[str, int]], elements: Elements, run: Runner
) -> tuple[int, tuple[dict[str, Any], list[Any]]]:
    """The position of the first sizes that the original accepts, with inputs and outputs."""
    refusal = ""
    start = time.perf_counter()
    for kind, (position, chosen) in product(range(FEW), enumerate(candidates)):
        try:
            return position, _sample(chosen, elements, run, kind)
        except EngineError as error:
            refusal = refusal or str(error)
        if time.perf_counter() - start > PATIENCE:
            break
    hint = "give values with --input, or sizes with --dim"
    raise UnverifiedError(f"the original does not run on random inputs ({refusal}); {hint}")


def _sample(chosen: dict[str, int], elements: Elements, run: Runner, first: int) -> tuple[dict[str, Any], list[Any]]:
    """Inputs and outputs, if possible such that the outputs vary.

    Raises EngineError where the model refuses these sizes, UnverifiedError where its outputs are never finite.
    """
    found = None
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
            found = found or (feeds, outputs)
            if all(map(_varies, outputs)):
                return feeds, outputs
    if found is not None:
        return found
    hint = "give values with --input"
    raise UnverifiedError(f"the original's outputs were not finite in {DISTRIBUTIONS} draws; {hint}")


def _told(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The user's inputs, arrays read."""
    names = [graph.names[value] for value in graph.inputs]
    for name in inputs:
        if name not in names:
            raise UsageError(f"--input {name}: the model has no such input; its inputs are {', '.join(names)}")
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


def _coarsest(graph: Graph) -> list[float]:
    """For each output, the largest share of tolerance among the dtypes in which anything was computed for it."""
    from graphopt.ir.infer import infer

    facts = infer(graph)
    shares: dict[int, float] = {}
    for node in graph.order():
        made = [RELATIVE.get(facts[v].dtype or "", 0.0) for v in node.outputs if v in facts and not facts[v].is_const]
        shares[node.id] = max([*made, *(shares[v.node] for v in node.inputs if v is not None)], default=0.0)
    return [0.0 if value is None else shares[value.node] for value in graph.outputs]


def _explain(original: str, engine: str, graph: Graph, feeds: Feeds, wanted: list[Any], got: list[Any]) -> None:
    """Come back only where rounding explains the errors beyond the tolerance."""
    errors = [_error(a, b, share) for a, b, share in zip(wanted, got, _coarsest(graph), strict=True)]
    if max(errors) <= 1:
        return
    run = open_model(original, engine)[0]
    once, again = run(feeds), run(feeds)  # ONNX Runtime's first random numbers are the same in every session
    moved = list(_moved(original, engine, run, feeds))
    for index, name in enumerate(graph.output_names):
        if errors[index] <= 1:
            continue
        if _error(once[index], again[index]) > 0:
            raise UnverifiedError(f"the original's output {name!r} is another each time that it runs")
        if not any(_is_rounding(wanted[index], got[index], outputs[index]) for outputs in moved):
            times = f"{errors[index]:.3g} times the tolerance"
            size = times if isfinite(errors[index]) else _in_kind(wanted[index], got[index])
            raise MismatchError(f"output {name!r} differs from the original's by {size}, in {engine} on random inputs")


def _moved(original: str, engine: str, run: Runner, feeds: Feeds) -> Iterator[list[Any]]:
    """The original's outputs with inputs moved by one ulp or, where none is a float, as other kernels round them."""
    floats = [name for name, value in feeds.items() if isinstance(value, np.ndarray) and value.dtype.kind == "f"]
    if not floats and engine == ONNX_RUNTIME:
        yield open_in_onnxruntime(original, optimized=True)(feeds)
    rng = np.random.default_rng(0)
    for _ in range(MOVES if floats else 0):
        moved = dict(feeds)
        for name in floats:
            toward = np.where(rng.random(feeds[name].shape) < 0.5, -np.inf, np.inf).astype(feeds[name].dtype)
            moved[name] = np.asarray(np.nextafter(feeds[name], toward))
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
        return f"its type: {_described(got)} where the original gives {_described(want)}"
    if is_inexact(want):
        return "where it is NaN or infinite"
    return f"{int((want != got).sum())} of {want.size} elements"


def _described(array: np.ndarray[Any, Any]) -> str:
    return f"{array.dtype.name}{list(array.shape)}"
