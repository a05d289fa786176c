"""Models of applications, as exporters write them, are compiled: no node is left to ONNX Runtime, and results agree."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest

import graphopt
from tests.corpus.make_applications import MODELS, made

Feeds = dict[str, np.ndarray]
INPUTS: dict[str, Callable[[np.random.Generator, int], Feeds]] = {
    "detector": lambda r, k: {"image": r.standard_normal((1 + k, 3, 33, 40 + k), np.float32)},
    "reader": lambda r, k: {"image": r.standard_normal((1 + k, 3, 20, 61 + 9 * k), np.float32)},
    "segments": lambda r, k: {"image": r.standard_normal((1 + k, 3, 37, 45 + k), np.float32)},
    "speech": lambda r, k: {"wave": r.standard_normal((1 + k, 100 + 7 * k), np.float32)},
    "spoken": lambda r, k: {"letters": r.integers(0, 10, (1 + k, 5 + k)), "speed": np.array(1.1, np.float32)},
    "table_grows": lambda r, k: {"image": r.standard_normal((1 + k, 8, 3, 4 + k), np.float32)},
    "table_sets": lambda r, k: {"image": r.standard_normal((1 + k, 8, 3, 4 + k), np.float32)},
    "tagger": lambda r, k: {"words": r.integers(0, 20, (1 + k, 7 + k))},
}


@pytest.mark.parametrize("name", MODELS)
def test_applications_are_compiled_and_agree(name: str) -> None:
    model, rng = made(name), np.random.default_rng(0)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    compiled = graphopt.compile(model, jobs=0)
    assert not compiled.report.unlowered
    for k in (0, 1, 0):
        feeds = INPUTS[name](rng, k)
        found = compiled(feeds)
        for output, want in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(found[output.name], want, rtol=1e-4, atol=1e-5, err_msg=output.name)
