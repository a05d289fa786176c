"""What the scripts of this folder measure with: fakes in place of calls."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from tests.bench.models import single
from tests.bench.turns import Table, arguments, burst, geometric_mean, least, onnxruntime_call, sides


def test_a_burst_has_the_fastest_of_its_calls() -> None:
    instants = iter([0.0, 0.0, 5.0, 5.0, 7.0, 7.0, 11.0])  # calls of 5, 2 and 4 seconds
    assert burst(lambda: None, seconds=10.0, clock=lambda: next(instants)) == 2.0
    steps = count()
    assert burst(lambda: None, seconds=0.0, clock=lambda: float(next(steps))) == 1.0, "one call at least"


def test_timers_take_turns() -> None:
    order: list[str] = []
    said = {"a": [3.0, 1.0, 2.0], "b": [5.0, 6.0, 4.0]}

    def timer(name: str) -> float:
        order.append(name)
        return said[name][len(order) // 2 - (len(order) % 2 == 0)]

    assert least(lambda: timer("a"), lambda: timer("b"), rounds=3) == [1.0, 4.0]
    assert order == ["a", "b"] * 3


def test_titles_stand_over_their_figures() -> None:
    table = Table("size", 6, "us:8.1f error:9.2g n:4")
    assert table.heading == "size        us    error   n"
    assert table.line("2 x 2", 1.26, 0.00123, 3) == "2 x 2      1.3   0.0012   3"
    with pytest.raises(ValueError, match="zip"):
        table.line("2 x 2", 1.26)


def test_the_mean_is_of_what_is_known() -> None:
    assert geometric_mean([2.0, float("nan"), 8.0]) == "geometric mean of 2: 4.00"
    assert geometric_mean([]) == "geometric mean of 0: nan"


def test_what_a_command_line_says() -> None:
    given = arguments("First.\n\nSecond.", "names").parse_args(["2x3x4", "--threads", "2"])
    assert (given.names, given.threads) == (["2x3x4"], 2)
    assert sides("2x3x4") == (2, 3, 4)


def test_a_call_of_onnx_runtime_writes_the_outputs_that_it_gave() -> None:
    x, w = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 2), np.float32)
    call, outputs = onnxruntime_call(single("MatMul", {"x": x}, {"w": w}, "x w"), {"x": x})
    np.testing.assert_array_equal(outputs["y"], x @ w)
    x *= 2
    call()
    np.testing.assert_array_equal(outputs["y"], x @ w)
