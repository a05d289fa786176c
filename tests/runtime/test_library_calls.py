import pytest

from graphopt.runtime.library_calls import Convolution, Gemm, function_of
from graphopt.runtime.steps import LibraryStep
from tests.runtime.device_programs import attributes_of


def test_a_step_names_a_function_and_what_differs_from_its_defaults() -> None:
    gemm = Gemm("float16", transpose_b=True, has_bias=True, epilogue="relu")
    pairs = attributes_of(gemm)
    assert pairs == (("dtype", "float16"), ("transpose_b", True), ("has_bias", True), ("epilogue", "relu"))
    assert function_of(LibraryStep("gemm", (1,) * len(gemm.params), pairs)) == gemm
    assert attributes_of(Gemm()) == ()


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_convolution_is_told_of_each_axis(rank: int) -> None:
    params = Convolution(rank=rank, has_residual=True).params
    assert len(set(params)) == len(params) == 4 + 4 + 6 * rank + 3 * (2 + rank)
    assert params[:4] == ("x", "w", "y", "residual")
    assert (f"before_{rank - 1}" in params, f"size_{rank}" in params) == (True, False)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (LibraryStep("sort", ()), "there is no library function 'sort': there are gemm"),
        (LibraryStep("gemm", (), (("colour", 1),)), "gemm has no attribute 'colour'"),
        (LibraryStep("gemm", (1, 2)), "gemm takes a, b, c, m, .*step_c, and 2 arguments are given"),
    ],
)
def test_what_makes_no_sense_is_refused(step: LibraryStep, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        function_of(step)
