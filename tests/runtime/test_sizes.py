import pytest

from graphopt.errors import InputError
from graphopt.runtime.sizes import Size, evaluate, show, symbols_of

KNOWN = {"n": 7, "m": 3}


@pytest.mark.parametrize(
    ("size", "value", "text"),
    [
        (5, 5, "5"),
        ("n", 7, "n"),
        (("+", "n", "m", 1), 11, "n + m + 1"),
        (("-", "n", ("*", 2, "m")), 1, "n - (2 * m)"),
        (("//", ("-", 0, "n"), 2), -4, "(0 - n) // 2"),
        (("%", ("-", 0, "n"), 4), 1, "(0 - n) % 4"),
        (("max", "n", "m", 9), 9, "max(n, m, 9)"),
        (("min", "n", "m"), 3, "min(n, m)"),
        (("broadcast", 1, "n"), 7, "broadcast(1, n)"),
        (("broadcast", "n", 7, 1), 7, "broadcast(n, 7, 1)"),
        (("broadcast", 1, 1), 1, "broadcast(1, 1)"),
        (("broadcast", 0, 1), 0, "broadcast(0, 1)"),
        (("*",), 1, ""),
    ],
)
def test_sizes_have_values(size: Size, value: int, text: str) -> None:
    assert evaluate(size, KNOWN) == value
    assert show(size) == text
    assert set(symbols_of(size)) <= set(KNOWN)


def test_sizes_that_have_none_are_errors_of_the_inputs() -> None:
    with pytest.raises(InputError, match="axes of sizes 7 and 3 do not go together: expected equal sizes, or 1"):
        evaluate(("broadcast", "n", "m"), KNOWN)
    with pytest.raises(InputError, match=r"the size n // \(m - 3\) divides by zero, with {'n': 7, 'm': 3}"):
        evaluate(("//", "n", ("-", "m", 3)), KNOWN)
    with pytest.raises(KeyError):
        evaluate("k", KNOWN)
