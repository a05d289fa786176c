"""Check of a program against its model: both run once on random inputs, in this process, in a bounded time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.errors import ExecutionError, GraphoptError, InputError, VerificationError
from graphopt.verify.verification import OFF, Verification

if TYPE_CHECKING:
    from graphopt.ir.graph import Graph, Node
    from graphopt.run.settings import Settings
    from graphopt.runtime.bound_state import BoundState

LEAST = 0.3
"""Seconds that a check may take in any case; beyond that, as long as the program took to compile."""

BYTES_A_SECOND = 400 << 20
"""How many bytes of a model's own file ONNX Runtime loads in a second; weights in files beside it are mapped."""

DRAWN_A_SECOND = 200 << 20
"""How many bytes of inputs and what is made of them are drawn and written in a second, at least."""

SLOWER, SLOWER_BY_REFERENCE = 8.0, 2000.0
"""How many times as long as the program a model may take in ONNX Runtime, and in ONNX's reference evaluator."""

INTERPRETED = 0.4e-6
"""Seconds that the interpreter takes for an operation of a tensor program."""

ROUNDS = 1000
"""A model whose loops may take more rounds is not run where nobody waits for it."""

APPROX = 5e-2
"""The share by which results under ``approx`` may differ: weights are read in bfloat16."""

Run = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def check_program(
    model: Any, graph: Graph, run: Run, settings: Settings, seconds: float, fixed: Mapping[str, Any]
) -> Verification:
    """Compare a program with the model that it is of: a path, or whatever ``graph``, the model as read, came from.

    One random input may take ``seconds``, what compiling took; more that are asked for as long as they do. ``fixed``
    holds what inputs are. Raises VerificationError where outputs differ, and where the program has to be verified and
    is not.
    """
    asked = settings.verify
    if asked in (0, "off"):
        return OFF
    start = time.perf_counter()
    until = start + (max(LEAST, seconds) if asked == 1 else float("inf"))
    draws = asked if isinstance(asked, int) else 1
    try:
        if not settings.target.device.is_host:
            raise _UndecidedError(
                "unverified", f"programs for {settings.target.name} are not run when they are compiled"
            )
        coarsest = APPROX if settings.policy == "approx" else 0.0
        verification = _compared(model, graph, run, draws, until, fixed, coarsest, settings.memory)
    except _UndecidedError as reason:
        verification = Verification(*reason.args)
    if asked == "require" and not verification.is_verified:
        raise VerificationError(f"the program could not be verified: {verification.reason}")
    return replace(verification, seconds=time.perf_counter() - start)


def check_states(graph: Graph, plain: Run, state: BoundState, settings: Settings) -> Verification:
    """Compare a program that keeps states with the one that takes and gives them, on random inputs.

    Raises VerificationError where outputs or states differ; the state is empty after that.
    """
    from graphopt.verify.coarsest import coarsest_shares
    from graphopt.verify.conditioning import off

    if settings.verify in (0, "off"):
        return OFF
    coarsest, refusal = APPROX if settings.policy == "approx" else 0.0, "no inputs can be drawn"
    pairs = {s.past: s.present for s in state.program.code.states}
    for draws_inputs, chosen in _inputs(graph, {}):
        try:
            feeds = draws_inputs()
            wanted = plain(feeds)
            state.set({name: feeds[name] for name in pairs})
            made = {**state({name: feeds[name] for name in state.inputs if name in feeds})}
        except (ValueError, GraphoptError, MemoryError) as error:
            refusal = str(error)
            continue
        made |= {pairs[name]: array for name, array in state.arrays.items()}
        state.reset()
        shares = dict(zip(graph.output_names, coarsest_shares(graph), strict=True))
        units = {name: off(want, made[name], max(coarsest, shares[name])) for name, want in wanted.items()}
        worst = max(units, key=lambda name: units[name])
        if units[worst] > 1:
            raise VerificationError(f"output {worst!r} differs where states are kept, on random inputs")
        sizes = (chosen,) if chosen else ()
        return Verification("verified", engine="graphopt without states", draws=1, error=units[worst], sizes=sizes)
    state.reset()
    if settings.verify == "require":
        raise VerificationError(f"states could not be verified: it does not run on random inputs ({refusal})")
    return Verification("unverified", f"it does not run on random inputs ({refusal})")


