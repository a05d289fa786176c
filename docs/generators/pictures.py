"""The pictures that are drawn from the code itself and from what was measured, as SVG: dark on white, the same bytes in
every run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import chdir
from functools import cache
from math import log10
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock
from xml.sax.saxutils import escape

from graphopt.rewrite.egraph.egraph_snapshot import ENode
from graphopt.rewrite.extract.choose import extract
from graphopt.rewrite.extract.cost import CostModel
from graphopt.target import PORTABLE
from tests.pages import follow, in_process
from tests.test_layers import LEVELS, arrows

DOCS = Path(__file__).resolve().parents[1]
CHARACTER = 7.2
"""How wide a character of a label is, at most."""

COLORS = ("#00796b", "#c2185b", "#303f9f", "#f57c00", "#5d4037", "#7b1fa2", "#455a64", "#689f38")
"""Those of the lines of a diagram."""

HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg"
  width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">
<title>{title}</title>
<style>
text {{ font: 12px system-ui, sans-serif; fill: #222; text-anchor: middle; }}
.box {{ fill: #fff; stroke: #555; }}
.package {{ fill: #cfe8e4; stroke: #00796b; }}
.class {{ fill: #f6f6f6; stroke: #888; stroke-dasharray: 4 3; }}
.line {{ fill: none; stroke: #777; stroke-width: 1; }}
.small {{ font-size: 10px; fill: #666; text-anchor: start; }}
</style>
<rect width="100%" height="100%" fill="#fff"/>
"""


# -- who imports whom


def modules() -> str:
    """The parts of the package in layers: each imports only what stands below it."""
    rows = dict[int, list[str]]()
    for part, level in LEVELS.items():
        rows.setdefault(level, []).append(part)
    place, y, width = dict[str, tuple[float, float]](), 34.0, 960.0
    for row in sorted(rows, reverse=True):  # the ground is drawn at the bottom
        for line in _lines_of(rows[row], width - 40):
            total = sum(_wide(part) + 14 for part in line) - 14
            x = (width - total) / 2
            for part in line:
                place[part] = (x + _wide(part) / 2, y)
                x += _wide(part) + 14
            y += 40
        y += 18
    shapes = []
    for part in LEVELS:
        for below in _directly(part):
            (x0, y0), (x1, y1) = place[part], place[below]
            middle = (y0 + y1) / 2
            shapes.append(
                f'<path class="line" opacity="0.35" '
                f'd="M{x0:.1f} {y0 + 13:.1f}C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1 - 13:.1f}"/>'
            )
    root = DOCS.parent / "graphopt"
    for part, (x, y0) in place.items():
        kind = "package" if (root / part.replace(".", "/")).is_dir() else "box"
        shapes.append(_box(kind, x, y0, _wide(part), 26) + f'<text x="{x:.1f}" y="{y0 + 4:.1f}">{escape(part)}</text>')
    return _svg(width, y, "The parts of graphopt: each imports only what stands below it", shapes)


def _lines_of(parts: list[str], width: float) -> Iterator[list[str]]:
    """Parts of one layer in lines that are not too wide."""
    line, used = list[str](), 0.0
    for part in sorted(parts):
        if line and used + _wide(part) > width:
            yield line
            line, used = [], 0.0
        line.append(part)
        used += _wide(part) + 14
    yield line


def _directly(part: str) -> list[str]:
    """What a part imports and does not reach through another part that it imports."""
    below = _below()[part]
    return sorted(b for b in below if not any(b in _reached(other) for other in below - {b}))


@cache
def _reached(part: str) -> frozenset[str]:
    below = _below()[part]
    return below.union(*map(_reached, below))


@cache
def _below() -> Mapping[str, frozenset[str]]:
    """What each part imports."""
    return {part: frozenset(b for a, b in arrows() if a == part) for part in LEVELS}


# -- an e-graph


def egraph() -> str:
    """The e-graph of the tutorial's third page, made by running its programs; what is chosen is filled."""
    classes, chosen = _explored()
    depth = _depths(classes)
    rows = dict[int, list[int]]()
    for name in sorted(classes):
        rows.setdefault(depth[name], []).append(name)
    sides = {name: sum(_wide(node.op) + 10 for node in nodes) + 10 for name, nodes in classes.items()}
    width = max(sum(sides[name] + 40 for name in row) for row in rows.values()) + 40
    place, y = dict[int, tuple[float, float]](), 50.0
    for row in sorted(rows, reverse=True):
        x = (width - sum(sides[name] + 40 for name in rows[row]) + 40) / 2
        for name in rows[row]:
            place[name] = (x + sides[name] / 2, y)
            x += sides[name] + 40
        y += 110
    shapes, lines = list[str](), list[str]()
    for name, nodes in classes.items():
        x, y0 = place[name]
        shapes.append(_box("class", x, y0, sides[name], 62))
        shapes.append(f'<text class="small" x="{x - sides[name] / 2 + 5:.1f}" y="{y0 - 20:.1f}">class {name}</text>')
        left = x - sides[name] / 2 + 10
        for node in nodes:
            wide = _wide(node.op)
            middle = left + wide / 2
            shapes.append(_box("package" if node.id in chosen else "box", middle, y0 + 4, wide, 26))
            shapes.append(f'<text x="{middle:.1f}" y="{y0 + 8:.1f}">{escape(node.op)}</text>')
            for number, child in enumerate(c for c in node.children if c is not None):
                start = middle + (number - (len(node.children) - 1) / 2) * 14
                lines.append(_arrow(start, y0 + 17, place[child], sides[child], number))
            left += wide + 10
    marker = (
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#777"/></marker></defs>'
    )
    return _svg(width, y - 30, "Classes of equal terms, and what they read", [marker, *shapes, *lines])


