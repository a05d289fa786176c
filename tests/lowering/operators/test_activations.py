"""Activations against ONNX's cases, far from zero, and in half precision."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.op_table import OPS
from graphopt.ir.ops import schema as schema_of
from graphopt.lowering.operators.activations import TABLE
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered

FAR = np.array([-1e30, -200, -90, -20, -3, -1e-6, 0, 1e-6, 0.5, 3, 20, 90, 200, 1e30], np.float32)


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


@pytest.mark.parametrize(
    "op", sorted((TABLE.keys() | {"Sigmoid", "Tanh"}) - {"PRelu", "PRelu@6", "SwiGLU", "com.microsoft::BiasGelu"})
)
def test_no_activation_overflows(op: str) -> None:
    schema = schema_of(op)
    assert schema is not None
    given = {name: 0.75 for name, default in schema.defaults.items() if default is None}
    got = computed(op, [FAR], **given)[0]
    assert np.isfinite(got).all()
    if op in ("Relu", "Softplus", "HardSwish", "Gelu", "Elu", "Selu", "Mish", "Swish"):
        slope = {"Selu": 1.0507009873554805}.get(op, 1.0)
        assert np.allclose(got[-3:], FAR[-3:] * slope, rtol=1e-6)


@pytest.mark.parametrize("op", sorted(op for op, row in OPS.items() if row.means))
def test_what_a_row_says_is_lowered(op: str) -> None:
    schema = OPS[op].schema
    assert schema is not None
    inputs = [np.linspace(-4 - k, 4, 17, dtype=np.float32) for k, _ in enumerate(schema.inputs.split())]
    agree(op, inputs, **dict.fromkeys(schema.attributes, 0.75))


def test_softplus_keeps_its_digits_far_below_zero() -> None:
    got = computed("Softplus", [np.array([-80.0], np.float32)])[0]
    assert np.allclose(got, np.exp(np.float64(-80)), rtol=1e-4, atol=0)


@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Tanh", "Softplus", "LeakyRelu", "Elu", "Gelu", "HardSigmoid"])
def test_half_precision(op: str) -> None:
    agree(op, [np.linspace(-4, 4, 9).astype(np.float16)])


@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSigmoid", "Softsign"])
def test_nan_stays(op: str) -> None:
    assert np.isnan(computed(op, [np.array([np.nan], np.float32)])[0]).all()


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("LeakyRelu", {"alpha": 1.5}),
        ("LeakyRelu", {"alpha": -0.5}),
        ("Celu", {"alpha": 2.0}),
        ("Elu", {"alpha": 0.25}),
        ("Selu", {"alpha": 2.0, "gamma": 3.0}),
        ("ThresholdedRelu", {"alpha": 2.0}),
        ("Shrink", {"lambd": 1.5, "bias": 0.5}),
        ("HardSigmoid", {"alpha": 0.5, "beta": 0.1}),
        ("Gelu", {"approximate": "tanh"}),
        ("com.microsoft::QuickGelu", {"alpha": 1.0}),
    ],
)
def test_attributes(op: str, attrs: dict[str, float | str]) -> None:
    agree(op, [np.linspace(-4, 4, 17, dtype=np.float32)], **attrs)


def test_integers_are_shrunk_and_rectified() -> None:
    agree("Relu", [np.array([-3, 0, 5], np.int32)])
    agree("Shrink", [np.array([-3, -1, 0, 1, 5], np.int32)], lambd=1.5, bias=1.0)
    agree("Shrink", [np.array([-3, -1, 0, 1, 5], np.int32)], lambd=-0.5, bias=0.5)


@pytest.mark.parametrize("op", ["com.microsoft::BiasGelu", "com.microsoft::FastGelu"])
def test_biases_broadcast(op: str) -> None:
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(2, 2, 3)
    bias = np.array([1, 0, -1], np.float32)
    agree(op, [x, bias], [("b", "s", 3), (3,)])


def test_slopes_broadcast() -> None:
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(2, 2, 3)
    agree("PRelu", [x, np.array([[0.5], [2]], np.float32)], [("n", 2, 3), (2, 1)])


def test_slopes_of_channels() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4)).astype(np.float32)
    slopes = np.array([0.5, 2, -1], np.float32)
    (got,) = computed("PRelu@6", [x, slopes])
    np.testing.assert_array_equal(got, np.where(x < 0, x * slopes[:, None], x))
