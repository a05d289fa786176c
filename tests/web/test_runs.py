"""From what a run left behind to its page."""

from __future__ import annotations

from dataclasses import replace

import graphopt
from graphopt.run.report import Measured, Race
from graphopt.web.page import html
from graphopt.web.runs import page_of_program, page_of_report
from tests.web.models import optimized, small


def test_a_page_names_the_run() -> None:
    race = Race("result", 1.5, 1.4, 1.6, 30)
    report = replace(
        optimized(small()),
        model="/models/m.onnx",
        output="out.onnx",
        counted_at={"n": 8},
        measured=Measured("all", race),
    )
    page = page_of_report(report)
    facts = dict(page.facts)
    assert (page.title, page.kind, page.kernels) == ("m.onnx", "optimize", None)
    assert (facts["written to"], facts["priced at"]) == ("out.onnx", "n=8")
    assert facts["measured"] == "1.50x [1.40-1.60] beside the original, all kept"
    assert page.rewriting is not None


def test_a_compiled_model_has_its_rewrites_and_its_kernels() -> None:
    compiled = graphopt.compile(small(), jobs=1).compiled
    page = page_of_program("m.onnx", compiled, sizes={"n": 4})
    assert page.rewriting is not None
    assert page.kernels is not None
    assert page.kernels.arena is not None
    after = page.rewriting.pictures[0].after
    assert after is not None
    assert {after.boxes[k].op for call in page.kernels.calls for k in call.boxes} >= {"Add"}
    assert [name for name, _ in page.steps]
    assert html(page)
