"""Tensor programs are called on arrays of a real GPU, and on numpy's, which are sent there and fetched."""

from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule

pytestmark = pytest.mark.device

PRODUCT = """
@program
def mm_relu(A: Buffer[("m", "k"), "float32"], B: Buffer[("k", "n"), "float32"], C: Buffer[("m", "n"), "float32"],
            m: size, k: size, n: size):
    T = alloc((m, n), "float32")
    for i, j, p in grid(m, n, k):
        with block("T"):
            vi, vj, vp = axis.remap("SSR", [i, j, p])
            with init():
                T[vi, vj] = 0.0
            T[vi, vj] = T[vi, vj] + A[vi, vp] * B[vp, vj]
    for i2, j2 in grid(m, n):
        with block("C"):
            wi, wj = axis.remap("SS", [i2, j2])
            C[wi, wj] = max(T[wi, wj], 0.0)
"""


def by_hand() -> Nest:
    s = Schedule(read(PRODUCT))
    for block in ("T", "C"):
        outer, inner = s.split(s.get_loops(block)[1], [None, 32])
        s.bind(s.get_loops(block)[0], "blockIdx.y")
        s.bind(outer, "blockIdx.x")
        s.bind(inner, "threadIdx.x")
    return s.nest


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("made", [by_hand, lambda: read(PRODUCT)], ids=["by hand", "by rule"])
@pytest.mark.parametrize("sizes", [(3, 5, 4), (1, 1, 1), (130, 65, 257)])
def test_a_program_writes_the_array_that_it_is_given(gpu: Any, made: Any, sizes: tuple[int, int, int]) -> None:
    cupy = pytest.importorskip("cupy")
    nest, (m, k, n) = made(), sizes
    a, b = random(m, k), random(k, n)
    wanted = np.maximum(a @ b, 0)
    c = cupy.full((m, n), np.nan, "float32")
    for _ in range(3):
        assert nest(cupy.asarray(a), cupy.asarray(b), c) is None
    np.testing.assert_allclose(c.get(), wanted, rtol=1e-4, atol=1e-4)
    built, here = graphopt.build(nest, target="cuda"), np.full((m, n), np.nan, np.float32)
    built(a, cupy.asarray(b), here)
    np.testing.assert_allclose(here, wanted, rtol=1e-4, atol=1e-4)


def test_tensors_of_torch_are_written(gpu: Any) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    a, b = (torch.from_numpy(random(*shape)).cuda() for shape in ((64, 32), (32, 48)))
    c = torch.empty(64, 48, device="cuda")
    read(PRODUCT)(a, b, c)
    torch.testing.assert_close(c, (a @ b).relu(), rtol=1e-4, atol=1e-4)


def test_a_timing_waits_for_the_gpu(gpu: Any) -> None:
    cupy = pytest.importorskip("cupy")
    built = graphopt.build(read(PRODUCT), target="cuda")
    timing = built.time(m=4096, k=4096, n=4096, number=3)
    assert 1e-4 < timing.best < 1, "137 billion operations take a GPU some milliseconds, and a launch microseconds"
    a, b = cupy.asarray(random(512, 512)), cupy.asarray(random(512, 512))
    assert read(PRODUCT).time(a, b, cupy.empty((512, 512), "float32")).best < timing.best
