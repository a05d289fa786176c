"""A block that a graph repeats is found, explored once, and rewritten in every copy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from graphopt.ir import onnx_io
from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import run
from graphopt.ir.graph import Attrs, Graph, Value
from graphopt.ir.infer import infer
from graphopt.optimize import optimize_graph
from graphopt.rewrite.derivations import repeats
from graphopt.rewrite.derivations.repeats import find_repeats
from graphopt.rewrite.derivations.replicate_to_copies import transfer
from graphopt.run import optimization
from graphopt.target import target
from tests.rewrite.small_graphs import Maker


def layers(count: int, width: int = 16, caches: bool = False, shared: bool = True) -> Graph:
    """x -> x + hardswish(x @ w + b) * mask, again and again, each with weights of its own."""
    rng = np.random.default_rng(count)
    m = Maker()
    x, mask = m.input("x", 2, width), m.input("mask", 2, width)
    state = m("Exp", x)
    outputs: list[Value] = []
    three, six, zero = (m.constant(np.float32(n)) for n in (3, 6, 0))
    for layer in range(count):
        w = m.constant(rng.standard_normal((width, width)).astype(np.float32) / width)
        b = m.constant(rng.standard_normal(width).astype(np.float32))
        h = m("Add", m("MatMul", state, w), b)
        h = m("Div", m("Mul", h, m("Clip", m("Add", h, three), zero, six)), six)
        state = m("Add", state, m("Mul", h, mask if shared else m.input(f"mask{layer}", 2, width)))
        outputs += [h] if caches else []
    return m.done(m("Neg", m("Neg", m("Relu", state))), *outputs)


def ops(graph: Graph) -> Counter[str]:
    return Counter(n.op for n in graph.nodes() if n.op not in ("Input", "Constant"))


def feeds(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {graph.names[v]: rng.standard_normal((2, 16)).astype(np.float32) for v in graph.inputs}


def test_copies_are_found_with_what_only_they_read() -> None:
    graph = layers(9)
    found = find_repeats(graph, infer(graph))
    assert found is not None
    assert len(found.copies) in (8, 9)
    assert len(set(map(len, found.copies))) == 1
    assert len(found.copies[0]) == 8
    labels = [[graph.node(n).op for n in copy] for copy in found.copies]
    assert all(copy == labels[0] for copy in labels)


def test_a_shortened_chain_is_the_model_with_fewer_layers() -> None:
    graph = layers(9)
    found = find_repeats(graph, infer(graph))
    assert found is not None
    short = found.shortened()
    removed = 8 * (len(found.copies) - 4)
    assert len(short) == len(graph) - removed
    assert all(np.isfinite(a).all() for a in run(short, feeds(graph)).values())


@pytest.mark.parametrize("count", [2, 4])
def test_few_copies_are_no_chain(count: int) -> None:
    graph = layers(count)
    assert find_repeats(graph, infer(graph)) is None


def test_a_layer_of_another_width_ends_a_chain() -> None:
    graph = layers(8)
    odd = next(n for n in graph.nodes() if n.op == "MatMul")
    graph.update(odd.id, op="com.example::Other")
    found = find_repeats(graph, infer(graph))
    assert found is None or odd.id not in found.positions


def test_values_of_the_middle_that_something_behind_reads_are_in_the_way() -> None:
    graph = layers(9)
    middle = [n for n in graph.nodes() if n.op == "Div"][4]
    tail = graph.add("Tanh", (Value(middle.id),))
    graph.add_output("seen", Value(tail.id))
    assert find_repeats(graph, infer(graph)) is None


@pytest.mark.parametrize("place", ["portable", "ort"])
@pytest.mark.parametrize(("caches", "shared"), [(False, True), (True, True), (False, False)])
def test_every_copy_is_rewritten_as_if_it_were_explored(
    place: str, caches: bool, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = layers(10, caches=caches, shared=shared)
    once, report = optimize_graph(graph, target=target(place))
    monkeypatch.setattr(repeats, "FEWEST", 1000)
    each, _ = optimize_graph(graph, target=target(place))
    assert ops(once) == ops(each)
    assert ops(once)["Clip"] == 0
    assert report.warnings == ()
    wanted = run(graph, feeds(graph))
    for name, array in run(once, feeds(graph)).items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-5)
    assert report.derivation is not None
    assert onnx_io.to_bytes(report.derivation.apply(graph).graph) == onnx_io.to_bytes(once)


def separable(count: int) -> Graph:
    """Blocks of separable convolutions with a way past each, and one more behind them, as in Xception."""
    m, rng = Maker(), np.random.default_rng(count)
    x = m.input("x", 1, 24, 6, 6)

    def apart(value: Value, channels: int) -> Value:
        wide, thin = rng.standard_normal((24, 1, 3, 3)) / 3, rng.standard_normal((channels, 24, 1, 1)) / 5
        each = m("Conv", m("Relu", value), m.constant(wide), group=24, pads=(1, 1, 1, 1))
        return m("Conv", each, m.constant(thin))

    for _ in range(count):
        x = m("Add", apart(x, 24), x)
    return m.done(apart(x, 32))


def test_layouts_of_a_block_are_those_of_all_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, misfits = separable(8), []

    def watched(*given: Any) -> int:
        misfits.append(transfer(*given))
        return misfits[-1]

    monkeypatch.setattr(optimization, "transfer", watched)
    made, report = optimize_graph(graph, target=target("cpu"))
    assert misfits == [0]
    assert ops(made)["Conv"] == 0
    assert ops(made)["graphopt::Block"] == 1
    given = {"x": np.random.default_rng(0).standard_normal((1, 24, 6, 6)).astype(np.float32)}
    for name, array in run(made, given).items():
        np.testing.assert_allclose(array, run(graph, given)[name], rtol=1e-3, atol=1e-4)
    assert report.derivation is not None
    assert onnx_io.to_bytes(report.derivation.apply(graph).graph) == onnx_io.to_bytes(made)


def test_a_graph_is_explored_as_a_whole_where_not_all_fits_all_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimization, "transfer", lambda *given: 1)
    made, _ = optimize_graph(separable(8), target=target("cpu"))
    assert ops(made)["Conv"] == 0


def test_exploring_takes_no_longer_for_more_copies() -> None:
    sizes = set()
    for count in (10, 20, 40):
        _, report = optimize_graph(layers(count), target=target("ort"))
        assert report.exploration is not None
        sizes.add(report.exploration.nodes)
    assert len(sizes) == 1


def test_weights_may_differ_in_anything_but_shape() -> None:
    graph = layers(8)
    weight = next(n for n in graph.nodes() if n.op == "Constant" and n.attrs["value"].shape == (16, 16))  # type: ignore[union-attr]
    graph.update(weight.id, attrs=Attrs(value=Constant.of(np.zeros((16, 16), np.float32))))
    assert find_repeats(graph, infer(graph)) is not None
