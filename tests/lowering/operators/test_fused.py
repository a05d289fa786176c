"""Products with an activation against what the reference computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt.ir.constants import Array
from graphopt.lowering.operators.operation import NotLowered
from tests.lowering.operators.lowered import agree, computed

MS = "com.microsoft::"


def _floats(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


GEMMS: list[dict[str, Any]] = [
    {},
    {"activation": "Relu"},
    {"activation": "LeakyRelu", "activation_alpha": 0.3},
    {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4, "transB": 1},
]


@pytest.mark.parametrize("attrs", GEMMS)
def test_gemm(attrs: dict[str, Any]) -> None:
    b = _floats(4, 5) if attrs.get("transB") else _floats(5, 4)
    agree(MS + "FusedGemm", [_floats(3, 5), b, _floats(4)], alpha=0.5, **attrs)


def test_other_activations_are_left_to_reference() -> None:
    with pytest.raises(NotLowered, match="Softmax"):
        computed(MS + "FusedGemm", [_floats(3, 5), _floats(5, 4)], activation="Softmax")
