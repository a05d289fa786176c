"""Tensor cores and the copies that feed them: what PTX has of them, and products in the simulation."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphopt.errors import CompilationError, ExecutionError
from graphopt.kernels.cuda.compile import ptx
from graphopt.kernels.cuda.machine import machine_code
from graphopt.kernels.cuda.simulate import run
from graphopt.kernels.kernel import Kernel

RNG = np.random.default_rng(0)
compiled = pytest.mark.skipif(
    find_spec("numba_cuda") is None, reason="numba-cuda is not installed: pip install 'graphopt[cuda13]'"
)

HEAD = """
from graphopt.kernels.cuda.target import float32, uint16
from graphopt.kernels.cuda.functions import NAMES

def kernel(A, B, C):
    lane = thread_x()
    g = lane // 4
    t = lane % 4
    c = (float32(1.0), float32(2.0), float32(3.0), float32(4.0))
"""
LAST = """
    store2(C, g * 8 + 2 * t, (c[0], c[1]))
    store2(C, (g + 8) * 8 + 2 * t, (c[2], c[3]))
"""
TF32 = """
    a = (A[g * 8 + t], A[(g + 8) * 8 + t], A[g * 8 + t + 4], A[(g + 8) * 8 + t + 4])
    c = mma_tf32(c, a, (to_tf32(B[t * 8 + g]), B[(t + 4) * 8 + g]))
"""
HALF = """
    a0 = pair(A[g * 16 + 2 * t], A[g * 16 + 2 * t + 1])
    a1 = pair(A[(g + 8) * 16 + 2 * t], A[(g + 8) * 16 + 2 * t + 1])
    a2 = pair(A[g * 16 + 2 * t + 8], A[g * 16 + 2 * t + 9])
    a3 = pair(A[(g + 8) * 16 + 2 * t + 8], A[(g + 8) * 16 + 2 * t + 9])
    b0 = pair(B[2 * t * 8 + g], B[(2 * t + 1) * 8 + g])
    b1 = pair(B[(2 * t + 8) * 8 + g], B[(2 * t + 9) * 8 + g])
    c = mma_f16(c, (a0, a1, a2, a3), (b0, b1))
