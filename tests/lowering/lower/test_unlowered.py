from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import pytest

from graphopt.errors import ExecutionError
from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.lowering.lower import unlowered
from graphopt.lowering.lower.unlowered import name_of, reference, region
from graphopt.runtime.host import HostFunction
from graphopt.runtime.onnxruntime import Region


def function(text: str) -> HostFunction:
    graph: Graph = parse(text)
    node = graph.order()[-1]
    return reference(graph, node, infer(graph))


def test_an_op_is_a_function_of_arrays() -> None:
    (got,) = function("x: float32[n] y = Neg(x) return y")(np.array([1, 2], np.float32))
    np.testing.assert_array_equal(got, [-1, -2])


def test_what_numpy_has_no_dtype_for_may_lie_in_integers() -> None:
    x = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    for given in (x, x.view(np.uint16)):
        (got,) = function("x: bfloat16[n] y = Neg(x) return y")(given)
        np.testing.assert_array_equal(got.astype(np.float32), [-1.5, 2.0])


def test_strings_are_objects() -> None:
    s = np.array(["a", "b"], object)
    (got,) = function("s: string[n] y = StringConcat(s, s) return y")(s, s)
    assert got.dtype == object
    assert got.tolist() == ["aa", "bb"]


def test_a_node_with_bodies() -> None:
    yes, no = "q: ? r = Neg(q) return r", "q: ? r = Concat(q, q, axis=0) return r"
    run = function(f"c: bool[] x: float32[n] y = If(c | x, then_branch={{ {yes} }}, else_branch={{ {no} }}) return y")
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(run(np.array(True), x)[0], -x)
    np.testing.assert_array_equal(run(np.array(False), x)[0], [1, 2, 1, 2])


def test_a_body_that_cannot_be_prepared_is_an_error_of_the_run() -> None:
    body = "q: ?, k: ? r = Scatter(q, k, q) return r"
    run = function(
        f"c: bool[], x: float32[2], i: int64[2] y = If(c | x, i, then_branch={{ {body} }}, "
        f"else_branch={{ {body} }}) return y"
    )
    with pytest.raises(ExecutionError, match=r"'y'.*does not take the graph: .*'Scatter'"):
        run(np.array(True), np.zeros(2, np.float32), np.zeros(2, np.int64))


def test_what_cannot_be_computed_names_the_node() -> None:
    with pytest.raises(ExecutionError, match=r"'y'.*my::Op"):
        function("x: float32[n] y = my::Op(x) return y")(np.zeros(2, np.float32))


def test_a_node_without_names_is_called_after_its_op() -> None:
    graph = parse("x: float32[n] y = Neg(Abs(x)) return y")
    node = next(n for n in graph.nodes() if n.op == "Abs")
    assert name_of(graph, node) == f"Abs_{node.id}"


@pytest.mark.parametrize("call", ["RandomUniform(shape=[2, 3])", "Multinomial(x, sample_size=4)"])
def test_an_op_that_has_no_kernel_in_its_newest_version_runs_in_an_older_one(call: str) -> None:
    graph = parse(f"x: float32[2, 3] y = {call} return y")
    graph.header = replace(graph.header, opsets=(("", 26),))
    found = region(graph, [graph.order()[-1]], infer(graph))
    assert found is not None
    (y,) = found.function(*[np.ones((2, 3), np.float32)] * len(found.inputs))
    assert y.shape[0] == 2


def test_an_op_of_a_new_opset_runs_in_the_oldest_that_has_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that takes models up to opset 22, and an op that is there since 20."""
    asked: list[int] = []

    def opened(model: bytes, threads: int) -> Region:
        asked.append(onnx.load_from_string(model).opset_import[0].version)
        if asked[-1] > 22:
            raise ExecutionError("opset")
        return Region(model, threads)

    monkeypatch.setattr(unlowered, "Region", opened)
    graph = parse("x: float32[1, 2, 3] n: int64[4] y = AffineGrid(x, n) return y")
    graph.header = replace(graph.header, opsets=(("", 28),))
    found = region(graph, [graph.order()[-1]], infer(graph))
    assert asked == [28, 20]
    assert found is not None


def test_what_no_version_has_a_kernel_for_is_no_region() -> None:
    graph = parse("x: uint8[n] y = ImageDecoder(x) return y")
    assert region(graph, [graph.order()[-1]], infer(graph)) is None
