"""The simulation of kernels for GPUs: what threads do together, and what it does not forgive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt.errors import ExecutionError
from graphopt.kernels.cuda.simulate import run
from graphopt.kernels.kernel import Kernel

HEAD = "from math import inf\nfrom graphopt.kernels.cuda.functions import barrier\n"


def kernel(body: str, params: str = "X Y") -> Kernel:
    """A kernel over float32 arrays with capital names, and sizes."""
    names = params.split()
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    source = f'"""a test"""\n{HEAD}\ndef kernel({", ".join(names)}):\n{lines}\n'
    return Kernel(source, tuple("float32" if n.isupper() else "size" for n in names))


def simulated(body: str, x: Any = (), threads: int = 4, blocks: int = 1, size: int | None = None) -> Any:
    """What a kernel over X writes to Y."""
    given = np.array(x, "float32")
    result = np.zeros(threads * blocks if size is None else size, "float32")
    run(kernel(body), (blocks,), (threads,), (given, result))
    return result


def test_blocks_and_threads_have_numbers() -> None:
    result = np.full(2 * 3 * 4 * 5, -1, "float32")
    body = """
i = block_y() * 3 + block_x()
j = thread_z() * 2 + thread_x()
Y[i * 20 + j * 5 + thread_y()] = float32(i * 100 + j * 10 + thread_y())
"""
    run(kernel(body, "Y"), (3, 2), (2, 5, 2), (result,))
    want = [i * 100 + j * 10 + k for i in range(6) for j in range(4) for k in range(5)]
    np.testing.assert_array_equal(result, np.array(want, "float32"))


def test_only_some_blocks_are_run() -> None:
    result = np.zeros(4, "float32")
    run(kernel("Y[block_y() * 2 + block_x()] = float32(1)", "Y"), (2, 2), (1,), (result,), [(0, 0, 0), (1, 1, 0)])
    np.testing.assert_array_equal(result, np.array([1, 0, 0, 1], "float32"))


REVERSED = """
S = shared(4, float32)
t = thread_x()
S[t] = X[t]
barrier()
Y[t] = S[3 - t]
"""


def test_what_is_shared_is_seen_behind_a_barrier() -> None:
    np.testing.assert_array_equal(simulated(REVERSED, [1, 2, 3, 4]), [4, 3, 2, 1])


@pytest.mark.parametrize("threads", [2, 4])
def test_a_barrier_that_is_missing_is_an_error(threads: int) -> None:
    body = REVERSED.replace("barrier()\n", "").replace("3 - t", f"{threads - 1} - t")
    with pytest.raises(ExecutionError, match=r"another thread .*no barrier between"):
        simulated(body, [1, 2, 3, 4], threads)


def test_a_second_round_needs_a_barrier_too() -> None:
    body = """
S = shared(4, float32)
t = thread_x()
for k in range(2):
    S[t] = X[t] + float32(k)
    barrier()
    Y[t] = S[3 - t]
    LAST
"""
    np.testing.assert_array_equal(simulated(body.replace("LAST", "barrier()"), [1, 2, 3, 4]), [5, 4, 3, 2])
    with pytest.raises(ExecutionError, match=r"element . of shared memory 1 that another thread \w+, with no barrier"):
        simulated(body.replace("LAST", "pass"), [1, 2, 3, 4])


def test_a_barrier_that_some_do_not_reach_is_an_error() -> None:
    with pytest.raises(ExecutionError, match=r"a barrier is reached by 3 of 4 threads of \(0, 0, 0\)"):
        simulated("if thread_x() < 3:\n    barrier()")


@pytest.mark.parametrize(
    ("access", "said"),
    [
        ("Y[0] = X[thread_x() - 1]", "reads element -1 of X, which has 4, in thread .0, 0, 0."),
        ("Y[0] = X[thread_x() + 1]", "reads element 4 of X, which has 4, in thread .3, 0, 0. of block .0, 0, 0."),
        ("Y[thread_x() - 1] = X[0]", "writes element -1 of Y"),
        ("Y[thread_x() * 2] = X[0]", "writes element 4 of Y"),
        ("S = shared(3, float32)\nS[thread_x()] = X[0]", "writes element 3 of shared memory 1, which has 3"),
        ("R = local(2, float32)\nR[thread_x()] = X[0]", "writes element 2 of local memory"),
        ("Y[0] = offset(X, 2)[2]", "reads element 4 of X"),
        ("load4(X, 1)", "accesses 4 elements from 1 of X on: not aligned"),
        ("store2(Y, 1, (X[0], X[1]))", "accesses 2 elements from 1 of Y on: not aligned"),
        ("store2(Y, 0, (X[0], X[1], X[2]))", "ValueError"),
        ("Y[0] = nobody(X[0])", "NameError: name 'nobody' is not defined"),
        ("S = shared(12289, float32)", "49156 bytes of shared memory: expected at most 49152"),
    ],
)
def test_what_a_gpu_would_not_forgive_is_an_error(access: str, said: str) -> None:
    with pytest.raises(ExecutionError, match=said):
        simulated(access, [1, 2, 3, 4])


@pytest.mark.parametrize("memory", ["shared", "local"])
def test_memory_that_nobody_wrote_holds_garbage(memory: str) -> None:
    result = np.zeros(1, "float32")
    number = np.zeros(1, "int8")
    body = f"Y[0] = {memory}(3, float32)[2]\nN[0] = {memory}(3, int8)[2]"
    made = kernel(body, "Y N")
    run(Kernel(made.source, ("float32", "int8")), (1,), (1,), (result, number))
    assert np.isnan(result[0])
    assert number[0] == 0x5A


def test_each_call_shares_memory_of_its_own() -> None:
    body = """
