"""Registers of matrices multiply bytes as vectors do."""

from __future__ import annotations

import llvmlite.binding as binding
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.kernels import product_form
from graphopt.kernels.product_tiles import tiles
from graphopt.runtime import cpu

DTYPES = {"uint8": (np.uint8, TensorProto.UINT8), "int8": (np.int8, TensorProto.INT8)}


@pytest.mark.parametrize(("kind", "instruction"), [("int8_amx", "tdpbusd"), ("uint8_amx", "tdpbsud")])
def test_whole_tiles_are_left_to_registers_of_matrices(kind: str, instruction: str) -> None:
    """The bytes that have signs are those of the second operand, or those of the first."""
    module = tiles(kind, 12, 16, 0, 1, 128)
    parsed = binding.parse_assembly(str(module))
    parsed.verify()
    assert f"llvm.x86.{instruction}" in str(module)
    assert "llvm.x86.td" not in str(tiles(kind.replace("amx", "dot"), 12, 16, 0, 1, 128))


def test_without_leave_of_the_system_they_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_may_use_matrices", lambda: False)
    found = cpu.features.__wrapped__()
    assert not any(feature.startswith("amx") for feature in found)


@pytest.mark.skipif(product_form.instruction() != "amx", reason="this processor has no registers of matrices")
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("right", DTYPES)
@pytest.mark.parametrize("left", DTYPES)
def test_products_are_exact(left: str, right: str, has_zeros: bool) -> None:
    """Rows that fill tiles and rows that remain, sums of one block and of several, panels that are whole or not."""
    rng = np.random.default_rng(0)
    (a_type, a_code), (b_type, _) = DTYPES[left], DTYPES[right]
    node = helper.make_node("MatMulInteger", ["a", "b", *(["p", "q"] if has_zeros else [])], ["y"])
    b = rng.integers(np.iinfo(b_type).min, 1 + np.iinfo(b_type).max, (1280, 72)).astype(b_type)
    zeros = [numpy_helper.from_array(np.asarray(z), name) for z, name in ((a_type(7), "p"), (b_type(3), "q"))]
    held = [numpy_helper.from_array(b, "b"), *(zeros if has_zeros else [])]
    x = helper.make_tensor_value_info("a", a_code, ["m", 1280])
    y = helper.make_tensor_value_info("y", TensorProto.INT32, ["m", 72])
    model = helper.make_model(helper.make_graph([node], "g", [x], [y], held), ir_version=9)
    with graphopt.compile(model, jobs=0, verify="off") as compiled:
        for rows in (1, 15, 16, 33, 61, 200):
            a = rng.integers(np.iinfo(a_type).min, 1 + np.iinfo(a_type).max, (rows, 1280)).astype(a_type)
            want = (a.astype(np.int64) - 7 * has_zeros) @ (b.astype(np.int64) - 3 * has_zeros)
            assert (compiled(a)["y"] == want).all(), rows
