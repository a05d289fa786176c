"""Constants of bodies have the dtype that they come with; Python's numbers are float32 and int64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt.ir.body import Body
from graphopt.ir.facts import NOTHING
from graphopt.ir.graph import Attrs
from graphopt.ir.op_table import Contrib


@pytest.mark.parametrize(
    ("operand", "dtype"),
    [
        (1, "int64"),
        (0.5, "float32"),
        ([1, 2], "int64"),
        (np.int32(1), "int32"),
        (np.float64(1), "float64"),
        (np.ones(2), "float64"),
        (np.array(["a"], object), "string"),
    ],
)
def test_constants(operand: Any, dtype: str) -> None:
    body = Body("op", Contrib("x y?", "z", {"a": 2, "b": float}), Attrs(), [NOTHING])
    value = body.value(operand)
    assert value is not None
    constant = body.graph.constant_of(value)
    assert constant is not None
    assert constant.dtype == dtype


def test_inputs_that_are_left_out_and_attributes_by_default() -> None:
    body = Body("op", Contrib("x y?", "z", {"a": 2, "b": float}), Attrs(), [NOTHING])
    assert body.inputs[1] is None
    assert (body.attr("a"), body.attr("b")) == (2, None)
    with pytest.raises(ValueError, match="not known"):
        body.rank(body.graph.inputs[0])
