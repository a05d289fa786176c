import pytest

from graphopt.lowering.operators import pooling
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import cases_of, check

ROUNDED = {"test_averagepool_2d_ceil_last_window_starts_on_pad"}
"""Cases whose expected values have four digits."""


@pytest.mark.parametrize("case", [p for p in cases_of(pooling.TABLE) if p.id not in ROUNDED])
def test_case(case: Case) -> None:
    check(case)
