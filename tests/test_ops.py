import pytest

from graphopt import ops
from graphopt.ops import Add, compose, fn
from graphopt.rewrite.rule.notation import show_expr, show_term


def test_ops_and_functions_by_name() -> None:
    assert show_term(Add(1.0, ops.ops["com.microsoft::Gelu"](2.0)).term) == "Add(1.0, com.microsoft::Gelu(2.0))"
    assert show_expr((compose((0, 1), (1, 0)) == fn.range(fn.len([1, 2]))).expr) == (
        "compose((0, 1), (1, 0)) == range(len((1, 2)))"
    )


def test_names_that_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="unknown function compse"):
        ops.compse  # noqa: B018
