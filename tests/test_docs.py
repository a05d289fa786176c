"""The programs in the documentation run, block after block."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lowering.cuda.simulated import launch

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="the documentation is in a checkout only")


def run(page: str, known: dict[str, object]) -> None:
    """Runs the blocks of a page, as if they stood in one file at the lines where they stand in the page."""
    path = DOCS / page
    text = path.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        first = text[: block.start(1)].count("\n")
        exec(compile("\n" * first + block[1], str(path), "exec"), known)


def test_tensor_programs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    known: dict[str, object] = {"__name__": "tensor_programs"}
    run("tensor-programs.md", known)
    printed = capsys.readouterr().out
    for line in ("graph main (ir 10, opset 21)", "def dense_relu(", "zero: FuseDense, tidy, schedule"):
        assert line in printed


def test_the_builder_of_the_readme() -> None:
    known: dict[str, Any] = {"__name__": "readme"}
    path = DOCS.parent / "README.md"
    (block,) = (b[1] for b in BLOCK.finditer(path.read_text(encoding="utf-8")) if "GraphBuilder" in b[1])
    exec(compile(block, str(path), "exec"), known)
    assert np.array_equal(known["y"], np.full((2, 10), 65, np.float32))


def test_the_fuser_of_the_tutorial_is_short() -> None:
    text = (DOCS / "tensor-programs.md").read_text(encoding="utf-8")
    (block,) = (b[1] for b in BLOCK.finditer(text) if b[1].startswith("class FuseDense"))
    assert len(ast.parse(block).body) == 1
    assert len(block.strip().splitlines()) <= 15


def test_cuda() -> None:
    """The steps of the ladder, which the page interprets, run as kernels as well: threads wait where they have to."""
    known: dict[str, Any] = {"__name__": "cuda"}
    run("cuda.md", known)
    for nest in known["small"].values():
        found = np.zeros((32, 32), np.float32)
        launch(nest, [known["A"], known["B"], found])
        assert np.allclose(found, known["A"] @ known["B"], atol=1e-5)


def test_tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lightgbm")
    monkeypatch.chdir(tmp_path)
    run("tuning.md", {"__name__": "tuning"})
    assert "2 trials: " in capsys.readouterr().out
    assert (tmp_path / "mlp.sqlite").is_file()
