"""ONNX's own backend tests on a real GPU: all that do not need the network."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.interop.test_backend import FAILING, KINDS, run
from tests.onnx_suite import suite

pytestmark = pytest.mark.device
SHARES = 48


@pytest.mark.parametrize("first", range(SHARES))
def test_the_backend_suite(gpu: Any, first: int) -> None:
    wrong = []
    for case in suite(*KINDS)[first::SHARES]:
        if any(re.fullmatch(pattern, case.name) for pattern in FAILING):
            continue
        try:
            run(case, target="cuda")
        except Exception as problem:
            wrong.append(f"{case.name}: {type(problem).__name__}: {' '.join(str(problem).split())[:300]}")
    assert not wrong, "\n".join(wrong)
