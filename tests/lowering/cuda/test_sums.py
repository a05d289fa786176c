"""What ops say of a product is one call of the library, whatever is transposed, batched, added and done to it."""

from __future__ import annotations

from itertools import product

import pytest

from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.lowering.cuda.card import Card
from graphopt.lowering.cuda.dispatch import choice
from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.emit.kernel_source import LibraryCall
from graphopt.lowering.fuse.groups import group
from graphopt.lowering.fuse.nests import write
from graphopt.lowering.link.passes import needed
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.lower.lower import lower
from tests.lowering.cuda.simulated import check

EXACT, NEAR = Card(has_epilogues=True), Card(has_epilogues=True, is_approximate=True)
ACTIVATIONS = {"": "h", "relu": "Relu(h)", "gelu_tanh": 'Gelu(h, approximate="tanh")'}


def nest_of(text: str) -> Nest:
    """The nest of ops that are fused into one."""
    graph = parse(text)
    facts = infer(graph)
    lowered = lower(graph, facts, is_for_host=False)
    (found,) = group(graph, facts, lowered, needed(graph, lowered, facts))
    return write(graph, facts, found).nest


def calls(nest: Nest, card: Card) -> Nest:
    return scheduled(nest, card, choice("library", {}))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("left", "right", "bias", "activation"), list(product([0, 1], [0, 1], [False, True], ACTIVATIONS)), ids=str
)
def test_matrices_turned_with_a_bias_and_an_activation(
    dtype: str, left: int, right: int, bias: bool, activation: str
) -> None:
    a, b = "5, 7" if left else "7, 5", "6, 5" if right else "5, 6"
    nest = nest_of(
        f"x: {dtype}[{a}]\nw: {dtype}[{b}]\nb: {dtype}[6]\n"
        f"h = Gemm(x, w{', b' * bias}, transA={left}, transB={right})\n"
        + (f"y = {ACTIVATIONS[activation]}\nreturn y" if activation else "return h")
    )
    made = calls(nest, EXACT)
    ((_, call),) = emit(made)
    assert isinstance(call, LibraryCall)
    told = {"transpose_a": left, "transpose_b": right, "has_bias": bias, "epilogue": activation}
    assert {k: v for k, v in call.attributes if k != "dtype"} == {k: v for k, v in told.items() if v}
    check(nest, made)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("w", ["3, 5, 6", "5, 6"])
def test_batches_with_a_bias_and_an_activation(w: str, activation: str) -> None:
    nest = nest_of(
        f"x: float32[3, 7, 5]\nw: float32[{w}]\nb: float32[6]\nm = MatMul(x, w)\nh = Add(m, b)\n"
        + (f"y = {ACTIVATIONS[activation]}\nreturn y" if activation else "return h")
    )
    made = calls(nest, EXACT)
    ((_, call),) = emit(made)
    assert isinstance(call, LibraryCall)
    assert dict(call.attributes).get("epilogue", "") == activation
    check(nest, made)


@pytest.mark.parametrize("card", [EXACT, NEAR], ids=["exact", "near"])
def test_the_gelu_of_erf_is_that_of_tanh_only_where_it_may_be_near(card: Card) -> None:
    nest = nest_of("x: float32[7, 5]\nw: float32[5, 6]\nb: float32[6]\nh = Gemm(x, w, b)\ny = Gelu(h)\nreturn y")
    made = emit(calls(nest, card))
    assert [isinstance(m, LibraryCall) for _, m in made] == ([True] if card is NEAR else [True, False])
    assert isinstance(made[0][1], LibraryCall)
    assert dict(made[0][1].attributes).get("epilogue", "") == ("gelu_tanh" if card is NEAR else "")
