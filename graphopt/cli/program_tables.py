"""Tables of compiled programs: outputs, profiles, timings beside other engines, calls. Apart, as it imports numpy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from graphopt.cli import printable
from graphopt.cli.console import console, escape
from graphopt.cli.results import OutputSummary, ProgramCall
from graphopt.display import duration

if TYPE_CHECKING:
    from graphopt.benchmark.bench import EngineTiming
    from graphopt.lowering.link.linked import LinkedCall
    from graphopt.runtime.profile import ProfileRow


def summary_of(name: str, array: Any) -> OutputSummary:
    """What came out: dtype, shape and range."""
    kind, numbers = type(array).__name__, (None, None, None)
    if isinstance(array, np.ndarray):
        kind = f"{array.dtype.name}[{', '.join(map(str, array.shape))}]"
        if array.size and array.dtype.kind in "biuf":
            wide = array.astype(np.float64)
            return OutputSummary(name, kind, float(wide.min()), float(wide.mean()), float(wide.max()))
    return OutputSummary(name, kind, *numbers)


def show_outputs(outputs: Iterable[OutputSummary]) -> None:
    """A line for each output."""
    table = Table("output", "type", "least", "mean", "largest", box=None, header_style="bold")
    for o in outputs:
        numbers = ("" if n is None else f"{n:.4g}" for n in (o.least, o.mean, o.largest))
        table.add_row(escape(printable(o.name)), escape(o.type), *numbers)
    console().print(table)


def show_profile(rows: Sequence[ProfileRow], threads: int) -> None:
    """The steps of a run that took longest first, with their rates and the part of the time that this machine needs
    at the least."""
    from graphopt.benchmark.ceilings import measure

    ceilings = measure(threads)
    whole = sum(r.seconds for r in rows) or 1.0
    table = Table("step", "nodes", "time", "share", "GFLOP/s", "GB/s", "of limit", box=None, header_style="bold")
    for row in sorted(rows, key=lambda r: -r.seconds):
        spent = max(row.seconds, 1e-9)
        rates = [f"{n / spent / 1e9:.1f}" if row.is_native and n else "" for n in (row.flops, row.bytes)]
        rates.append(f"{ceilings.share([row], spent):.0%}" if row.is_native else "")
        nodes = row.nodes[0] + (f" +{len(row.nodes) - 1}" if len(row.nodes) > 1 else "") if row.nodes else ""
        label = row.label if row.is_native else f"{row.label} (Python)"
        table.add_row(
            escape(label), escape(printable(nodes)), duration(row.seconds), f"{row.seconds / whole:.1%}", *rates
        )
    console().print(table)


def show_timings(timings: Sequence[EngineTiming]) -> None:
    """A line for each engine."""
    columns = ("engine", "p50", "p90", "p99", "runs", "ready in", "ratio", "error", "of limit")
    table = Table(*columns, box=None, header_style="bold")
    for t in timings:
        wrong = "" if t.error is None else f"{t.error:.2g}" + (" WRONG" if t.error > 1 else "")
        limit = "" if t.limit is None else f"{t.limit:.0%}"
        ratio = f"{t.ratio:.2f}x" if t.error is not None or t is not timings[0] else ""
        spread = (duration(t.median), duration(t.p90), "" if t.p99 is None else duration(t.p99))
        table.add_row(t.engine, *spread, str(t.runs), duration(t.ready), ratio, wrong, limit)
    console().print(table)


def calls_of(parts: Sequence[LinkedCall]) -> tuple[ProgramCall, ...]:
    """The calls of a program; those of one kernel have one name."""
    kernels: dict[str, int] = {}
    return tuple(
        ProgramCall(number, f"k{kernels.setdefault(part.source, len(kernels))}", tuple(part.nodes))
        for number, part in enumerate(parts)
    )


def show_calls(calls: Iterable[ProgramCall]) -> None:
    """A line for each call; nodes, of which there may be many, come last."""
    print("call  kernel  nodes")
    for call in calls:
        print(f"{call.number:<4}  {call.kernel:<6}  {printable(', '.join(call.nodes))}")
