"""Attention of a few queries, compiled, against numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import graphopt
from graphopt.ir.constants import Array
from graphopt.program.compiled_model import CompiledModel


def _compiled(heads: int, groups: int, size: int, width: int, queries: int | str, mask: list[int | str] | None,
              threads: int = 1, **attrs: Any) -> CompiledModel:  # fmt: skip
    shapes: dict[str, list[int | str]] = {
        "q": ["b", heads, queries, size], "k": ["b", groups, "t", size], "v": ["b", groups, "t", width]
    }  # fmt: skip
    shapes |= {} if mask is None else {"m": mask}
    inputs = [helper.make_tensor_value_info(n, 1, shape) for n, shape in shapes.items()]
    node = helper.make_node("Attention", [*shapes], ["y"], **attrs)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 1, None)])
    return graphopt.compile(helper.make_model(graph), strict=True, optimize=False, threads=threads)


def _expected(q: Array, k: Array, v: Array, mask: Array) -> Array:
    """Attention in float64; zeros for queries that see no key."""
    shared = q.shape[1] // k.shape[1]
    k, v = (x.astype(np.float64).repeat(shared, 1) for x in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(2, 3) * q.shape[3] ** -0.5 + mask
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    shares = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = shares.sum(-1, keepdims=True)
    expected: Array = shares @ v / np.where(total == 0, 1, total)
    return expected


def _floats(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize(("heads", "groups"), [(3, 3), (6, 2), (5, 1), (34, 2)])
@pytest.mark.parametrize(("size", "width"), [(16, 16), (20, 9), (3, 40)])
def test_queries_of_a_group_meet_all_keys(heads: int, groups: int, size: int, width: int) -> None:
    """One query to many, of groups that fill a tile of rows or not, of sizes that fill vectors or not."""
    with _compiled(heads, groups, size, width, "s", ["b", 1, "s", "t"]) as compiled:
        for b, s, t in ((1, 1, 1), (2, 1, 64), (1, 3, 1131), (2, 7, 66), (1, 40, 70), (1, 0, 5), (0, 1, 5), (1, 2, 0)):
            q, k, v = (
                _floats(b, heads, s, size, seed=1),
                _floats(b, groups, t, size, seed=2),
                _floats(b, groups, t, width, seed=3),
            )
            m = np.where(_floats(b, 1, s, t, seed=4) > 0.6, -np.inf, _floats(b, 1, s, t, seed=5)).astype(np.float32)
            m[:, :, :1] = -np.inf if t == 66 else m[:, :, :1]
            got = compiled({"q": q * 9, "k": k, "v": v, "m": m})["y"]
            np.testing.assert_allclose(got, _expected(q * 9, k, v, m), atol=2e-6, err_msg=str((b, s, t)))


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_queries_of_a_number_that_is_known(queries: int) -> None:
    with _compiled(4, 2, 16, 16, queries, None, is_causal=1) as compiled:
        for t in (1, 5, 100, 513):
            q, k, v = _floats(2, 4, queries, 16, seed=1), _floats(2, 2, t, 16, seed=2), _floats(2, 2, t, 16, seed=3)
            mask = np.where(np.arange(t) <= np.arange(queries)[:, None], 0, -np.inf)
            np.testing.assert_allclose(compiled({"q": q, "k": k, "v": v})["y"], _expected(q, k, v, mask), atol=2e-6)


def test_threads_share_the_keys_of_a_head() -> None:
    """Parts of keys are the same for any number of threads, and so are results."""
    q, k, v = _floats(1, 2, 1, 16, seed=1), _floats(1, 1, 1700, 16, seed=2), _floats(1, 1, 1700, 16, seed=3)
    with _compiled(2, 1, 16, 16, "s", None) as compiled:
        first, second = compiled.profile(q, k, v)
        alone = compiled(q, k, v)["y"]
    assert [first.label, second.label] == ["Attention", "Attention"]
    np.testing.assert_allclose(alone, _expected(q, k, v, np.zeros(1)), atol=2e-6)
    with _compiled(2, 1, 16, 16, "s", None, threads=2) as compiled:
        np.testing.assert_array_equal(compiled(q, k, v)["y"], alone)


def test_numbers_that_are_none_stay_in_their_rows() -> None:
    """A query of NaN, a key of NaN that one query does not see, and an infinite value."""
    with _compiled(4, 2, 16, 16, "s", ["s", "t"]) as compiled:
        q, k, v = _floats(1, 4, 2, 16, seed=1), _floats(1, 2, 70, 16, seed=2), _floats(1, 2, 70, 16, seed=3)
        m = np.zeros((2, 70), np.float32)
        m[1, 66] = -np.inf
        q[0, 0, 1, 3], k[0, 0, 66, 2], v[0, 1, 4, 5] = np.nan, np.nan, np.inf
        got = compiled({"q": q, "k": k, "v": v, "m": m})["y"]
    assert np.isnan(got[0, :2, 0]).all()
    assert np.isnan(got[0, 0, 1]).all()
    assert np.isfinite(got[0, 1, 1]).all()
    assert np.isinf(got[0, 2:, :, 5]).all()
    assert np.isfinite(np.delete(got[0, 2:], 5, -1)).all()
