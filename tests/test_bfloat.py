"""Weights of products in bfloat16: taken under the policy ``approx`` alone and where it pays, to their bound."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graphopt
from graphopt.compile import CompiledModel
from graphopt.ir.bfloat import PRODUCT

RNG = np.random.default_rng(0)


def model(form: str, m: int | str, k: int, n: int):
    """A product by a constant, with what is needed of it; and the weights, ``[k, n]``."""
    w, b = RNG.standard_normal((k, n), np.float32), RNG.standard_normal(n, np.float32)
    held = [numpy_helper.from_array(np.ascontiguousarray(w.T if form == "transposed" else w), "w")]
    if form == "MatMul":
        nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    elif form == "Gemm":
        nodes = [helper.make_node("Gemm", ["x", "w"], ["y"])]
    else:
        nodes = [
            helper.make_node("Gemm", ["x", "w", "b"], ["z"], transB=int(form == "transposed")),
            helper.make_node("Relu", ["z"], ["y"]),
        ]
        held.append(numpy_helper.from_array(b, "b"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [m, k])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [m, n])
    graph = helper.make_graph(nodes, "g", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8), w


def ops_of(program: CompiledModel) -> set[str]:
    return {node.op for node in program.graph.nodes()}


@pytest.mark.parametrize(
    ("form", "rows", "m"), [("MatMul", "batch", 17), ("Gemm", 3, 3), ("biased", "batch", 1), ("transposed", 5, 5)]
)
def test_products_stay_within_their_bound(form, rows, m):
    k, n = 601, 170
    made, w = model(form, rows, k, n)
    program = graphopt.compile(made, policy="approx", strict=True)
    assert PRODUCT in ops_of(program)
    x = RNG.standard_normal((m, k), np.float32)
    (want,) = ReferenceEvaluator(made).run(None, {"x": x})
    terms = np.abs(x).astype(np.float64) @ np.abs(w)
    off = np.abs(program({"x": x})["y"] - want.astype(np.float64))
    assert (off <= terms * (2.0**-8 + 2.0**-20)).all()
    assert off.max() > terms.max() * 2.0**-20


@pytest.mark.parametrize("policy", ["exact", "reals"])
def test_no_other_policy_rounds_weights(policy):
    made, w = model("MatMul", 2, 300, 200)
    program = graphopt.compile(made, policy=policy)
    assert PRODUCT not in ops_of(program)
    x = RNG.standard_normal((2, 300), np.float32)
    terms = np.abs(x).astype(np.float64) @ np.abs(w)
    assert (np.abs(program({"x": x})["y"] - x.astype(np.float64) @ w) <= terms * 2.0**-20).all()


def test_products_of_many_rows_keep_their_weights():
    """Their time goes into multiplications, of which there are as many."""
    assert PRODUCT not in ops_of(graphopt.compile(model("MatMul", 2000, 128, 128)[0], policy="approx"))
    assert PRODUCT in ops_of(graphopt.compile(model("MatMul", 8, 128, 128)[0], policy="approx"))


def test_models_that_are_written_keep_their_weights():
    made = graphopt.optimize(model("MatMul", 2, 64, 64)[0], policy="approx")
    assert [node.op_type for node in made.graph.node] == ["MatMul"]
