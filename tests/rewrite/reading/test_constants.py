import numpy as np
import pytest

from graphopt.errors import RuleError
from graphopt.ir.constants import Constant
from graphopt.rewrite.reading.constants import spelled, term_of
from graphopt.rewrite.rule.notation import show_term


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (np.float32(2), "2.0"),
        (np.array([[1.0, 2.0]], np.float32), "{((1.0, 2.0),)}"),
        (np.array([1, 2]), "[1, 2]"),
        (np.float64(0.5), "Cast(0.5, to=11)"),
        (np.array([[1]], np.int8), "Cast({((1,),)}, to=3)"),
    ],
)
def test_terms_make_the_array(array: np.ndarray, shown: str) -> None:
    assert show_term(term_of(array)) == shown


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(5000, np.float32), "5000 elements"),
        (np.full((2, 2), np.nan, np.float32), "NaN"),
        (np.array(["a"], object), "string"),
    ],
)
def test_what_cannot_be_written(array: np.ndarray, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        spelled(Constant.of(array))
