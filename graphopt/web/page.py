"""Page of a run: one value that holds the sections, and the HTML file that shows them.

Everything is inside the file, and nothing is fetched: a content security policy forbids it, and allows no
script but that of this package. What comes from a model is data, which is packed, and which the
script shows as text, never as markup. Equal pages are equal files.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path

from graphopt.display import encoded
from graphopt.frozen import dataclass
from graphopt.saving import whole
from graphopt.tools.diff import LayerComparison
from graphopt.tools.egraph import ExploredGraph
from graphopt.web.kernels import Kernels
from graphopt.web.playground import WrittenRules
from graphopt.web.rewriting import Rewriting

SCHEMA = 1
"""The version of the data: grows when a field changes its meaning or goes away."""

SCRIPTS = (
    "elements", "data", "theme", "code", "canvas", "graph", "charts",
    "overview", "details", "explorer", "modules", "egraph", "layers", "kernels", "rules", "page",
)  # fmt: skip
"""The parts of the script, in the order in which they stand."""


@dataclass(frozen=True, slots=True)
class Page:
    """What is told: sections for which there is nothing to tell are None, and left out."""

    title: str
    kind: str
    """What the run did: ``optimize``, ``compile``, ``bench``, ``egraph`` or ``diff``."""
    facts: tuple[tuple[str, str], ...] = ()
    """What is said of the run as a whole: names and values."""
    rewriting: Rewriting | None = None
    kernels: Kernels | None = None
    egraphs: tuple[ExploredGraph, ...] = ()
    """Those in which there was a choice, in the order in which they were explored."""
    layers: LayerComparison | None = None
    """The values inside two models, compared."""
    written: WrittenRules | None = None
    """Rules that somebody wrote for this run."""
    steps: tuple[tuple[str, float], ...] = ()
    """What was done, and the seconds that it took."""
    warnings: tuple[str, ...] = ()


def data(page: Page) -> dict[str, object]:
    """The page as plain values."""
    return {"schema": SCHEMA, **encoded(page)}


def write_page(page: Page, path: Path) -> None:
    """Write the page as a file that a browser opens, whole or not at all. ReadError where it cannot be written."""
    with whole(path) as file:
        file.write(html(page).encode())


def html(page: Page) -> str:
    """The page as one file of HTML."""
    text = json.dumps(data(page), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    packed = b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return frame(f"{page.title} · graphopt", f'<script type="application/gzip" id="data">{packed}</script>')


def frame(title: str, body: str, more: tuple[str, ...] = (), sources: str = "'none'") -> str:
    """A file of HTML around some body: styles and the script (with ``more`` of its parts) within, hashes of both in its
    policy; ``sources`` are what the script may connect to."""
    style, script = asset("page.css"), "\n".join(asset(f"{name}.js") for name in (*SCRIPTS, *more))
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        f"connect-src {sources}; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        "<noscript>This page draws graphs: it needs JavaScript, and nothing from the network.</noscript>\n"
        f"{body}\n<script>{script}</script>\n</body>\n</html>\n"
    )


@cache
def asset(name: str) -> str:
    """The text of a file that this package comes with."""
    return (files("graphopt.web") / "static" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