S, T = shared(4, float32), shared(4, float32)
S[thread_x()] = X[thread_x()]
T[thread_x()] = X[thread_x()] * float32(2.0)
barrier()
Y[thread_x()] = S[0] + T[3]
"""
    np.testing.assert_array_equal(simulated(body, [1, 2, 3, 4]), [9, 9, 9, 9])


def test_blocks_share_nothing() -> None:
    body = """
S = shared(1, float32)
if block_x() == 0:
    S[0] = X[0]
Y[block_x()] = S[0]
"""
    np.testing.assert_array_equal(simulated(body, [7], 1, 2), [7, np.nan])


def test_neighbours_are_accessed_at_once() -> None:
    body = """
p = offset(X, 4 * thread_x())
a, b, c, d = load4(p, 0)
store4(Y, 4 * thread_x(), (d, c, b, a))
"""
    want = np.arange(16, dtype="float32").reshape(4, 4)[:, ::-1].ravel()
    np.testing.assert_array_equal(simulated(body, range(16), 4, 1, 16), want)


@pytest.mark.parametrize(("name", "want"), [("warp_add", [496, 1520]), ("warp_max", [31, 63]), ("warp_min", [0, 32])])
def test_a_warp_exchanges_values(name: str, want: list[float]) -> None:
    result = simulated(f"Y[thread_x()] = {name}(X[thread_x()])", range(64), 64)
    np.testing.assert_array_equal(result, np.repeat(np.array(want, "float32"), 32))


def test_all_of_a_warp_have_to_exchange() -> None:
    for body in ("Y[0] = warp_add(X[0])", "if thread_x() < 31:\n    Y[0] = warp_add(X[0])"):
        with pytest.raises(ExecutionError, match="warp_add is not called by all threads of a warp"):
            simulated(body, [1], 16 if body.startswith("Y") else 32)


def test_a_check_writes_the_status() -> None:
    made = kernel("if X[thread_x()] < float32(0.0):\n    S[0] = int32(3)", "X S")
    for x, want in (([1, 2], 0), ([1, -2], 3)):
        status = np.zeros(1, "int32")
        run(Kernel(made.source, ("float32", "int32")), (1,), (2,), (np.array(x, "float32"), status))
        assert status[0] == want


def test_arguments_are_checked() -> None:
    made = kernel("Y[0] = float32(n)", "Y n")
    for wrong in (np.zeros((1, 1), "float32"), np.zeros(1), [1.0]):
        with pytest.raises(ExecutionError, match="Y is to be a flat array of float32"):
            run(made, (1,), (1,), (wrong, 3))
    with pytest.raises(ExecutionError, match=r"1025, 1, 1.* threads: expected 1 to 1024"):
        run(made, (1,), (1025,), (np.zeros(1, "float32"), 3))
    half = Kernel("def kernel(H):\n    H[0] = to_half(float32(1.5))", ("float16",))
    stored = np.zeros(1, "uint16")
    run(half, (1,), (1,), (stored,))
    assert stored.view("float16")[0] == 1.5
