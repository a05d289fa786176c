import numpy as np
import pytest

from graphopt.lowering.operators import pooling
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check

ROUNDED = {"test_averagepool_2d_ceil_last_window_starts_on_pad"}
"""Cases whose expected values have four digits."""


@pytest.mark.parametrize("case", [p for p in cases_of(pooling.TABLE) if p.id not in ROUNDED])
def test_case(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_largest_of_windows_with_the_channels_last(dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 100, (2, 7, 6, 3)).astype(dtype)
    for attrs in ({"kernel_shape": (3, 2)}, {"kernel_shape": (2, 2), "strides": (2, 3), "pads": (1, 0, 1, 1)}):
        agree("com.microsoft::NhwcMaxPool", [x], **attrs)
        agree("com.microsoft::NhwcMaxPool", [x], [("n", "h", 6, "c")], **attrs)
    agree("com.microsoft::NhwcMaxPool", [x[:0]], kernel_shape=(2, 2), dilations=(2, 1), auto_pad="SAME_UPPER")
