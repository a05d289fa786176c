"""Comparison of what two models compute on random inputs: the part of verification with a process of its own."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError, LimitError, MissingDependencyError, UsageError
from graphopt.frozen import dataclass
from graphopt.ir.constants import Array
from graphopt.ir.graph import Graph, Value
from graphopt.ir.structure import node_hashes
from graphopt.ir.tolerance import deviation, is_inexact
from graphopt.ir.types import OptionalType, TensorType, symbol, symbols
from graphopt.ir.work import excess, most_operations, most_seconds
from graphopt.runtime.limits import confine, end_after
from graphopt.verify.arrays import type_name
from graphopt.verify.coarsest import coarsest_shares
from graphopt.verify.conditioning import explained_by_rounding, off
from graphopt.verify.inputs import DISTRIBUTIONS, FREE, LARGE, check_inputs, draw, ranges, sizes, special
from graphopt.verify.inside import Pair, conditions, excerpt, pairs, reached, without_inputs
from graphopt.verify.local import Fault, LocalComparison
from graphopt.verify.runtimes import (
    EngineError,
    Feeds,
    Runner,
    onnxruntime_version,
    open_model,
)

FEW = 3
"""How many kinds of random floats are tried on a model that refuses the first: some must be positive, or below 1."""

PATIENCE = 20.0
"""For how many seconds inputs are sought that the original accepts."""

VARIETY = 200
"""In an output of this many elements or more a quarter as many should depend on the inputs at least; in a smaller one a
quarter of its own."""

FEW_ELEMENTS = 8
"""So few numbers may all have one sign when they are drawn."""

CHEAP = 1.0
"""A draw within so many seconds is followed by one of other sizes, where a model leaves sizes open."""

PART = 0.01
"""By what part of their own changes values inside two models may differ that stand for an output."""

TURNS = 64
"""How many inputs are drawn to see whether a condition becomes true, or false, for one of them."""

STILL = 4
"""How many sizes more are tried on a model whose outputs do not depend on its inputs."""

WHOLE = 16
"""How many whole numbers or truth values are compared at least where outputs are nothing else: fewer are equal by
chance, as the places of maxima are."""

WORK = 1e8
"""How many products of elements are computed in float64 to look at differences within rounding."""

LONGEST = 20.0
"""For how many seconds parts of models are compared, unless the result must be verified."""

SPECIAL = 4
"""How many inputs of special values are tried where results are to be equal bit by bit."""

_UNKNOWN = "NOT_IMPLEMENTED"
"""What ONNX Runtime says of an op that it has no kernel for."""


class UnverifiedError(Exception):
    """Nothing can be said about the result, for no fault of its own."""


class MismatchError(Exception):
    """The result does not compute what the original does."""


def prepare() -> None:
    """Import what a comparison takes."""
    from graphopt.ir.onnx_io import read  # noqa: F401

    with suppress(MissingDependencyError):
        onnxruntime_version()


def answer(folder: str) -> None:
    """Read ``request.json`` in the folder, compare the two models, write ``answer.json`` beside it.

    ``phase`` in the folder always holds which of the two is at work, the original with which sizes, in case this
    process does not survive it.
    """
    path = Path(folder)
    request = json.loads((path / "request.json").read_text())
    entered: list[str] = []

    def enter(phase: str) -> None:
        if entered[-1:] != [phase]:
            (path / "phase").write_text(phase)
            entered.append(phase)
        if phase in ("original", "result"):
            confine(request["memory"])  # anew: a runtime keeps what the original took

    try:
        result = compare(request, enter)
    except (UnverifiedError, LimitError) as refusal:
        result = {"status": "unverified", "reason": str(refusal)}
    except MemoryError:
        reason = f"there is no memory for it within {request['memory']} bytes: --memory allows more"
        result = {"status": "unverified", "reason": reason}
    except MismatchError as mismatch:
        result = {"status": "wrong", "reason": str(mismatch)}
    except UsageError as mistake:
        result = {"status": "usage", "reason": str(mistake)}
    except GraphoptError as problem:  # of a model that no engine could be asked about
        result = {"status": "unverified", "reason": str(problem)}
    (path / "answer.part").write_text(json.dumps(result))
    (path / "answer.part").replace(path / "answer.json")


def compare(request: Mapping[str, Any], enter: Callable[[str], object]) -> dict[str, Any]:
    """What a ``Verification`` says of two models of which neither is known to be wrong.

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
    inputs = {after.names[v] for v in after.inputs if "default" not in after.node(v.node).attrs}
    if new := sorted(inputs - {before.names[value] for value in before.inputs}):
        raise MismatchError(f"{b} has inputs that {a} has not: {', '.join(new)}")
    end_after(None if _is_asked(request) else most_seconds(before))
    try:
        engine, samples, outputs, untaken = _runs(before, after, request, enter)
    except EngineError as refusal:
        raise UnverifiedError(f"{a} does not run ({refusal})") from None
    except RefusalError as refusal:
        engine, message = refusal.args
        if before.opset != after.opset and _UNKNOWN in message:
            raise UsageError(
                f"{engine} has no kernels for what {b} is in opset {after.opset} ({message}): ask for a later --opset, "
                "or say --verify off where another runtime is to run it"
            ) from None
        raise MismatchError(f"{engine} runs {a} but not {b} ({message})") from None
    end_after(None)
    enter("comparison")
    if message := _differing_bits(before, after, engine, request, samples, outputs):
        raise MismatchError(f"{message}, in {engine}")
    longest = inf if request["full"] else request.get("longest", LONGEST)
    work = inf if request["full"] else WORK
    faults, unseen, local = _local(before, after, engine, samples, work, longest)
    if faults:
        raise MismatchError(_said(faults, before, request["names"], engine))
    try:
        errors, doubts = _judged(request, engine, before, samples, outputs, _is_settled(local))
    except MismatchError:
        if local is None or not local.left:
            raise
        faults, unseen, local = _local(before, after, engine, samples, inf, longest)  # what was left may explain it
        if faults:
            raise MismatchError(_said(faults, before, request["names"], engine)) from None
        errors, doubts = _judged(request, engine, before, samples, outputs, _is_settled(local))
    silent = _silent(before, after, samples)
    parts = 0
    if silent and not doubts and local is not None and local.agrees_on_drawn(samples[0].feeds, samples[0].others):
        silent = {name: why for name, why in silent.items() if "finite" in why}
        parts = len(local.roots)
    inside: set[Pair] = set()
    enlarged = False
    if silent and not doubts and not any(e > 1 for e in errors):
        for name, (differences, is_large) in _inside(before, after, silent, engine, request, samples[0]).items():
            del silent[name]
            index = before.output_names.index(name)
            errors[index] = max(errors[index], *differences.values())
            inside |= {(v, w) for v, w in differences if not before.is_output(v)}
            enlarged |= is_large
    doubts += [why for why, nodes in untaken if local is None or not all(map(local.settles, nodes))]
    doubts += [f"what is inside {a} and {b} could not be compared ({unseen})"] if unseen else []
    doubts += [f"output {name!r} of {a} {why}; --input can give better ones" for name, why in silent.items()]
    return {
        "status": "inconclusive" if doubts else "verified",
        "reason": "; ".join(dict.fromkeys(doubts)),
        "engine": engine,
        "draws": sum(not sample.is_mirrored for sample in samples),
        "inside": len(inside),
        "enlarged": enlarged,
        "parts": parts,
        "left": 0 if local is None else local.left,
        "error": _size(max(errors, default=0.0)),
        "sizes": [sample.sizes for sample in samples if sample.sizes and not sample.is_mirrored],
        "largest": _largest(before, samples, outputs),
        "differing": sum(_count(s.outputs, got) for s, got in zip(samples, outputs, strict=True)),
        "outputs": list(zip(before.output_names, map(_size, errors), strict=True)),
    }


