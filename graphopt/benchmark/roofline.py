"""Roofline plots: each kernel's intensity and rate beside the ceilings of the machine. The door of matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graphopt.errors import MissingDependencyError, UsageError
from graphopt.saving import whole

if TYPE_CHECKING:
    from graphopt.benchmark.ceilings import Ceilings
    from graphopt.runtime.profile import ProfileRow

NAMED: Final = 10
"""How many kernels are named: those that take longest."""
KINDS: Final = (".png", ".svg")


def check_picture(path: Path) -> None:
    """Raise UsageError for a file of a kind that is no picture, MissingDependencyError where nothing draws."""
    if path.suffix not in KINDS:
        raise UsageError(f"--roofline {path}: a picture is a file that ends in {' or '.join(KINDS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingDependencyError("--roofline needs matplotlib: pip install 'graphopt[plot]'") from None


def draw(rows: Sequence[ProfileRow], ceilings: Ceilings, path: Path, title: str) -> None:
    """Write the picture, SVG or PNG by the file's ending. A dot is a kernel: as large as its share of the time, as far
    right as it does operations on a byte, as high as it does them in a second."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    shown = sorted((r for r in rows if r.flops and r.bytes and r.seconds), key=lambda r: -r.seconds)
    total = sum(r.seconds for r in rows) or 1.0
    with rc_context({"svg.hashsalt": title, "svg.fonttype": "none"}):
        figure = Figure(figsize=(10, 6), layout="constrained")
        axes: Any = figure.subplots()
        _lines(axes, shown, ceilings)
        for number, row in enumerate(shown):
            axes.scatter(
                row.flops / row.bytes,
                row.flops / row.seconds / 1e9,
                s=20 + 1500 * row.seconds / total,
                alpha=0.6,
                color=f"C{number % 10}" if number < NAMED else "0.7",
                label=_name(row, total) if number < NAMED else None,
                edgecolors="none",
            )
        axes.set(xscale="log", yscale="log", xlabel="operations for each byte", ylabel="GFLOP/s", title=_plain(title))
        if shown:
            legend = axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small", frameon=False)
            for handle in legend.legend_handles:
                handle.set_sizes([40])
        with whole(path) as file:
            kind = path.suffix[1:]
            figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else None)


def _lines(axes: Any, rows: Sequence[ProfileRow], ceilings: Ceilings) -> None:
    """What the machine does at most: as fast as bytes come, up to as fast as it multiplies."""
    where = [r.flops / r.bytes for r in rows] or [1.0]
    left, right = (
        min(*where, ceilings.flops / ceilings.near_bytes) / 4,
        max(*where, ceilings.flops / ceilings.bytes) * 4,
    )
    for bandwidth, name, style in ((ceilings.bytes, "memory", "-"), (ceilings.near_bytes, "near cache", "--")):
        corner = ceilings.flops / bandwidth
        heights = [left * bandwidth / 1e9, ceilings.flops / 1e9, ceilings.flops / 1e9]
        axes.plot([left, corner, right], heights, style, color="0.3", linewidth=1)
        axes.annotate(
            f"{name}, {bandwidth / 1e9:.1f} GB/s", (left, heights[0]), xytext=(4, 6), textcoords="offset points"
        )
    axes.annotate(
        f"{ceilings.flops / 1e9:.0f} GFLOP/s, {ceilings.threads} thread{'s' * (ceilings.threads > 1)}",
        (right, ceilings.flops / 1e9),
        xytext=(-4, 4),
        textcoords="offset points",
        ha="right",
    )


def _name(row: ProfileRow, whole: float) -> str:
    """A kernel in the legend: its share of the time, its first op and how many more, and its first node."""
    first, *more = row.label.removeprefix("graphopt::").split("+")
    ops = f"{first} +{len(more)}" if more else first
    node = row.nodes[0] if row.nodes else ""
    return _plain(f"{row.seconds / whole:.0%}  {ops}  {node if len(node) < 24 else '...' + node[-21:]}")


def _plain(text: str) -> str:
    """A model's own words, of which nothing is markup."""
    return "".join(c if c.isprintable() else "?" for c in text).replace("$", r"\$")
