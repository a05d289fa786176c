"""Shape arithmetic: what exporters compute are functions of the inputs' sizes, just as the runtime computes them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, RuntimeException

from graphopt.ir import onnx_io
from graphopt.ir.infer import infer
from graphopt.ir.types import Size, Truncated, substitute, symbols
from tests import size_patterns


def shape_of(proto: onnx.ModelProto) -> tuple[Size, ...]:
    """The shape of a model's first output, as functions of the inputs' sizes."""
    graph = onnx_io.load(proto)
    shape = infer(graph, is_model=True)[graph.outputs[0]].shape  # type: ignore[index]
    assert shape is not None
    return shape


@pytest.mark.parametrize("name", size_patterns.PATTERNS)
def test_computed_sizes_are_functions_of_the_inputs_sizes(name: str) -> None:
    for seed in range(3):
        proto = size_patterns.model(size_patterns.PATTERNS[name], seed)
        shape = shape_of(proto)
        assert {symbol for size in shape for symbol in symbols(size)} <= set("bhwpqn"), (seed, shape)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        rng, runs = np.random.default_rng(seed), 0
        while runs < 4:
            sizes = size_patterns.drawn_sizes(rng)
            try:
                result = session.run(None, size_patterns.feeds(proto, sizes))[0]
            except (RuntimeException, Fail):  # the model is not for these sizes
                continue
            runs += 1
            assert tuple(substitute(size, dict(sizes)) for size in shape) == result.shape, (seed, sizes, shape)


def _scaled(scale: float, op: str, size: str = "n") -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]> g (float[{size}] x) => (float[m] y)
    <float s = {{{scale!r}}}> {{ a = Shape(x) b = Cast<to=1>(a) c = Mul(b, s) d = {op}(c) e = Cast<to=7>(d)
    y = ConstantOfShape(e) }}""")


@pytest.mark.parametrize("scale", [0.7, 1 / 3, 1.1, 0.3])
def test_a_scale_that_is_no_fraction_is_rounded_as_the_runtime_rounds(scale: float) -> None:
    proto = _scaled(scale, "Floor")
    (size,) = shape_of(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    exact = 0
    for n in (*range(1, 200), 4095, 100_003):
        (result,) = session.run(None, {"x": np.zeros(n, np.float32)})
        assert substitute(size, {"n": n}) == len(result)
        exact += int(n * scale) == len(result)
    assert isinstance(size.terms[0][0][0], Truncated)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("scale", "op", "expected"),
    [
        (0.5, "Floor", "((n) // (2))"),
        (2.0, "Floor", "2*n"),
        (1.5, "Floor", "((n) // (2)) + n"),
        (0.5, "Ceil", "((n + 1) // (2))"),
        (4.0, "Round", "4*n"),
    ],
)
def test_what_is_exact_is_written_in_whole_numbers(scale: float, op: str, expected: str) -> None:
    assert str(shape_of(_scaled(scale, op))[0]) == expected
