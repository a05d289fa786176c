"""Device code of a model's kernels, which needs no GPU to be made: source, PTX and machine code as files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from graphopt.compile import linked_for
from graphopt.errors import UsageError
from graphopt.frozen import dataclass
from graphopt.kernels.cuda.compile import compile_ptx
from graphopt.kernels.cuda.machine import OLDEST, Capability, MachineCode, architecture, machine_code
from graphopt.kernels.kernel import Kernel
from graphopt.lowering.emit.kernel_source import Launchable
from graphopt.lowering.link.linked import Linked
from graphopt.run.settings import Settings
from graphopt.runtime.steps import HostStep, LibraryStep, walk
from graphopt.saving import whole

FORMAT: Final = 1
"""The version of the report."""
REPORT: Final = "report.json"


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A kernel, which nodes it computes, by how many threads in a block, and what became of it."""

    kernel: Kernel
    nodes: tuple[str, ...]
    block: tuple[int, int, int]
    ptx: str
    machine: MachineCode


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """All that is compiled of a model for GPUs of one compute capability."""

    capability: Capability
    linked: Linked
    kernels: tuple[DeviceKernel, ...]

    @property
    def architecture(self) -> str:
        """What the compilers call these GPUs: ``sm_90``."""
        return architecture(self.capability)

    @property
    def library(self) -> tuple[str, ...]:
        """What is left to the library, once for each call."""
        return tuple(s.label for s in walk(self.linked.steps) if isinstance(s, LibraryStep))

    @property
    def host(self) -> tuple[str, ...]:
        """What is left to the host, once for each call."""
        return tuple(s.label for s in walk(self.linked.steps) if isinstance(s, HostStep))


def capability_of(text: str) -> Capability:
    """The compute capability that is written ``9.0``. UsageError where it is no such thing, or too old."""
    match = re.fullmatch(r"(\d+)\.(\d)", text)
    if match is None:
        raise UsageError(f"{text!r} is no compute capability: write one as 9.0, which an H100 has")
    capability = int(match[1]), int(match[2])
    if capability < OLDEST:
        raise UsageError(f"kernels are for compute capability {OLDEST[0]}.{OLDEST[1]} and later, not for {text}")
    return capability


def device_code(model: Any, settings: Settings, capability: Capability) -> DeviceCode:
    """The kernels of a model for GPUs of a compute capability, each compiled once.

    Raises CompilationError for the first that does not compile, MissingDependencyError where the compilers are not
    installed.
    """
    linked = linked_for(model, settings)
    nodes: dict[Kernel, tuple[tuple[str, ...], tuple[int, int, int]]] = {}
    for part in linked.parts:
        if isinstance(part.emitted, Launchable):
            nodes.setdefault(part.emitted.kernel, (part.nodes, part.emitted.block))
    texts = compile_ptx(linked.kernels, capability, jobs=settings.jobs)
    kernels = [
        DeviceKernel(kernel, *nodes[kernel], text, machine_code(text, capability))
        for kernel, text in zip(linked.kernels, texts, strict=True)
    ]
    return DeviceCode(capability, linked, tuple(kernels))


def write(code: DeviceCode, folder: Path) -> None:
    """Write the source, PTX and machine code of each kernel into a folder, and a report of what they take."""
    rows = []
    for number, kernel in enumerate(code.kernels):
        name = f"k{number}"
        contents = {"py": kernel.kernel.source.encode(), "ptx": kernel.ptx.encode(), "cubin": kernel.machine.code}
        for suffix, content in contents.items():
            with whole(folder / f"{name}.{suffix}") as file:
                file.write(content)
        rows.append({"name": name, "nodes": kernel.nodes, "block": kernel.block, **resources(kernel.machine)})
    report = {
        "format": FORMAT,
        "architecture": code.architecture,
        "kernels": rows,
        "library": code.library,
        "host": code.host,
    }
    with whole(folder / REPORT) as file:
        file.write(json.dumps(report, indent=1).encode() + b"\n")


def resources(machine: MachineCode) -> Mapping[str, int]:
    """What a kernel takes: registers of a thread; bytes that it spills, has of its own, and that a block shares."""
    return {name: value for name, value in asdict(machine).items() if isinstance(value, int)}


def lines(kernels: Sequence[DeviceKernel]) -> list[tuple[str, ...]]:
    """A row of a table for each kernel."""
    rows = []
    for number, kernel in enumerate(kernels):
        used = resources(kernel.machine)
        threads = " x ".join(str(n) for n in kernel.block if n > 1) or "1"
        rows.append((f"k{number}", threads, *map(str, used.values()), ", ".join(kernel.nodes)))
    return rows
