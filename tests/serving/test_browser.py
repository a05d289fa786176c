"""The server in a real browser: rules written, checked, completed, run, results taken home (``pytest -m browser``)."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from graphopt.ir import onnx_io
from tests.web.browsing import PHONE, WIDE, Tab, browser
from tests.web.models import network, small

pytestmark = pytest.mark.browser

RULES = "# two are one  [A22] exact\nmine: Relu(Relu(x)) => Relu(x)\n"
WRONG = f"# the root of a square  [H4] reals\nroot:  Sqrt(Mul(x, x))  =>  x\n\n{RULES}"
CODE = '''from graphopt import ops, rule


@rule(family="A22", exact=True)
def mine(x):
    """Two are one."""
    return ops.Relu(ops.Relu(x)).becomes(ops.Relu(x))
'''
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def serving(folder: Path, *options: str) -> Iterator[str]:
    """The address of a server of a folder, while it runs."""
    pytest.importorskip("uvicorn")
    command = [sys.executable, "-m", "graphopt", "serve", str(folder), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.match(r"(http://\S+) shows ", server.stdout.readline())
        assert found
        yield found[1]
        server.send_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    onnx_io.save(small(), folder / "<img src=x onerror=alert(1)>.onnx")
    onnx_io.save(small(), folder / f"{'long' * 50}.onnx")
    onnx_io.save(network(1), folder / "network.onnx")
    (folder / "mine.rules").write_text(RULES)
    (folder / "mine.py").write_text(CODE)
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    yield from serving(folder)


@pytest.fixture(scope="module")
def open_address(folder: Path) -> Iterator[str]:
    yield from serving(folder, "--allow-code")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


def test_the_model_is_drawn_at_once(chromium: Any, address: str) -> None:
    tab = Tab(chromium)
    page = tab.open(address)
    page.wait_for_function("() => document.getElementById('graph-model').dataset.boxes === '5'", timeout=120_000)
    page.locator("#model").select_option("network.onnx")
    page.wait_for_function("() => document.getElementById('graph-model').dataset.boxes > 5", timeout=120_000)
    page.locator("#graph-model").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("[")
    page.keyboard.press("[")
    title = page.locator(".model .detail h3").inner_text()
    page.locator("#editor").fill("")
    page.get_by_role("button", name="Begin a rule here").click()
    written = page.locator("#editor").input_value()
    assert re.search(rf"^my-rule:  {title}\(.*\)  =>  $", written, re.M), (title, written)
    assert tab.said == []


def test_rules_are_checked_as_they_are_typed(chromium: Any, address: str) -> None:
    page = Tab(chromium).open(address)
    page.locator("#editor").fill(WRONG)
    wrong = page.locator(".checked[data-rule=root][data-state=wrong]")
    wrong.wait_for(timeout=120_000)
    assert "the right side -" in wrong.inner_text()
    page.locator(".checked[data-rule=mine][data-state=right]").wait_for(timeout=120_000)
    under = page.locator(".paint .code-line:nth-child(3) .verdict")  # the line below that of the rule
    assert "the right side -" in under.text_content()
    assert page.locator(".lines .wrong").inner_text().strip() == "2"
    rows = [page.locator(f".paint .code-line:nth-child({n})").bounding_box()["y"] for n in (1, 3)]
    marks = [page.locator(f".lines span:nth-child({n})").bounding_box()["y"] for n in (1, 3)]
    assert rows[1] - rows[0] == pytest.approx(marks[1] - marks[0], abs=1)
    page.locator("#editor").fill("mine: Relu(Relu(x) => Relu(x)")
    page.locator(".complaint:not(:empty)").wait_for(timeout=120_000)
    assert page.locator("#complaint").inner_text().startswith("line 1, column 20")
    assert page.locator(".lines .wrong").inner_text().strip() == "1"


def test_words_are_completed_by_keys(chromium: Any, address: str) -> None:
    tab = Tab(chromium)
    page = tab.open(address)
    page.wait_for_function("() => fetch('/api/words').then((answer) => answer.ok)", timeout=120_000)
    field, words = page.locator("#editor"), page.locator("#completions")
    field.fill("")
    field.press_sequentially("# it moves  [E")
    words.locator(".word", has_text="transpose of a transpose").wait_for(timeout=60_000)
    field.press_sequentially("1] ex")
    field.press("Tab")
    field.press_sequentially("\nmine: Transp")
    field.press("Enter")
    field.press_sequentially("x, ")
    field.press("Control+ ")
    assert words.locator(".word").first.inner_text().split() == ["perm", "of", "Transpose"]
    assert field.get_attribute("aria-activedescendant") == "word-0"
    field.press("ArrowDown")
    field.press("ArrowUp")
    field.press("Enter")
    field.press_sequentially("p) => x\n where is_ident")
    field.press("Enter")
    field.press_sequentially("p) and x.ra")
    field.press("Tab")
    assert (
        field.input_value()
        == "# it moves  [E1] exact\nmine: Transpose(x, perm=p) => x\n where is_identity(p) and x.rank"
    )
    field.press("Control+ ")
    assert words.is_visible()
    field.press("Escape")
    assert not words.is_visible()
    assert page.evaluate("document.activeElement.id") == "editor"
    for _ in range(3):
        field.press("Control+z")
    assert field.input_value() != ""
    field.press("Tab")  # which leaves the field: no keyboard is caught in it
    assert page.evaluate("document.activeElement.id") != "editor"
    assert tab.said == []


def test_rules_are_edited_run_and_told_of(chromium: Any, address: str, tmp_path: Path) -> None:
    tab = Tab(chromium, accept_downloads=True)
    page = tab.open(address)
    page.locator("#model").select_option(index=0)
    page.locator("#set").select_option("mine.rules")
    page.wait_for_function("text => document.getElementById('editor').value === text", arg=RULES)
    page.get_by_label("Run", exact=False).select_option("mine")
    page.locator("#editor").press("Control+Enter")
    fired = page.locator(".fired[data-rule=mine]")
    fired.wait_for(timeout=120_000)
    assert "acts at 1 place" in fired.inner_text()
    fired.get_by_role("button", name="Show").click()
    assert page.locator("#graph-before").get_attribute("data-lit") == "2"
    assert "verified" in page.locator("#summary").inner_text()
    with page.expect_download() as taken:
        page.get_by_role("link", name="Download the model").click()
    assert taken.value.suggested_filename.endswith(".opt.onnx")
    taken.value.save_as(tmp_path / "result.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "result.onnx").graph.node] == ["Relu", "Identity", "Add"]
    with page.expect_download() as taken:
        page.get_by_role("link", name="Save this page").click()
    taken.value.save_as(tmp_path / "page.html")
    assert page.evaluate("document.images.length") == 0
    assert all(url.startswith((address, "data:")) for url in tab.asked)
    assert tab.said == []
    alone = Tab(chromium)
    page = alone.open((tmp_path / "page.html").as_uri())  # as somebody sees it with whom it is shared
    assert "acts at 1 place" in page.locator(".fired[data-rule=mine]").inner_text()
    assert "Relu(Relu(x))" in page.locator("#written pre").first.inner_text()
    assert "graphopt optimize" in page.locator("#written .command").inner_text()
    assert alone.asked == [(tmp_path / "page.html").as_uri()]
    assert alone.said == []


def test_why_a_rule_is_nowhere_else_is_told_where_somebody_asks(chromium: Any, address: str) -> None:
    page = Tab(chromium).open(address)
    page.locator("#model").select_option("network.onnx")
    page.locator("#editor").fill(
        "# the head is channels last  [E1] exact\nmine: Relu(Transpose(x, perm=p)) => Transpose(Relu(x), perm=p)\n"
    )
    page.get_by_label("Run", exact=False).select_option("mine")
    page.locator("#run").click()
    row = page.locator(".fired[data-rule=mine]")
    row.wait_for(timeout=120_000)
    if (ask := row.get_by_role("button", name="Why nowhere else?")).count():
        ask.click()
    row.locator("li").first.wait_for(timeout=120_000)
    assert "something else costs as little" in row.inner_text()


def test_rules_in_python_run_where_the_owner_allows_it(chromium: Any, address: str, open_address: str) -> None:
    page = Tab(chromium).open(address)
    assert page.locator("#set option[value=python]").is_disabled()
    assert page.locator("#set option[value='mine.py']").count() == 0
    page = Tab(chromium).open(open_address)
    page.locator("#set").select_option("mine.py")
    page.locator(".checked[data-rule=mine][data-state=right]").wait_for(timeout=120_000)
    page.locator("#editor").press("Control+Enter")
    page.locator(".fired[data-rule=mine]").wait_for(timeout=120_000)
    assert "your_rules.py" in page.locator("#written .command").text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_one_way(chromium: Any, address: str, scheme: str) -> None:
    tab = Tab(chromium, PHONE, scheme, has_touch=True, is_mobile=True)
    page = tab.open(address)
    assert page.evaluate(OVERFLOW) <= 0
    page.locator("#editor").fill(WRONG)
    page.locator(".checked[data-rule=root]").wait_for(timeout=120_000)
    page.locator("#run").tap()
    page.locator(".fired").first.wait_for(timeout=120_000)
    assert page.evaluate(OVERFLOW) <= 0
    assert tab.said == []


def test_another_site_can_do_nothing(chromium: Any, address: str, tmp_path: Path) -> None:
    """A page from elsewhere, in a browser that has the playground open."""
    page = Tab(chromium, WIDE).page
    (tmp_path / "evil.html").write_text("<title>evil</title>")
    page.goto((tmp_path / "evil.html").as_uri())
    ask = """async ([url, method, type]) => {
        try {
            const answer = await fetch(url, { method, mode: "no-cors", body: method === "GET" ? undefined : "{}",
                                              headers: type ? { "content-type": type } : {} });
            return answer.type === "opaque" ? (await answer.text()).length : answer.status;
        } catch { return 0; }
    }"""
    for path, method, kind in (
        ("api/files", "GET", ""),
        ("api/words", "GET", ""),
        ("api/run", "POST", "text/plain"),
        ("api/check", "POST", "application/json"),
        ("api/upload?name=x", "PUT", "application/octet-stream"),
    ):
        assert page.evaluate(ask, [f"{address}{path}", method, kind]) == 0, path
    page.set_content(f"<iframe src='{address}'></iframe>")
    page.wait_for_timeout(500)
    assert "Rules on a model" not in (page.frames[-1].content() if len(page.frames) > 1 else "")
