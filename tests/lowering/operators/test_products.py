import numpy as np
import pytest

from graphopt.lowering.operators import products
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check
from tests.lowering.operators.shaped import numbers


@pytest.mark.parametrize("case", cases_of(products.TABLE))
def test_case(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(("n", "m"), [(1, 3), (3, 1), (3, 3)])
def test_stacks_of_matrices_are_repeated_as_is_found_out_at_run_time(n: int, m: int) -> None:
    shapes = [("n", "k", 2, 2), (1, "m", 2, 2)]
    agree("MatMul", [numbers(n, 1, 2, 2), numbers(1, m, 2, 2)], shapes)
    agree(
        "MatMulInteger", [a.astype(np.int8) for a in (numbers(n, 2, 2), numbers(m, 2, 2))], [("n", 2, 2), ("m", 2, 2)]
    )
