"""The page of primitives says what their docstrings say."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphopt.lowering.schedule.primitives import page, primitives
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


def test_programs_stand_in_fences() -> None:
    text = page()
    section = text[text.index("### `s.fuse(") :]
    section = section[: section.index("\n### ")]
    assert section.count("```python\n") == section.count("\n```\n") == 2
    assert 'After `s.fuse("i0", "i1")`:' in section
    assert "``" not in section.replace("```", "")