def _is_asked(request: Mapping[str, Any]) -> bool:
    """Whether somebody asked for this comparison, and waits for it."""
    return request["draws"] > 1 or "longest" in request


def _local(
    before: Graph, after: Graph, engine: str, samples: list[_Sample], work: float, longest: float
) -> tuple[list[Fault], str, LocalComparison | None]:
    """The differences inside that local comparison finds, within so much work and so many seconds, why it could not be
    made, where it could not, and else the comparison."""

    def opened(graph: Graph, path: Path) -> Runner:
        return _open_excerpt(graph, path, engine)

    start = time.perf_counter()
    local = LocalComparison(before, after, opened, work, start + longest)
    try:
        for feeds in (feeds for sample in samples for feeds in (sample.feeds, sample.others)):
            if found := local.faults(feeds):
                return found, "", local
            if work < inf and time.perf_counter() - start > CHEAP:
                break
    except (EngineError, GraphoptError, MemoryError) as problem:
        return [], str(problem), None
    return [], "", local


def _is_settled(local: LocalComparison | None) -> bool:
    """Whether all parts were looked at, and found equal."""
    return local is not None and local.is_settled and not local.left


def _said(faults: list[Fault], before: Graph, called: tuple[str, str], engine: str) -> str:
    """The first of the differences in words."""
    fault, (a, b) = faults[0], called
    names = [n for n, v in zip(before.output_names, before.outputs, strict=True) if v == fault.value]
    what = f"output {names[0]!r}" if names else f"value {before.names.get(fault.value, '')!r} inside"
    return f"{what} of {b} differs from that of {a} by {fault.words}, in {engine} on random inputs"


