"""How large the page of a large model is, how soon a browser shows it, and how long a frame takes while it is moved.

python tests/bench/pages.py [OPS]     (2000 unless it is said otherwise; needs playwright and Chromium)
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))

from graphopt.web.page import write_page
from graphopt.web.runs import page_of_report
from tests.web.browsing import Tab, browser
from tests.web.models import large, optimized

SHOWN = "() => new Promise(d => requestAnimationFrame(() => requestAnimationFrame(() => d(performance.now()))))"
"""Milliseconds from when the page was asked for until what was built is on the screen."""

FRAMES = """async (zooms) => {
  const canvas = document.getElementById("graph-before");
  canvas.scrollIntoView({ behavior: "instant", block: "center" });
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  press("0");
  for (let k = 0; k < zooms; k += 1) press("+");
  const times = [];
  let last = await frame();
  for (let k = 0; k < 120; k += 1) {
    press(k % 24 < 12 ? "ArrowDown" : "ArrowUp");
    const now = await frame();
    times.push(now - last);
    last = now;
  }
  return times.slice(10);
}"""
"""Milliseconds of each frame while a graph is moved, zoomed in so often from where all of it is seen."""


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory() as folder, browser() as opened:
        path = Path(folder) / "page.html"
        report = optimized(large(count))
        start = time.perf_counter()
        write_page(page_of_report(report), path)
        print(f"{count} ops: made in {time.perf_counter() - start:.2f} s, {path.stat().st_size / 1e6:.2f} MB")
        pages = [Tab(opened).open(path.as_uri()) for _ in range(3)]
        shown = [float(page.evaluate(SHOWN)) / 1000 for page in pages]
        print(f"shown after {min(shown):.2f} s (best of {len(shown)}; the aim is 2)")
        for name, zooms in (("all nodes", 0), ("nodes that can be read", 16)):
            frames = pages[-1].evaluate(FRAMES, zooms)
            print(f"{name}: a frame takes {median(frames):.1f} ms (median of {len(frames)}; at most {max(frames):.0f})")


if __name__ == "__main__":
    main()
