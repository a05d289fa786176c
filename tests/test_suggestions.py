"""Names that there are not are answered with those most like them."""

from graphopt.suggestions import nearest, nearest_or_some


def test_the_nearest_are_told_else_some_and_how_many() -> None:
    assert nearest("Rellu", ["Relu", "Selu", "Conv"]) == "; did you mean Relu or Selu?"
    assert nearest("xyz", ["Relu"]) == ""
    assert nearest_or_some("Rellu", ["Relu", "Conv"]) == "; did you mean Relu?"
    for known, said in ([], "there is none"), (["a"], "there is a"), (["b", "a"], "there are b, a"):
        assert nearest_or_some("xyz", known) == f"; {said}"
    assert nearest_or_some("xyz", map(str, range(300))) == "; there are 300: 0, 1, 2, 3, 4, 5, 6, 7, ..."
