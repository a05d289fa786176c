"""Loops by reference: any number of rounds, of values of any rank, from either end and along any axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt.ir.evaluate import run
from graphopt.ir.text import parse

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def given(text: str, **feeds: Any) -> list[Any]:
    return list(run(parse(text), {name: np.asarray(a) for name, a in feeds.items()}).values())


STACKS = """
m: int64[] c: bool[] x: float32[2, 3]
y, z, w = Loop(m, c, x, body={ i: int64[] c: bool[] s: float32[2, 3]
    t: float32[2, 3] = Add(s, s) j: int64[] = Identity(i) return c, t, t, j })
return y, z, w
"""


@pytest.mark.parametrize(("rounds", "goes_on"), [(3, True), (1, True), (0, True), (-2, True), (3, False)])
def test_what_rounds_give_is_stacked(rounds: int, goes_on: bool) -> None:
    n = max(rounds, 0) if goes_on else 0
    y, z, w = given(STACKS, m=np.int64(rounds), c=goes_on, x=X)
    np.testing.assert_array_equal(y, X * 2**n)
    np.testing.assert_array_equal(z, np.reshape([X * 2 ** (k + 1) for k in range(n)], (n, 2, 3)))
    np.testing.assert_array_equal(w, np.arange(n))
    assert z.dtype == np.float32


def test_a_loop_without_a_condition_or_without_an_end() -> None:
    body = "i: int64[] c: bool[] s: float32[2, 3] t: float32[2, 3] = Add(s, s)"
    (y,) = given(f"m: int64[] x: float32[2, 3] y = Loop(m, _, x, body={{ {body} return c, t }}) return y", m=2, x=X)
    np.testing.assert_array_equal(y, 4 * X)
    until = f"c: bool[] x: float32[2, 3] y = Loop(_, c, x, body={{ {body} k = Less(i, 4) return k, t }}) return y"
    np.testing.assert_array_equal(given(until, c=True, x=X)[0], 32 * X)


SCAN = """
a: float32[2] x: float32[2, n]
y, z = Scan(a, x, num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[{back}], scan_output_axes=[-1],
    scan_output_directions=[{turned}], body={{ s: float32[2] p: float32[2] t: float32[2] = Add(s, p) return t, t }})
return y, z
"""


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("n", [3, 1, 0])
def test_scans_go_either_way_along_any_axis(back: int, turned: int, n: int) -> None:
    a, x = np.array([1, 2], np.float32), X[:, :n]
    sums = a[:, None] + np.cumsum(x[:, ::-1] if back else x, axis=1)
    y, z = given(SCAN.format(back=back, turned=turned), a=a, x=x)
    np.testing.assert_array_equal(y, a + x.sum(1))
    np.testing.assert_array_equal(z, sums[:, ::-1] if turned else sums)
