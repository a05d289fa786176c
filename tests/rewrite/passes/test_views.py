"""Chains of reshapes and transposes become as short as they can be."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest

from graphopt.ir.evaluate import run
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.rewrite.passes.dead import UNUSED
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.passes.views import NORMAL


def ops(graph: Graph) -> list[str]:
    return [n.op for n in graph.order() if n.op not in ("Input", "Constant")]


def same(text: str, *shape: int) -> list[str]:
    """The ops that are left, which compute what the original does."""
    graph = parse(text)
    made = simplify(graph, passes=(UNUSED, NORMAL))
    x = np.arange(prod(shape), dtype=np.float32).reshape(shape)
    (before,), (after,) = run(graph, {"x": x}).values(), run(made, {"x": x}).values()
    np.testing.assert_array_equal(before, after)
    return ops(made)


def test_two_transposes_of_parts_are_one() -> None:
    text = """x: float32[2, 12, 4, 4] s = [2, 2, 6, 4, 4] t = [2, 12, 4, 4] u = [2, 3, 2, 2, 4, 4] v = [2, 3, 8, 8]
    a = Reshape(Transpose(Reshape(x, s), perm=[0, 2, 1, 3, 4]), t)
    r = Reshape(Transpose(Reshape(a, u), perm=[0, 1, 4, 2, 5, 3]), v) return r"""
    assert same(text, 2, 12, 4, 4) == ["Reshape", "Transpose", "Reshape"]


def test_two_quick_transposes_are_not_made_one_that_scatters() -> None:
    text = """x: float32[1, 4, 640]
    b = Reshape(Transpose(x, perm=[0, 2, 1]), [1, 4, 40, 16]) y = Transpose(b, perm=[0, 2, 1, 3]) return y"""
    assert same(text, 1, 4, 640) == ["Transpose", "Reshape", "Transpose"]


def test_windows_and_back_are_nothing() -> None:
    text = """x: float32[2, 3, 8, 8] s = [2, 3, 2, 4, 2, 4] t = [8, 16, 3] u = [2, 2, 2, 4, 4, 3] v = [2, 3, 8, 8]
    w = Reshape(Transpose(Reshape(x, s), perm=[0, 2, 4, 3, 5, 1]), t)
    r = Relu(Reshape(Transpose(Reshape(w, u), perm=[0, 5, 1, 3, 2, 4]), v)) return r"""
    assert same(text, 2, 3, 8, 8) == ["Relu"]


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_are_views_too(mode: str) -> None:
    text = f'x: float32[2, 8, 3, 3] r = SpaceToDepth(DepthToSpace(x, blocksize=2, mode="{mode}"), blocksize=2) return r'
    assert same(text, 2, 8, 3, 3) == ([] if mode == "DCR" else ["Reshape", "Transpose", "Reshape"])


def test_an_open_axis_is_one_atom() -> None:
    text = """x: float32[n, 4, 6] s = [-1, 4, 2, 3] t = [-1, 4, 6]
    r = Relu(Reshape(Transpose(Transpose(Reshape(x, s), perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2]), t)) return r"""
    assert same(text, 5, 4, 6) == ["Relu"]


def test_what_is_read_in_between_stays() -> None:
    text = """x: float32[4, 6] s = [6, 4] a = Transpose(x, perm=[1, 0]) b = Reshape(a, s) c = Transpose(b, perm=[1, 0])
    r = Add(c, Transpose(b, perm=[1, 0])) return r"""
    assert len(same(text, 4, 6)) >= 3


@pytest.mark.parametrize("seed", range(40))
def test_random_chains(seed: int) -> None:
    draw = random.Random(seed)
    shape = start = tuple(draw.choice((1, 2, 3, 4, 6)) for _ in range(draw.randint(1, 4)))
    lines = []
    for i in range(draw.randint(2, 7)):
        if draw.random() < 0.5:
            perm = draw.sample(range(len(shape)), len(shape))
            shape = tuple(shape[k] for k in perm)
            lines.append(f"v{i + 1} = Transpose(v{i}, perm={perm})")
        else:
            shape = _regrouped(shape, draw)
            lines.append(f"s{i} = {list(shape)} v{i + 1} = Reshape(v{i}, s{i})")
    text = f"x: float32{list(start)} v0 = Neg(x) {' '.join(lines)} r = Neg(v{len(lines)}) return r"
    assert len(same(text, *start)) <= len(lines) + 2


def _regrouped(shape: tuple[int, ...], draw: random.Random) -> tuple[int, ...]:
    factors = [f for size in shape for f in _factors(size)]
    made = []
    while factors:
        n = draw.randint(1, 3)
        made.append(prod(factors[:n]))
        factors = factors[n:]
    return tuple(made) or (1,)


def _factors(n: int) -> list[int]:
    return next(([p, *_factors(n // p)] for p in (2, 3) if n % p == 0), [])
