"""The page of primitives says what their docstrings say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphopt.lowering.schedule.primitives import ELSEWHERE, PRESENT, page, primitives
from graphopt.lowering.schedule.schedule import Schedule

PAGE = Path(__file__).parents[3] / "docs" / "schedules.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="the documentation is in a checkout only")
def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "run `python -m graphopt.lowering.schedule.primitives > docs/schedules.md`"
    )


def test_every_primitive_has_a_section() -> None:
    text, names = page(), [name for name, _ in primitives()]
    assert {"split", "tensorize", "rfactor", "get_block", "sample_perfect_tile"} <= set(names)
    assert all(hasattr(Schedule, name) for name in names)
    assert all(f"\n### `s.{name}(" in text for name in names)


def section(name: str) -> str:
    text = page()
    return text[text.index(f"### `s.{name}(") :].partition("\n### ")[0]


def test_an_example_is_the_program_before_the_step_and_the_program_after() -> None:
    text = section("fuse")
    assert text.count("```python\n") == text.count("\n```\n") == 1
    before, _, after = text.partition('\n\n# s.fuse("i0", "i1")\n')
    assert "```python\nfor i0, i1 in grid(4, 8):\n    with block(" in before
    assert after.startswith("for i0_i1 in serial(32):\n")
    assert "``" not in text.replace("```", "")
    assert "Before:" not in page()
    assert page().count("\n\n```python\n") == page().count("```python") == 36


def test_an_end_that_a_step_leaves_as_it_is_stands_for_itself() -> None:
    assert "```python\nfor i0, i1 in grid(4, 8):\n    ...\n\n# s.vectorize(" in section("vectorize")
    assert section("vectorize").endswith("    for i1 in vectorized(8):\n        ...\n```\n")


def test_examples_of_one_program_show_it_once() -> None:
    text = section("split")
    assert text.count("for i0 in serial(10):") == 1
    assert text.index('# s.split("i0", [None, 4])') < text.index('\n\n# s.split("i0", [None, 4], tail="short")\n')


def test_names_that_are_those_of_tvm_are_there() -> None:
    here = {name for name in dir(Schedule) if not name.startswith("_")}
    assert set(PRESENT.split()) <= here
    assert not {n for name in ELSEWHERE for n in name.split(", ")} & here - {"seed"}
    assert set(re.findall(r"`([a-z_]+)`", " ".join(ELSEWHERE.values()))) <= here
    assert all(f"`{name}`" in page() for name in PRESENT.split())
