"""The table that the bench prints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One measurement: ``share`` is how well we do beside ``beside`` (1: as well), ``goal`` what it should be."""

    what: str
    case: str
    ours: str
    beside: str
    theirs: str
    share: float | None = None
    goal: float | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        share = "" if self.share is None else f"{self.share:.2f}"
        goal = "" if self.goal is None else f"{self.goal:.2f}"
        met = "" if self.share is None or self.goal is None else "yes" if self.share >= self.goal else "**no**"
        return self.what, self.case, self.ours, self.beside, self.theirs, share, goal, met


HEADS = ("what", "case", "ours", "beside", "theirs", "share", "goal", "met")


def markdown(title: str, lines: Iterable[Line]) -> str:
    """A Markdown table."""
    rows = [HEADS, *(line.cells for line in lines)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(HEADS))]
    shown = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows]
    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    return "\n".join([title, "", shown[0], rule, *shown[1:]])


def time_of(seconds: float) -> str:
    """Seconds as people read them."""
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"
