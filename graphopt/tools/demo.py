"""Demonstration: the model that comes with graphopt, optimized for ONNX Runtime and measured beside the original.

``tests/corpus/make_demo.py`` writes the model: an image classifier of random weights, as exporters write hard-swish.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

from graphopt.errors import MissingDependencyError
from graphopt.optimize import optimize
from graphopt.progress import Listener
from graphopt.run.derivation import journal_path
from graphopt.run.report import Report
from graphopt.runtime.onnxruntime import onnxruntime

MODEL = Path(__file__).with_name("demo.onnx")
"""The model."""
SECONDS = 1.0
"""How long original and result are measured: at the ratio that they have, the race is decided in less."""


def demonstrate(folder: Path, listener: Listener | None = None) -> Report:
    """The report of the model's optimization; model, result and journal are in the folder then.

    Raises MissingDependencyError where ONNX Runtime is not installed.
    """
    try:
        onnxruntime()
    except ImportError:
        raise MissingDependencyError("demo measures in ONNX Runtime: pip install 'graphopt[ort,report]'") from None
    model, output = folder / MODEL.name, folder / f"{MODEL.stem}.opt.onnx"
    shutil.copyfile(MODEL, model)
    _, report = optimize(
        model,
        output=output,
        journal=journal_path(output),
        target="ort",
        measure=SECONDS,
        return_report=True,
        listener=listener,
    )
    assert isinstance(report, Report)
    return report


def verdict(report: Report) -> str:
    """How much faster a result ran, and how equal its outputs are, in words."""
    measured, verification = report.measured, report.verification
    gain = "not measured"
    if measured is not None:
        is_faster = measured.kept != "original"
        gain = f"{measured.race.ratio:.1f}x as fast" if is_faster else "no faster, and the original is kept,"
    equal = "outputs not verified"
    if verification is not None and verification.is_verified:
        largest = verification.largest
        power = math.ceil(math.log10(largest.absolute)) if largest is not None and largest.absolute else None
        equal = "outputs equal" if power is None else f"outputs equal to 1e{power}"
    return f"{gain} in ONNX Runtime, measured here; {equal}"
