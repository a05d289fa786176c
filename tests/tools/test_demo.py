"""The demonstration runs as the README says, and its model is what its script writes."""

import sys
from pathlib import Path

import onnx
import pytest

from graphopt.errors import MissingDependencyError
from graphopt.run.report import Measured, Race, Report
from graphopt.tools.demo import MODEL, demonstrate, verdict
from graphopt.verify.verification import Largest, Verification
from tests.corpus.make_demo import demo_model

MOST = 2_000_000
"""Bytes that the model may take in the wheel."""


def test_the_model_is_what_its_script_writes() -> None:
    assert onnx.load(MODEL) == demo_model()
    onnx.checker.check_model(demo_model(), full_check=True)
    assert MODEL.stat().st_size < MOST


def report(kept: str, difference: float | None) -> Report:
    race = Race(kept, 1.84, 1.8, 1.9, 7)
    largest = None if difference is None else Largest(difference, difference, "y", (0,), 0)
    verification = Verification("verified", error=difference, largest=largest)
    return Report("m.onnx", "ort", "reals", measured=Measured(kept, race), verification=verification)


@pytest.mark.parametrize(
    ("kept", "difference", "words"),
    [
        ("the result", 7.5e-8, "1.8x as fast in ONNX Runtime, measured here; outputs equal to 1e-7"),
        ("portable", None, "1.8x as fast in ONNX Runtime, measured here; outputs equal"),
        ("original", 0.0, "no faster, and the original is kept, in ONNX Runtime, measured here; outputs equal"),
    ],
)
def test_the_verdict_is_one_line(kept: str, difference: float | None, words: str) -> None:
    assert verdict(report(kept, difference)) == words


def test_without_onnx_runtime_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'graphopt\[ort,report\]'"):
        demonstrate(tmp_path)
    assert not list(tmp_path.iterdir())