def _largest(before: Graph, samples: list[_Sample], outputs: list[list[Any]]) -> dict[str, Any] | None:
    """The largest difference of floats, by its size beside the largest element of its output."""
    found: list[tuple[float, dict[str, Any]]] = []
    for number, (sample, got) in enumerate(zip(samples, outputs, strict=True)):
        for name, want, made in zip(before.output_names, sample.outputs, got, strict=True):
            if not isinstance(want, np.ndarray) or not is_inexact(want) or want.shape != made.shape or not want.size:
                continue
            with np.errstate(all="ignore"):
                far = np.nan_to_num(np.abs(want.astype(_wide(want)) - made.astype(_wide(want))), posinf=0.0)
            at = np.unravel_index(int(far.argmax()), far.shape)
            size, most = float(far[at]), float(abs(want[at]))
            if size > 0:
                place = {"output": name, "index": [int(i) for i in at], "draw": number}
                told = {"absolute": size, "relative": size / most if most else 0.0, **place}
                found.append((float(np.nan_to_num(deviation(want, made), posinf=0.0).max()), told))
    return max(found, key=lambda entry: entry[0])[1] if found else None


def _wide(array: np.ndarray[Any, Any]) -> type:
    return np.complex128 if array.dtype.kind == "c" else np.float64


def _count(wanted: list[Any], got: list[Any]) -> int:
    """How many whole numbers and truth values are others."""
    both = [(a, b) for a, b in zip(wanted, got, strict=True) if isinstance(a, np.ndarray) and not is_inexact(a)]
    return sum(int((a != b).sum()) for a, b in both if a.shape == b.shape)


def _differing_bits(
    before: Graph,
    after: Graph,
    engine: str,
    request: Mapping[str, Any],
    samples: list[_Sample],
    outputs: list[list[Any]],
) -> str:
    """The first difference of bits, in words, where the policy allows none: on what was drawn and on special values."""
    policy = request["demands"]["policy"]
    if policy not in ("exact", "finite"):
        return ""
    a, b = request["names"]
    trials = [(sample.outputs, got) for sample, got in zip(samples, outputs, strict=True)]
    if policy == "exact" or all(_is_finite(output) for sample in samples for output in sample.outputs):
        trials += _on_special(before, after, engine, request, samples[0], policy == "exact")
    for wanted, got in trials:
        for name, want, made in zip(before.output_names, wanted, got, strict=True):
            if not isinstance(want, np.ndarray) or want.dtype.kind == "O" or want.shape != made.shape:
                continue
            bits = f"u{want.dtype.itemsize}" if want.dtype.itemsize in (1, 2, 4, 8) else "u1"
            plain = [np.atleast_1d(np.ascontiguousarray(array)) for array in (want, made)]
            apart = plain[0].view(bits) != plain[1].view(bits)
            if is_inexact(want) and apart.shape == plain[0].shape:
                apart &= ~(np.isnan(plain[0]) & np.isnan(plain[1]))
                if policy == "finite":
                    apart &= np.isfinite(plain[0])
            if apart.any():
                at = tuple(int(i) for i in np.argwhere(apart)[0])
                share = f"{int(apart.sum())} of {want.size} elements"
                said = f"{plain[1].reshape(apart.shape)[at]}, not {plain[0].reshape(apart.shape)[at]}"
                where = ", ".join(map(str, at))
                return f"output {name!r} of {b} differs from that of {a} by bits of {share}: {said}, at [{where}]"
    return ""


def _on_special(
    before: Graph, after: Graph, engine: str, request: Mapping[str, Any], sample: _Sample, is_exact: bool
) -> list[tuple[list[Any], list[Any]]]:
    """What both models make of special values, as far as the engine runs them."""
    runs = [open_model(request[model], engine)[0] for model in ("original", "result")]
    given_inputs, bounds = _told(before, request["inputs"]), ranges(before)
    names = {after.names[value] for value in after.inputs}
    trials = []
    for seed in range(SPECIAL):
        feeds = special(
            before, draw(before, sample.sizes, bounds, given_inputs, seed, 0), bounds, given_inputs, seed, is_exact
        )
        try:
            wanted = runs[0](feeds)
            trials.append((wanted, runs[1]({name: value for name, value in feeds.items() if name in names})))
        except EngineError:
            continue
    return trials


class RefusalError(Exception):
    """The engine runs the original and not the result: its name, and what it says."""


def _size(error: float) -> float | None:
    """An error as far as it has a size: JSON has no infinity."""
    return error if isfinite(error) else None


def _runs(
    before: Graph, after: Graph, request: Mapping[str, Any], enter: Callable[[str], object]
) -> tuple[str, list[_Sample], list[list[Any]], list[tuple[str, list[int]]]]:
    """The engine, inputs with what the original makes of them, what the result does, and the branches never taken.

    Raises EngineError where the original is refused, RefusalError where the result is.
    """
    run, engine = open_model(request["original"])
    samples = list(_samples(before, after, run, request, enter))
    more, untaken = _other_branches(before, after, run, engine, request, samples)
    samples += more
    samples += _more_of_few(before, run, request, samples)
    del run  # a session is as large as the model
    enter("result")
    names = {after.names[value] for value in after.inputs}
    try:
        run = open_model(request["result"], engine)[0]
        outputs = [run({name: value for name, value in s.feeds.items() if name in names}) for s in samples]
    except EngineError as refusal:
        if isinstance(refusal, MemoryError):
            raise UnverifiedError(f"there is no memory to run both models ({refusal}): --memory allows more") from None
        raise RefusalError(engine, str(refusal)) from None
    return engine, samples, outputs, untaken


