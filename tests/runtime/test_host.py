"""Functions that every program has: maps of labels, texts at places, and random numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import graphopt
from graphopt.errors import ExecutionError
from graphopt.ir.text import parse
from graphopt.runtime.host import COMPARED, FEW, _chosen, bytes_of, maps, words


@pytest.mark.parametrize("rows", [0, 1, FEW, FEW + 1, 100])
def test_maps(rows: int) -> None:
    numbers = np.random.default_rng(rows).random((rows, 3)).astype(np.float32)
    wanted = [dict(zip((7, -1, 2), row, strict=True)) for row in numbers.tolist()]
    assert maps(np.array([7, -1, 2]), numbers) == wanted
    texts = [dict(zip(("ä", "", "c"), row, strict=True)) for row in numbers.tolist()]
    assert maps(bytes_of(["ä", "", "c"]), numbers) == texts


def test_a_map_of_one_axis_is_one_row() -> None:
    assert maps(np.array([1, 2]), np.array([0.5, 0.25], np.float32)) == [{1: 0.5, 2: 0.25}]


def test_labels_and_numbers_have_to_go_together() -> None:
    with pytest.raises(ExecutionError, match="2 labels for 3 numbers"):
        maps(np.array([1, 2]), np.zeros((4, 3), np.float32))


def test_words() -> None:
    texts = bytes_of(["no", "", "yes"])
    assert words(texts, np.array([2, 0, -2])).tolist() == ["yes", "no", ""]
    assert words(texts, np.zeros((2, 0), np.int64)).shape == (2, 0)
    with pytest.raises(ExecutionError, match="out of range"):
        words(texts, np.array([3]))


X = np.log(np.array([[0.1, 0.2, 0.3, 0.4]], np.float32)).repeat(5000, 0)


@pytest.mark.parametrize(
    ("call", "dtype", "mean", "deviation"),
    [
        ("RandomNormalLike(x, mean=1.0, scale=2.0)", "float32", 1, 2),
        ("RandomNormalLike(x, seed=3.0, dtype=10)", "float16", 0, 1),
        ("RandomNormal(shape=[100, 200], dtype=11)", "float64", 0, 1),
        ("RandomUniformLike(x, low=-1.0, high=3.0)", "float32", 1, 4 / 12**0.5),
        ("RandomUniform(shape=[20, 2, 500])", "float32", 0.5, 1 / 12**0.5),
        ("Bernoulli(Exp(x), dtype=7)", "int64", 0.25, 0.75**0.5 / 2),
        ("Multinomial(x, sample_size=3, dtype=6)", "int32", 2, 1),
    ],
)
def test_random_numbers_are_drawn_without_another_engine(call: str, dtype: str, mean: float, deviation: float) -> None:
    program = graphopt.compile(parse(f"x: float32[n, 4] y = {call} return y"))
    assert not program.report.unlowered
    first, second = (program(X)["y"] for _ in range(2))
    numbers = first.astype(np.float64)
    assert first.dtype.name == dtype
    assert not np.array_equal(first, second)
    assert abs(numbers.mean() - mean) < 5 * deviation / numbers.size**0.5
    assert abs(numbers.std() / deviation - 1) < 0.05


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (2, 5), (3, COMPARED), (40, 60)])
@pytest.mark.parametrize("count", [1, 7])
def test_places_are_those_of_parts_of_a_sum(count: int, shape: tuple[int, int]) -> None:
    random = np.random.default_rng(shape[1])
    logits = random.standard_normal(shape).astype(np.float32)
    logits[:, 1::4] = -np.inf  # never chosen
    parts = random.random((shape[0], count))
    parts[:, ::3] = 0
    found = _chosen(logits, parts.copy(), np.dtype(np.int32))
    assert (found.dtype, found.shape) == (np.int32, parts.shape)
    for row, chosen, part in zip(logits.astype(np.float64), found, parts, strict=True):
        sums = np.cumsum(np.exp(row - row.max()))
        assert chosen.tolist() == [int((sums <= p * sums[-1]).sum()) for p in part]
        assert np.isfinite(row[chosen]).all()


def test_random_numbers_of_one_seed_are_the_same_in_each_process(tmp_path: Path) -> None:
    a, b, c = (f"{name} = RandomNormalLike(x, seed={seed})" for name, seed in (("a", 1.0), ("b", 1.0), ("c", 2.0)))
    program = graphopt.compile(parse(f"x: float32[n] {a} {b} {c} return a, b, c"))
    program.save(tmp_path / "drawn")
    code = f"import numpy, graphopt.runtime as r; print(r.load({str(tmp_path / 'drawn')!r})(numpy.zeros(3, 'f')))"
    said = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert said[0].stdout == said[1].stdout
    made = list(program(np.zeros(3, np.float32)).values())
    assert len({array.tobytes() for array in made}) == 3
