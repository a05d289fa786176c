"""Simulated warp functions: the 32 threads exchange values at each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphopt.kernels.cuda.limits import WARP
from graphopt.kernels.cuda.simulated import FUNCTIONS

Together: TypeAlias = Callable[[Sequence[Any]], list[Any]]
"""What each thread gets, of what each gives."""
_G, _T = np.divmod(np.arange(WARP), 4)


def _in_pairs(combine: Callable[[Any, Any], Any]) -> Together:
    """One value of all, combined with that of the thread whose number differs in one bit after another."""

    def together(values: Sequence[Any]) -> list[Any]:
        distance = WARP // 2
        while distance:
            values = [combine(x, values[n ^ distance]) for n, x in enumerate(values)]
            distance //= 2
        return list(values)

    return together


def _words(given: Sequence[Any], part: int) -> NDArray[Any]:
    """Each thread's 32-bit parts of a matrix."""
    return np.array([np.array(thread[part]).view(np.uint32) for thread in given])


def _tf32(words: NDArray[Any]) -> NDArray[Any]:
    """The numbers that tensor cores see."""
    return (words & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)[:, :, None]


def _halves(words: NDArray[Any]) -> NDArray[Any]:
    return words.view(np.float16).astype(np.float64).reshape(*words.shape, 2)


def _bfloats(words: NDArray[Any]) -> NDArray[Any]:
    pairs = np.stack([words << np.uint32(16), words & np.uint32(0xFFFF0000)], -1)
    return pairs.view(np.float32).astype(np.float64)


def _product(read: Callable[[NDArray[Any]], NDArray[Any]]) -> Together:
    """``c + a @ b`` of 16 rows and 8 columns, in the places of PTX's ``mma.sync``; summed in float64."""

    def together(given: Sequence[Any]) -> list[Any]:
        a, b = read(_words(given, 1)), read(_words(given, 2))
        each = a.shape[-1]
        left, right = np.zeros((16, 8 * each)), np.zeros((8 * each, 8))
        for k in range(4):
            for h in range(each):
                left[_G + 8 * (k % 2), (_T + 4 * (k // 2)) * each + h] = a[:, k, h]
        for k in range(2):
            for h in range(each):
                right[(_T + 4 * k) * each + h, _G] = b[:, k, h]
        product = left @ right
        places = [(_G + 8 * (k // 2), 2 * _T + k % 2) for k in range(4)]
        c = np.array([thread[0] for thread in given], np.float64)
        d = np.stack([c[:, k] + product[index] for k, index in enumerate(places)], 1).astype(np.float32)
        return [tuple(row) for row in d]

    return together


def _matrices(count: int, turned: bool) -> Together:
    """Matrices of which every eight threads give the rows, 16 bytes each."""

    def together(rows: Sequence[Any]) -> list[Any]:
        fragments = []
        for g, t in zip(_G, _T, strict=True):
            got = []
            for k in range(count):
                matrix = rows[8 * k : 8 * k + 8]
                if turned:
                    word = np.array([matrix[2 * t][g], matrix[2 * t + 1][g]]).view(np.uint32)[0]
                else:
                    size = 4 // matrix[g].itemsize
                    part = matrix[g][size * t : size * t + size]
                    word = part.view(np.uint32)[0] if size > 1 else part[0]
                got.append(word)
            fragments.append(tuple(got))
        return fragments

    return together


TOGETHER: dict[str, Together] = {
    "warp_add": _in_pairs(lambda a, b: a + b),
    "warp_max": _in_pairs(FUNCTIONS["maximum"]),
    "warp_min": _in_pairs(FUNCTIONS["minimum"]),
    "mma_tf32": _product(_tf32),
    "mma_f16": _product(_halves),
    "mma_bf16": _product(_bfloats),
    **{f"ldmatrix{n}": _matrices(n, turned=False) for n in (2, 4)},
    **{f"ldmatrix{n}_turned": _matrices(n, turned=True) for n in (2, 4)},
}
"""By the names of the functions."""
