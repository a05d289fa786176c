import itertools

import numpy as np
import pytest

from graphopt.lowering.operators import products
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check
from tests.lowering.operators.shaped import numbers

TRANSPOSED = ("transA", "transB", "transBatchA", "transBatchB")


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


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("on", [*itertools.product((0, 1), repeat=4)])
def test_transposed_operands_and_batches(rank: int, on: tuple[int, ...]) -> None:
    attrs, batch = dict(zip(TRANSPOSED, on, strict=True)), (2, 6)[: rank - 2]

    def operand(rows: int, columns: int, is_transposed: int, has_rows_first: int) -> tuple[int, ...]:
        rows, columns = (columns, rows) if is_transposed else (rows, columns)
        return (rows, *batch, columns) if has_rows_first else (*batch, rows, columns)

    a = operand(3, 5, attrs["transA"], attrs["transBatchA"])
    b = operand(5, 4, attrs["transB"], attrs["transBatchB"])
    agree("com.microsoft::FusedMatMul", [numbers(*a), numbers(*b)], alpha=0.5, **attrs)


@pytest.mark.parametrize("summands", [7, 8, 40])
@pytest.mark.parametrize("columns", [2, 3, 4])
@pytest.mark.parametrize("rows", [(5,), (2, 3), ()])
def test_products_of_few_columns(rows: tuple[int, ...], columns: int, summands: int) -> None:
    a, b = numbers(*rows, summands), numbers(summands, columns)
    agree("MatMul", [a, b])
    agree("MatMul", [a, b], [[*"nm"[: len(rows)], "k"], ["k", columns]])
    agree("com.microsoft::FusedMatMul", [a, b], alpha=0.5)
    if len(rows) == 1:
        agree("Gemm", [a, b, numbers(columns)], alpha=0.5, beta=2.0)
        agree("Gemm", [a.T.copy(), b], transA=1)