class _UndecidedError(Exception):
    """Nothing can be said of the program: the status, and the reason."""


def _compared(
    model: Any,
    graph: Graph,
    run: Run,
    draws: int,
    until: float,
    fixed: Mapping[str, Any],
    coarsest: float,
    memory: int | None,
) -> Verification:
    from graphopt.ir import onnx_io
    from graphopt.ir.work import EACH_SECOND, MOST_OPERATIONS, UNBOUNDED, excess, rounds, sparse_bytes, stored_bytes
    from graphopt.runtime.limits import memory_of
    from graphopt.verify.arrays import comparable
    from graphopt.verify.coarsest import coarsest_shares, multiplies_bytes
    from graphopt.verify.conditioning import explained_by_rounding, off
    from graphopt.verify.runtimes import REFERENCE, EngineError, open_model

    if any(not is_repeatable(graph, node) or graph.has_effects(node) for node in graph.nodes()):
        raise _UndecidedError("unverified", "the model draws at random, or does more than give results")
    if until < float("inf") and rounds(graph) > ROUNDS:
        ops = " and ".join(sorted({node.op for node in graph.nodes()} & {"Loop", "Scan", "If", *UNBOUNDED}))
        raise _UndecidedError("unverified", f"{ops} may take any time on random inputs; verify=2 runs it")
    most, stored = memory_of(sparse_bytes(graph), memory), stored_bytes(graph)
    found: list[tuple[Mapping[str, Any], Mapping[str, Any], dict[str, int], float]] = []
    refusal = "no inputs can be drawn"
    for draws_inputs, chosen in _inputs(graph, fixed):
        if time.perf_counter() > until:
            raise _UndecidedError("unverified", "there was no time to find inputs that it takes")
        left = until - time.perf_counter()
        in_time = min(most, stored + DRAWN_A_SECOND * left)
        if why := excess(graph, chosen, in_time, min(MOST_OPERATIONS, EACH_SECOND * left)):
            refusal = why  # before inputs are drawn, which takes time, too
            continue
        try:
            feeds = draws_inputs()
        except (ValueError, GraphoptError):
            continue
        began = time.perf_counter()
        try:
            outputs = run(feeds)
        except (InputError, ExecutionError, MemoryError) as error:
            refusal = str(error)
            continue
        found.append((feeds, outputs, chosen, time.perf_counter() - began))
        if len(found) == draws:
            break
    if not found:
        raise _UndecidedError("unverified", f"it does not run on random inputs ({refusal})")
    slower = SLOWER if find_spec("onnxruntime") is not None else SLOWER_BY_REFERENCE
    loaded = Path(model).stat().st_size if isinstance(model, str | Path) else stored
    expected = slower * min(took for *_, took in found) + loaded / BYTES_A_SECOND
    expected += INTERPRETED * min(_program_operations(graph, chosen) for *_, chosen, _ in found)
    if time.perf_counter() + expected > until:
        raise _UndecidedError(
            "unverified", f"a run of the model would take about {expected:.1g} s; verify=2 waits for it"
        )
    with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
        path = model if isinstance(model, str | Path) else Path(folder) / "model.onnx"
        try:
            if path != model:
                onnx_io.save(graph, path)
            original, engine = open_model(path, prepacks=any(map(multiplies_bytes, graph.nodes())))
        except (EngineError, GraphoptError) as refused:
            raise _UndecidedError("unverified", f"the model does not run ({refused})") from None

        def is_right_by_reference(fed: Mapping[str, Any], name: str, made: Any) -> bool:
            """Whether an output is what ONNX's reference says: runtimes may add halves in single precision, and on some
            processors their kernels of bytes saturate."""
            try:
                wanted = dict(zip(graph.output_names, open_model(path, REFERENCE)[0](fed), strict=True))
            except EngineError:
                return False
            return off(wanted[name], made, max(coarsest, shares[name])) <= 1

        def moves_as_much(fed: Mapping[str, Any], wanted: Mapping[str, Any], name: str, made: Any) -> str:
            """How the model itself differs from itself as much, by rounding alone; nothing where it does not."""
            position = graph.output_names.index(name)
            once = [wanted[n] for n in graph.output_names]
            share = {position: max(coarsest, shares[name])}
            moved = explained_by_rounding(path, engine, graph, original, fed, once, {position: made}, share)
            return moved[position][0] if position in moved else ""

        largest, doubt, compared, shares = 0.0, "", [], dict[str, float]()
        for fed, outputs, chosen, _ in found:
            try:
                wanted = dict(zip(graph.output_names, original(fed), strict=True))
            except EngineError as refused:
                raise _UndecidedError("unverified", f"the model does not run on random inputs ({refused})") from None
            compared.append(chosen)
            for name, want in wanted.items():
                made = comparable(outputs[name])
                units = off(want, made, coarsest)
                if units > 1:  # it may have been computed in a coarser dtype
                    shares = shares or dict(zip(graph.output_names, coarsest_shares(graph), strict=True))
                    units = off(want, made, max(coarsest, shares[name]))
                largest = max(largest, units if np.isfinite(units) else 0.0)
                if units <= 1:
                    continue
                size = f"by {units:.3g} times the tolerance" if np.isfinite(units) else "in kind"
                words = f"output {name!r} of the program differs from that of the model {size}, in {engine}"
                if _is_stack_of_none(graph, want, made):
                    doubt = f"output {name!r} is of no rounds of a Loop, whose sizes no one states"
                elif why := moves_as_much(fed, wanted, name, made):
                    doubt = f"{words}, but no more than when {why}"
                elif engine != REFERENCE and is_right_by_reference(fed, name, made):
                    doubt = f"{words}, but not in {REFERENCE}"
                else:
                    raise VerificationError(f"the program is wrong: {words} on random inputs")
    status = "inconclusive" if doubt else "verified"
    sizes = tuple(drawn for drawn in compared if drawn)
    return Verification(status, doubt, engine, len(compared), largest, sizes=sizes)


