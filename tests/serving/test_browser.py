"""The server in a real browser: edit rules, run them, see what fires (``pytest -m browser``)."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from graphopt.ir import onnx_io
from tests.web.browsing import PHONE, Tab, browser
from tests.web.models import small

pytestmark = pytest.mark.browser

RULES = "# two are one  [A22] exact\nmine: Relu(Relu(x)) => Relu(x)\n"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("uvicorn")
    folder = tmp_path_factory.mktemp("models")
    onnx_io.save(small(), folder / "<img src=x onerror=alert(1)>.onnx")
    onnx_io.save(small(), folder / f"{'long' * 50}.onnx")
    (folder / "mine.rules").write_text(RULES)
    command = [sys.executable, "-m", "graphopt", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.match(r"(http://\S+) shows ", server.stdout.readline())
        assert found
        yield found[1]
        server.send_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


def test_rules_are_edited_run_and_told_of(chromium: Any, address: str) -> None:
    tab = Tab(chromium)
    page = tab.open(address)
    page.locator("#model").select_option(index=0)
    page.locator("#set").select_option("mine.rules")
    page.wait_for_function("text => document.getElementById('editor').value === text", arg=RULES)
    page.get_by_label("Rules that run").select_option("mine")
    page.locator("#run").click()
    fired = page.locator(".fired[data-rule=mine]")
    fired.wait_for(timeout=120_000)
    assert "acts at 1 place" in fired.inner_text()
    fired.get_by_role("button", name="Show").click()
    assert page.locator("#graph-before").get_attribute("data-lit") == "2"
    page.locator("#editor").fill("mine: Relu(Relu(x) => Relu(x)")
    page.keyboard.press("Control+Enter")
    page.locator(".complaint:not(:empty)").wait_for(timeout=120_000)
    assert page.locator("#complaint").inner_text().startswith("line 1, column 20")
    assert page.locator(".lines .wrong").inner_text().strip() == "1"
    assert page.evaluate("document.images.length") == 0
    assert all(url.startswith((address, "data:")) for url in tab.asked)
    assert tab.said == []


def test_a_phone_scrolls_one_way(chromium: Any, address: str) -> None:
    page = Tab(chromium, PHONE, has_touch=True, is_mobile=True).open(address)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