def _other_branches(
    before: Graph, after: Graph, run: Runner, engine: str, request: Mapping[str, Any], samples: list[_Sample]
) -> tuple[list[_Sample], list[tuple[str, list[int]]]]:
    """Inputs for which conditions are what they were for none before, as far as some are found, and, in words, the
    conditions for which none are, with the nodes that ask for them. The part of the model that makes the conditions is
    run alone, which costs little."""
    branches = conditions(before, after)
    if not branches:
        return [], []
    given_inputs, bounds = _told(before, request["inputs"]), ranges(before)
    loose = {name: replace(range, choices=()) for name, range in bounds.items()}  # what is equal may be unequal
    optional = [before.names[v] for v in before.inputs if isinstance(before.types.get(v), OptionalType)]
    seen: dict[Value, set[bool]] = {value: set() for value in branches}
    more: list[_Sample] = []
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
        try:
            decide = _open_excerpt(excerpt(before, branches), Path(folder) / "conditions.onnx", engine)
            for sample in samples:
                _note(seen, decide(sample.feeds))
        except (EngineError, GraphoptError, MemoryError):
            decide = None
        for turn in range(TURNS if decide else 0):
            if all(len(truths) > 1 for truths in seen.values()) or time.perf_counter() - start > CHEAP:
                break
            seed, kind = 2 * (len(samples) + turn), turn // 2 % DISTRIBUTIONS
            feeds = draw(before, samples[0].sizes, (bounds, loose)[turn % 2], given_inputs, seed, kind)
            if turn % 2:
                feeds |= dict.fromkeys(optional)
            try:
                truths = decide(feeds) if decide else []
                if not _note({value: set(truths_of) for value, truths_of in seen.items()}, truths):
                    continue
                outputs = run(feeds)
            except EngineError:
                continue
            if all(map(_is_finite, outputs)):
                _note(seen, truths)
                more.append(_Sample(feeds, feeds, outputs, samples[0].sizes, samples[0].silent))
    a = request["names"][0]
    untaken = []
    for (value, nodes), truths_of in zip(branches.items(), seen.values(), strict=True):
        if len(truths_of) < 2:
            was = f"was {next(iter(truths_of))} only" if truths_of else "could not be read"
            what = f"condition {before.names.get(value, '')!r} of {before.node(nodes[0]).op} in {a} {was}"
            untaken.append((f"{what}: what it leaves out was not compared; --input can give others", nodes))
    return more, untaken


def _more_of_few(before: Graph, run: Runner, request: Mapping[str, Any], samples: list[_Sample]) -> Iterator[_Sample]:
    """More draws where outputs are a few whole numbers or truth values and nothing else, while they cost little."""
    sample, names = samples[0], set(without_inputs(before))
    index = [i for i, name in enumerate(before.output_names) if name not in names]
    if any(not isinstance(sample.outputs[i], np.ndarray) or is_inexact(sample.outputs[i]) for i in index):
        return
    found = sum(s.outputs[i].size for s in samples for i in index)
    given_inputs, bounds = _told(before, request["inputs"]), ranges(before)
    start = time.perf_counter()
    for turn in range(WHOLE if index else 0):
        if found >= WHOLE or time.perf_counter() - start > CHEAP:
            return
        seed, kind = 2 * (request["draws"] + TURNS + turn), turn % DISTRIBUTIONS
        try:
            feeds = draw(before, sample.sizes, bounds, given_inputs, seed, kind)
            outputs = run(feeds)
        except (EngineError, ValueError):
            continue
        if _is_equal(list(feeds.values()), list(sample.feeds.values())):  # all of them are the user's
            return
        found += sum(outputs[i].size for i in index)
        yield _Sample(feeds, feeds, outputs, sample.sizes, sample.silent)


def _note(seen: dict[Value, set[bool]], truths: list[Any]) -> bool:
    """Add the truth values of conditions to those that they had, and say whether one is new."""
    before = sum(map(len, seen.values()))
    for earlier, truth in zip(seen.values(), truths, strict=True):
        earlier.update(bool(element) for element in np.asarray(truth).reshape(-1)[:1])
    return sum(map(len, seen.values())) > before


def _judged(
    request: Mapping[str, Any],
    engine: str,
    before: Graph,
    samples: list[_Sample],
    outputs: list[list[Any]],
    is_settled: bool,
) -> tuple[list[float], list[str]]:
    """For each output its largest error, in units of the tolerance, and why errors beyond it may be no fault.

    Raises MismatchError where nothing else explains one, and parts were not all found equal (``is_settled``).
    """
    coarsest = [0.0] * len(before.output_names)
    demands = request["demands"]
    if demands["rtol"] is not None or demands["atol"] is not None:
        _hold(demands["rtol"] or 0.0, demands["atol"] or 0.0, before, samples, outputs, request["names"])
    pairs = [(sample, got) for sample, got in zip(samples, outputs, strict=True)]
    errors = [list(map(off, sample.outputs, got, coarsest)) for sample, got in pairs]
    if any(e > 1 for row in errors for e in row):
        coarsest = coarsest_shares(before)
        errors = [list(map(off, sample.outputs, got, coarsest)) for sample, got in pairs]
    doubts: list[str] = []
    for (sample, got), row in zip(pairs, errors, strict=True):
        if max(row) > 1:
            doubts += _excuses(request, engine, before, sample, got, row, coarsest, is_settled)
    return list(map(max, *errors)) if len(errors) > 1 else errors[0], doubts