def _explored() -> tuple[Mapping[int, tuple[ENode, ...]], set[int]]:
    """The classes that page 3 of the tutorial prints, and the ids of the e-nodes that are the cheapest graph."""
    known: dict[str, Any] = {"__name__": "explored"}
    with TemporaryDirectory() as folder, chdir(folder), mock.patch.dict(os.environ, COLUMNS="120"):
        follow(DOCS / "tutorial" / "3-equality-saturation.md", in_process, known)
    found = known["found"]
    return found.classes, {node.id for node in extract(found, CostModel(PORTABLE)).choice.values()}


def _depths(classes: Mapping[int, tuple[ENode, ...]]) -> dict[int, int]:
    """How far each class is from the inputs, by its shortest term."""
    depth = dict[int, int]()
    while len(depth) < len(classes):
        for name, nodes in classes.items():
            known = [
                1 + max((depth[c] for c in node.children if c is not None), default=-1)
                for node in nodes
                if all(c is None or c in depth for c in node.children)
            ]
            if name not in depth and known:
                depth[name] = min(known)
    return depth


def _arrow(x: float, y: float, goal: tuple[float, float], side: float, number: int) -> str:
    """A line from an e-node to a class below it, or beside and round where the class is above it."""
    to_x, to_y = goal
    if to_y > y:
        end = to_x + (number * 2 - 1) * min(12, side / 4)
        path = f"M{x:.1f} {y:.1f}C{x:.1f} {y + 40:.1f} {end:.1f} {to_y - 70:.1f} {end:.1f} {to_y - 33:.1f}"
    else:
        right = to_x + side / 2
        path = f"M{x:.1f} {y:.1f}C{x:.1f} {y + 40:.1f} {right + 60:.1f} {y + 40:.1f} {right:.1f} {to_y:.1f}"
    return f'<path class="line" marker-end="url(#end)" d="{path}"/>'


# -- what the search takes


def search() -> str:
    """Seconds and memory of the optimizer over sizes, as ``tests/bench/search.py --record`` wrote them down."""
    rows = json.loads((DOCS / "pictures" / "search.json").read_text(encoding="utf-8"))
    panels = ((("seconds", "seconds of the processor"), 60.0), (("megabytes", "MB beyond the model"), 460.0))
    shapes = list[str]()
    kinds = {row["kind"]: [r for r in rows if r["kind"] == row["kind"]] for row in rows}
    most = log10(max(row["nodes"] for row in rows))
    for (key, title), left in panels:
        ticks = [n for n in range(-1, 5) if min(r[key] for r in rows) / 10 < 10**n < max(r[key] for r in rows) * 10]
        low, high = ticks[0], ticks[-1]

        def at(nodes: float, value: float, left: float = left, low: int = low, high: int = high) -> tuple[float, float]:
            return left + (log10(nodes) - 2) / (most - 2) * 300, 250 - (log10(value) - low) / (high - low) * 210

        for n in ticks:
            x, y = at(100, 10.0**n)
            shapes.append(f'<path class="line" opacity="0.3" d="M{x:.1f} {y:.1f}h300"/>')
            shapes.append(f'<text class="small" x="{x - 34:.1f}" y="{y + 4:.1f}">{10.0**n:g}</text>')
        for n in range(2, int(most) + 1):
            x, _ = at(10.0**n, 1)
            shapes.append(f'<text x="{x:.1f}" y="268">{10**n}</text>')
        shapes.append(f'<text x="{left + 150:.1f}" y="20">{title}</text>')
        for number, (kind, points) in enumerate(kinds.items()):
            color = COLORS[number % len(COLORS)]
            places = [at(p["nodes"], p[key]) for p in points]
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            shapes.append(f'<path fill="none" stroke="{color}" stroke-width="2" d="M{path}"/>')
            shapes += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]
            if key == "seconds":
                x, y = 60 + number * 90, 296
                shapes.append(f'<circle cx="{x:.1f}" cy="{y - 4:.1f}" r="4" fill="{color}"/>')
                shapes.append(f'<text class="small" x="{x + 8:.1f}" y="{y:.1f}">{escape(kind)}</text>')
    return _svg(800, 310, "Time and memory of graphopt optimize over the size of models", shapes)


# -- shapes


def _wide(label: str) -> float:
    return len(label) * CHARACTER + 14


def _box(kind: str, x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect class="{kind}" x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}" rx="5"/>'
    )


def _svg(width: float, height: float, title: str, shapes: list[str]) -> str:
    head = HEAD.format(width=width, height=height, title=escape(title))
    return re.sub(r"\.0\b", "", head + "\n".join(shapes)) + "\n</svg>\n"