"""
COPIED = """
    S = shared(SIZE, DTYPE)
    T = shared(SIZE, DTYPE)
    for k in range(SIZE // (32 * LANES)):
        i = (k * 32 + lane) * LANES
        copy_async(S, i, A, i, LANES, LANES)
        copy_commit()
        copy_async(T, i, B, i, LANES, LANES)
        copy_commit()
    copy_wait(0)
    barrier()
"""
TF32_BY_MATRICES = """
    a = ldmatrix4(S, (lane % 16) * 8 + lane // 16 * 4)
    c = mma_tf32(c, a, (T[t * 8 + g], T[(t + 4) * 8 + g]))
"""
HALF_BY_MATRICES = """
    a = ldmatrix4(S, (lane % 16) * 16 + lane // 16 * 8)
    c = mma_f16(c, a, ldmatrix2_turned(T, lane % 16 * 8))
"""
TURNED_BY_MATRICES = """
    a = ldmatrix4_turned(S, (lane % 8 + lane // 16 * 8) * 16 + lane // 8 % 2 * 8)
    c = mma_f16(c, a, ldmatrix2(T, lane % 8 * 16 + lane // 8 % 2 * 8))
"""
NAMES = "barrier copy_async copy_commit copy_wait ldmatrix2 ldmatrix2_turned ldmatrix4 ldmatrix4_turned mma_bf16 \
mma_f16 mma_tf32 pair shared store2 thread_x to_tf32"


def kernel(body: str, dtype: str) -> Kernel:
    size, lanes = (256, 8) if dtype == "uint16" else (128, 4)
    body = body.replace("SIZE", str(size)).replace("LANES", str(lanes)).replace("DTYPE", dtype)
    return Kernel(HEAD.replace("NAMES", ", ".join(NAMES.split())) + body + LAST, (dtype, dtype, "float32"))


PRODUCTS = {
    "tf32": (kernel(TF32, "float32"), np.float32),
    "f16": (kernel(HALF, "uint16"), np.float16),
    "bf16": (kernel(HALF.replace("mma_f16", "mma_bf16"), "uint16"), ml_dtypes.bfloat16),
    "tf32 by matrices": (kernel(COPIED + TF32_BY_MATRICES, "float32"), np.float32),
    "f16 by matrices": (kernel(COPIED + HALF_BY_MATRICES, "uint16"), np.float16),
    "f16 turned": (kernel(COPIED + TURNED_BY_MATRICES, "uint16"), np.float16),
}


def stored(x: Any) -> Any:
    """A matrix as kernels are given it, room for a whole vector behind it."""
    flat = np.zeros(max(x.size, 256 if x.itemsize == 2 else 128), x.dtype)
    flat[: x.size] = x.ravel()
    return flat.view("uint16") if x.itemsize == 2 else flat


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_warp_multiplies_matrices(name: str) -> None:
    made, dtype = PRODUCTS[name]
    inner = 16 if np.dtype(dtype).itemsize == 2 else 8
    # whole numbers of few bits, so that no order of summation rounds
    a = RNG.integers(-20, 20, (16, inner)).astype(dtype)
    b = RNG.integers(-20, 20, (inner, 8)).astype(dtype)
    given = (a.T, b.T) if name == "f16 turned" else (a, b)
    c = np.zeros(16 * 8, "float32")
    run(made, (1,), (32,), (*map(stored, given), c))
    start = np.tile([1.0, 2.0], (16, 4)) + np.repeat([[0.0], [2.0]], 8, 0)
    np.testing.assert_array_equal(c.reshape(16, 8), start + a.astype(float) @ b.astype(float))


def test_tensor_cores_see_ten_bits() -> None:
    a, b, c = np.zeros((16, 8), "float32"), np.zeros((8, 8), "float32"), np.zeros(128, "float32")
    a[0, 0], b[0] = 1 + 2.0**-11 + 2.0**-12, 1
    b[0, 1] = 1 + 2.0**-11
    run(PRODUCTS["tf32"][0], (1,), (32,), (stored(a), stored(b), c))
    assert c[0] == 2  # what is given as it is loses its last bits
    assert c[1] == 3 + 2.0**-10  # and is rounded by to_tf32


def test_a_wait_that_is_missing_is_seen() -> None:
    made = kernel((COPIED + TF32_BY_MATRICES).replace("    copy_wait(0)\n", ""), "float32")
    c = np.zeros(128, "float32")
    run(made, (1,), (32,), (np.ones(128, "float32"), np.ones(128, "float32"), c))
    assert np.isnan(c).all()


def test_a_wait_leaves_the_last_groups() -> None:
    body = """
    S = shared(64, float32)
    copy_async(S, 4 * lane, A, 4 * lane, 4, 3)
    copy_commit()
    copy_async(S, 4 * lane + 32, A, 4 * lane, 4, 4)
    copy_commit()
    copy_wait(1)
    for k in range(4):
        C[4 * lane + k] = S[4 * lane + k]
        C[4 * lane + k + 32] = S[4 * lane + k + 32]
"""
    source = kernel(body, "float32").source.replace(LAST, "")
    c = np.zeros(64, "float32")
    run(Kernel(source, ("float32",) * 3), (1,), (8,), (np.arange(32, dtype="float32"), c, c))
    np.testing.assert_array_equal(c[:8], [0, 1, 2, 0, 4, 5, 6, 0])
    assert np.isnan(c[32:]).all()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("copy_async(S, 1, A, 0, 4, 4)", "accesses 4 elements from 1 of shared memory 1 on: not aligned"),
        ("copy_async(C, 0, A, 0, 4, 4)", "expected shared memory"),
        ("copy_async(S, 0, A, 0, 4, 5)", "copy_async of 5 of 4 elements"),
        ("ldmatrix2(S, 2)", "accesses 4 elements from 2 of shared memory 1 on: not aligned"),
    ],
)
def test_what_a_gpu_would_not_forgive_is_an_error(line: str, said: str) -> None:
    made = kernel(f"    S = shared(64, float32)\n    {line}\n", "float32")
    with pytest.raises(ExecutionError, match=said):
        run(made, (1,), (32,), (np.zeros(128, "float32"),) * 3)


INSTRUCTIONS = {
    "tf32": [
        "cvt.rna.tf32.f32",
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f, %f, %f, %f}, {%r, %r, %r, %r}, {%r, %r}, \
{%f, %f, %f, %f};",
    ],
    "f16": [
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f, %f, %f, %f}, {%r, %r, %r, %r}, {%r, %r}, \
{%f, %f, %f, %f};"
    ],
    "bf16": ["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"],
    "tf32 by matrices": [
        "cp.async.cg.shared.global [%r], [%rd], 16, %r;",
        "cp.async.commit_group;",
        "cp.async.wait_group 0;",
        "bar.sync",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r, %r, %r, %r}, [%r];",
        "mma.sync",
    ],
    "f16 by matrices": ["ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r, %r}, [%r];"],
    "f16 turned": ["ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "ldmatrix.sync.aligned.m8n8.x2.shared.b16"],
}
"""What PTX has, in this order, the numbers of registers left out."""


@compiled
@pytest.mark.parametrize("name", PRODUCTS)
def test_ptx_has_the_instructions(name: str) -> None:
    text = ptx(PRODUCTS[name][0], (8, 0))
    plain = re.sub(r"(%[a-z]+)\d+", r"\1", text)
    place = 0
    for instruction in INSTRUCTIONS[name]:
        assert instruction in plain[place:], instruction
        place = plain.index(instruction, place)


@compiled
@pytest.mark.usefixtures("linker")
def test_machine_code_has_no_spills() -> None:
    for capability in ((8, 0), (9, 0)):
        code = machine_code(ptx(PRODUCTS["f16 by matrices"][0], capability), capability)
        assert (code.spilled, code.local, code.shared) == (0, 0, 1024)


@compiled
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("mma_tf32(c, c, c)", "expected a tuple of 2 float32"),
        ("mma_f16(c, c, (c[0], c[1]))", "expected a tuple of 4 uint32"),
        ("copy_async(A, 0, B, 0, 3, 3)", "expected 4, 8, 16 bytes"),
        ("ldmatrix2_turned(A, 0)", "expected a pointer to elements of 16 bits"),
    ],
)
def test_what_makes_no_sense_is_refused(line: str, said: str) -> None:
    with pytest.raises(CompilationError, match=said):
        ptx(kernel(f"    {line}\n", "float32"), (8, 0))