def _hold(
    rtol: float, atol: float, before: Graph, samples: list[_Sample], outputs: list[list[Any]], names: tuple[str, str]
) -> None:
    """Raise MismatchError for an element beyond the user's tolerances."""
    for number, (sample, got) in enumerate(zip(samples, outputs, strict=True)):
        for name, want, made in zip(before.output_names, sample.outputs, got, strict=True):
            if not isinstance(want, np.ndarray) or not is_inexact(want) or want.shape != made.shape:
                continue
            x: Array = want.astype(_wide(want))
            y: Array = made.astype(_wide(want))
            beyond = ~np.isclose(y, x, rtol=rtol, atol=atol, equal_nan=True)
            if beyond.any():
                at = tuple(int(i) for i in np.argwhere(beyond)[0])
                raise MismatchError(
                    f"{int(beyond.sum())} of {want.size} elements of output {name!r} of {names[1]} are beyond rtol "
                    f"{rtol:g} and atol {atol:g}: {y[at]}, not {x[at]}, at [{', '.join(map(str, at))}] of draw {number}"
                )


def _silent(before: Graph, after: Graph, samples: list[_Sample]) -> dict[str, str]:
    """The outputs, by name, on which equal results say little, and why: a wrong rewriting might not show in them.

    Those that are made by the same ops of the same inputs, or of no input, leave nothing to say.
    """
    reasons = {
        name: why
        for index, name in enumerate(before.output_names)
        if (why := min((sample.silent[index] for sample in samples), key=len))
    }
    if reasons and [before.names[v] for v in before.inputs] == [after.names[v] for v in after.inputs]:
        hashes, others = node_hashes(before), node_hashes(after)
        for name, v, w in zip(before.output_names, before.outputs, after.outputs, strict=True):
            if v is not None and w is not None and (hashes[v.node], v.port) == (others[w.node], w.port):
                reasons.pop(name, None)
    return reasons


def _inside(
    before: Graph, after: Graph, silent: Mapping[str, str], engine: str, request: Mapping[str, Any], sample: _Sample
) -> dict[str, tuple[dict[Pair, float], bool]]:
    """Of outputs that say little, the values inside both models by which they are known to be equal, with the errors of
    these, and whether that took large inputs: the first are those that the outputs were compared on."""
    values = zip(before.output_names, before.outputs, after.outputs, strict=True)
    roots = {name: (v, w) for name, v, w in values if name in silent and v is not None and w is not None}
    twins = pairs(before, after, roots.values())
    compared = list(twins.made_of)
    given_inputs = _told(before, request["inputs"])
    large = [draw(before, sample.sizes, ranges(before), given_inputs, seed, LARGE) for seed in (0, 1)]
    differences: dict[str, tuple[dict[Pair, float], bool]] = {}
    with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
        try:
            runs = [
                _open_excerpt(excerpt(graph, [pair[i] for pair in compared]), Path(folder) / f"{i}.onnx", engine)
                for i, graph in enumerate((before, after))
            ]
            reads, still = reached(before), set(compared)
            for is_large in (False, True):
                feeds, others = large if is_large else (sample.feeds, sample.others)
                outputs, changed, got = runs[0](feeds), runs[0](others), runs[1](feeds)
                errors = dict(zip(compared, map(off, outputs, got), strict=True))
                telling = {pair for pair in compared if errors[pair] <= 1 and pair[0].node not in reads}
                for pair, output, other, result in zip(compared, outputs, changed, got, strict=True):
                    if errors[pair] > 1 or pair not in still:
                        still.discard(pair)
                    elif not _silence(output, other, is_large):
                        still.remove(pair)
                        telling |= {pair} if _is_small_beside(output, other, result) else set()
                for name, root in roots.items():
                    if name not in differences and (by := twins.told(root, telling.__contains__)) is not None:
                        differences[name] = {pair: errors[pair] for pair in by}, is_large
                if len(differences) == len(silent):
                    break
        except (EngineError, GraphoptError, MemoryError):
            pass
    return differences


def _is_small_beside(output: Any, changed: Any, got: Any) -> bool:
    """Whether two models differ by little beside what other inputs change: what reads the value may make it more."""
    if type(output) is not type(changed):
        return True
    if isinstance(output, (list, tuple)):
        return len(output) != len(changed) or all(map(_is_small_beside, output, changed, got))
    if not isinstance(output, np.ndarray) or not is_inexact(output) or output.shape != changed.shape:
        return True
    with np.errstate(invalid="ignore"):
        most = [np.nanmax(deviation(output, other), initial=0.0) for other in (got, changed)]
    return bool(most[0] <= PART * most[1])


