"""What notebooks display is small, says what the value is, and holds no markup of a model's."""

from __future__ import annotations

import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import graphopt
from graphopt.lowering.loops.script import read
from graphopt.rewrite.ruleset import standard
from graphopt.run.report import Measured, Race
from graphopt.web.cards import card
from tests.web.models import HOSTILE, hostile, large, optimized, small

TAGS = {"div", "p", "strong", "pre", "table", "thead", "tbody", "tr", "th", "td", "svg", "g", "title", "rect", "text"}
TAGS |= {"path", "span"}


class Reader(HTMLParser):
    """The tags and the text of a card."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_small_graph_is_drawn_and_a_large_one_counted() -> None:
    drawn = Reader(small()._repr_html_())
    assert "svg" in drawn.tags
    assert "float32[n, 4]" in drawn.words
    listed = large(200)._repr_html_()
    assert "svg" not in Reader(listed).tags
    assert len(listed) < 10_000


def test_without_a_layout_a_graph_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fast_sugiyama", None)
    found = Reader(small()._repr_html_())
    assert "svg" not in found.tags
    assert "Relu" in found.words


def test_names_stay_text() -> None:
    for value in (hostile(), optimized(hostile())):
        found = Reader(value._repr_html_())
        assert found.tags <= TAGS
    assert HOSTILE.replace("\x00", "") in Reader(hostile()._repr_html_()).words.replace("\x00", "").replace(
        "\ufffd", ""
    )


def test_rules_reports_nests_and_programs() -> None:
    rule = standard().rules[0]
    assert rule.name in Reader(rule._repr_html_()).words
    assert "before" in Reader(optimized(small())._repr_html_()).words
    nest = read('@program\ndef f(x: Buffer[(4,), "float32"]):\n    for i in serial(4):\n        x[i] = 1.0\n')
    assert "for i in serial(4)" in Reader(nest._repr_html_()).words
    model = graphopt.compile(small(), jobs=1)
    assert model(np.ones((1, 4), np.float32))
    for value in (model, model.program):
        assert "float32[n, 4]" in Reader(value._repr_html_()).words.replace("'", "")


def test_what_has_no_card_is_an_error() -> None:
    with pytest.raises(TypeError, match="nothing says how a int is displayed"):
        card(1)


def test_a_report_tells_what_was_measured_before_what_is_modelled() -> None:
    report = replace(optimized(small()), measured=Measured("all", Race("result", 1.5, 1.4, 1.6, 30, 3e-3, 2e-3)))
    words = Reader(report._repr_html_()).words
    assert "measured µs3000.02000.01.50x" in words
    assert words.index("measured") < words.index("modelled")
