"""An einsum of two operands is a product of matrices between transposes and reshapes."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.evaluate import run
from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph
from graphopt.rewrite.guards import einsums
from graphopt.rewrite.guards.comparison import Unknown
from graphopt.target import target

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 2, "f": 3}


PRODUCTS = "ab,bc->ac abc,cde->abde abc,cde->adbe abcd,abed->abce ba,cb->ca abc,bc->a ab,b->a"


@pytest.mark.parametrize("equation", [*PRODUCTS.split(), "abc , cd -> dab"])
def test_products(equation: str) -> None:
    random = np.random.default_rng(0)
    left, right = equation.replace(" ", "").split("->")[0].split(",")
    x, y = (random.random([SIZES[c] for c in part]) for part in (left, right))
    rows = x.transpose(einsums.einsum_left(equation)).reshape(einsums.einsum_rows(equation, x.shape)[1])
    columns = y.transpose(einsums.einsum_right(equation)).reshape(einsums.einsum_columns(equation, y.shape)[1])
    made = (rows @ columns).reshape(einsums.einsum_made(equation, x.shape, y.shape)[1])
    np.testing.assert_allclose(made.transpose(einsums.einsum_out(equation)), np.einsum(equation, x, y))


@pytest.mark.parametrize(
    "equation", ["ab,cd->abcd", "aab,bc->ac", "ab,bc->c", "...a,ab->...b", "ab,bc", "ab->ba", "ab,bc,cd->ad"]
)
def test_what_is_none(equation: str) -> None:
    with pytest.raises(Unknown):
        einsums.einsum_left(equation)


ELEMENTS = "ab,ab->ab a,b->ab a,b->ba abc,cb->bac abc,b->abc abc,ca->cba b,abc->acb ab,cd->dbac"


@pytest.mark.parametrize("equation", [*ELEMENTS.split(), "ab , b -> ba"])
def test_products_of_elements(equation: str) -> None:
    random = np.random.default_rng(0)
    terms = equation.replace(" ", "").split("->")[0].split(",")
    operands = [random.random([SIZES[c] for c in term]) for term in terms]
    x, y = (
        v.transpose(einsums.einsum_order(equation, k)).reshape(einsums.einsum_spread(equation, k, v.shape))
        for k, v in enumerate(operands)
    )
    np.testing.assert_array_equal(x * y, np.einsum(equation, *operands))


@pytest.mark.parametrize("equation", ["ab,bc->ac", "aab,b->ab", "a...,b->ab", "ab,b", "ab->ba", "ab,b->a"])
def test_what_sums(equation: str) -> None:
    with pytest.raises(Unknown):
        einsums.einsum_order(equation, 0)


@pytest.mark.parametrize("equation", ["ibh,hnd->ibnd", "ibnd,hnd->ibh", "bih,hnd->ibnd"])
def test_weights_multiply_rows_of_two_open_sizes(equation: str) -> None:
    left, right = equation.split("->")[0].split(",")
    known = {"h": 6, "n": 2, "d": 3}
    shapes = [[known.get(c, c) for c in part] for part in (left, right)]
    text = [f"float32[{', '.join(map(str, shape))}]" for shape in shapes]
    graph = parse(f'x: {text[0]} w: {text[1]} y = Einsum(x, w, equation="{equation}") return y')
    made, _ = optimize_graph(graph, target=target("cpu"))
    assert "Einsum" not in {node.op for node in made.nodes()}
    random = np.random.default_rng(0)
    for sizes in ({"i": 4, "b": 5}, {"i": 1, "b": 3}, {"i": 0, "b": 2}):
        x, w = (random.random([{**known, **sizes}[c] for c in part]).astype(np.float32) for part in (left, right))
        np.testing.assert_allclose(run(made, {"x": x, "w": w})["y"], np.einsum(equation, x, w), rtol=1e-4)
