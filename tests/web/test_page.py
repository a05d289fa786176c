"""The page as a file: one, whole, the same for the same run, and safe whatever a model is called."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphopt.errors import ReadError
from graphopt.ir.text import parse
from graphopt.rewrite.egraph.saturate import SaturationBudget
from graphopt.run.report import StepReport
from graphopt.tools.egraph import egraphs
from graphopt.web.page import html, write_page
from graphopt.web.runs import page_of_egraphs, page_of_report
from tests.web.models import HOSTILE, hostile, large, optimized, small

LIMIT = 2_000_000
"""Bytes that the page of a model of 2 000 ops takes at most."""


def held(text: str) -> dict[str, Any]:
    """The data in a page."""
    found = re.search(r'<script type="application/gzip" id="data">([A-Za-z0-9+/=]*)</script>', text)
    assert found is not None
    return json.loads(gzip.decompress(b64decode(found[1])))  # type: ignore[no-any-return]


def test_equal_runs_are_equal_pages() -> None:
    pages = [page_of_report(replace(optimized(small()), steps=(StepReport("tidy", 0.5),))) for _ in range(2)]
    still = [replace(p, rewriting=replace(p.rewriting, rules=())) for p in pages if p.rewriting]  # rules have times
    assert html(still[0]) == html(still[1])


def test_the_page_fetches_nothing() -> None:
    text = html(page_of_report(optimized(small())))
    assert "default-src 'none'; script-src 'sha256-" in text
    assert "connect-src 'none'" in text
    assert not re.search(r"<(link|img|iframe)\b|\bsrc=|@import|url\(", text)
    assert held(text)["rewriting"]["changes"]


def test_what_a_model_is_called_is_never_markup() -> None:
    page = page_of_report(replace(optimized(hostile()), model=HOSTILE))
    text = html(page)
    assert "<img" not in text
    assert text.count("</script>") == 2
    assert text.count("<!--") == 0
    assert HOSTILE in json.dumps(held(text), ensure_ascii=False).replace('\\"', '"').replace("\\u0000", "\x00")


def test_equal_terms_of_strangers_are_never_markup() -> None:
    graph = parse("x: float32[4] b = Add(x, 3.0) c = Clip(b, 0.0, 6.0) d = Mul(x, c) y = Div(d, 6.0) return y")
    graph.names = {value: f"{name}{HOSTILE}" for value, name in graph.names.items()}
    told = egraphs(graph)
    assert any(HOSTILE in c.name for t in told for c in t.classes)
    for page in (
        page_of_egraphs(HOSTILE, "portable", "reals", told),
        page_of_report(replace(optimized(hostile()), model=HOSTILE), told),
    ):
        text = html(page)
        assert "<img" not in text
        assert text.count("</script>") == 2
        assert len(held(text)["egraphs"]) == len(told)


def test_the_equal_terms_of_a_model_of_2000_ops_are_a_small_page() -> None:
    told = egraphs(large(2000), budget=SaturationBudget(iters=1))
    assert told
    assert len(html(page_of_egraphs("m", "portable", "reals", told))) < LIMIT


def test_a_model_of_2000_ops_is_a_small_page() -> None:
    text = html(page_of_report(optimized(large(2000), budget=SaturationBudget(iters=1))))
    assert len(held(text)["rewriting"]["pictures"][0]["before"]["boxes"]) > 1900
    assert len(text) < LIMIT


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    page = page_of_report(optimized(small()))
    write_page(page, tmp_path / "out.html")
    assert (tmp_path / "out.html").read_text(encoding="utf-8") == html(page)
    with pytest.raises(ReadError, match="cannot write there"):
        write_page(page, tmp_path / "none" / "out.html")
