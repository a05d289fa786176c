import pytest

from graphopt.lowering.cuda.card import CARD, Card


@pytest.mark.parametrize(("dtype", "expected"), [("float64", 2), ("float32", 4), ("float16", 8), ("int8", 16)])
def test_a_thread_accesses_as_many_bytes_at_once_as_the_card_allows(dtype: str, expected: int) -> None:
    assert CARD.width([dtype]) == expected
    assert Card(access=8).width([dtype]) == expected // 2


@pytest.mark.parametrize(("extent", "expected"), [(32, 8), (12, 4), (6, 2), (7, 1), (0, 8)])
def test_rows_are_whole_numbers_of_accesses(extent: int, expected: int) -> None:
    assert CARD.width(["float16"], extent) == expected


def test_the_widest_dtype_says_how_many() -> None:
    assert CARD.width(["int8", "float32"], 64) == 4
