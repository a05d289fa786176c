"""What exporters write stays right: each model of the corpus is optimized, and original and result agree.

One in ``SHARE`` of the models runs by default, for one target each. All of them take some minutes:
``pytest -m "slow or not slow" tests/test_corpus.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from graphopt.optimize import optimize
from tests.corpus.covered import CORPUS, models

pytest.importorskip("onnxruntime")

SHARE = 40
ALWAYS = ("torch/open_heads.onnx",)
"""Models that run by default as well: fewer transposes cost more here than they saved."""
LARGEST = 45_000
TARGETS = ("portable", "ort")


def cases() -> list[object]:
    """All models for both targets; those that are not run by default are marked."""
    found = [(name, target) for name, _ in models() for target in TARGETS]
    taken = {(name, TARGETS[i // SHARE % 2]) for i, (name, _) in enumerate(models()) if i % SHARE == 0}
    taken |= {(name, target) for name in ALWAYS for target in TARGETS}
    return [pytest.param(*case, marks=() if case in taken else pytest.mark.slow) for case in found]


@pytest.mark.parametrize(("name", "target"), cases())
def test_what_exporters_write_stays_right(name: str, target: str, in_a_process: None, tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    _, report = optimize(CORPUS / name, output=output, target=target, verify="require", return_report=True)
    assert report.verification.status == "verified"
    if report.cost_before is not None and not name.startswith("onnxscript"):
        # a call of a local function has no price, what it does has; what goes after elements has none either
        assert report.cost_after <= 1.001 * report.cost_before


def test_the_corpus_is_small() -> None:
    sizes = {name: path.stat().st_size for name, path in models()}
    assert sum(sizes.values()) < 3_000_000
    assert [name for name, size in sizes.items() if size > LARGEST] == []
