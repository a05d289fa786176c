"""Loops whose bodies take the number of the round and the condition as scalars, or as vectors of one element."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import onnx.checker
import onnx.parser
import pytest

import graphopt
from graphopt.ir.evaluate import run
from graphopt.ir.onnx_io import load

X = np.arange(6, dtype=np.float32)


def model(number: str, condition: str, is_fixed: bool, ends: bool) -> onnx.ModelProto:
    """A Loop that gathers what the number of the round says, of four rounds, or of three if the condition ends it."""
    outer = condition.replace("[n]", "[1]")
    trips = "int64 M={4}, " if is_fixed else ""
    pick = "Slice(x, i, e)" if "[" in number else "Gather(x, i)"
    shape = "one" if "[" in condition else "none"
    goes = f"l = Less(i, two) co = Reshape(l, {shape})" if ends else "co = Identity(cc)"
    made = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 13]>
        g (float[6] x{"" if is_fixed else ", int64 M"}) => (float[1] z, float[k{",1" if "[" in number else ""}] y)
        <{trips}{outer} c={{1}}, int64 two={{2}}, int64[1] one={{1}}, int64[1] next={{2}}, int64[0] none={{}}> {{
          z0 = Slice(x, one, next)
          x1 = Identity(z0)
          z, y = Loop(M, c, z0) <body: graph = b ({number} i, {condition} cc, float[1] a)
            => ({condition} co, float[1] o, float{"[1]" if "[" in number else ""} s) {{
              {goes} e = Add(i, one) s = {pick} j = Cast<to=1>(i) p = Mul(a, j) o = Add(p, x1)
            }}>
        }}"""
    )
    onnx.checker.check_model(made, full_check=True)
    return made


CASES = list(product(("int64", "int64[1]", "int64[n]"), ("bool", "bool[1]"), (True, False), (True, False)))


@pytest.mark.parametrize(("number", "condition", "is_fixed", "ends"), CASES)
def test_loops_are_run_and_optimized_as_their_bodies_are_declared(
    number: str, condition: str, is_fixed: bool, ends: bool
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    proto = model(number, condition, is_fixed, ends)
    inputs = {"x": X} if is_fixed else {"x": X, "M": np.array(4)}

    def of_runtime(proto: onnx.ModelProto) -> list[np.ndarray]:
        return runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)

    want = of_runtime(proto)
    made = graphopt.optimize(proto, verify="off")
    onnx.checker.check_model(made, full_check=True)
    for found in (of_runtime(made), run(load(proto), inputs).values()):
        for a, b in zip(want, found, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("number", "condition"), [("int64[1]", "bool[1]"), ("int64[1]", "bool")])
def test_programs_of_such_loops(number: str, condition: str) -> None:
    proto = model(number, condition, False, True)
    del proto.graph.output[
        1
    ]  # how many rounds there are is not known beforehand: without this, nothing is by reference
    del proto.graph.node[-1].attribute[0].g.output[2], proto.graph.node[-1].output[1]
    inputs = {"x": X, "M": np.array(4)}
    (want,) = run(load(proto), inputs).values()
    np.testing.assert_array_equal(graphopt.compile(proto, jobs=0)(inputs)["z"], want)
