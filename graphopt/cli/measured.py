"""What measuring showed, and by which prices a result was chosen, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.markup import escape

if TYPE_CHECKING:
    from graphopt.run.report import Measured, Race, Report


def lines(report: Report) -> Iterator[str]:
    """The lines under the table of a run."""
    at = ", ".join(f"{escape(name)}={n}" for name, n in report.counted_at.items())
    if report.prices != "analytic" or at:
        yield f"prices      {escape(report.prices)}" + (f"; sizes count as {at}" if at else "")
    if report.measured is not None:
        yield from _measured(report.measured)


def _measured(found: Measured) -> Iterator[str]:
    sizes = ", ".join(f"{escape(name)}={n}" for name, n in found.sizes.items())
    at = f" at {sizes}" if sizes else ""
    if found.kept == "original":
        yield f"measured    [yellow]the original is kept[/]: nothing is as fast{at}"
    else:
        part = f", {len(found.taken_back)} rewrites taken back" if found.taken_back else ""
        yield f"measured    {_race(found.race)}{at}: {escape(found.kept)} is kept{part}"
    if len(found.races) > 1 or found.kept == "original" or found.taken_back:
        for race in found.races:
            yield f"              {escape(race.name)}: {(race.refusal and escape(race.refusal)) or _race(race)}"
    if found.undecided:
        yield "              time was up before all rewrites were tried; the rest is taken back"


def _race(race: Race) -> str:
    return f"{race.ratio:.3f}x as fast as the original [{race.low:.3f}, {race.high:.3f}] in {race.turns} turns".replace(
        "[", r"\["
    )
