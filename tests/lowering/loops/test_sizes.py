import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphopt.ir.facts import Fact
from graphopt.ir.types import Size, TensorType, broadcast, fresh_number, minimum, substitute, symbol, text_of
from graphopt.ir.types import fresh_symbol as fresh
from graphopt.lowering.loops.expressions import Expr, Var, variables
from graphopt.lowering.loops.interpret import value
from graphopt.lowering.loops.nest import Buffer
from graphopt.lowering.loops.sizes import Symbols, dimension_of, product, size_of, symbols_in, total
from graphopt.lowering.operators.operation import SizeVars
from graphopt.runtime.sizes import evaluate

A, B = symbol("a"), symbol("b")
SIZES: list[Size] = [3, A, A * B + 2, (A + 5) // 3 * B, minimum(A, B), broadcast(A, B) + 1, 2 * A - 1]
SIZES += [minimum(0, A - B), minimum(-A, -3 * B) + 1, -A // 3]


@given(st.sampled_from(SIZES), st.integers(1, 40), st.booleans())
def test_a_size_is_the_same_number_in_all_forms(size: Size, a: int, is_same: bool) -> None:
    known = {"a": a, "b": a if is_same else 1}
    want = substitute(size, dict(known))
    symbols = Symbols()
    assert evaluate(symbols.size(size), known) == want

    sizes = SizeVars()
    expr = sizes(size)
    names = {var: symbols(s) for s, var in sizes.variables.items()}
    assert evaluate(size_of(expr, names), known) == want
    assert value(expr, {var.name: evaluate(names[var], known) for var in names}) == want


@given(st.sampled_from(SIZES), st.integers(0, 40), st.booleans())
def test_an_expression_is_the_size_that_it_was_made_of(size: Size, a: int, is_same: bool) -> None:
    sizes = SizeVars()
    expr = sizes(size)
    atoms: dict[Expr, Size] = {}

    def atom(part: Expr) -> Size:
        return atoms.setdefault(part, symbol(f"x{len(atoms)}"))

    found = dimension_of(expr, atom)
    known = {"a": a, "b": a if is_same else 1}
    symbols = Symbols()
    names = {var: symbols(s) for s, var in sizes.variables.items()}
    values = {v.name: evaluate(names[v], known) for v in names}
    put = {text_of(s): value(part, values) for part, s in atoms.items()}
    assert substitute(found, put) == value(expr, values)


def test_a_division_by_zero_is_no_size() -> None:
    n = Var("n")
    asked: list[Expr] = []
    assert dimension_of(n // 2 + n // 0, lambda e: asked.append(e) or A) == A // 2 + A
    assert asked == [n, n, n // 0]
    with pytest.raises(ValueError, match="none"):
        dimension_of(n % 2, lambda e: [].index("none"))


def test_what_is_the_size_of_a_tensor_is_not_negative() -> None:
    """It is one variable, by which elements are in one piece; other numbers are the difference of two."""
    number, other = fresh_number(), fresh_number()
    sizes = SizeVars([Fact(TensorType("float32", (3, number, other + 2)))])
    assert isinstance(sizes(number), Var)
    assert len(variables(sizes(number * 2 + 1))) == 1
    assert len(variables(sizes(other + 2))) == 2


def test_sizes_that_nobody_named_are_numbered_in_order_of_use() -> None:
    names = []
    for _ in range(2):
        symbols, x, y = Symbols(), fresh(), fresh()
        names.append((symbols.size(x * 2), symbols.size(A), symbols.size(y), symbols.size(x)))
    assert names[0] == names[1] == (("*", 2, "?0"), "a", "?2", "?0")


def test_products_and_sums_are_computed_as_far_as_they_can_be() -> None:
    assert product(2, "n", ("*", 3, "m")) == ("*", 6, "n", "m")
    assert product(2, 3) == 6
    assert product("n", 0) == 0
    assert product("n") == "n"
    assert total(1, "n", ("+", "m", 2)) == ("+", "n", "m", 3)
    assert total() == 0
    assert total("n", 0) == "n"


def test_symbols_are_found_within_atoms() -> None:
    assert {s.name for s in symbols_in((A + 5) // (B + 1))} == {"a", "b"}
    assert symbols_in(4) == set()


def test_what_is_no_size_is_refused() -> None:
    loaded: Expr = Buffer("x", (), "int64")[()]
    with pytest.raises(ValueError, match="is no size"):
        size_of(loaded, {})
