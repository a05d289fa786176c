"""Functions of rules about weights, channels, dtypes and equations."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.types import symbol
from graphopt.rewrite.guards import weights
from graphopt.rewrite.guards.comparison import Unknown


@pytest.mark.parametrize(
    ("narrow", "wide", "expected"),
    [
        ("float16", "float32", True),
        ("float32", "float16", False),
        ("float16", "bfloat16", False),
        ("int16", "float32", True),
        ("int32", "float32", False),
        ("int32", "float64", True),
        ("uint8", "int8", False),
        ("uint8", "int16", True),
        ("bool", "int8", True),
    ],
)
def test_lossless(narrow: str, wide: str, expected: bool) -> None:
    assert weights.lossless(narrow, wide) is expected


def test_lossless_pairs_really_come_back() -> None:
    rng = np.random.default_rng(0)
    for narrow in ("int8", "uint8", "int16", "uint16", "int32", "float16", "float32"):
        values = rng.integers(-(2**15), 2**15, 500).astype(narrow)
        for wide in ("int16", "int32", "int64", "float16", "float32", "float64"):
            if weights.lossless(narrow, wide):
                assert np.array_equal(values.astype(wide).astype(narrow), values), (narrow, wide)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((), True), ((1,), True), ((8, 1, 1), True), ((1, 8, 1, 1), True), ((8,), False), ((2, 8, 1, 1), False)],
)
def test_per_channel(shape: tuple[int, ...], expected: bool) -> None:
    assert weights.per_channel(shape, 4) is expected


def test_smaller_is_said_only_where_it_is_known() -> None:
    n = symbol("n")
    assert weights.smaller(3, 4)
    assert weights.smaller(n, 4 * n)
    assert not weights.smaller(n, n)
    assert not weights.smaller(n, 7)


def test_a_band_of_very_many_channels_is_not_written_out() -> None:
    with pytest.raises(Unknown, match="weights of 1048576 channels"):
        weights.band(2**20, 3, 1.0)


def test_identities_of_open_or_large_images_are_not_written_out() -> None:
    assert np.array_equal(weights.identity(3), np.eye(3)[None, None])
    with pytest.raises(Unknown, match="the size of the image is not known"):
        weights.identity(symbol("h"))  # type: ignore[arg-type]
    with pytest.raises(Unknown, match="an identity matrix of 1025 rows is not written out"):
        weights.identity(1025)


def test_a_band_sums_the_neighbours_of_lrn() -> None:
    band = weights.band(7, 5, 0.5)[:, :, 0, 0]
    for out in range(7):
        inside = range(max(0, out - 2), min(7, out + 3))
        assert np.flatnonzero(band[out]).tolist() == list(inside)
    even = weights.band(6, 4, 1.0)[:, :, 0, 0]
    assert np.flatnonzero(even[3]).tolist() == [2, 3, 4, 5]  # one less before than behind
    with pytest.raises(Unknown):
        weights.band(symbol("c"), 5, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [1, 2, 7, 400])
@pytest.mark.parametrize("onesided", [0, 1])
def test_a_product_with_the_dft_matrix_is_the_transform(length: int, onesided: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, length))
    want = np.fft.rfft(x) if onesided else np.fft.fft(x)
    got = (x @ weights.dft_matrix(length, onesided)).reshape(3, -1, 2)
    np.testing.assert_allclose(got, np.stack([want.real, want.imag], axis=-1), atol=1e-11)


def test_matrices_of_open_or_long_transforms_are_not_written_out() -> None:
    with pytest.raises(Unknown, match="the length of the transform is not known"):
        weights.dft_matrix(symbol("n"), 1)  # type: ignore[arg-type]
    with pytest.raises(Unknown, match="the matrix of a transform of 4096 elements is not written out"):
        weights.dft_matrix(4096, 1)


def test_views_between_transposes_are_found_by_what_moves() -> None:
    # NHWC -> NCHW, rows and columns joined, and back
    assert weights.moves_nothing((1, 4, 5, 3), (0, 3, 1, 2), (1, 3, 20), (0, 2, 1))
    assert not weights.moves_nothing((1, 4, 5, 3), (0, 3, 1, 2), (1, 3, 20), (0, 1, 2))
    with pytest.raises(Unknown):
        weights.moves_nothing((symbol("n"), 4), (1, 0), (4, 2), (1, 0))


def test_axes_of_two_steps_are_those_of_one() -> None:
    x = np.zeros((1, 2, 1, 3, 1))
    once = np.squeeze(x, weights.squeezed((0,), (1, 3), 5))
    assert once.shape == np.squeeze(np.squeeze(x, 0), (1, 3)).shape
    y = np.zeros((2, 3))
    twice = np.expand_dims(np.expand_dims(y, (0,)), (1, 4))
    assert np.expand_dims(y, weights.unsqueezed((0,), (1, 4), twice.ndim)).shape == twice.shape


def test_equations_are_compared_up_to_letters() -> None:
    assert weights.einsum_is("bij,bjk->bik", "...ij,...jk->...ik")
    assert weights.einsum_is("xy, yz -> xz", "...ij,...jk->...ik")
    assert not weights.einsum_is("bij,bkj->bik", "...ij,...jk->...ik")
    assert not weights.einsum_is("bij,jk->bik", "...ij,...jk->...ik")
    assert weights.einsum_perm("abc->cab") == (2, 0, 1)
    with pytest.raises(Unknown):
        weights.einsum_perm("aab->ab")
