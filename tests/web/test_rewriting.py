"""The section on rewriting: counts, pictures, rewrites with their boxes, and rules."""

from __future__ import annotations

from dataclasses import replace

from graphopt.run.report import Measured, Race
from graphopt.web.rewriting import rewriting
from tests.web.models import modules, optimized, small


def test_the_section_tells_everything_of_a_run() -> None:
    report = optimized(small())
    found = rewriting(report)
    assert {op: (a, b) for op, a, b in found.ops}["Relu"] == (2, 1)
    (picture,) = found.pictures
    assert picture.before is not None
    assert picture.after is not None
    assert len(picture.marks_before) == len(picture.before.boxes)
    assert [c.id for c in found.changes] == [r.id for r in report.rewrites]
    for change in found.changes:
        assert change.picture == 0
        assert all(k < len(picture.before.boxes) for k in change.taken)
        assert all(k < len(picture.after.boxes) for k in (*change.made, *change.around))
    rules = {r.name: r for r in found.rules}
    assert {c.rule for c in found.changes} <= set(rules)
    assert all(rules[c.rule].reason for c in found.changes)
    assert found.explorations == report.explorations
    assert found.explorations[-1].rounds[-1].nodes >= found.explorations[-1].rounds[0].nodes


def test_without_graphs_there_are_no_pictures() -> None:
    found = rewriting(replace(optimized(small()), graphs=None))
    assert found.pictures == ()
    assert found.changes
    assert all(c.picture is None for c in found.changes)


def test_what_was_measured_is_told_unless_the_original_is_kept() -> None:
    report, race = optimized(small()), Race("the result", 2.0, 1.9, 2.1, 7, 4e-3, 2e-3)
    assert rewriting(report).race is None
    assert rewriting(replace(report, measured=Measured("the result", race))).race == (4e-3, 2e-3)
    assert rewriting(replace(report, measured=Measured("original", race))).race is None


def test_nodes_have_the_price_of_the_target() -> None:
    (picture,) = rewriting(optimized(modules())).pictures
    for drawing in (picture.before, picture.after):
        assert drawing is not None
        seconds = {box.op: box.seconds for box in drawing.boxes}
        assert seconds["Input"] is None
        assert max(seconds, key=lambda op: seconds[op] or 0.0) == "MatMul"
    unpriced = rewriting(replace(optimized(modules()), priced_by=None)).pictures[0].after
    assert unpriced is not None
    assert all(box.seconds is None for box in unpriced.boxes)
