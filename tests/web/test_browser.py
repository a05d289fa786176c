"""Reports in a real browser: ``pytest -m browser`` (it needs playwright, and Chromium)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.benchmark.ceilings import Ceilings
from graphopt.ir.text import parse
from graphopt.tools.egraph import egraphs
from graphopt.web.page import write_page
from graphopt.web.runs import page_of_egraphs, page_of_program, page_of_report
from tests.web.browsing import PHONE, WIDE, Tab, browser
from tests.web.models import HOSTILE, hostile, large, modules, network, optimized, small

pytestmark = pytest.mark.browser

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    made = {"small": small(), "hostile": hostile(), "large": large(2000), "modules": modules()}
    for name, graph in made.items():
        report = optimized(graph)
        title = HOSTILE if name == "hostile" else f"{name}.onnx"
        write_page(page_of_report(replace(report, model=title)), folder / f"{name}.html")
    model = graphopt.compile(network(blocks=1), jobs=1)
    rows = model.profile([np.ones((1, 3, 56, 56), np.float32)])
    ceilings = Ceilings(1e11, 1e10, 1e11, 1)
    page = page_of_program("m.onnx", model.compiled, kind="bench", rows=rows, ceilings=ceilings, sizes={})
    write_page(page, folder / "bench.html")
    swish = parse("x: float32[4] b = Add(x, 3.0) c = Clip(b, 0.0, 6.0) d = Mul(x, c) y = Div(d, 6.0) return y")
    write_page(page_of_egraphs("m.onnx", "portable", "reals", egraphs(swish)), folder / "egraph.html")
    write_page(page_of_report(optimized(swish), egraphs(swish)), folder / "swish.html")
    return {name: (folder / f"{name}.html").as_uri() for name in (*made, "bench", "egraph", "swish")}


def lit(page: Any, side: str) -> int:
    """How many nodes are lit on a side."""
    data = page.locator(f"#graph-{side}").evaluate("c => [c.dataset.lit, c.dataset.near]")
    return sum(int(n or 0) for n in data)


def test_choosing_a_rewrite_lights_its_nodes_on_both_sides(chromium: Any, reports: dict[str, str]) -> None:
    tab = Tab(chromium)
    page = tab.open(reports["large"])
    first = page.locator("#rewrites .option").first
    first.click()
    assert lit(page, "before") > 0
    assert lit(page, "after") > 0
    assert first.locator(".rule").inner_text() in page.locator("#detail h3").inner_text()
    assert page.locator("#detail").get_by_text("Gain, modelled").is_visible()
    assert tab.said == []
    assert tab.asked == [reports["large"]]


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_another_choice_of_equal_terms_can_be_tried(
    chromium: Any, reports: dict[str, str], size: tuple[int, int]
) -> None:
    tab = Tab(chromium, size)
    page = tab.open(reports["egraph"])
    members = page.locator("#egraph .choosable .link.name")
    assert members.count() > 2
    page.locator("#egraph .choosable tr", has_not_text="chosen").last.locator(".link.name").focus()
    page.keyboard.press("Enter")
    assert page.get_by_text("What if this were chosen?").is_visible()
    assert "HardSwish" in page.locator("#egraph .what-if .was").first.inner_text()
    assert page.evaluate(OVERFLOW) <= 0
    assert tab.said == []


def test_a_node_leads_to_its_equal_terms(chromium: Any, reports: dict[str, str]) -> None:
    page = Tab(chromium).open(reports["swish"])
    page.keyboard.press("/")
    page.keyboard.type("Div")
    page.locator("#rewrites .option.node").first.click()
    page.get_by_text("Equal terms, and why one was chosen").click()
    assert page.locator("#egraph .detail h3").inner_text().startswith("y")


def test_keys_find_choose_and_leave(chromium: Any, reports: dict[str, str]) -> None:
    page = Tab(chromium).open(reports["large"])
    page.keyboard.press("n")
    chosen = page.locator("#rewrites .option[aria-selected=true]")
    assert chosen.get_attribute("id") == "option-0"
    page.keyboard.press("n")
    assert chosen.get_attribute("id") == "option-1"
    page.keyboard.press("p")
    assert chosen.get_attribute("id") == "option-0"
    page.keyboard.press("/")
    page.keyboard.type("layer.19")
    assert "node" in page.locator("#graph .side [role=status]").inner_text()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "rewrites"
    page.keyboard.press("Escape")
    assert chosen.count() == 0
    assert lit(page, "before") == 0


def test_the_graph_is_moved_and_zoomed_by_keys_wheel_and_pointer(chromium: Any, reports: dict[str, str]) -> None:
    page = Tab(chromium).open(reports["large"])
    canvas = page.locator("#graph-before")
    canvas.scroll_into_view_if_needed()

    def shot() -> bytes:
        page.wait_for_timeout(120)
        return bytes(canvas.screenshot())

    looks = [shot()]
    canvas.focus()
    for key in ("ArrowDown", "+", "0"):
        page.keyboard.press(key)
        looks.append(shot())
    for _ in range(4):
        page.keyboard.press("+")
    looks.append(shot())
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.wheel(0, -600)
    looks.append(shot())
    page.mouse.down()
    page.mouse.move(box["x"] + 160, box["y"] + 180)
    page.mouse.up()
    looks.append(shot())
    assert all(a != b for a, b in pairwise(looks))


def test_a_node_tells_what_it_reads_and_leads_there(chromium: Any, reports: dict[str, str]) -> None:
    page = Tab(chromium).open(reports["small"])
    page.locator("#find").fill("Add")
    page.locator("#rewrites .option.node").first.click()
    title = page.locator("#detail h3")
    assert title.inner_text().startswith("Add")
    page.locator("#graph-before").focus()
    page.keyboard.press("[")
    assert title.inner_text().startswith("Identity")
    page.keyboard.press("]")
    assert title.inner_text().startswith("Add")
    page.locator("#detail ul button.link", has_text="x").click()
    assert title.inner_text().startswith("Input")


def test_modules_fold_and_light_their_nodes(chromium: Any, reports: dict[str, str]) -> None:
    tab = Tab(chromium)
    page = tab.open(reports["modules"])
    section = page.locator("#modules")
    assert section.locator("summary .name").all_inner_texts() == ["net", "layers.0"]
    assert "4 → 3 nodes" in section.locator("summary").first.inner_text()
    act = section.get_by_role("button", name="Show net / act in the graph")
    assert act.is_visible()
    act.click()
    assert (lit(page, "before"), lit(page, "after")) == (2, 1)
    section.locator("summary .name").first.click()
    assert not act.is_visible()
    section.get_by_role("button", name="Show net in the graph").click()
    assert not act.is_visible()  # what is shown does not unfold
    assert (lit(page, "before"), lit(page, "after")) == (4, 3)
    assert tab.said == []
    assert page.goto(reports["small"])
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#modules").count() == 0


def test_nodes_are_coloured_by_their_time(chromium: Any, reports: dict[str, str]) -> None:
    tab = Tab(chromium)
    page = tab.open(reports["modules"])
    pixel = (
        "c => { const b = [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data];"
        "return b.filter((v, k) => k % 4 === 0 && v > b[k + 2] + 60).length; }"
    )
    canvas = page.locator("#graph-after")
    page.wait_for_timeout(300)
    before = canvas.evaluate(pixel)
    kinds = page.get_by_role("group", name="What colours say")
    kinds.get_by_role("button", name="Time").click()
    page.wait_for_timeout(300)
    assert canvas.get_attribute("data-colours") == "time"
    assert canvas.evaluate(pixel) > before + 500  # the product is warm
    assert page.locator(".key.heat").is_visible()
    assert not page.locator(".legend .key.changed").is_visible()
    kinds.get_by_role("button", name="Changes").click()
    page.wait_for_timeout(300)
    assert canvas.evaluate(pixel) == before
    page.locator("#find").fill("MatMul")
    page.locator("#rewrites .option.node").first.click()
    told = page.locator("#detail").inner_text()
    assert "In net / layers.0 / linear" in told
    assert "by itself, as modelled" in told
    assert [said for said in tab.said if "getImageData" not in said] == []  # which this test reads


def test_kernels_are_ordered_found_and_shown_by_keys(chromium: Any, reports: dict[str, str]) -> None:
    tab = Tab(chromium)
    page = tab.open(reports["bench"])
    rows, chosen = page.locator("#kernels tbody tr"), page.locator("#kernels tr[aria-selected=true]")
    rows.first.locator("button").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert chosen.get_attribute("data-call") == rows.nth(1).get_attribute("data-call")
    page.get_by_role("tab", name="Loops").focus()
    page.keyboard.press("ArrowRight")
    assert "for " in page.locator("#code").inner_text()
    page.keyboard.press("ArrowRight")
    assert "import" in page.locator("#code").inner_text()
    page.locator("#kernels .sort", has_text="#").click()
    assert [row.get_attribute("data-call") for row in rows.all()] == [str(k) for k in range(rows.count())]
    page.get_by_label("Find a kernel or a node").fill("hardswish")
    assert all("HardSwish" in row.inner_text() for row in rows.all())
    assert tab.said == []


def test_charts_lead_to_kernels_and_kernels_to_nodes(chromium: Any, reports: dict[str, str]) -> None:
    page = Tab(chromium).open(reports["bench"])
    dots = page.locator("#roofline .kernel")
    assert page.locator("#roofline .kernel[tabindex='0']").count() == 1
    dots.first.focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    name = page.locator("#kernel h3").inner_text()
    assert dots.last.get_attribute("aria-label").split(":")[-2].endswith(name.splitlines()[0].split("+")[-1])
    page.get_by_role("button", name="Show in the graph").click()
    assert lit(page, "after") > 0
    assert page.locator("#memory .lease").count() > 3


def test_the_theme_is_the_systems_until_it_is_chosen(chromium: Any, reports: dict[str, str]) -> None:
    page = Tab(chromium, scheme="dark").open(reports["small"])
    theme = "document.documentElement.dataset.theme"
    assert page.evaluate(theme) == "dark"
    page.locator("#theme").click()
    assert page.evaluate(theme) == "light"
    page.reload()
    page.wait_for_function("() => document.documentElement.dataset.ready")
    assert page.evaluate(theme) == "light"


@pytest.mark.parametrize("name", ["small", "large", "hostile", "bench", "modules"])
def test_a_phone_scrolls_one_way(chromium: Any, reports: dict[str, str], name: str) -> None:
    tab = Tab(chromium, PHONE, has_touch=True, is_mobile=True)
    page = tab.open(reports[name])
    assert page.evaluate(OVERFLOW) <= 0
    page.locator("#graph").get_by_role("button", name="After", exact=True).click()
    assert page.locator("#graph-after").is_visible()
    assert not page.locator("#graph-before").is_visible()
    page.locator("#rewrites .option").first.tap()
    assert page.evaluate(OVERFLOW) <= 0
    assert tab.said == []


def test_hostile_names_are_shown_and_nothing_more(chromium: Any, reports: dict[str, str]) -> None:
    tab = Tab(chromium)
    page = tab.open(reports["hostile"])
    assert page.evaluate("document.images.length") == 0
    assert "<img src=x" in page.locator("h1").inner_text()
    page.keyboard.press("n")
    page.locator("#graph-before").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.images.length") == 0
    assert page.title() != "1"
    assert tab.said == []
    assert tab.asked == [reports["hostile"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(chromium: Any, reports: dict[str, str], scheme: str) -> None:
    """WCAG's ratio of 4.5 between each colour of text and what it stands on."""
    page = Tab(chromium, scheme=scheme).open(reports["small"])
    names = ["text", "muted", "accent", "before", "after", "changed", "good"]
    pairs = [(name, ground) for name in names for ground in ("paper", "panel")]
    pairs += [("muted", "strip"), ("text", "accent-soft"), ("muted", "accent-soft"), ("text", "before-soft")]
    pairs += [(n, f"{n}-soft") for n in ("before", "after", "changed")]
    style = "n => getComputedStyle(document.documentElement).getPropertyValue('--' + n).trim()"
    for one, other in pairs:
        high, low = sorted((luminance(page.evaluate(style, n)) for n in (one, other)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (one, other)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_everything_that_acts_has_a_name(chromium: Any, reports: dict[str, str]) -> None:
    page = Tab(chromium).open(reports["small"])
    page.keyboard.press("n")
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, a, input, select, canvas, [role=button], [tabindex=\"0\"]')]"
        ".filter(e => !(e.getAttribute('aria-label') || e.textContent || '').trim()).map(e => e.outerHTML)"
    )
    assert nameless == []
    assert page.locator("main, nav, header.banner, footer").count() >= 4


def test_wide_tables_are_whole_on_a_phone(chromium: Any, reports: dict[str, str]) -> None:
    """Each row is a few lines, in which all cells are within the window, behind what their columns are called."""
    page = Tab(chromium, PHONE, has_touch=True, is_mobile=True).open(reports["swish"])
    tables = page.locator(".scroll.wide:visible")
    assert tables.count() >= 2
    for table in tables.all():
        assert table.evaluate("t => t.scrollWidth - t.clientWidth") <= 0
    told = page.locator("#rules .wide td").first.evaluate("c => getComputedStyle(c, '::before').content")
    assert told == '"family "'


def test_rules_that_fired_nowhere_stand_apart(chromium: Any, reports: dict[str, str]) -> None:
    page = Tab(chromium).open(reports["swish"])
    heads = page.locator("#rules > .scroll thead th").all_inner_texts()
    fired = page.locator(f"#rules > .scroll tbody tr td:nth-child({heads.index('fired') + 1})").all_inner_texts()
    assert fired
    assert "0" not in fired
    idle = page.locator(f"#rules .idle tbody tr td:nth-child({heads.index('fired') + 1})").all_text_contents()
    assert {*idle} == {"0"}
