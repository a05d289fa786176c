"""Kernels section of a page: each call with its loops and source, the roofline of its time, and the arena over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from graphopt.frozen import dataclass
from graphopt.lowering.loops.script_print import show
from graphopt.runtime.arena import moments
from graphopt.runtime.steps import KernelStep, LibraryStep

if TYPE_CHECKING:
    from graphopt.benchmark.bench import EngineTiming
    from graphopt.benchmark.ceilings import Ceilings
    from graphopt.lowering.link.linked import Linked, LinkedCall
    from graphopt.runtime.interface import Interface
    from graphopt.runtime.profile import ProfileRow
    from graphopt.runtime.steps import Step
    from graphopt.web.drawing import Drawing

LARGEST: Final = 1 << 16
"""Characters of a source that are shown."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call of a kernel: what it computes, the numbers of its texts, its nodes as boxes of the result's picture; its
    times in seconds, operations and bytes are those of one run, None where it was not measured."""

    label: str
    nodes: tuple[str, ...]
    plain: int | None
    """The loops before they were scheduled,"""
    loops: int
    """as they run,"""
    source: int
    """and the source of the kernel."""
    boxes: tuple[int, ...] = ()
    seconds: float | None = None
    flops: int = 0
    bytes: int = 0
    runs: int = 1


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """What the machine does at most, in a second; ``near`` is how many bytes a kernel may move to be limited by caches
    near the cores and not by memory."""

    flops: float
    bytes: float
    near_bytes: float
    near: int
    threads: int


@dataclass(frozen=True, slots=True)
class Leased:
    """A value's part of the arena, from one moment to another, and which call writes it."""

    name: str
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Arena:
    """The memory that a run takes, in bytes; ``separate`` is what its values would take if none shared memory."""

    arena: int
    separate: int
    constants: int
    moments: tuple[str, ...]
    """What runs at each moment."""
    leases: tuple[Leased, ...]
    sizes: Mapping[str, int]
    """What open dimensions are."""


@dataclass(frozen=True, slots=True)
class Engine:
    """How long runs took in an engine, in seconds, and how far its outputs are from ours, in units of the tolerance."""

    name: str
    median: float
    p90: float
    ratio: float
    error: float | None


@dataclass(frozen=True, slots=True)
class Kernels:
    """The section."""

    texts: tuple[str, ...]
    """Loops and sources, each once."""
    calls: tuple[KernelCall, ...]
    steps: tuple[tuple[str, float], ...] = ()
    """What Python does in a run, and the seconds that it takes."""
    limits: MachineLimits | None = None
    arena: Arena | None = None
    engines: tuple[Engine, ...] = ()


def kernels(
    linked: Linked,
    program: Interface,
    *,
    drawing: Drawing | None = None,
    rows: Sequence[ProfileRow] = (),
    ceilings: Ceilings | None = None,
    sizes: Mapping[str, int] | None = None,
    timings: Sequence[EngineTiming] = (),
) -> Kernels:
    """The section of a program. ``drawing`` is the picture of the graph that was lowered, ``rows`` are a profile,
    ``sizes`` what the program's symbols are in it: None leaves memory out, where there are symbols."""
    texts: dict[str, int] = {}
    boxes = {} if drawing is None else {b.name: k for k, b in enumerate(drawing.boxes)}
    boxes |= {} if drawing is None else {v.name: k for k, b in enumerate(drawing.boxes) for v in b.makes}
    profiled: dict[tuple[str, ...], list[ProfileRow]] = {}
    for row in rows:
        if row.is_native:
            profiled.setdefault(row.nodes, []).append(row)
    labels = {
        step.nodes: step.label for step in moments(program.code.steps) if isinstance(step, KernelStep | LibraryStep)
    }
    calls = tuple(_call(linked, part, texts, boxes, labels, profiled) for part in linked.parts)
    return Kernels(
        tuple(texts),
        calls,
        tuple((f"{r.label} {', '.join(r.nodes)}".strip(), r.seconds) for r in rows if not r.is_native),
        None if ceilings is None else limits(ceilings),
        None if sizes is None and program.symbols else _arena(program, sizes or {}),
        tuple(Engine(t.engine, t.median, t.p90, t.ratio, t.error) for t in timings),
    )


def limits(ceilings: Ceilings) -> MachineLimits:
    """The machine's ceilings as the page holds them."""
    from graphopt.benchmark.ceilings import NEAR

    return MachineLimits(ceilings.flops, ceilings.bytes, ceilings.near_bytes, NEAR * ceilings.threads, ceilings.threads)


def _call(
    linked: Linked,
    part: LinkedCall,
    texts: dict[str, int],
    boxes: Mapping[str, int],
    labels: Mapping[tuple[str, ...], str],
    profiled: Mapping[tuple[str, ...], list[ProfileRow]],
) -> KernelCall:
    def text(whole: str) -> int:
        cut = whole if len(whole) <= LARGEST else f"{whole[:LARGEST]}\n# and {len(whole) - LARGEST} characters more"
        return texts.setdefault(cut, len(texts))

    plain = next((linked.nests[n] for n in part.nodes if n in linked.nests), None)
    rows = profiled.get(part.nodes)
    row = rows.pop(0) if rows else None
    measured = () if row is None else (row.seconds, row.flops, row.bytes, row.runs)
    return KernelCall(
        labels.get(part.nodes, part.nest.name),
        part.nodes,
        None if plain is None else text(show(plain)),
        text(show(part.nest)),
        text(part.source),
        tuple(dict.fromkeys(boxes[n] for n in part.nodes if n in boxes)),
        *measured,
    )


def _arena(program: Interface, sizes: Mapping[str, int]) -> Arena:
    steps = list(moments(program.code.steps))
    memory = program.memory(sizes)
    leases = tuple(
        Leased(_told(steps[at.first]) if at.first < len(steps) else "outputs", at.offset, at.bytes, at.first, at.last)
        for at in program.leases(sizes)
    )
    return Arena(memory.arena, memory.separate, memory.constants, tuple(map(_told, steps)), leases, dict(sizes))


def _told(step: Step) -> str:
    """A step in words: what it computes, or what it is."""
    label, nodes = getattr(step, "label", ""), getattr(step, "nodes", ())
    first = nodes[0] if nodes else ""
    more = f" +{len(nodes) - 1}" if len(nodes) > 1 else ""
    return f"{label or type(step).__name__.lower()} {first}{more}".strip()
