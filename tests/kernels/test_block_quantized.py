"""Products with weights quantized in blocks against exact sums of integers, in each way of this processor."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import pytest

from graphopt.kernels import block_quantized, codegen, host
from graphopt.kernels.block_quantized import NEEDED, POINTERS
from graphopt.kernels.compile import compile_kernels
from graphopt.kernels.kernel import SIZE, Kernel
from graphopt.kernels.product_form import IN_WORD, QUAD, instruction
from graphopt.runtime import cpu
from graphopt.runtime.objects import Image

SOURCE = '''"""block quantized to {bits} bits in vectors of {lanes} by {way}"""
from graphopt.kernels.block_quantized import block_quantized_product_{bits}


def kernel(c, a, sa, sums, b, sb, z, m, n, blocks, deep, lanes_z, lo, hi):
    w = 2 * {lanes}
    block_quantized_product_{bits}(
        c, 0, n + 3, a, 0, blocks * deep * {each}, deep * {each}, sa, 0, blocks, sums, 0, blocks,
        b, 0, blocks * deep * w, deep * w, w, sb, 0, blocks * w, w, z, 0, blocks * w, w,
        m, n, blocks, deep, 1, 1, lanes_z)
    return 0
'''
WAYS = [("plain", 4)]
WAYS += [("pairs", lanes) for lanes, feature in NEEDED.items() if feature in cpu.features()]
WAYS += [("dot", host.lanes("int32"))] if instruction() != "plain" else []


@cache
def entry(bits: int, way: str, lanes: int) -> tuple[Any, Image]:
    params = (*(dtype.name for dtype in POINTERS.values()), *(SIZE,) * 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "vector_bytes", lambda: 4 * lanes)
        patch.setattr(block_quantized, "way", lambda: way)
        image = Image(
            compile_kernels([Kernel(SOURCE.format(bits=bits, each=32 // bits, way=way, lanes=lanes), params)], jobs=0)
        )
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return function(image.entries[0]), image


def in_words(codes: np.ndarray, bits: int, width: int) -> np.ndarray:
    """Codes [n, blocks, block] as words in panels [n / width, blocks, words, width]."""
    n, blocks, block = codes.shape
    if bits == 4:
        quads = codes.reshape(n, blocks, block // IN_WORD, 2, QUAD)
        codes = quads[..., 0, :] | quads[..., 1, :] << 4
    words = np.ascontiguousarray(codes.reshape(n, blocks, -1)).view("<u4")
    return np.ascontiguousarray(words.reshape(n // width, width, blocks, -1).transpose(0, 2, 3, 1))


def in_panels(x: np.ndarray, width: int) -> np.ndarray:
    return np.ascontiguousarray(x.reshape(-1, width, x.shape[1]).swapaxes(1, 2))


def check(
    bits: int, way: str, lanes: int, m: int, n: int, blocks: int, block: int, several: bool, extreme: bool = False
) -> None:
    rng, width = np.random.default_rng(m + n), 2 * lanes
    wide = max(-(-n // width), 1) * width
    codes = rng.integers(0, 2**bits, (wide, blocks, block)).astype(np.uint8)
    a = rng.integers(-127, 128, (m, blocks, block)).astype(np.int8)
    if extreme:
        codes[:], a[:] = (
            rng.choice([0, 2**bits - 1], (wide, 1, 1)),
            rng.choice(np.array([-127, 127], np.int8), (m, 1, 1)),
        )
    sa, sb = rng.random((m, blocks), np.float32), rng.random((wide, blocks), np.float32)
    z = np.full((wide, blocks), 2 ** (bits - 1), np.uint8)
    if several:
        z = rng.integers(0, 2**bits, z.shape).astype(np.uint8)
    zeros = in_panels(z, width) if several else z[0, :1]
    c = np.full((m + 1, n + 3), 7, np.float32)
    sums = a.sum(-1, dtype=np.int32)
    words = [c, a, sa, sums, in_words(codes, bits, width), in_panels(sb, width), zeros]
    words += [m, n, blocks, block * bits // 32, width if several else 1]
    args = np.array([w.ctypes.data if isinstance(w, np.ndarray) else w for w in words], np.int64)
    assert entry(bits, way, lanes)[0](args.ctypes.data, 0, 1) == 0
    counted = codes[:n].astype(np.int64) - z[:n, :, None]
    whole = np.einsum("mgk,ngk->mng", a.astype(np.int64), counted).astype(np.float64)
    terms = whole * sa[:, None].astype(np.float64) * sb[None, :n].astype(np.float64)
    bound = np.abs(terms).sum(-1) * (blocks + 3) * 2.0**-24
    assert (np.abs(c[:m, :n] - terms.sum(-1)) <= bound).all()
    assert (c[m:] == 7).all()
    assert (c[:, n:] == 7).all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("way", "lanes"), WAYS)
def test_products_of_any_size(bits: int, way: str, lanes: int) -> None:
    """No rows and columns, one, fewer and more than a tile, a panel, and panels side by side have."""
    for m in (0, 1, 2, 3, 4, 5, 9):
        for n in (0, 1, lanes, 2 * lanes, 4 * lanes + 1, 7 * lanes):
            check(bits, way, lanes, m, n, 2, 32, bool(m % 2))
            check(bits, way, lanes, m, n, 1 + m, 16, not m % 2)
    check(bits, way, lanes, 3, 2 * lanes, 1, 256, True)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("way", "lanes"), WAYS)
def test_the_largest_codes_fit_sums_of_16_bits(bits: int, way: str, lanes: int) -> None:
    check(bits, way, lanes, 4, 2 * lanes, 2, 128, False, extreme=True)


def test_every_way_is_code() -> None:
    """Of instructions that this processor may lack: four products at once, and vectors of 512 bits."""
    for bits, way, lanes in ((4, "dot", 16), (8, "dot", 8), (4, "pairs", 16)):
        text = str(codegen.shared_module(f"graphopt_block_quantized_{bits}_{way}_{lanes}"))
        assert ("vpdpbusd" if way == "dot" else "pmaddubs") in text
