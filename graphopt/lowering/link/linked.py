"""Linked programs: buffers, steps and kernels, before compilation to object code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from graphopt.display import Scripted
from graphopt.frozen import dataclass
from graphopt.ir.constants import Array
from graphopt.kernels.kernel import Kernel
from graphopt.lowering.emit.kernel_source import EmittedKernel, LibraryCall
from graphopt.lowering.loops.expressions import Var
from graphopt.lowering.loops.nest import Nest
from graphopt.runtime.host import HostFunction, UnloweredNode
from graphopt.runtime.sizes import Size
from graphopt.runtime.steps import (
    Bind,
    Branch,
    BufferRef,
    Condition,
    HostStep,
    KernelStep,
    Launch,
    LibraryStep,
    LoopStep,
    Port,
    ProgramBuffer,
    StatePort,
    Step,
)


@dataclass(frozen=True, slots=True)
class LinkedCall:
    """One call of a linked program: the scheduled nest, and its kernel."""

    nodes: tuple[str, ...]
    nest: Nest
    emitted: EmittedKernel

    @property
    def source(self) -> str:
        """The kernel's source, or the library call as text."""
        return source_of(self.emitted)


@dataclass(frozen=True, slots=True)
class Work:
    """A task of default scheduling: a nest with its sizes, and the nodes that it computes a part of."""

    nodes: tuple[str, ...]
    nest: Nest
    sizes: Mapping[Var, Size]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Linked(Scripted):
    """A linked program, without object code: steps call ``kernels`` by number, and Python ``functions`` by name."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    buffers: tuple[ProgramBuffer, ...]
    steps: tuple[Step, ...]
    kernels: tuple[Kernel, ...]
    constants: Mapping[int, Array]
    functions: Mapping[str, HostFunction] = field(default_factory=dict)
    parts: tuple[LinkedCall, ...] = ()
    unlowered: tuple[UnloweredNode, ...] = ()
    """The nodes that are no kernels."""
    unfused: Mapping[str, str] = field(default_factory=dict)
    """The nodes whose programs are compiled by themselves, by name, and why."""
    nests: Mapping[str, Nest] = field(default_factory=dict)
    """The nest of each node that loops compute, by the node's name, before it is scheduled; fused nodes share one."""
    conditions: tuple[Condition, ...] = ()
    """Conditions on sizes."""
    work: tuple[Work, ...] = ()
    states: tuple[StatePort, ...] = ()

    def __repr__(self) -> str:
        parts = f"{len(self.steps)} steps, {len(self.kernels)} kernels, {len(self.buffers)} buffers"
        return f"<Linked ({', '.join(p.name for p in self.inputs)}): {parts}>"

    def script(self) -> str:
        """The plan as text: buffers by number, and steps."""
        buffers = (f"b{number}: {_buffer(b)}" for number, b in enumerate(self.buffers))
        ports = (f"# {kind}: {', '.join(f'{p.name} = b{p.buffer}' for p in ports)}" for kind, ports in self._ports)
        return "\n".join((*ports, *buffers, *_steps(self.steps, "")))

    @property
    def _ports(self) -> tuple[tuple[str, tuple[Port, ...]], ...]:
        return ("inputs", self.inputs), ("outputs", self.outputs)


def source_of(written: EmittedKernel) -> str:
    """The source of a kernel, or the library call as text."""
    return written.source if isinstance(written, LibraryCall) else written.kernel.source


def _buffer(buffer: ProgramBuffer) -> str:
    shape = "?" if buffer.shape is None else ", ".join(map(_size, buffer.shape))
    of = "" if buffer.of is None else f" of b{buffer.of}"
    return f"{buffer.dtype}[{shape}] {buffer.place}{of}"


def _size(size: Size) -> str:
    if isinstance(size, tuple):
        return f"({f' {size[0]} '.join(map(_size, size[1:]))})" if len(size) > 2 else f"{size[0]}{_size(size[1])}"
    return str(size)


def _steps(steps: tuple[Step, ...], indent: str) -> list[str]:
    """A line for each step, those of bodies further in."""
    lines: list[str] = []
    for step in steps:
        match step:
            case Branch():
                lines.append(f"{indent}if b{step.condition}:")
                lines += _steps(step.then, indent + "    ")
                lines.append(f"{indent}else:")
                lines += _steps(step.otherwise, indent + "    ")
            case LoopStep():
                lines.append(f"{indent}for b{step.counter}:")
                lines += _steps(step.body, indent + "    ")
            case _:
                lines.append(f"{indent}{_call(step)}")
    return lines


def _call(step: KernelStep | Launch | LibraryStep | HostStep | Bind) -> str:
    """A step that has no others in it."""
    match step:
        case KernelStep() | Launch():
            return f"{step.label}: k{step.kernel}({_args(step.args)})"
        case LibraryStep():
            return f"{step.label}: {step.name}({_args(step.args)})"
        case HostStep():
            given, outputs = (
                ", ".join("_" if b is None else f"b{b}" for b in bs) for bs in (step.inputs, step.outputs)
            )
            return f"{step.label}: {outputs} = {step.function}({given})"
    return str(step)


def _args(args: tuple[BufferRef | Size, ...]) -> str:
    return ", ".join(f"b{a.buffer}" if isinstance(a, BufferRef) else _size(a) for a in args)
