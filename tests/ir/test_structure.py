from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.graph import Attrs, Graph, Header, Value
from graphopt.ir.structure import same, structural_hash
from graphopt.ir.types import TensorType, fresh_symbol, symbol

N = symbol("N")


def start() -> tuple[Graph, Value]:
    graph = Graph()
    return graph, graph.add_input("x", TensorType("float32", (N, 4)))


def mlp(weight: float = 1.0, axis: int = 1, act: str = "Relu", noise: bool = False) -> Graph:
    graph, x = start()
    if noise:
        graph.names[x] = "x"
        graph.add_constant(Constant.of(np.float32(9)))
    w = graph.add_constant(Constant.of(np.full((4, 4), weight, np.float32)), "other" if noise else "w")
    a = graph.add("MatMul", (x, w)).outputs[0]
    b = graph.add(act, (a,)).outputs[0]
    graph.names[b] = "elsewhere" if noise else "b"
    graph.add_output("y", graph.add("Softmax", (b,), Attrs(axis=axis)).outputs[0])
    return graph


def test_ids_order_and_inner_names_do_not_matter() -> None:
    assert same(mlp(), mlp(noise=True)) is None
    assert structural_hash(mlp()) == structural_hash(mlp(noise=True)) == mlp().key()
    assert len(mlp().key()) == 16


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            mlp(weight=2.0),
            r"output 'y': Constant 'w': value is <float32\[4, 4\]>, and <float32\[4, 4\]> in the other: "
            r"16 of 16 elements differ, the most at \[0, 0\]: 1.0 and 2.0",
        ),
        (mlp(axis=0), "output 'y': Softmax: axis is 1, and 0 in the other"),
        (mlp(act="Abs"), "output 'y': Relu 'b', and Abs 'b' in the other"),
    ],
)
def test_the_first_difference_is_said_in_words(other: Graph, words: str) -> None:
    found = same(mlp(), other)
    assert found is not None
    assert re.fullmatch(words, found), found
    assert structural_hash(mlp()) != structural_hash(other)


@pytest.mark.parametrize(
    ("dtype", "was", "becomes", "words"),
    [
        ("float32", 2.5, -1.5, r": 1 of 12 elements differ, the most at \[2, 1\]: 2.5 and -1.5$"),
        ("float16", 2.5, np.nan, r": 1 of 12 elements differ, the most at \[2, 1\]: 2.5 and nan$"),
        ("int64", 7, 2**62, rf": 1 of 12 elements differ, the most at \[2, 1\]: 7 and {2**62}$"),
        ("bool", True, False, r": 1 of 12 elements differ, the most at \[2, 1\]: True and False$"),
        ("float64", 0.0, -0.0, "in the other, which differ in bits that compare as equal"),
    ],
)
def test_constants_that_differ_say_where(dtype: str, was: float, becomes: float, words: str) -> None:
    graphs = []
    for element in (was, becomes):
        array = np.ones((4, 3), dtype)
        array[2, 1] = element
        graph = Graph()
        graph.add_output("y", graph.add_constant(Constant.of(array), "w"))
        graphs.append(graph)
    found = same(*graphs)
    assert found is not None
    assert re.search(words, found), found


def test_what_the_caller_sees_matters() -> None:
    graph = mlp()
    renamed = mlp()
    assert same(mlp(), renamed) is None
    renamed.output_names[0] = "z"
    assert same(graph, renamed) == "output 0 is 'y', and 'z' in the other"
    typed = mlp()
    typed.types[typed.inputs[0]] = TensorType("float16", (N, 4))
    assert same(graph, typed) == ("input 0 is 'x' of type float32[N, 4], and 'x' of type float16[N, 4] in the other")
    more = mlp()
    more.add_input("more")
    assert same(graph, more) == "1 input, and 2 in the other"
    newer = mlp()
    newer.header = Header(opsets=(("", 22),))
    assert same(graph, newer) == "opsets are ai.onnx 21, and ai.onnx 22 in the other"


