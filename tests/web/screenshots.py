"""Pictures of a report, wide and on a phone, light and dark: ``python -m tests.web.screenshots FOLDER [PAGE.html]``."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from graphopt.web.page import write_page
from graphopt.web.runs import page_of_report
from tests.web.browsing import PHONE, WIDE, Tab, browser
from tests.web.models import large, optimized


def main() -> None:
    folder, *pages = map(Path, sys.argv[1:])
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, browser() as opened:
        page = pages[0].resolve() if pages else Path(scratch) / "report.html"
        if not pages:
            write_page(page_of_report(replace(optimized(large(300)), model="model.onnx")), page)
        for device, size in (("wide", WIDE), ("phone", PHONE)):
            for scheme in ("light", "dark"):
                shown = Tab(opened, size, scheme).open(page.as_uri())
                shown.screenshot(path=folder / f"{device}-{scheme}.png")
                shown.keyboard.press("n")
                shown.locator("#graph").evaluate("e => e.scrollIntoView({ behavior: 'instant' })")
                shown.wait_for_timeout(400)
                shown.screenshot(path=folder / f"{device}-{scheme}-graph.png")
                shown.screenshot(path=folder / f"{device}-{scheme}-whole.png", full_page=True)


if __name__ == "__main__":
    main()
