"""The documentation does what it says: every block of every page, as ``tests/pages.py`` follows it.

Pages have nothing in common: with several workers each is followed by whichever is free (``tests/conftest.py``).
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lowering.cuda.simulated import launch
from tests.pages import DOCS, ROOT, blocks, follow, in_process, pages, provide

PAGES = [path.relative_to(ROOT).as_posix() for path in pages()]
APART = {"docs/cuda.md", "docs/tensor-programs.md"}
"""Pages of which more is tested than they say."""

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="the documentation is in a checkout only")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of whoever follows a page, with data and settings of its own."""
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / ".local"))
    monkeypatch.setenv("COLUMNS", "120")
    place = tmp_path / "reader"
    place.mkdir()
    monkeypatch.chdir(place)
    provide(place)
    return place


@pytest.mark.parametrize("page", [page for page in PAGES if page not in APART])
def test_the_page_does_what_it_says(page: str) -> None:
    follow(ROOT / page, in_process)


def test_the_fuser_of_tensor_programs_is_short() -> None:
    page = DOCS / "tensor-programs.md"
    follow(page, in_process)
    (text,) = (block.text for block in blocks(page) if block.text.startswith("class FuseDense"))
    assert len(ast.parse(text).body) == 1
    assert len(text.strip().splitlines()) <= 15


def test_the_ladder_of_cuda_runs_as_kernels_too() -> None:
    """The page interprets its steps; as kernels, threads wait where they have to."""
    known: dict[str, Any] = {"__name__": "cuda"}
    follow(DOCS / "cuda.md", in_process, known)
    for nest in known["small"].values():
        found = np.zeros((32, 32), np.float32)
        launch(nest, [known["A"], known["B"], found])
        assert np.allclose(found, known["A"] @ known["B"], atol=1e-5)
