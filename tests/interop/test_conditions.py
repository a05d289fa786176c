from graphopt.interop.conditions import one_of
from graphopt.rewrite.reading.parse import parse_expr
from graphopt.rewrite.rule.notation import show_expr
from graphopt.rewrite.rule.rule import Apply, Expr


def parts(text: str) -> tuple[Expr, ...]:
    expr = parse_expr(text)
    return expr.arguments if isinstance(expr, Apply) and expr.function == "and" else (expr,)


def shown(*alternatives: str) -> list[str]:
    return [show_expr(e) for e in one_of([parts(text) for text in alternatives])]


def test_what_all_share_is_said_once() -> None:
    assert shown("a == 1 and b == 2", "a == 1 and c == 3") == ["a == 1", "b == 2 or c == 3"]
    assert shown("a == 1", "a == 1 and b == 2") == ["a == 1"]


def test_values_of_one_thing_are_a_list() -> None:
    assert shown("t == 1", "t == 10") == ["t in (1, 10)"]


def test_a_length_and_its_elements_are_one_comparison() -> None:
    assert shown("len(p) == 0", "len(p) == 2 and p[0] == 0 and p[1] == 1") == ["p in ((), (0, 1))"]
    assert shown("len(p) == 2 and p[0] == 0 and p[1] == q") == ["len(p) == 2", "p[0] == 0", "p[1] == q"]


def test_that_a_rank_is_known_goes_without_saying() -> None:
    assert shown("x.rank >= 0 and x.rank == 2") == ["x.rank == 2"]
    assert shown("x.rank >= 0 and y.rank == 2") == ["x.rank >= 0", "y.rank == 2"]
    assert shown("x.rank >= 0 and (x.rank == 2 or y.rank == 2)") == ["x.rank >= 0", "x.rank == 2 or y.rank == 2"]
