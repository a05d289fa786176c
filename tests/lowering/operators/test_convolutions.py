import re

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import graphopt
from graphopt.lowering.operators import convolutions
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import cases_of, check


@pytest.mark.parametrize("case", cases_of(convolutions.TABLE))
def test_case(case: Case) -> None:
    check(case)


LAYERS = {
    "groups": ("float", "y = Conv<pads=[1,1,1,1], group=3>(x, {w:6,2,3,3}, {b:6})"),
    "groups_by_two": ("float", "y = Conv<pads=[0,1,2,1], strides=[2,2], group=2>(x, {w:4,3,3,3}, {b:4})"),
    "transposed": ("float", "y = ConvTranspose<strides=[2,2], pads=[1,1,1,1]>(x, {w:6,4,4,4}, {b:4})"),
    "depthwise": ("uint8", "y = QLinearConv<pads=[1,1,1,1], group=6>(x, s, z, {q:6,1,3,3}, s, t, r, z)"),
    "depthwise_by_two": (
        "uint8",
        "y = QLinearConv<pads=[2,2,2,2], strides=[2,2], dilations=[2,2], group=6>(x, s, z, {q:6,1,3,3}, s, t, r, z)",
    ),
}
SCALES = "float s={0.05}, float r={0.2}, uint8 z={120}, int8 t={0}"


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_images_of_any_size(name: str) -> None:
    """Beside ONNX Runtime, from images of few pixels to some that are wider than a tile."""
    kind, layer = LAYERS[name]
    rng, weights = np.random.default_rng(0), re.compile(r"\{(\w):([\d,]+)\}")
    nodes = weights.sub(r"\1", layer)
    text = f"g ({kind}[n,6,h,w] x) => ({kind}[n,c,p,q] y) <{SCALES}> {{ {nodes} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for weight, dims in weights.findall(layer):
        values = rng.integers(-9, 9, [int(d) for d in dims.split(",")])
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(values.astype(np.int8 if weight == "q" else np.float32), weight)
        )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    compiled = graphopt.compile(model, jobs=0)
    assert not compiled.report.unlowered
    for n, h, w in ((1, 3, 3), (2, 4, 1), (1, 1, 5), (3, 7, 17), (1, 6, 33), (0, 5, 5), (1, 5, 70)):
        x = rng.integers(0, 200, (n, 6, h, w)).astype(np.float32 if kind == "float" else np.uint8)
        try:
            (want,) = session.run(None, {"x": x})
        except Exception:  # it takes no image that is smaller than the windows
            continue
        np.testing.assert_allclose(compiled({"x": x})["y"], want, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("dims", ["n,9,h,w", "2,9,5,7"])
@pytest.mark.parametrize(
    "attrs", ["strides=[2,3], pads=[1,0,1,2], output_padding=[1,2]", "dilations=[2,1], pads=[1,1,0,1]", "strides=[2,2]"]
)
def test_transposed_windows_of_many_channels_meet_whole_images_first(dims: str, attrs: str) -> None:
    """Of phases that differ in the elements of the window, of rows that fill no vectors, and of images of any size."""
    rng = np.random.default_rng(0)
    node = f"y = ConvTranspose<{attrs}>(x, k, b)"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[{dims}] x) => (float[n,c,p,q] y) {{ {node} }}'
    )
    for name, shape in {"k": (9, 5, 3, 4), "b": (5,)}.items():
        weights = rng.integers(-9, 9, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    compiled = graphopt.compile(model, jobs=1)
    assert any("columns" in part.emitted.kernel.source for part in compiled.compiled.linked.parts)
    for n, h, w in ((2, 5, 6), (1, 1, 40), (0, 3, 3)) if "n" in dims else ((2, 5, 7),):
        x = rng.integers(-20, 20, (n, 9, h, w)).astype(np.float32)
        np.testing.assert_array_equal(compiled({"x": x})["y"], session.run(None, {"x": x})[0])
