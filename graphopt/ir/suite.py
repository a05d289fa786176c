"""ONNX's own backend tests as models: one op each, or a few."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
"""The kinds of test whose models are in the onnx package."""


def suite() -> Iterator[tuple[str, Any]]:
    """The name and the model (an ``onnx.ModelProto``) of each test, in the suite's order."""
    import onnx
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tests are computed as they are made: overflow and division by zero
        cases = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    for case in cases:
        yield case.name, case.model or onnx.load(f"{case.model_dir}/model.onnx")
