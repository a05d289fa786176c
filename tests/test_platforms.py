"""Whole models on a simulated GPU give what ONNX Runtime gives."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import graphopt
import graphopt.runtime
from graphopt import platforms
from graphopt.compile import linked_for
from graphopt.errors import DeviceError, MissingDependencyError, ReadError, UsageError
from graphopt.ir.tolerance import error
from graphopt.kernels.cuda.simulated_device import SimulatedDevice
from graphopt.run.settings import Settings
from graphopt.runtime.saved import load_on
from graphopt.runtime.steps import LibraryStep
from graphopt.target import CPU, CUDA, ORT
from graphopt.tuning.database import Records
from tests.runtime.device_programs import LESS, SCALE

FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(7)


def weights(name: str, *shape: int) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32) / 4, name)


def model(
    nodes: list[onnx.NodeProto], x: list[int | str], y: list[int | str], *held: onnx.TensorProto, opset: int = 18
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, x)],
        [helper.make_tensor_value_info("y", FLOAT, y)],
        list(held),
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return bytes(made.SerializeToString())


def perceptron() -> bytes:
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Add", ["a", "b"], ["c"]),
        node("Relu", ["c"], ["d"]),
        node("MatMul", ["d", "v"], ["e"]),
        node("Softmax", ["e"], ["y"]),
    ]
    return model(nodes, ["n", 16], ["n", 7], weights("w", 16, 24), weights("b", 24), weights("v", 24, 7))


def images() -> bytes:
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("HardSwish", ["a"], ["c"]),
        node("Conv", ["c", "v"], ["d"], group=8, pads=[1, 1, 1, 1]),
        node("MaxPool", ["d"], ["e"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["e"], ["f"]),
        node("Mul", ["e", "f"], ["g"]),
        node("Transpose", ["g"], ["y"], perm=[0, 2, 3, 1]),
    ]
    held = weights("w", 8, 3, 3, 3), weights("b", 8), weights("v", 8, 1, 3, 3)
    return model(nodes, ["n", 3, 12, 12], ["n", 3, 3, 8], *held)


def rows() -> bytes:
    node = helper.make_node
    nodes = [
        node("LayerNormalization", ["x", "s", "b"], ["a"]),
        node("MatMul", ["a", "w"], ["c"]),
        node("Transpose", ["c"], ["d"], perm=[0, 2, 1]),
        node("MatMul", ["c", "d"], ["e"]),
        node("Softmax", ["e"], ["f"]),
        node("MatMul", ["f", "c"], ["g"]),
        node("Add", ["g", "x"], ["h"]),
        node("ReduceMean", ["h"], ["y"], keepdims=0),
    ]
    held = weights("s", 20), weights("b", 20), weights("w", 20, 20)
    return model(nodes, ["n", "m", 20], [], *held)


MODELS = {
    "perceptron": (perceptron, [(5, 16), (1, 16), (0, 16)]),
    "images": (images, [(2, 3, 12, 12), (1, 3, 12, 12)]),
    "rows": (rows, [(2, 6, 20), (1, 1, 20)]),
}


@pytest.mark.parametrize("dispatch", ["library", "own"])
@pytest.mark.parametrize("name", MODELS)
def test_a_simulated_gpu_computes_what_the_model_says(name: str, dispatch: str) -> None:
    made, shapes = MODELS[name]
    content = made()
    session = onnxruntime.InferenceSession(content)
    with graphopt.compile(content, target="simulated", dispatch=dispatch) as program:
        assert not program.report.unlowered
        for shape in shapes:
            x = RNG.standard_normal(shape).astype(np.float32)
            (want,) = session.run(None, {"x": x})
            assert error(want, program(x)["y"]) <= 1


@pytest.mark.parametrize(("made", "called"), [(perceptron, ["gemm"] * 2), (images, ["convolution"] * 2)])
def test_products_go_where_they_are_sent(made: Callable[[], bytes], called: list[str]) -> None:
    names = {}
    for dispatch in ("library", "own"):
        with graphopt.compile(made(), target="simulated", dispatch=dispatch) as program:
            steps = program.compiled.linked.steps
            names[dispatch] = [step.name for step in steps if isinstance(step, LibraryStep)]
    assert names == {"library": called, "own": []}


def test_there_are_three_ways_to_dispatch() -> None:
    with pytest.raises(UsageError, match="there are auto, library, own"):
        graphopt.compile(perceptron(), target="simulated", dispatch="cublas")


def test_a_program_for_a_gpu_is_saved_for_such_a_one(tmp_path: Path) -> None:
    content = perceptron()
    x = RNG.standard_normal((3, 16)).astype(np.float32)
    with graphopt.compile(content, target="simulated", dispatch="library") as program:
        want = program(x)["y"]
        program.save(tmp_path / "p")
    with platforms.load(tmp_path / "p") as loaded:
        np.testing.assert_array_equal(loaded(x)["y"], want)
        loaded.save(tmp_path / "again")
    for file in (tmp_path / "p").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()
    with pytest.raises(ReadError, match=r"compiled for a GPU \(simulated\), and is to run on a processor: compile"):
        graphopt.runtime.load(tmp_path / "p")
    other = SimulatedDevice()
    other.architecture = "sm_90"
    with pytest.raises(ReadError, match=r"compiled for a GPU \(simulated\), and is to run on a GPU \(sm_90\): compile"):
        load_on(other, tmp_path / "p")
    with graphopt.compile(content) as program:
        program.save(tmp_path / "host")
    with platforms.load(tmp_path / "host", threads=1) as loaded:
        np.testing.assert_allclose(loaded(x)["y"], want, atol=1e-6)
    with pytest.raises(ReadError, match=r"compiled for a processor, and is to run on a GPU \(sm_90\)"):
        load_on(other, tmp_path / "host")


@pytest.mark.usefixtures("linker")
def test_gpus_are_given_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba.cuda")
    monkeypatch.setattr(platforms, "gpu", lambda: SimpleNamespace(capability=(8, 6)))
    with platforms.Gpu().compiling(0) as compiling:
        compiling.begin(SCALE)
        first, other, again = compiling.objects([SCALE, LESS, SCALE])
    assert first == again != other
    for code in (first, other):
        assert code.startswith(b"\x7fELF")
        assert b".text.kernel" in code


@pytest.mark.parametrize(
    ("can", "flops", "processors"),
    [((7, 0), 67e12, 132), ((7, 5), 8.1e12, 40), ((8, 7), 31.2e12, 72), ((9, 0), 67e12, 132), ((10, 0), 67e12, 132)],
)
def test_prices_of_a_gpu_are_by_its_capability(
    can: tuple[int, int], flops: float, processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platforms, "gpu", lambda: SimpleNamespace(capability=can))
    prices = platforms.here(CUDA).prices
    assert (prices.flops, prices.processors) == (flops, processors)
    assert prices.products["gemm"].step == 2 / (0.85 * flops)


@pytest.fixture(params=[DeviceError, MissingDependencyError])
def no_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no GPU, or no package that finds one."""

    def gpu() -> None:
        raise request.param("there is none")

    monkeypatch.setattr(platforms, "gpu", gpu)


@pytest.mark.usefixtures("no_gpu")
def test_where_no_gpu_is_prices_are_those_that_the_target_comes_with() -> None:
    assert platforms.here(CUDA) == CUDA


@pytest.mark.usefixtures("no_gpu")
def test_where_no_gpu_is_kernels_are_written_though_there_is_a_database_of_tuned_schedules(tmp_path: Path) -> None:
    with Records(tmp_path / "tuned.sqlite", write=True):
        pass
    settings = Settings(target=CUDA, database=tmp_path / "tuned.sqlite")
    assert (
        linked_for(perceptron(), settings).kernels
        == linked_for(perceptron(), Settings(target=CUDA, tuned="off")).kernels
    )


@pytest.mark.parametrize(("lanes", "flops"), [(4, 29e9), (8, 58e9), (16, 117e9)])
def test_prices_of_the_processor_are_by_its_vectors(lanes: int, flops: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "lanes", lambda dtype: lanes)
    found = platforms.here(CPU)
    assert found.prices.flops == flops
    assert (found.prices == CPU.prices) == (lanes == 16)
    assert platforms.here(ORT) is ORT
