"""Every operator that torch has samples of gives what it does in torch, by each door, or is refused in one line."""

from __future__ import annotations

import pytest

from tests.frontends.torch.samples import Operator, check_compiled, operators, verdicts

QUICK = {"add-bool", "addbmm-float32", "cummax-float32", "gather-bool", "histc-float32", "scatter_reduce-mean-int64"}
"""Operators that are held to torch by default, and others where there is time."""
REFUSED: dict[str, str] = {
    "results that serve training": """
        _native_batch_norm_legit native_batch_norm native_group_norm native_layer_norm
    """,
    "no entry": """
        _segment_reduce-lengths _segment_reduce-offsets bincount gcd hash_tensor histogram
        histogramdd lcm nonzero_static repeat_interleave resize_as_ tensor_split-float32 unique
        unique_consecutive
    """,
    "ONNX factors no matrices": """
        cholesky cholesky_inverse cholesky_solve geqrf linalg.cholesky_ex linalg.cond linalg.eigh linalg.eigvalsh
        linalg.householder_product linalg.inv_ex linalg.ldl_factor_ex linalg.ldl_solve linalg.lu
        linalg.lu_factor_ex linalg.lu_solve linalg.matrix_norm linalg.matrix_rank linalg.matrix_rank-hermitian
        linalg.norm linalg.pinv linalg.pinv-hermitian linalg.pinv-singular linalg.qr linalg.solve_ex
        linalg.solve_triangular linalg.svd linalg.svdvals lu lu_solve lu_unpack matrix_exp norm-nuc ormqr
        pinverse qr svd triangular_solve
    """,
    "a special function that ONNX does not have": """
        digamma frexp i0 igamma igammac lgamma mvlgamma-mvlgamma_p_1 mvlgamma-mvlgamma_p_3 mvlgamma-mvlgamma_p_5
        nextafter polygamma-polygamma_n_0 polygamma-polygamma_n_1 polygamma-polygamma_n_2 polygamma-polygamma_n_3
        polygamma-polygamma_n_4 signal.windows.kaiser special.airy_ai special.bessel_j0 special.bessel_j1
        special.bessel_y0 special.bessel_y1 special.chebyshev_polynomial_t special.chebyshev_polynomial_u
        special.chebyshev_polynomial_v special.chebyshev_polynomial_w special.erfcx special.hermite_polynomial_h
        special.hermite_polynomial_he special.i0e special.i1 special.i1e special.laguerre_polynomial_l
        special.legendre_polynomial_p special.log_ndtr special.modified_bessel_i0 special.modified_bessel_i1
        special.modified_bessel_k0 special.modified_bessel_k1 special.ndtri
        special.polygamma-special_polygamma_n_0 special.scaled_modified_bessel_k0
        special.scaled_modified_bessel_k1 special.shifted_chebyshev_polynomial_t
        special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
        special.shifted_chebyshev_polynomial_w special.spherical_bessel_j0 special.zeta
    """,
    "complex numbers": """
        fft.hfft fft.hfft2 fft.hfftn fft.irfft fft.irfft2 fft.irfftn stft
    """,
    "it reports errors of LAPACK, for which graphs have no place": """
        linalg.cholesky linalg.inv linalg.ldl_factor linalg.lu_factor linalg.matrix_power linalg.solve
        linalg.tensorinv linalg.tensorsolve
    """,
    "bicubic samples beyond the border, of which ONNX and its runtimes give different ones": """
        grid_sampler_2d nn.functional.grid_sample
    """,
    "an operator of torch's own, chunk by chunk": """
        nn.functional.linear_cross_entropy-chunked nn.functional.linear_cross_entropy-chunked_none
    """,
}
"""Operators of which some samples are refused, of all dtypes or of one, with the reasons."""


def is_refused(operator: Operator) -> bool:
    return any({str(operator), operator.of_all} & set(names.split()) for names in REFUSED.values())


def check_operator(operator: Operator) -> None:
    found = list(verdicts(operator))
    if not found:
        return
    refusals = [why for _, verdict, why in found if verdict == "refused"]
    assert all("\n" not in why for why in refusals)
    assert bool(refusals) == is_refused(operator), refusals or "it is taken now: it leaves the list"
    right = [sample for sample, verdict, _ in found if verdict == "right"]
    if operator.dtype == "float32" and right:
        check_compiled(right[0])


@pytest.mark.parametrize("operator", [o for o in operators() if str(o) in QUICK], ids=str)
def test_an_operator(operator: Operator) -> None:
    check_operator(operator)


@pytest.mark.slow
@pytest.mark.parametrize("operator", operators(), ids=str)
def test_operators(operator: Operator) -> None:
    check_operator(operator)


def test_the_list_of_what_is_refused_names_operators() -> None:
    names = {name for operator in operators() for name in (str(operator), operator.of_all)}
    assert not {name for listed in REFUSED.values() for name in listed.split()} - names