def _program_operations(graph: Graph, sizes: Mapping[str, int]) -> int:
    """The operations of tensor programs in a graph with these sizes, but for those in bodies."""
    from graphopt.ir.infer import infer
    from graphopt.ir.infer_nests import NEST, bound_sizes
    from graphopt.ir.work import input_facts
    from graphopt.lowering.analysis.flops import flops
    from graphopt.lowering.lower.embedded_programs import program_of
    from graphopt.rewrite.passes.functions import INLINE
    from graphopt.rewrite.passes.simplify import simplify
    from graphopt.runtime.sizes import evaluate

    if not any(n.op == NEST for body in (graph, *(f.body for f in graph.functions.values())) for n in body.nodes()):
        return 0
    flat = simplify(graph, (), (INLINE,))
    facts, total = infer(flat, input_facts(flat, sizes)), 0
    for node in flat.nodes():
        if node.op == NEST:
            nest = program_of(node)
            known = bound_sizes(node.attrs, [None if v is None else facts[v].shape for v in node.inputs])
            numbers = {v: n for v in nest.sizes if isinstance(n := known.get(v.name), int)}
            total += evaluate(flops(nest, numbers), {})
    return total


def _is_stack_of_none(graph: Graph, want: Any, made: Any) -> bool:
    """Whether values hold nothing and differ in sizes alone, where a Loop may have had no rounds: ONNX does not say
    what sizes the stack of its results then has, and runtimes disagree."""
    arrays = isinstance(want, np.ndarray) and isinstance(made, np.ndarray)
    is_of_none = arrays and want.dtype == made.dtype and want.size == made.size == 0
    return is_of_none and any(node.op == "Loop" for node in graph.nodes())


def is_repeatable(graph: Graph, node: Node) -> bool:
    """Whether a node gives the same each time; a Dropout does unless it trains, and drops something."""
    from graphopt.ir import ops

    if node.op != "Dropout":
        return ops.is_pure(node.op, node.attrs)
    ratio, training = (graph.constant_of(v) for v in (*node.inputs, None, None)[1:3])
    return len(node.inputs) < 3 or any(c is not None and not c.array.any() for c in (ratio, training))


def _inputs(graph: Graph, fixed: Mapping[str, Any]) -> Iterator[tuple[Callable[[], dict[str, object]], dict[str, int]]]:
    """What draws random inputs, the likeliest to be accepted first, with the sizes that are drawn."""
    from graphopt.verify.inputs import draw, known_sizes, ranges, sizes

    bounds = ranges(graph)
    candidates = list(sizes(graph, known_sizes(graph, fixed)))
    for kind, chosen in product(range(3), candidates):
        yield partial(draw, graph, chosen, bounds, fixed, 2 * kind, kind), chosen