HEAVY = 1 << 20
"""Elements from which on a weight of an excerpt is given to it, and not written to a file of its own."""


def _open_excerpt(graph: Graph, path: Path, engine: str) -> Runner:
    """A runner for a graph that is no file yet. Large weights stay where they are, most often mapped from a file."""
    from graphopt.ir.onnx_io import save_for_now

    lean, weights = _without_weights(graph)
    save_for_now(lean, path)
    try:
        run, _ = open_model(path, engine)
    except EngineError:
        if not weights:
            raise
        weights = {}  # some ops take constants alone
        save_for_now(graph, path)
        run, _ = open_model(path, engine)
    names = {graph.names[value] for value in graph.inputs}
    return lambda feeds: run({**weights, **{name: value for name, value in feeds.items() if name in names}})


def _without_weights(graph: Graph) -> tuple[Graph, dict[str, Any]]:
    """The graph with its large weights as inputs, and these by name."""
    lean, weights = graph.copy(), dict[str, Any]()
    for node in list(graph.nodes()):
        constant = graph.constant_of(value := Value(node.id))
        if constant is None or constant.size < HEAVY or constant.splat is not None or graph.is_output(value):
            continue
        name = f"graphopt:weight:{node.id}"
        lean.replace(value, lean.add_input(name, TensorType(constant.dtype, constant.shape)))
        lean.remove(node.id)
        weights[name] = constant.array
    return lean, weights


# -- inputs that the original accepts


@dataclass(frozen=True, slots=True)
class _Sample:
    """Inputs, others of the same sizes, the original's outputs on the first, the sizes drawn, and for each output why
    it says little, if it does."""

    feeds: dict[str, Any]
    others: dict[str, Any]
    outputs: list[Any]
    sizes: dict[str, int]
    silent: tuple[str, ...]
    is_mirrored: bool = False
    """Whether these are inputs that were drawn, but for signs."""

    @property
    def merit(self) -> tuple[bool, int]:
        """By which samples are compared: whether all outputs are finite, and how many of them say enough."""
        return all(map(_is_finite, self.outputs)), self.silent.count("")


def _samples(
    before: Graph, after: Graph, run: Runner, request: Mapping[str, Any], enter: Callable[[str], object]
) -> Iterator[_Sample]:
    """For each draw, inputs on which the original's outputs are finite and depend on them, if there are any, and those
    outputs.

    The first is followed by one in which floats of small inputs have the other sign, for one draw of few numbers may
    have one sign alone. One draw that is asked for is followed by one of other sizes, where there are any and it costs
    little.
    """
    given_inputs = _told(before, request["inputs"])
    bounds = ranges(before)
    names = set(without_inputs(before))
    constant = {index for index, name in enumerate(before.output_names) if name in names}
    candidates = list(sizes(before, _settled(before, after, given_inputs)))
    most = request.get("memory", inf)
    operations = most_operations(before, is_asked=_is_asked(request))
    excesses = dict.fromkeys(request.get("avoided", ()), "the runtime ended its process")

    def too_much(chosen: dict[str, int]) -> str:
        """Why a run with these sizes would take too much, before anything runs; empty where nothing says so."""
        key = json.dumps(chosen)
        if key not in excesses:  # inference of the whole graph takes longer than a run of a small one
            excesses[key] = excess(before, chosen, most, operations)
        return excesses[key]

    for number in range(request["draws"]):

        def elements(chosen: dict[str, int], kind: int, turn: int = 0, number: int = number) -> dict[str, Any]:
            if why := too_much(chosen):
                raise EngineError(why)
            enter(f"original {json.dumps(chosen)}")
            return draw(before, chosen, bounds, given_inputs, 2 * number + turn, (number + kind) % DISTRIBUTIONS)

        start = time.perf_counter()
        position, sample = _accepted(candidates, elements, run, constant)
        yield sample
        bounded = {name for name, range in bounds.items() if range != FREE}
        if number == 0 and (mirrored := _mirrored(sample.feeds, bounded | given_inputs.keys())):
            with suppress(EngineError):  # who takes no such numbers has none to be compared on
                enter(f"original {json.dumps(sample.sizes)}")
                yield replace(sample, feeds=mirrored, outputs=run(mirrored), is_mirrored=True)
        if request["draws"] == 1 and time.perf_counter() - start < CHEAP:
            others = [*candidates[position + 1 :], *candidates[:position]]
            try:
                yield _accepted(others, elements, run, constant, CHEAP)[1]
            except UnverifiedError:  # one draw was asked for, and made
                return
        # the next draw tries sizes that were not tried yet, and comes back to those that work
        candidates = [*candidates[position + 1 :], *candidates[: position + 1]]


def _mirrored(feeds: Feeds, kept: Container[str]) -> dict[str, Any] | None:
    """Inputs in which the floats of those that have few elements have the other sign; None where there are none."""
    few = {
        name: np.asarray(np.negative(array))
        for name, array in feeds.items()
        if name not in kept
        and isinstance(array, np.ndarray | np.generic)
        and array.dtype.kind == "f"
        and 0 < array.size <= FEW_ELEMENTS
    }
    return {**feeds, **few} if few else None


