import numpy as np
import onnx.parser
import onnxruntime
import pytest

import graphopt
from graphopt.kernels.host import lanes
from graphopt.program.compiled_model import CompiledModel

LANES = lanes("float32")
SCALES = "float s={0.05}, float r={7.5}, uint8 z={120}, int8 t={3}"
OPS = {
    "average": ("float", "AveragePool<kernel_shape=[5,5], pads=[2,2,2,2]>(x)"),
    "average_with_pads": (
        "float",
        "AveragePool<kernel_shape=[3,2], pads=[1,0,1,1], strides=[2,1], ceil_mode=1, count_include_pad=1>(x)",
    ),
    "largest": ("float", "MaxPool<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(x)"),
    "largest_apart": ("float", "MaxPool<kernel_shape=[2,3], dilations=[2,2]>(x)"),
    "norm": ("float", "LpPool<kernel_shape=[2,2], p=1>(x)"),
    "bytes": ("uint8", "QLinearConv<pads=[3,3,3,3], strides=[2,2], group={c}>(x, s, z, q, s, t, r, z)"),
    "bytes_in_place": ("uint8", "QLinearConv<pads=[1,2,1,0], dilations=[1,2], group={c}>(x, s, z, q, s, t, r, z)"),
}


def _compiled(kind: str, op: str, dims: str, channels: int, threads: int = 1) -> tuple[CompiledModel, onnx.ModelProto]:
    node, rng = op.replace("{c}", str(channels)), np.random.default_rng(1)
    text = f"g ({kind}[{dims}] x) => ({kind}[n,c,p,q] y) <{SCALES}> {{ y = {node} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    if "(x, s" in op:
        weights = rng.integers(-128, 128, (channels, 1, 5, 3)).astype(np.int8)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "q"))
    return graphopt.compile(model, strict=True, threads=threads, optimize=False), model


def _image(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(2)
    if kind == "uint8":
        return rng.integers(0, 256, shape).astype(np.uint8)
    return rng.standard_normal(shape).astype(np.float32)


def _are_blocked(compiled: CompiledModel) -> bool:
    return any(b.name.startswith("blocks") for nest in compiled.nests.values() for b in nest.allocs)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("batch", ["n", "1"])
def test_windows_on_short_rows_are_of_many_channels_at_once(name: str, batch: str) -> None:
    """Beside ONNX Runtime: of rows shorter than a vector, of one to several vectors of channels."""
    kind, op = OPS[name]
    for channels, (h, w) in ((LANES, (8, 7)), (3 * LANES, (5, LANES - 1))):
        compiled, model = _compiled(kind, op, f"{batch},{channels},{h},{w}", channels)
        assert _are_blocked(compiled)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for n in (1, 3, 0) if batch == "n" else (1,):
            x = _image(kind, (n, channels, h, w))
            (want,) = session.run(None, {"x": x})
            got = compiled({"x": x})["y"]
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got.astype(np.float64), want, rtol=1e-5, atol=1e-5)


def test_longer_rows_and_other_channels_are_left_as_they_lie() -> None:
    kind, op = OPS["largest_apart"]
    for channels, width in ((LANES, LANES + 4), (LANES + 1, 7)):
        compiled, model = _compiled(kind, op, f"2,{channels},8,{width}", channels)
        assert not _are_blocked(compiled)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        x = _image(kind, (2, channels, 8, width))
        np.testing.assert_array_equal(compiled({"x": x})["y"], session.run(None, {"x": x})[0])


@pytest.mark.parametrize("name", ["average", "largest"])
def test_what_is_infinite_stays_in_its_windows(name: str) -> None:
    kind, op = OPS[name]
    x = _image(kind, (1, LANES, 6, 5))
    x[0, 1, 2, 3], x[0, 2, 0, 0], x[0, 3] = np.inf, -np.inf, -np.inf
    if name == "average":
        x[0, 4, 1, 1] = np.nan
    with np.errstate(invalid="ignore"):
        if name == "average":
            padded, there = (np.pad(a, [(0, 0), (0, 0), (2, 2), (2, 2)]) for a in (x, np.ones_like(x)))
            sums, counts = (np.lib.stride_tricks.sliding_window_view(a, (5, 5), (2, 3)) for a in (padded, there))
            want = sums.sum((-1, -2)) / counts.sum((-1, -2))
        else:  # the largest of minus infinities is none that ONNX Runtime finds
            padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
            want = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3)).max((-1, -2))[:, :, ::2, ::2]
    got = _compiled(kind, op, f"1,{LANES},6,5", LANES)[0]({"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["average", "bytes"])
def test_threads_share_channels(name: str) -> None:
    kind, op = OPS[name]
    x = _image(kind, (1, 4 * LANES, 6, 5))
    alone, shared = (_compiled(kind, op, f"1,{4 * LANES},6,5", 4 * LANES, threads)[0] for threads in (1, 2))
    np.testing.assert_array_equal(shared({"x": x})["y"], alone({"x": x})["y"])


@pytest.mark.parametrize("op", ["AveragePool", "AveragePool<count_include_pad=1>", "MaxPool", "LpPool"])
@pytest.mark.parametrize("attributes", ["strides=[9,9]", "strides=[9,9], pads=[1,1,1,1]", "strides=[6,8]"])
def test_a_window_may_be_larger_than_an_image_where_sizes_are_rounded_up(op: str, attributes: str) -> None:
    name, _, more = op.partition("<")
    given = f"kernel_shape=[9,9], ceil_mode=1, {attributes}" + (f", {more[:-1]}" if more else "")
    text = f"g (float[n,2,4,5] x) => (float[n,2,p,q] y) {{ y = {name}<{given}>(x) }}"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 19]> {text}')
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = _image("float", (3, 2, 4, 5))
    (want,) = session.run(None, {"x": x})
    np.testing.assert_allclose(graphopt.compile(model, strict=True)({"x": x})["y"], want, rtol=1e-5, atol=1e-6)