def test_sizes_without_a_name_are_equal_if_they_stand_alike() -> None:
    def with_sizes(*sizes: object) -> Graph:
        graph = Graph()
        graph.add_output("y", graph.add_input("x", TensorType("float32", sizes)))  # type: ignore[arg-type]
        return graph

    a, b, c, d = (fresh_symbol() for _ in range(4))
    assert same(with_sizes(a, b), with_sizes(c, d)) is None
    assert same(with_sizes(a, a), with_sizes(c, d)) is not None


def test_shared_work_is_not_repeated_work() -> None:
    shared, x = start()
    a = shared.add("Neg", (x,)).outputs[0]
    shared.add_output("y", shared.add("Add", (a, a)).outputs[0])
    repeated, x = start()
    b, c = (repeated.add("Neg", (x,)).outputs[0] for _ in range(2))
    repeated.add_output("y", repeated.add("Add", (b, c)).outputs[0])
    assert same(shared, repeated) == "1 Neg nodes, and 2 in the other, which compute the same"


def test_two_draws_are_not_one() -> None:
    def noise(draws: int) -> Graph:
        graph, x = start()
        drawn = [graph.add("RandomNormalLike", (x,)).outputs[0] for _ in range(2)]
        graph.add_output("y", graph.add("Add", (drawn[0], drawn[draws - 1])).outputs[0])
        return graph

    assert same(noise(2), noise(2)) is None
    assert same(noise(1), noise(2)) is not None


def branches(bias: float, swapped: bool = False) -> Graph:
    graph, x = start()
    p = graph.add_input("p")
    outer = graph.add("Neg", (x,)).outputs[0]
    bodies = {}
    for name in ("else_branch", "then_branch"):
        body = Graph()
        captured = [body.add_input(n) for n in ("a", "b")]
        values = captured[::-1] if swapped else captured
        sum = body.add("Sub", tuple(values)).outputs[0]
        constant = body.add_constant(Constant.of(np.float32([bias])))
        body.add_output("t", body.add("Add", (sum, constant)).outputs[0])
        bodies[name] = body
    captures = (outer, x) if not swapped else (x, outer)
    graph.add_output("y", graph.add("If", (p, *captures), Attrs(bodies), captures=2).outputs[0])
    return graph


def test_what_bodies_capture_counts_not_where_it_is_listed() -> None:
    assert same(branches(1.0), branches(1.0, swapped=True)) is None
    assert same(branches(1.0), branches(2.0)) == (
        "output 'y': If: in else_branch: output 't': Constant: "
        "value is <float32[1]> [1.0], and <float32[1]> [2.0] in the other"
    )


def test_functions_count() -> None:
    from graphopt.ir.graph import Function

    def with_function(op: str) -> Graph:
        graph = mlp()
        graph.functions["l::f", ""] = Function("l", "f", "", mlp(act=op))
        return graph

    assert same(with_function("Relu"), with_function("Relu")) is None
    assert same(with_function("Relu"), with_function("Abs")) == (
        "function 'l::f': output 'y': Relu 'b', and Abs 'b' in the other"
    )
    assert same(with_function("Relu"), mlp()) == "only one of them has the function 'l::f'"
    graph = with_function("Relu")
    graph.functions["l::f", ""] = replace(graph.functions["l::f", ""], attributes=("alpha",))
    assert same(graph, with_function("Relu")) == "function 'l::f' has other attributes or opsets"


def test_large_constants_may_count_by_identity() -> None:
    large = Constant.of(np.zeros(1000, np.float32))
    graphs = []
    for constant in (large, large, Constant.of(np.zeros(1000, np.float32))):
        graph = Graph()
        graph.add_output("y", graph.add_constant(constant))
        graphs.append(graph)
    one, same_object, copy = (structural_hash(g, by_identity=True) for g in graphs)
    assert one == same_object != copy
    assert same(graphs[0], graphs[2]) is None


def test_signs_of_zero_and_kinds_of_numbers_count() -> None:
    def with_attr(value: object) -> Graph:
        graph, x = start()
        graph.add_output("y", graph.add("Elu", (x,), Attrs(alpha=value)).outputs[0])  # type: ignore[arg-type]
        return graph

    values = [0.0, -0.0, 0, 1, 1.0, True, "1", b"1", (1,), ("1",)]
    assert len({structural_hash(with_attr(v)) for v in values}) == len(values)