Elements = Callable[..., dict[str, Any]]
"""Random inputs, given sizes for the open dimensions, the kind of distribution, and which of two turns it is."""


def _accepted(
    candidates: list[dict[str, int]],
    elements: Elements,
    run: Runner,
    constant: set[int],
    patience: float = PATIENCE,
) -> tuple[int, _Sample]:
    """The position of the first sizes that the original accepts, with inputs and outputs.

    Sizes on which its outputs depend on the inputs go first, if they come soon; ``constant`` are those of no input.
    """
    refusal = ""
    still: dict[int, _Sample] = {}
    start = time.perf_counter()
    for kind, (position, chosen) in product(range(FEW), enumerate(candidates)):
        if position in still:
            continue
        try:
            sample = _sample(chosen, elements, run, kind, constant)
        except EngineError as error:
            refusal = refusal or str(error)
        except UnverifiedError:
            if not still:
                raise
        else:
            if not any(sample.silent):
                return position, sample
            still[position] = sample
        if time.perf_counter() - start > patience or len(still) > STILL:
            break
    if still:
        return max(still.items(), key=lambda item: item[1].merit)
    hint = "give values with --input, or sizes with --dim"
    raise UnverifiedError(f"the original does not run on random inputs ({refusal}); {hint}")


def _sample(chosen: dict[str, int], elements: Elements, run: Runner, first: int, constant: set[int]) -> _Sample:
    """Inputs and outputs, if possible such that all outputs say enough.

    Raises EngineError where the model refuses these sizes, UnverifiedError where nothing can be drawn.
    """
    best: _Sample | None = None
    start = time.perf_counter()
    for kind in range(first, first + DISTRIBUTIONS):
        if best is not None and all(map(_is_finite, best.outputs)) and time.perf_counter() - start > CHEAP:
            break
        try:
            feeds, others = elements(chosen, kind), elements(chosen, kind, 1)
            if _is_equal(list(feeds.values()), list(others.values())):  # of ones there is one draw
                others = elements(chosen, kind + 1, 1)
        except ValueError as problem:
            raise UnverifiedError(str(problem)) from None
        try:
            outputs = run(feeds)
        except EngineError:
            if best is None:
                raise
            continue
        if all(isinstance(output, np.ndarray) and output.size == 0 for output in outputs):
            raise EngineError("the outputs are empty")
        earlier = best.outputs if best is not None and all(map(_is_finite, best.outputs)) else None
        silent = _silences(feeds, outputs, others, run, constant, earlier)
        sample = _Sample(feeds, others, outputs, chosen, silent)
        if best is None or sample.merit > best.merit:
            best = sample
        if best.merit == (True, len(best.outputs)):
            break
    assert best is not None  # an engine that refuses the first draw has ended this
    return best


def _silences(
    feeds: Feeds, outputs: list[Any], others: Feeds, run: Runner, constant: set[int], earlier: list[Any] | None
) -> tuple[str, ...]:
    """For each output why it says little of what the model computes; unless refuted, it does.

    Where the outputs are those that there were on ``earlier`` inputs, the model is not run on others.
    """
    if earlier is not None and any(silences := _silences_beside(outputs, earlier, constant)):
        return silences
    changed: list[Any] | None = None
    if not all(map(_is_lost, outputs)) and not _is_equal(list(feeds.values()), list(others.values())):
        try:
            changed = run(others)
        except EngineError:
            changed = None
    return _silences_beside(outputs, changed, constant)


def _silences_beside(outputs: list[Any], changed: list[Any] | None, constant: set[int]) -> tuple[str, ...]:
    """The same, given the outputs on other inputs.

    Whole numbers, truth values and strings need not change where there are floats.
    """
    floats = {i for i, output in enumerate(outputs) if isinstance(output, np.ndarray) and is_inexact(output)}
    reasons = []
    for index, output in enumerate(outputs):
        if index in constant:
            reasons.append("")
        elif _is_lost(output) or (changed is None and not _is_finite(output)):
            reasons.append("is not finite on random inputs")
        elif changed is None or (floats and index not in floats):
            reasons.append("")
        else:
            reasons.append(_silence(output, changed[index]))
    if not floats and "" in reasons:  # one of them that changes is enough
        return ("",) * len(outputs)
    return tuple(reasons)


def _silence(output: Any, changed: Any, is_large: bool = False) -> str:
    """Why an output says little, by what it is for other inputs: a difference in what stays the same is none to see.

    With ``is_large`` a number that is there for the other inputs too counts as the same: of large numbers functions
    make a few.
    """
    if not isinstance(output, np.ndarray) or not isinstance(changed, np.ndarray) or output.shape != changed.shape:
        return "does not depend on random inputs" if _is_equal(output, changed) else ""
    if not is_inexact(output):
        return "does not depend on random inputs" if np.array_equal(output, changed) else ""
    differing = deviation(output, changed) > 1
    moving = int((differing & ~np.isin(output, changed)).sum() if is_large else differing.sum())
    if 4 * moving >= min(output.size, VARIETY):
        return ""
    if not _is_finite(output):
        return "is not finite on random inputs"
    return "hardly depends on random inputs" if moving else "does not depend on random inputs"


