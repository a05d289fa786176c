import pytest

from graphopt.lowering.operators import pooling
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import cases_of, check


@pytest.mark.parametrize("case", cases_of(pooling.TABLE))
def test_case(case: Case) -> None:
    check(case)
