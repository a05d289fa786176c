"""How large the page of a large model is, how soon a browser shows it, and how long a frame takes while it is dragged.

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

DRAG = """async () => {
  const canvas = document.getElementById("graph-before");
  canvas.focus();
  const times = [];
  const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  press("0");
  for (let k = 0; k < 60; k += 1) {
    const start = performance.now();
    press(k % 2 ? "ArrowUp" : "ArrowDown");
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    times.push((performance.now() - start) / 2);
  }
  return times;
}"""


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory() as folder, browser() as opened:
        path = Path(folder) / "page.html"
        report = optimized(large(count))
        start = time.perf_counter()
        write_page(page_of_report(report), path)
        print(f"{count} ops: made in {time.perf_counter() - start:.2f} s, {path.stat().st_size / 1e6:.2f} MB")
        ready = []
        for _ in range(3):
            tab = Tab(opened)
            page = tab.open(path.as_uri())
            ready.append(float(page.evaluate("document.documentElement.dataset.ready")) / 1000)
        print(f"there after {min(ready):.2f} s (best of {len(ready)}; the aim is 2)")
        frames = page.evaluate(DRAG)
        print(f"a frame of all nodes takes {median(frames):.1f} ms while it is moved (median of {len(frames)})")


if __name__ == "__main__":
    main()
