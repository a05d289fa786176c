import pytest

from graphopt.lowering.operators import products
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import cases_of, check


@pytest.mark.parametrize("case", cases_of(products.TABLE))
def test_case(case: Case) -> None:
    check(case)
