"""Models of applications, as exporters write them, are compiled: no node is left to ONNX Runtime, and results agree."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import graphopt
from graphopt.verify.arrays import comparable
from graphopt.verify.conditioning import off
from tests.corpus import make_tables
from tests.corpus.make_applications import MODELS, QUANTIZED, feeds, made

LARGE = {
    "classifier",
    "classifier_16",
    "classifier_dynamic",
    "classifier_s8s8",
    "classifier_u8s8",
    "depth",
    "detector",
    "detector_paddle",
    "detector_tf",
    "detector_torchvision",
    "detector_yolo",
    "enlarge",
    "faces",
    "keypoints",
    "lengths",
    "letters",
    "masks",
    "reader",
    "regions_pyramid",
    "segments",
    "speech",
    "spoken",
    "table_grows",
    "tagger",
    "tagger_200",
    "tagger_tree",
    "text_regions",
    "vits",
    "voices",
    "whisper",
}
"""Those with many kernels, which take 2 seconds and more to compile. By default the others see what goes wrong in them,
with the tests of their ops (``tests/lowering/operators``) and of sizes and loops (``tests/lowering/link``)."""
NAMES = [pytest.param(n, marks=[pytest.mark.slow] if n in LARGE else []) for n in (*MODELS, *QUANTIZED)]


@pytest.mark.parametrize("name", NAMES)
def test_applications_are_compiled_and_agree(name: str, request: pytest.FixtureRequest) -> None:
    if name in QUANTIZED:
        request.getfixturevalue("exact_integers")
    model = made(name)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    compiled = graphopt.compile(model, jobs=0)
    assert not compiled.report.unlowered
    tolerance = 0.03 if name in QUANTIZED else 1e-5  # where one number is rounded the other way, so is what follows
    for k in range(3):
        given = feeds(model, k)
        found = compiled(given)
        for output, want in zip(session.get_outputs(), session.run(None, given), strict=True):
            np.testing.assert_allclose(found[output.name], want, rtol=1e-4, atol=tolerance, err_msg=output.name)


@pytest.mark.parametrize("name", make_tables.MODELS)
def test_models_of_tables_are_compiled_and_agree(name: str) -> None:
    model = make_tables.made(name).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    compiled = graphopt.compile(model, jobs=0, cache=False)
    assert compiled.report.verification.status == "verified"
    assert not compiled.report.unlowered
    for rows in (1, 7, 300):
        x = np.random.default_rng(rows).standard_normal((rows, make_tables.FEATURES)).astype(np.float32)
        found = compiled({"X": x})
        for output, want in zip(session.get_outputs(), session.run(None, {"X": x}), strict=True):
            if isinstance(want, np.ndarray) and want.dtype == object:
                assert found[output.name].tolist() == want.tolist()
            else:
                assert off(comparable(want), comparable(found[output.name])) <= 1, output.name