def _is_equal(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_is_equal, a, b))
    return np.array_equal(a, b) if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else bool(a == b)


def _told(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The user's inputs, arrays read."""
    check_inputs(graph, inputs)
    return {k: np.load(v, allow_pickle=False) if isinstance(v, str) else tuple(v) for k, v in inputs.items()}


def _settled(before: Graph, after: Graph, given_inputs: Mapping[str, Any]) -> dict[str, int]:
    """The open sizes that the user's arrays or the types of the result's inputs settle."""
    fixed: dict[str, int] = {}
    types = {after.names[value]: after.types.get(value) for value in after.inputs}
    for value in before.inputs:
        name, type = before.names[value], before.types.get(value)
        array, other = given_inputs.get(name), types.get(name)
        shape = array.shape if isinstance(array, np.ndarray) else getattr(other, "shape", ())
        if not isinstance(type, TensorType) or not isinstance(type.shape, tuple) or not isinstance(shape, tuple):
            continue
        for size, number in zip(type.shape, shape, strict=False):
            for free in symbols(size):
                if size == symbol(free) and isinstance(number, int):
                    fixed[free] = number
    return fixed


def _is_lost(output: Any) -> bool:
    """Whether no element of an output is finite."""
    if not isinstance(output, np.ndarray) or not is_inexact(output):
        return False
    return not np.isfinite(output if output.dtype.kind in "fc" else output.astype(np.float32)).any()


def _is_finite(output: Any) -> bool:
    if isinstance(output, (list, tuple)):
        return all(map(_is_finite, output))
    if not isinstance(output, np.ndarray) or not is_inexact(output):
        return True
    return bool(np.isfinite(output if output.dtype.kind in "fc" else output.astype(np.float32)).all())


# -- judging differences


def _error_where_finite(want: Any, got: Any) -> float:
    """How far an output is off, of elements that are wanted to be finite."""
    if isinstance(want, np.ndarray) and isinstance(got, np.ndarray) and is_inexact(want) and want.shape == got.shape:
        finite = np.isfinite(want)
        want, got = want[finite], got[finite]
    return off(want, got)


def _excuses(
    request: Mapping[str, Any],
    engine: str,
    graph: Graph,
    sample: _Sample,
    got: list[Any],
    errors: list[float],
    coarsest: list[float],
    is_settled: bool,
) -> Iterator[str]:
    """Why errors beyond the tolerance may be no fault of the result, one after another.

    Raises MismatchError where nothing explains one, and parts were not all found equal.
    """
    original, (a, b) = request["original"], request["names"]
    run = open_model(original, engine)[0]
    once, again = run(sample.feeds), run(sample.feeds)  # ONNX Runtime's first random numbers are the same in a session
    beyond = [index for index, e in enumerate(errors) if e > 1]
    questioned = {index: got[index] for index in beyond}
    shares = {index: coarsest[index] for index in beyond}
    moved = explained_by_rounding(original, engine, graph, run, sample.feeds, once, questioned, shares)
    for index in beyond:
        name, wanted = graph.output_names[index], sample.outputs[index]
        size = _in_words(errors[index], wanted, got[index])
        differs = f"output {name!r} of {b} differs from that of {a} by {size}"
        if off(once[index], again[index]) > 0:
            yield f"{differs}, and is another in {a} each time that it runs"
            continue
        if not _is_finite(wanted) and _error_where_finite(wanted, got[index]) <= 1:
            draws = f"{DISTRIBUTIONS} draws"
            yield f"output {name!r} of {a} was not finite in {draws}, and {b} has NaN or infinity elsewhere"
            continue
        if index not in moved:
            if not is_settled or (isinstance(wanted, np.ndarray) and is_inexact(wanted) and errors[index] == inf):
                raise MismatchError(f"{differs}, in {engine} on random inputs")
            yield f"{differs}, though in float64 each part of both makes the same: rounding adds up to it"
            continue
        what, outputs = moved[index]
        most = max(outputs, key=lambda output: off(once[index], output, coarsest[index]))
        movement = _in_words(off(once[index], most, coarsest[index]), once[index], most)
        yield f"{differs}, and that of {a} by {movement} when {what}"


def _in_words(error: float, want: Any, got: Any) -> str:
    """The size of a difference."""
    return f"{error:.3g} times the tolerance" if isfinite(error) else _in_kind(want, got)


def _in_kind(want: Any, got: Any) -> str:
    """How two outputs differ where no tolerance applies."""
    if not isinstance(want, np.ndarray) or not isinstance(got, np.ndarray):
        return "its kind of value"
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"its type: {type_name(got)} instead of {type_name(want)}"
    if is_inexact(want):
        return "where it is NaN or infinite"
    return f"{int((want != got).sum())} of {want.size} elements"
