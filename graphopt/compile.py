"""Steps of ``graphopt.compile``, one line each, from a model to a function of its inputs.

Each is a function of a graph, or of what the step before gave. They are imported when they are first needed: a model
that was compiled before does without.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from graphopt.errors import CompilationError, LimitError, UsageError, names_its_model
from graphopt.program import program_cache
from graphopt.program.compiled_model import Compiled, CompiledModel, PreparedGraph, ReferenceWarning
from graphopt.progress import Listener
from graphopt.run.settings import CompileReport, Settings, dispatch_of, tuned_of, verify_of
from graphopt.runtime.executable import Executable
from graphopt.target import CPU, Target
from graphopt.target import target as target_named

if TYPE_CHECKING:
    from graphopt.ir.graph import Graph
    from graphopt.kernels.kernel import Kernel
    from graphopt.lowering.link.linked import Linked
    from graphopt.lowering.link.options import ByHand, Options
    from graphopt.lowering.module.passes import Pipeline
    from graphopt.program.shared_constants import SharedConstants
    from graphopt.run.steps import OwnStep, Steps

    class CompileOptions(TypedDict, total=False):
        """The options of ``compile`` besides ``entries``."""

        threads: int
        strict: bool
        optimize: bool
        target: str | Target
        policy: str
        shapes: Mapping[str, Sequence[int]] | None
        dims: Mapping[str, int] | None
        jobs: int | None
        cache: bool | None
        pipeline: str | Pipeline | None
        schedules: Mapping[str, ByHand] | None
        costs: str | Path
        dispatch: str
        tuned: str
        database: str | Path | None
        verify: int | str
        memory: int | None
        listener: Listener | None
        steps: Mapping[str, OwnStep] | None


__all__ = ["CompiledModel", "ReferenceWarning", "compile", "compile_graph", "linked_for", "lowered", "prepared"]


@overload
def compile(model: Any, *, entries: None = None, **options: Unpack[CompileOptions]) -> CompiledModel: ...
@overload
def compile(model: Any, *, entries: Sequence[str], **options: Unpack[CompileOptions]) -> Executable: ...
def compile(
    model: Any,
    *,
    threads: int = 1,
    strict: bool = False,
    optimize: bool = True,
    target: str | Target = "cpu",
    policy: str = "reals",
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    jobs: int | None = None,
    cache: bool | None = None,
    pipeline: str | Pipeline | None = None,
    schedules: Mapping[str, ByHand] | None = None,
    costs: str | Path = "auto",
    dispatch: str = "auto",
    tuned: str = "auto",
    database: str | Path | None = None,
    verify: int | str = 1,
    memory: int | None = None,
    listener: Listener | None = None,
    steps: Mapping[str, OwnStep] | None = None,
    entries: Sequence[str] | None = None,
) -> CompiledModel | Executable:
    """A function of the model's inputs, compiled for this machine's processor, or its GPU (target ``"cuda"``).

    ``model`` is a path, bytes, an ``onnx.ModelProto``, an ``onnx_ir.Model``, a ``Graph`` or a ``Module``; it is not
    changed. ``threads`` run the program. A node that no kernel computes runs in ONNX Runtime where that is installed,
    else in ONNX's reference evaluator, with a warning; with ``strict`` that is a CompilationError. ``optimize``
    rewrites the model first, for ``target``; ``policy`` says how equal the result is: ``exact``, ``finite``, ``reals``
    or ``approx``. ``shapes`` (of inputs, by name) and ``dims`` (by symbol) fix open dimensions. ``jobs`` processes
    compile kernels at most (None: one for each core). ``cache`` keeps the program in the user's cache folder, or that
    of ``GRAPHOPT_CACHE`` (1 GiB at most, 4 GiB for all caches): by default for paths and bytes, with True for graphs,
    too, whose weights are hashed.

    ``pipeline`` (or its name: ``graphopt.program.pipelines``) replaces ``optimize``, ``target`` and ``policy``.
    ``schedules`` has, by a node's name, its scheduled nest (``compiled.nests`` has nests to start from), or a function
    of a ``Schedule``. ``costs`` are ``"analytic"``, ``"measured"`` (``graphopt calibrate --target cpu``), ``"auto"``
    (measured if there are some), or a database of prices. ``dispatch`` chooses for products on a GPU the faster one,
    ``"library"`` or our ``"own"`` kernels. ``tuned`` schedules nests as ``graphopt tune`` found best for this machine
    and number of threads: where it did (``"auto"``), all (``"require"``) or none (``"off"``), by ``database`` if it is
    not the user's own. ``verify`` is a number of random inputs on which program and model are compared, ``"off"``, or
    ``"require"``; the default takes no more than 0.3 s, or than compiling did, else the program is unverified
    (``compiled.report.verification``). Outputs that differ are a VerificationError. ``memory`` is how many bytes a run
    may take, by default four times those of the model and 1 GiB: constants that take more are a LimitError, and where a
    run would, the program is unverified. ``steps`` replace steps by name (``run.steps``).

    ``entries`` are graphs of a ``Module`` to compile together: what comes back is an ``Executable`` with a model for
    each, by name, and one copy of the constants that they share. Without, a module is called by its graph ``main``, or
    its only one.
    """
    target = target_named(target, makes_models=False)
    if isinstance(pipeline, str):
        from graphopt.program.pipelines import pipeline_named

        pipeline = pipeline_named(pipeline)
    by_default = optimize and target == CPU and (costs, policy, tuned, database) == ("auto", "reals", "auto", None)
    if pipeline is not None and not by_default:
        raise UsageError(
            "a pipeline says all that is done to the graph: leave optimize, target, policy, costs, tuned and database "
            "out"
        )
    settings = Settings(
        threads,
        strict,
        jobs,
        optimize,
        target,
        shapes or {},
        dims or {},
        listener,
        pipeline,
        schedules or {},
        costs,
        dispatch_of(dispatch),
        policy,
        tuned_of(tuned),
        None if database is None else Path(database),
        verify_of(verify),
        memory,
        steps or {},
    )
    if entries is not None:
        return _entries(model, entries, settings)
    is_kept = cache is not False and pipeline is None and not schedules and not steps and target.device.is_host
    entry = program_cache.place_of(model, settings, of_graphs=cache is True) if is_kept else None
    return CompiledModel(model, settings, prepared, compile_graph, entry)


def _entries(module: Any, entries: Sequence[str], settings: Settings) -> Executable:
    """The graphs of a module that are named, compiled one after the other."""
    from graphopt.lowering.module.module import Module
    from graphopt.program.shared_constants import SharedConstants

    if not isinstance(module, Module):
        raise UsageError(f"entries are graphs of a module, and the model is of type {type(module).__name__}")
    if isinstance(entries, str) or not entries:
        raise UsageError(f"entries are names, as in entries={list(module.entries)!r}, not {entries!r}")
    graphs = {name: module.graph(name) for name in entries}
    build = partial(compile_graph, shared=SharedConstants())
    return Executable({name: CompiledModel(graph, settings, prepared, build) for name, graph in graphs.items()})


@names_its_model
def prepared(model: Any, settings: Settings, step: Steps) -> PreparedGraph:
    """The graph of a model as it is lowered: read, its inputs fixed, and rewritten by the steps of ``optimize``."""
    from graphopt.ir import onnx_io, ops
    from graphopt.ir.graph import Graph
    from graphopt.ir.onnx_io.convert import relabel
    from graphopt.ir.onnx_io.tensors import data_files
    from graphopt.ir.work import sparse_bytes, stored_bytes
    from graphopt.lowering.lower.expand import dequantized, expanded
    from graphopt.lowering.lower.grouped_queries import with_parts_apart
    from graphopt.lowering.lower.weight_only import weights_as_stored
    from graphopt.lowering.module.module import Module
    from graphopt.optimize import optimize_graph
    from graphopt.program.pipeline import priced_target, tuned_prices
    from graphopt.rewrite.passes import PASSES
    from graphopt.rewrite.passes.dims import fix_demanded, spell_out_sums
    from graphopt.rewrite.passes.functions import INLINE
    from graphopt.rewrite.passes.precision import in_single_precision
    from graphopt.rewrite.passes.simplify import simplify
    from graphopt.rewrite.rule.rule import Soundness, soundness
    from graphopt.run.derivation import Preparation
    from graphopt.runtime.limits import memory_of

    model = model.graph() if isinstance(model, Module) else model
    graph = model if isinstance(model, Graph) else step("read", onnx_io.load, model)
    is_whole = not data_files(graph)
    original = spell_out_sums(Preparation(shapes=settings.shapes, dims=settings.dims).fixed(graph))
    if (used := stored_bytes(original)) > (most := memory_of(sparse_bytes(original), settings.memory)):
        raise LimitError(f"its constants take {used} bytes, and a run may take {most}: --memory allows more")
    graph = expanded(with_parts_apart(fix_demanded(original)))
    is_host = settings.target.device.is_host
    packed = weights_as_stored if is_host else lambda graph: graph
    if settings.pipeline is not None:
        made = settings.pipeline(graph, step)
        return PreparedGraph(made.graph() if isinstance(made, Module) else made, is_whole, original)
    policy = soundness(settings.policy)
    if is_host and Soundness.REALS.allowed_by(policy):
        graph = in_single_precision(simplify(graph, (), (INLINE,)) if graph.functions else graph)
    if not settings.optimize:
        passes = tuple(p for p in PASSES if p.soundness.allowed_by(policy))
        return PreparedGraph(packed(step("tidy", simplify, graph, (), passes)), is_whole, original)
    by_costs = priced_target(settings)
    for line in filter(None, (by_costs.warning,)):
        warnings.warn(line, stacklevel=2)
    # programs have no opset: newer ops are as good as others
    graph = relabel(graph, ops.LATEST) or graph if is_host else graph
    asked: dict[str, Any] = {"target": by_costs.target, "policy": policy, "step": step, "timed": tuned_prices(settings)}
    graph, report = optimize_graph(graph, **asked)
    if (floats := dequantized(graph)) is not graph:  # only then is it known which weights stay dequantized
        graph, report = optimize_graph(floats, **asked)
    may_be_kept = is_whole and (report.exploration is None or report.exploration.reproducible)
    return PreparedGraph(packed(graph), may_be_kept, original, report)


def compile_graph(graph: Graph, settings: Settings, step: Steps, shared: SharedConstants | None = None) -> Compiled:
    """The program of a graph, whose constants are ``shared`` with others'. NeedsValues where it depends on the
    elements of some inputs, LimitError where its inputs and outputs take more memory than a run may."""
    from graphopt.ir.work import handed_excess, sparse_bytes
    from graphopt.platforms import platform_of
    from graphopt.program.pipeline import options_of
    from graphopt.runtime.limits import memory_of

    if why := handed_excess(graph, memory_of(sparse_bytes(graph), settings.memory)):
        raise LimitError(f"{why}: --memory allows more")
    platform = platform_of(settings.target.device)
    with platform.compiling(settings.jobs) as compiling:
        plan = lowered(graph, options_of(settings), step, compiling.begin)
        if settings.strict and plan.unlowered:
            name, op, why, _ = plan.unlowered[0]
            raise CompilationError(f"node {name!r} ({op}) cannot be lowered, and --strict allows no other way: {why}")
        objects = step("compile", compiling.objects, plan.kernels)
    if shared is not None:
        plan = replace(plan, constants=shared(plan.constants))
    program = step("load", platform.program, plan, objects, settings.threads)
    counts = len(plan.kernels), len(plan.parts)
    report = CompileReport(tuple(step.done), *counts, plan.unlowered, unfused=plan.unfused)
    return Compiled(program, plan, graph, report)


def lowered(graph: Graph, options: Options, step: Steps, begun: Callable[[Kernel], object] | None = None) -> Linked:
    """The plan of a graph's program; ``begun`` is called with each kernel as soon as it is written. Nodes with whose
    nest something goes wrong are left out."""
    from graphopt.lowering.link.passes import NestFailed, emit, fuse_ops, legalize_ops, lower_to_programs, schedule
    from graphopt.lowering.link.plan_memory import plan_memory

    try:
        program = step("LegalizeOps", legalize_ops, graph, options)
        program = step("FuseOps", fuse_ops, program)
        program = step("LowerToPrograms", lower_to_programs, program)
        program = step("Schedule", schedule, program)
        program = step("Emit", emit, program, begun)
    except NestFailed as failure:
        return lowered(graph, failure.options, step, begun)
    program = step("PlanMemory", plan_memory, program, begun)
    return program.plan


@names_its_model
def linked_for(model: Any, settings: Settings) -> Linked:
    """What a model becomes, with nests and kernels, none of which is compiled. UsageError where inputs decide it."""
    from graphopt.lowering.lower.lower import NeedsValues
    from graphopt.program.pipeline import options_of, steps_of

    step = steps_of(settings)
    graph = prepared(model, settings, step).graph
    try:
        return lowered(graph, options_of(settings), step)
    except NeedsValues as needs:
        names = ", ".join(sorted(graph.names[v] for v in needs.inputs))
        raise UsageError(f"the loops of this model depend on what {names} holds: fold it, or give it a value") from None
