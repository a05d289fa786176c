"""Programs on a real GPU: hand-written kernels, library calls, arrays of cupy and torch, and what goes wrong."""

import gc
import multiprocessing
from functools import partial
from typing import Any

import numpy as np
import pytest

from graphopt.errors import DeviceError, DeviceMemoryError, ExecutionError, InputError
from graphopt.kernels.cuda.compile import assemble, ptx
from graphopt.kernels.cuda.machine import has_cublas_lt
from graphopt.kernels.cuda.simulated_library import gemm as reference
from graphopt.kernels.kernel import Kernel
from graphopt.runtime.library_calls import Gemm
from graphopt.runtime.steps import Bind, Branch, BufferRef, HostStep, LibraryStep, LoopStep, ProgramBuffer
from tests.runtime import device_programs
from tests.runtime.device_programs import COUNT, FAIL, LESS, REVERSE, STEP, attributes_of, floats, launch, scale

pytestmark = pytest.mark.device


def f32(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


@pytest.fixture
def options(gpu: Any) -> dict[str, Any]:
    def code_of(kernel: Kernel) -> bytes:
        return assemble([ptx(kernel, gpu.capability)], gpu.capability)[0].code

    return {"device": gpu, "code_of": code_of}


@pytest.fixture
def program(options: dict[str, Any]) -> Any:
    return partial(device_programs.program, **options)


@pytest.fixture
def chain(options: dict[str, Any]) -> Any:
    return device_programs.chain(**options)


def test_sizes_come_with_the_inputs_and_what_comes_again_is_replayed(chain: Any) -> None:
    for n in (5, 0, 1, 4, 5, 5, 5, 100_000, 5):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(chain(x)["y"], (x * 2 + 1) * 3 + 5)
    stretch = next(iter(chain._state._stretches.values()))
    assert any(capture not in (None, stretch._launch) for capture in stretch._captures.values())


def test_arrays_of_the_gpu_are_used_in_place(chain: Any) -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(1000, dtype="float32")
    wanted = (np.arange(1000) * 2 + 1) * 3 + 5
    for _ in range(4):
        np.testing.assert_array_equal(chain(x)["y"].get(), wanted)
    out = cupy.zeros(1000, "float32")
    assert chain(x, out={"y": out})["y"] is out
    np.testing.assert_array_equal(out.get(), wanted)
    # no row-major array, and none that is aligned
    np.testing.assert_array_equal(chain(cupy.arange(2000, dtype="float32")[::2])["y"].get(), np.arange(1000) * 12 + 8)
    np.testing.assert_array_equal(chain(x[1:])["y"].get(), wanted[1:])
    with pytest.raises(InputError, match="float64"):
        chain(x.astype("float64"))


def test_work_before_and_after_a_call_is_in_order(chain: Any) -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.zeros(1 << 24, "float32")
    for n in range(5):
        x += 1  # not waited for
        found = chain(x)["y"] * 2
        assert float(found[-1]) == 2 * ((n + 1) * 6 + 8)
        assert float(chain(x[::2])["y"][-1]) == (n + 1) * 6 + 8  # a copy, which is not waited for either


def test_tensors_of_torch(chain: Any) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    found = chain(torch.ones(1000, device="cuda"))["y"]
    assert (torch.from_dlpack(found) == 14).all()


def test_torchs_side_streams_are_in_order(chain: Any) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.zeros(1 << 24, device="cuda")
        y = torch.empty_like(x)
        for n in range(5):
            x += 1  # not waited for
            chain(x, out={"y": y})
            assert float(y[-1]) == (n + 1) * 6 + 8
            assert float(torch.from_dlpack(chain(x)["y"])[-1]) == (n + 1) * 6 + 8


def test_a_forked_process_is_told_to_spawn(chain: Any) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_told, args=(chain, theirs))
    process.start()
    assert ours.poll(60)
    assert "start processes by" in ours.recv()
    process.kill()
    process.join()


def _told(run: Any, pipe: Any) -> None:
    try:
        run(f32(1))
    except DeviceError as error:
        pipe.send(str(error))


def test_a_closed_program_takes_its_kernels_along(gpu: Any, chain: Any) -> None:
    chain(f32(1))
    gc.collect()  # programs of other tests have the same kernels
    before = len(gpu._loaded)
    chain.close()
    assert len(gpu._loaded) < before
    assert not gpu._dropped


def test_branches_loops_sizes_and_host_steps(program: Any) -> None:
    buffers = [
        floats("input", "n"),
        ProgramBuffer("int64", (), "arena"),
        floats("output", "n"),
        ProgramBuffer("bool", (), "arena"),
        floats("output", "k"),
        floats("host", "n"),
        floats("output", "n"),
    ]
    body = (launch(STEP, (BufferRef(2), BufferRef(1)), 1, 3), launch(LESS, (BufferRef(2), BufferRef(3), 10)))
    steps = [
        scale(0, 2, 1, 0),
        launch(LESS, (BufferRef(2), BufferRef(3), 10)),
        Branch(3, (LoopStep(body, 1, 9, 3),), (scale(0, 2, 2, 0),)),
        launch(COUNT, (BufferRef(0), BufferRef(1), "n")),
        Bind(("k",), 1),
        scale(0, 4, 1, 1, "k"),
        HostStep("reverse", (2,), (5,)),
        scale(5, 6, 1, 0),
    ]
    run = program(buffers, steps, {"x": 0}, {"y": 2, "z": 4, "w": 6}, functions={"reverse": lambda x: x[::-1]})
    for x in (f32(1, 2, -1), f32(20, -2, -1), f32(1, 2, 3), f32(1, 2, 3)):
        wanted, done = x.copy(), 0
        while wanted[0] < 10 and done < 9:
            wanted += done
            done += 1
        wanted = x * 2 if x[0] >= 10 else wanted
        found = run(x)
        np.testing.assert_array_equal(found["y"], wanted)
        np.testing.assert_array_equal(found["z"], (x + 1)[: (x > 0).sum()])
        np.testing.assert_array_equal(found["w"], wanted[::-1])


