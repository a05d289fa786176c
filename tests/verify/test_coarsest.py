"""Outputs are held to the tolerance of the coarsest dtype that they were computed in."""

import pytest

from graphopt.ir.text import parse
from graphopt.ir.tolerance import RELATIVE
from graphopt.verify.coarsest import STEP, coarsest_shares

ROWS = (
    "x: float32[4, 16] b: uint8[8, 1, 8] s: float32[8] y = com.microsoft::MatMulNBits(x, b, s, K=16, N=8, block_size=16"
)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("x: float32[4] y = Exp(x)", RELATIVE["float32"]),
        ("x: float32[4] y = Cast(Exp(x), to=11)", RELATIVE["float32"]),
        ("x: float64[4] y = Exp(x)", RELATIVE["float64"]),
        ("x: float64[4] y = Exp(Cast(Cast(x, to=10), to=11))", RELATIVE["float16"]),
        ("x: float64[1, 2, 3] s: float32[2] y = BatchNormalization(x, s, s, s, s)", RELATIVE["float32"]),
        ("x: float64[4] i: int64[4] y = Pow(x, i)", RELATIVE["float64"]),
        (f"{ROWS}, accuracy_level=4)", STEP),
        (f"{ROWS}, accuracy_level=1)", RELATIVE["float32"]),
        ("x: float32[4] y = DequantizeLinear(QuantizeLinear(x, 0.1), 0.1)", STEP),
    ],
)
def test_an_output_is_as_coarse_as_what_it_was_computed_in(text: str, share: float) -> None:
    assert coarsest_shares(parse(f"{text} return y")) == [share]
