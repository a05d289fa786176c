"""Builder of candidates: a scheduled nest becomes a program that runs it as often as it is told to, in a process that
may die of it.
"""

from __future__ import annotations

from typing import Final, Literal

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.lowering.link.linked import Linked
from graphopt.lowering.link.passes import planner_of
from graphopt.lowering.link.plan_memory import Planner
from graphopt.lowering.loops.nest import Buffer as NestBuffer
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.sizes import size_of
from graphopt.lowering.lower.embedded_programs import inputs_of
from graphopt.lowering.schedule.trace import Trace
from graphopt.platforms import code_of, platform_of
from graphopt.run.settings import Settings
from graphopt.runtime.steps import BufferRef, Code, LoopStep, Port, ProgramBuffer, Step
from graphopt.target import CPU
from graphopt.target import target as target_named
from graphopt.tuning.processes import INTERRUPTED, CandidateError, child, limit_memory, one_line
from graphopt.tuning.runner import NUMBER
from graphopt.tuning.workload import Workload

Way = Literal["trace", "default", "written"]

BUILDER: Final = "graphopt.tuning.building"
"""The module by which processes build."""
ILLEGAL, NOT_BUILT = "illegal", "not built"


@dataclass(frozen=True)
class Order:
    """What is to be built of a workload: what a ``trace`` makes of it, what the rules of its target (``default``), or
    the loops as they were ``written``."""

    workload: Workload
    target: str = CPU.name
    way: Way = "default"
    trace: str = ""


def built(order: Order, limit: float) -> Code:
    """The program, from a process that has so many seconds. Raises CandidateError: ``illegal``, ``not built``, or
    ``interrupted``."""
    try:
        with child(BUILDER) as builder:
            code = builder.ask(order, limit)
    except CandidateError as error:
        if error.kind in (ILLEGAL, INTERRUPTED):
            raise
        raise CandidateError(NOT_BUILT, error.message) from None
    assert isinstance(code, Code)
    return code


def answer(order: Order) -> Code:
    """The program, made in this process. Raises CandidateError where a step of a trace does not apply."""
    limit_memory(target_named(order.target).device.is_host)
    try:
        return _code(order)
    except ScheduleError as error:
        raise CandidateError(ILLEGAL, one_line(error)) from None


def _code(order: Order) -> Code:
    """The program of a nest in a loop of ``NUMBER`` runs, whose host's kernels come from the cache where they can."""
    nest, is_ready = order.workload.nest, order.way != "default"
    if order.way == "trace":
        nest = Trace.from_json(order.trace).replay(nest).nest
    target = target_named(order.target)
    platform = platform_of(target.device)
    options = platform.options(target.prices.products, Settings(target=target))
    planner = planner_of(nest, options, is_ready)
    read = {buffer.name for buffer in inputs_of(order.workload.nest)}  # a call of a function seems to read its results
    steps, ports = _steps(planner, nest, read, dict(order.workload.sizes), is_ready)
    linked = Linked(*ports, tuple(planner.buffers), steps, tuple(planner.kernels), planner.constants)
    with platform.compiling(0) as compiling:
        objects = compiling.objects(linked.kernels)
    if target.device.is_host:
        return code_of(linked, objects[1:], objects[0])
    return code_of(linked, objects)


def _steps(
    planner: Planner, nest: Nest, read: set[str], sizes: dict[str, int], is_ready: bool
) -> tuple[tuple[Step, ...], tuple[tuple[Port, ...], tuple[Port, ...]]]:
    """The steps of a nest that reads the arrays of these names, at these sizes, and what goes in and out."""
    size_by_var = {var: sizes[var.name] for var in nest.sizes}
    ports: dict[bool, list[Port]] = {False: [], True: []}
    buffers: dict[NestBuffer, int] = {}
    for buffer in nest.buffers:
        shape = tuple(size_of(e, size_by_var) for e in buffer.shape)
        buffers[buffer] = planner.add(ProgramBuffer(buffer.dtype, shape, "input" if buffer.name in read else "output"))
        ports[buffer.name in read].append(Port(buffer.name, buffers[buffer]))
    number, counter = planner.add(ProgramBuffer("int64", (), "input")), planner.add(ProgramBuffer("int64", (), "arena"))
    ports[True].append(Port(NUMBER, number))
    calls = tuple(planner.calls(nest, buffers, size_by_var, nest.name, (), is_ready))
    return (LoopStep(calls, counter, BufferRef(number)),), (tuple(ports[True]), tuple(ports[False]))