def test_threads_share_memory(program: Any) -> None:
    run = program(
        [floats("input", 8), floats("output", 8)],
        [launch(REVERSE, (BufferRef(0), BufferRef(1)), 2, 4)],
        {"x": 0},
        {"y": 1},
    )
    np.testing.assert_array_equal(run(np.arange(8, dtype=np.float32))["y"], [3, 2, 1, 0, 7, 6, 5, 4])


def test_a_kernel_that_fails_says_so_and_the_next_call_is_well(program: Any) -> None:
    step = launch(FAIL, (BufferRef(0),), 1, 2, label="look up", messages=("one", "an index is negative"))
    run = program([floats("input", 2), floats("output", 2)], [step, scale(0, 1, 1, 0, 2)], {"x": 0}, {"y": 1})
    for _ in range(3):
        with pytest.raises(ExecutionError, match="look up: an index is negative"):
            run(f32(1, -1))
        np.testing.assert_array_equal(run(f32(1, 1))["y"], [1, 1])


def test_no_memory_left_and_blocks_that_are_too_large(program: Any, chain: Any) -> None:
    run = program(
        [floats("input", "n"), floats("arena", ("*", "n", 1 << 44)), floats("output", "n")],
        [scale(0, 1, 1, 0), scale(1, 2, 1, 0)],
        {"x": 0},
        {"y": 2},
    )
    with pytest.raises(DeviceMemoryError, match=r"wants \d+ bytes .* of the GPU's memory, and \d+ of \d+ are free"):
        run(f32(1))
    np.testing.assert_array_equal(chain(f32(1))["y"], [14])
    greedy = launch(REVERSE, (BufferRef(0), BufferRef(1)), 1, 1 << 20)
    with pytest.raises(DeviceError, match="and 1048576 are asked for: use smaller blocks"):
        program([floats("input", 8), floats("output", 8)], [greedy], {"x": 0}, {"y": 1})
    np.testing.assert_array_equal(chain(f32(1))["y"], [14])


EPILOGUES = [{}, {"has_bias": True, "epilogue": "relu"}, {"has_bias": True, "epilogue": "gelu_tanh"}]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("finish", EPILOGUES, ids=["plain", "relu", "gelu"])
def test_products_of_the_library(program: Any, dtype: str, transposed: Any, finish: Any) -> None:
    if finish and (not has_cublas_lt() or dtype == "float64"):
        pytest.skip("nvmath-python is not installed, or does not do this")
    function = Gemm(dtype, *transposed, **finish)
    draw, batch, m, n, k = np.random.default_rng(3).standard_normal, 3, 24, 40, 16
    a, b, bias = (draw(shape).astype(dtype) for shape in ((batch, m, k), (batch, k, n), (n,)))
    a = a.swapaxes(1, 2).copy() if function.transpose_a else a
    b = b.swapaxes(1, 2).copy() if function.transpose_b else b
    given = [a, b, bias]
    buffers = [ProgramBuffer(dtype, x.shape, "input") for x in given] + [ProgramBuffer(dtype, (batch, m, n), "output")]
    rest = (m, n, k, a.shape[2], b.shape[2], n, batch, m * k, k * n, m * n)
    places = (BufferRef(0), BufferRef(1), BufferRef(3), *((BufferRef(2),) if function.has_bias else ()))
    step = LibraryStep("gemm", (*places, *rest), attributes_of(function))
    run = program(buffers, [step], {"a": 0, "b": 1, "bias": 2}, {"c": 3})
    wanted = np.zeros((batch, m, n), dtype)
    memory = [a, b, wanted, *([bias] if function.has_bias else [])]
    words = dict(zip(function.params, (*range(len(memory)), *rest), strict=True))
    reference(function, words, lambda at, dtype: memory[at].reshape(-1))
    close = {"float16": 4e-3, "float32": 1e-5, "float64": 1e-12}[dtype]
    for _ in range(3):
        np.testing.assert_allclose(run(*given)["c"], wanted, rtol=close, atol=close)


def test_a_product_between_two_kernels_waits_and_is_waited_for(program: Any) -> None:
    n = 1024
    buffers = [floats(place, n * n) for place in ("input", "arena", "constant", "arena", "output")]
    turned = np.eye(n, dtype=np.float32)[::-1].copy()
    product = LibraryStep(
        "gemm", (BufferRef(1), BufferRef(2), BufferRef(3), n, n, n, n, n, n, 1, 0, 0, 0), attributes_of(Gemm())
    )
    steps = [scale(0, 1, 2, 1, n * n), product, scale(3, 4, 3, 5, n * n)]
    run = program(buffers, steps, {"x": 0}, {"y": 4}, {2: turned.reshape(-1)})
    for call in range(4):  # the second is captured, those after it are replayed
        x = np.arange(n * n, dtype=np.float32) % 100 + call
        wanted = (x * 2 + 1).reshape(n, n)[:, ::-1] * 3 + 5
        np.testing.assert_array_equal(run(x)["y"], wanted.reshape(-1))
    stretch = next(iter(run._state._stretches.values()))
    assert any(capture not in (None, stretch._launch) for capture in stretch._captures.values())


def test_profiles_are_by_the_gpus_clock(chain: Any) -> None:
    rows = chain.profile(np.zeros(1 << 20, np.float32))
    assert [r.runs for r in rows] == [1, 1, 1]
    assert all(0 < r.seconds < 0.1 for r in rows)
