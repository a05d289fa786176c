"""Profiles of programs: one row for each step that ran, and the same as a trace that browsers show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from graphopt.display import Displayed, counted
from graphopt.frozen import dataclass
from graphopt.saving import whole


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A step's share of one call: times in seconds, ``flops`` and ``bytes`` of all its runs together."""

    label: str
    nodes: tuple[str, ...]
    seconds: float
    flops: int
    bytes: int
    start: float
    """When it first began, after the call did."""
    runs: int = 1
    """More than 1 within loops."""
    is_native: bool = True


class Profile(tuple[ProfileRow, ...], Displayed):
    """A profile: the rows of one call, in the order in which its steps began."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Profile of {counted(len(self), 'step')}: {sum(row.seconds for row in self) * 1e6:.2f} us>"


def best_rows(profiles: Iterable[Sequence[ProfileRow]]) -> list[ProfileRow]:
    """The rows of several profiles of one program with equal inputs, each with the least time that it took."""
    best: list[ProfileRow] = []
    for rows in profiles:
        if not best:
            best = list(rows)
        elif [r.label for r in rows] == [r.label for r in best]:
            best = [min(pair, key=lambda r: r.seconds) for pair in zip(best, rows, strict=True)]
    return best


def write_trace(rows: Iterable[ProfileRow], path: Path) -> None:
    """Write rows in Chrome's trace format (chrome://tracing, Perfetto); a step that ran often is one bar.

    Raises ReadError where the file cannot be written; what was there is there as it was.
    """
    events = [
        {
            "name": row.label,
            "cat": "kernel" if row.is_native else "host",
            "ph": "X",
            "pid": 0,
            "tid": 0,
            "ts": row.start * 1e6,
            "dur": row.seconds * 1e6,
            "args": {"nodes": list(row.nodes), "flops": row.flops, "bytes": row.bytes, "runs": row.runs},
        }
        for row in rows
    ]
    with whole(path) as file:
        file.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, indent=1).encode())
