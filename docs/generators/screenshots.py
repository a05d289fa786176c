"""``python -m docs.generators.screenshots`` takes the pictures of docs/report.md and docs/playground.md, in a headless
Chromium."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from graphopt.ir import onnx_io
from tests.web.browsing import PHONE, Tab, browser
from tests.web.models import network

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
WINDOW = (1200, 720)
"""The window of the wide pictures."""


def report(folder: Path) -> Path:
    """The page of a small network, with the times of its kernels."""
    onnx_io.save(network(), folder / "network.onnx")
    command = ["bench", "network.onnx", "--against", "ort", "--seconds", "1", "--report", "report.html"]
    subprocess.run([sys.executable, "-m", "graphopt", *command], check=True, cwd=folder)
    return folder / "report.html"


RULES = """\
# the root of a square is the number itself                    [H4] reals
my-root:  Sqrt(Mul(x, x))  =>  x

# x * relu6(x + 3) / 6 is one op                               [H8] reals
my-hard-swish:
    Div(Mul(x, Clip(Add(x, 3.0), 0.0, 6.0)), 6.0)  =>  HardSwish(x)
    where x.dtype in float

"""


@contextmanager
def playground(folder: Path) -> Iterator[str]:
    """The address of a server that shows the network."""
    command = [sys.executable, "-m", "graphopt", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[0]
        server.send_signal(signal.SIGINT)


def choose(page: Any, rule: str) -> None:
    """Choose the first rewrite by a rule, with the graphs in sight."""
    page.locator("#rewrites .option", has_text=rule).first.click()
    page.locator("#graph").evaluate("e => e.scrollIntoView({ behavior: 'instant' })")
    page.wait_for_timeout(300)


def main() -> None:
    """Take them."""
    with TemporaryDirectory() as folder, browser() as opened:
        address = report(Path(folder)).as_uri()
        light = Tab(opened, WINDOW).open(address)
        choose(light, "hard-swish")
        light.screenshot(path=PICTURES / "report-graph.png")
        dark = Tab(opened, WINDOW, "dark").open(address)
        dark.locator("#kernels tbody button").first.click()
        dark.get_by_role("tab", name="Source").click()
        dark.locator("#kernels").evaluate("e => e.scrollIntoView({ behavior: 'instant' })")
        dark.wait_for_timeout(300)
        dark.screenshot(path=PICTURES / "report-kernels.png")
        phone = Tab(opened, PHONE, has_touch=True, is_mobile=True).open(address)
        phone.screenshot(path=PICTURES / "report-phone.png")
        with playground(Path(folder)) as at:
            written = Tab(opened, WINDOW).open(at)
            written.locator("#editor").fill(RULES)
            written.locator(".checked[data-rule=my-hard-swish]").wait_for(timeout=60_000)
            written.screenshot(path=PICTURES / "playground.png")


if __name__ == "__main__":
    main()
