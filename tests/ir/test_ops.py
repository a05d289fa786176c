from math import inf

import pytest

from graphopt.ir import ops
from graphopt.ir.facts import Fact
from graphopt.ir.graph import NO_ATTRS, Attrs, Graph
from graphopt.ir.types import TensorType


def of(dtype: str, *shape: int) -> Fact:
    return Fact(TensorType(dtype, shape))


def test_schemas_say_what_onnx_says() -> None:
    gemm = ops.schema("Gemm")
    assert gemm is not None
    assert [f.name for f in gemm.inputs] == ["A", "B", "C"]
    assert (gemm.min_inputs, gemm.max_inputs, gemm.max_outputs) == (2, 3, 1)
    assert gemm.defaults["alpha"] == 1.0
    assert {"float32", "bfloat16"} <= gemm.allowed["T"]


def test_unknown_and_deprecated_ops_have_no_schema() -> None:
    assert ops.schema("Nonsense") is None
    assert ops.schema("their.domain::Op") is None
    assert ops.schema("Gelu", 19) is None
    assert ops.schema("Upsample") is None
    assert ops.schema("Upsample@9") is not None


def test_a_name_splits_into_domain_name_and_version() -> None:
    assert ops.split("Add") == ("", "Add", None)
    assert ops.split("com.microsoft::Gelu") == ("com.microsoft", "Gelu", None)
    assert ops.split("Softmax@11") == ("", "Softmax", 11)


def test_every_op_of_a_kind_exists() -> None:
    assert [op for names in ops.KINDS.values() for op in names if ops.schema(op) is None] == []
    assert [op for op in ops.COMMUTATIVE | ops.IMPURE if ops.schema(op) is None] == []


def test_kinds_are_the_narrowest() -> None:
    assert [ops.kind(op) for op in ("Relu", "Add", "Clip", "Softmax", "NonZero")] == [
        "unary",
        "binary",
        "elementwise",
        "normalization",
        "other",
    ]


def test_arity() -> None:
    assert ops.variadic_input("Concat") == 0
    assert ops.variadic_input("Einsum") == 0
    assert ops.variadic_input("Add") is None
    assert (ops.max_inputs("Concat"), ops.max_inputs("Clip"), ops.max_outputs("Split")) == (None, 3, None)


def test_letters_tell_which_dtypes_are_one() -> None:
    assert ops.input_constraint("Add", 0) == ops.input_constraint("Add", 1) == ops.output_constraint("Add")
    assert ops.input_constraint("Where", 0) == "B"
    assert ops.input_constraint("Concat", 7) == "T"
    assert ops.input_constraint("Reshape", 1) == "tensor(int64)"
    assert ops.input_constraint("Nonsense", 0) == ""


def test_attributes_have_their_defaults() -> None:
    assert ops.attribute("Softmax", NO_ATTRS, "axis") == -1
    assert ops.attribute("Gelu", NO_ATTRS, "approximate") == "none"
    assert ops.attribute("Transpose", NO_ATTRS, "perm") is None
    assert ops.attribute("Transpose", NO_ATTRS, "perm", rank=3) == (2, 1, 0)
    assert ops.attribute("Conv", NO_ATTRS, "strides", rank=4) == (1, 1)
    assert ops.attribute("Conv", Attrs(strides=(2, 2)), "strides", rank=4) == (2, 2)
    assert ops.attribute("com.microsoft::FusedMatMul", NO_ATTRS, "alpha") == 1.0


@pytest.mark.parametrize(
    ("op", "given", "kept"),
    [
        ("Softmax", {"axis": -1}, {}),
        ("Softmax", {"axis": 1}, {"axis": 1}),
        ("Transpose", {"perm": (2, 1, 0)}, {}),
        ("Transpose", {"perm": (1, 0, 2)}, {"perm": (1, 0, 2)}),
        ("Conv", {"strides": (1, 1), "pads": (0, 0, 0, 0), "group": 1, "kernel_shape": (3, 3)}, {}),
        ("Conv", {"strides": (1, 2)}, {"strides": (1, 2)}),
        ("MaxPool", {"kernel_shape": (1, 1)}, {"kernel_shape": (1, 1)}),
        ("LeakyRelu", {"alpha": 0.01}, {}),
        ("their::Op", {"axis": 0}, {"axis": 0}),
    ],
)
def test_what_is_said_anyway_is_left_out(op: str, given: dict[str, object], kept: dict[str, object]) -> None:
    assert ops.canonical(op, Attrs(given)) == Attrs(kept)


def test_floats_are_in_single_precision() -> None:
    assert ops.canonical("LeakyRelu", Attrs(alpha=0.1))["alpha"] == pytest.approx(0.1, abs=1e-8)
    assert ops.canonical("LeakyRelu", Attrs(alpha=0.1))["alpha"] != 0.1
    assert ops.canonical("LeakyRelu", Attrs(alpha=inf))["alpha"] == inf
    unchanged = Attrs(axis=1)
    assert ops.canonical("Softmax", unchanged) is unchanged


def test_purity_looks_into_bodies() -> None:
    body = Graph()
    body.add("RandomNormal", (), Attrs(shape=(1,)))
    assert ops.is_pure("If", Attrs(then_branch=Graph()))
    assert not ops.is_pure("If", Attrs(then_branch=body))
    assert not ops.is_pure("Dropout")
    assert ops.is_pure("their::Op")


@pytest.mark.parametrize(
    ("op", "attrs", "inputs", "opset", "reason"),
    [
        ("HardSwish", {}, [of("float32", 2)], 13, "HardSwish needs opset 14, the model has 13"),
        ("HardSwish", {}, [of("float32", 2)], 14, None),
        ("Add", {"axis": 1}, [of("float32", 2)] * 2, 13, "Add has no attribute axis"),
        ("Cast", {"to": 1, "saturate": 0}, [of("int64")], 13, "Cast has no attribute saturate in opset 13"),
        ("Cast", {"to": 1, "saturate": 1}, [of("int64")], 13, None),
        ("Squeeze", {}, [of("float32", 1), of("int64", 1)], 11, "axes of Squeeze must be constant before opset 13"),
        ("Softmax@11", {"axis": 1}, [of("float32", 1)], 12, None),
        (
            "Softmax@11",
            {"axis": 1},
            [of("float32", 1)],
            13,
            "Softmax has its form of opset 11 only, the model has opset 13",
        ),
        ("Cast", {}, [of("int64")], 13, "Cast needs the attribute to"),
        ("Relu", {}, [of("int32", 2)], 13, "Relu takes no int32 as X in version 13"),
        ("Relu", {}, [of("int32", 2)], 14, None),
        ("MatMul", {}, [of("int32", 2, 2)] * 2, 8, "MatMul takes no int32 as A in version 1"),
        ("Add", {}, [of("float32", 2), of("float16", 2)], 14, "Add takes one dtype for T, not float32 and float16"),
        ("Add", {}, [of("float32", 2)], 14, "Add takes at least 2 inputs, not 1"),
        ("Add", {}, [of("float32", 2)] * 3, 14, "Add takes at most 2 inputs, not 3"),
        ("Add", {}, [of("float32", 2), None], 14, "Add needs its input B"),
        ("Add", {}, [of("float32", 2), Fact()], 14, None),
        ("Clip", {}, [of("float32", 2), None, of("float32")], 14, None),
        ("their::Op", {"x": 1}, [], 14, None),
    ],
)
def test_refusals(op: str, attrs: dict[str, object], inputs: list[Fact | None], opset: int, reason: str | None) -> None:
    assert ops.refusal(op, Attrs(attrs), inputs, opset) == reason
