from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import shape_inference

from graphopt.errors import InvalidModelError
from graphopt.ir import infer as infer_module
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import evaluate
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs, Function, Graph, Value
from graphopt.ir.infer import INFERENCES, infer, infer_node
from graphopt.ir.infer_shapes import Types
from graphopt.ir.infer_views import slice_length
from graphopt.ir.onnx_io import load
from graphopt.ir.onnx_io.types import read_type
from graphopt.ir.op_table import ABOUT_ONE
from graphopt.ir.text import parse
from graphopt.ir.types import (
    SequenceType,
    Size,
    TensorType,
    Type,
    Unranked,
    fresh_number,
    fresh_symbol,
    is_anonymous,
    is_open_size,
    maximum,
    substitute,
    symbol,
    symbols,
    unranked,
)
from tests.ir.backend_cases import Case, cases

N, M = symbol("N"), symbol("M")
LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))


def of(*shape: Size, dtype: str = "float32") -> Fact:
    return Fact(TensorType(dtype, shape))


def ints(*elements: Size) -> Fact:
    return Fact(TensorType("int64", (len(elements),)), elements=elements)


def scalar(element: Size) -> Fact:
    return Fact(TensorType("int64", ()), elements=(element,))


def const(value: object, dtype: str = "float32") -> Fact:
    return fact_of(Constant.of(np.asarray(value, dtype)))


def node(op: str, *inputs: Fact | None, n_outputs: int = 1, opset: int = 21, **attrs: object) -> tuple[Fact, ...]:
    return infer_node(op, Attrs(attrs), inputs, n_outputs, opset)


def shape(op: str, *inputs: Fact | None, opset: int = 21, **attrs: object) -> tuple[Size, ...] | None:
    return node(op, *inputs, opset=opset, **attrs)[0].shape


def output_types(text: str) -> list[Type | None]:
    graph = parse(text)
    found = infer(graph)
    return [found[v].type for v in graph.outputs if v is not None]


def outputs(text: str) -> list[str]:
    return [*map(str, output_types(text))]


# -- single ops


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (shape("Add", of(N, 1, 4), of(3, 4)), (N, 3, 4)),
        (shape("Add", of(N), of(5)), (5,)),
        (shape("MatMul", of(N, 2, 3), of(3, M)), (N, 2, M)),
        (shape("MatMul", of(3), of(3)), ()),
        (shape("Gemm", of(3, N), of(M, 3), transA=1, transB=1), (N, M)),
        (shape("com.microsoft::FusedMatMul", of(2, N, 3), of(2, M, 3), transB=1), (2, N, M)),
        (shape("com.microsoft::FusedMatMul", of(N, 2, 3), of(2, M, 3), transB=1, transBatchA=1), (2, N, M)),
        (shape("com.microsoft::FusedMatMul", of(3, 2, N), of(2, 3, M), transA=1, transBatchA=1), (2, N, M)),
        (shape("Conv", of(N, 3, M, 7), of(8, 3, 3, 3), strides=(2, 2), pads=(1,) * 4), (N, 8, (M + 1) // 2, 4)),
        (shape("Conv", of(N, 3, M, 7), of(8, 3, 3, 3), strides=(2, 2), auto_pad="SAME_UPPER"), (N, 8, (M + 1) // 2, 4)),
        (shape("ConvTranspose", of(N, 3, M), of(3, 8, 4), strides=(2,), pads=(1, 1)), (N, 8, 2 * M)),
        (shape("MaxPool", of(N, 3, M), kernel_shape=(2,), strides=(2,), ceil_mode=1), (N, 3, (M + 1) // 2)),
        (shape("AveragePool", of(N, 3, 4), kernel_shape=(9,), strides=(9,), ceil_mode=1), (N, 3, 1)),
        (shape("Reshape", of(N, 4, M), ints(0, -1)), (N, 4 * M)),
        (shape("Reshape", of(N, 12), ints(N, 3, -1)), (N, 3, 4)),
        (shape("Reshape", of(N, 6), ints(-1, 4)), (6 * N // 4, 4)),
        (shape("Reshape", of(0, 6), ints(0, 6), allowzero=1), (0, 6)),
        (shape("Squeeze", of(1, N, 1), ints(0, -1)), (N,)),
        (shape("Squeeze", of(1, 3, 1)), (3,)),
        (shape("Squeeze", of(1, 3, 1), ints()), None),
        (shape("Squeeze", of(2, 3), ints()), (2, 3)),
        (shape("Unsqueeze", of(N), ints(0, -1)), (1, N, 1)),
        (shape("Flatten", of(N, 2, M), axis=-1), (2 * N, M)),
        (shape("Slice", of(N, 10), ints(0), ints(2**31 - 1), ints(0)), (N, 10)),
        (shape("Slice", of(N, 10), ints(-3), ints(2**62), ints(1)), (N, 3)),
        (shape("Slice", of(N, 10), ints(-1), ints(-(2**62)), ints(0), ints(-1)), (N, 10)),
        (shape("Slice", of(N + 4), ints(1), ints(3)), (2,)),
        (shape("Split", of(N, 7), axis=1, num_outputs=2), (N, 4)),
        (shape("Gather", of(N, 5), of(2, M, dtype="int64"), axis=1), (N, 2, M)),
        (shape("Expand", of(1, 3), ints(N, 1, 1)), (N, 1, 3)),
        (shape("Tile", of(N, 3), ints(2, M)), (2 * N, 3 * M)),
        (shape("Pad", of(N, 3), ints(1, 2), None, ints(-1)), (N, 6)),
        (shape("ReduceSum", of(N, 3, 4), ints(-1), keepdims=0), (N, 3)),
        (shape("ReduceSum", of(N, 3), noop_with_empty_axes=1), (N, 3)),
        (shape("ReduceSum", of(N, 3)), (1, 1)),
        (shape("ArgMax", of(N, 3), axis=1), (N, 1)),
        (shape("TopK", of(N, 9), ints(4)), (N, 4)),
        (shape("Range", scalar(0), scalar(N), scalar(1)), (N,)),
        (shape("Range", scalar(0), scalar(N), scalar(2)), ((N + 1) // 2,)),
        (shape("ConstantOfShape", ints(N, 3)), (N, 3)),
        (shape("OneHot", of(N, dtype="int64"), scalar(5), of(2)), (N, 5)),
        (shape("Resize", of(1, 3, N, M), None, const([1, 1, 2, 0.5])), (1, 3, 2 * N, M // 2)),
        (shape("Resize", of(1, 3, N, M), None, None, ints(1, 3, 8, M)), (1, 3, 8, M)),
        (shape("Einsum", of(N, 3, 4), of(N, 4, M), equation="bij,bjk->bik"), (N, 3, M)),
        (shape("Einsum", of(N, 3, 4), equation="...ij->...ji"), (N, 4, 3)),
        (shape("DepthToSpace", of(N, 8, 3, M), blocksize=2), (N, 2, 6, 2 * M)),
        (shape("SpaceToDepth", of(N, 2, 6, 2 * M), blocksize=2), (N, 8, 3, M)),
        (shape("LSTM", of(N, M, 5), of(2, 8, 5), of(2, 8, 2), hidden_size=2, direction="bidirectional"), (N, 2, M, 2)),
        (shape("GRU", of(N, M, 5), of(1, 6, 5), of(1, 6, 2), None, None, of(1, 1, 2), hidden_size=2), (N, 1, 1, 2)),
        (shape("LSTM", of(N, M, 5), of(1, 8, 5), of(1, 8, 2), *[None] * 3, of(3, 1, 2), layout=1), (3, M, 1, 2)),
        (shape("Attention", of(N, M, 64), of(N, 9, 32), of(N, 9, 32), q_num_heads=4, kv_num_heads=2), (N, M, 64)),
        (shape("Det", of(N, 3, 3)), (N,)),
        (shape("RoiAlign", of(1, 3, 9, 9), of(N, 4), of(N, dtype="int64"), output_height=2), (N, 3, 2, 1)),
    ],
)  # fmt: skip
def test_shapes(found: tuple[Size, ...] | None, expected: tuple[Size, ...]) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: node("MatMul", of(3, 4), of(5, 6)),
            "MatMul of float32[3, 4] and float32[5, 6]: the sizes summed over",
        ),
        (lambda: node("Add", of(3), of(4)), "shapes [3] and [4] do not broadcast"),
        (lambda: node("Reshape", of(2, 3), ints(4)), "[2, 3] does not have as many elements as [4]"),
        (lambda: node("Reshape", of(2, 3), ints(4, -1)), "does not have as many elements"),
        (lambda: node("Concat", of(2, 3), of(3, 3), axis=1), "the sizes of axis 0 must agree, not be 2 and 3"),
        (lambda: node("Conv", of(1, 3, 9, 9), of(8, 4, 3, 3)), "channels"),
        (lambda: node("Conv", of(1, 3, 2, 9), of(8, 3, 3, 3)), "does not fit a size of 2"),
        (lambda: node("MaxPool", of(1, 3, 2), kernel_shape=(3,), strides=(3,)), "does not fit a size of 2"),
        (lambda: node("MaxPool", of(1, 3, 2), kernel_shape=(9,), strides=(7,), ceil_mode=1), "does not fit a size"),
        (lambda: node("Flatten", of(2, 3), axis=-3), "axis -3 is not an axis of a tensor of rank 2"),
        (lambda: node("Softmax", of(3), axis=4), "axis 4 is out of range for rank 1"),
        (lambda: node("Transpose", of(3, 4), perm=(0, 0)), "perm [0, 0] does not fit"),
        (lambda: node("BatchNormalization", of(1, 4, 2), *[of(3)] * 4), "must agree, not be 4 and 3"),
        (lambda: node("InstanceNormalization", of(1, 4, 2), of(4), of(3)), "must agree, not be 4 and 3"),
        (lambda: node("LayerNormalization", of(2, 4), of(4), of(3)), "shapes [2, 4] and [3] do not broadcast"),
        (lambda: node("RMSNormalization", of(2, 1), of(3)), "[3] does not broadcast to [2, 1]"),
        (lambda: node("LogSoftmax", of(2, 4), axis=2), "axis 2 is out of range for rank 2"),
        (lambda: node("Gather", ints(1, 2), scalar(2)), "out of range"),
        (lambda: node("Squeeze", of(2, 3), ints(0)), "must agree, not be 2 and 1"),
    ],
)
def test_what_does_not_fit_is_invalid(call: object, message: str) -> None:
    with pytest.raises(InvalidModelError) as caught:
        call()  # type: ignore[operator]
    assert message in str(caught.value)


def test_equal_facts_give_equal_sizes_even_where_they_have_no_form() -> None:
    a, b = fresh_number(), fresh_number()
    first = shape("Reshape", of(N, 4), ints(a, b))
    assert first == shape("Reshape", of(N, 4), ints(a, b))
    assert first != shape("Reshape", of(N, 4), ints(b, a))
    assert first is not None
    assert all(is_anonymous(s) for s in first)


def test_results_that_depend_on_unknown_elements_are_equal_to_nothing() -> None:
    assert shape("NonZero", of(N)) != shape("NonZero", of(N))
    vector = Fact(TensorType("int64", (2,)))
    assert shape("Reshape", of(N, 4), vector) != shape("Reshape", of(N, 4), vector)


def test_unknown_ranks_stay_the_same_unknown_rank() -> None:
    x = Fact(TensorType("float32", unranked()))
    assert node("Relu", x)[0].type == x.type
    assert node("Add", x, x)[0].type == x.type
    assert node("Add", x, of())[0].type == x.type
    assert node("Add", x, of(3))[0].type == node("Add", x, of(3))[0].type != x.type
    assert node("Transpose", x)[0].type == node("Transpose", x)[0].type != x.type


def test_unknown_ops_give_nothing() -> None:
    assert node("their::Op", of(3), n_outputs=2) == (Fact(), Fact())


def test_dtypes() -> None:
    assert node("Cast", of(3), to=10)[0].dtype == "float16"
    assert node("Equal", of(3), of(3))[0].dtype == "bool"
    assert node("Where", of(3, dtype="bool"), of(3), of(3))[0].dtype == "float32"
    assert node("QuantizeLinear", of(3), of())[0].dtype == "uint8"
    assert node("QuantizeLinear", of(3), of(), of(dtype="int4"))[0].dtype == "int4"
    assert node("DequantizeLinear", of(3, dtype="int8"), of(dtype="float16"))[0].dtype == "float16"
    assert [f.dtype for f in node("TopK", of(9), ints(4), n_outputs=2)] == ["float32", "int64"]
    assert [f.dtype for f in node("LayerNormalization", of(2, 9, dtype="float16"), of(9), n_outputs=3)] == [
        "float16",
        "float32",
        "float32",
    ]


def test_constants_only_make_constants() -> None:
    c = const([1.0, 2.0])
    assert node("Add", c, c)[0].is_const
    assert not node("Add", c, of(2))[0].is_const
    assert not node("RandomNormalLike", c)[0].is_const
    assert node("Shape", of(2, 3))[0].constant == Constant.of(np.array([2, 3], np.int64))
    assert not node("Shape", of(2, N))[0].is_const


# -- elements


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (node("Shape", of(N, 3, M)), (N, 3, M)),
        (node("Shape", of(N, 3, M), start=-2), (3, M)),
        (node("Size", of(N, 3, M)), (3 * M * N,)),
        (node("Gather", ints(N, 3, M), scalar(-1)), (M,)),
        (node("Gather", ints(N, 3, M), ints(2, 0)), (M, N)),
        (node("Concat", ints(N), ints(3, M), axis=0), (N, 3, M)),
        (node("Slice", ints(N, 3, M), ints(1), ints(2**62)), (3, M)),
        (node("Slice", ints(N, 3, M), ints(-1), ints(-(2**62)), ints(0), ints(-1)), (M, 3, N)),
        (node("Split", ints(N, 3, M), ints(1, 2), n_outputs=2)[1:], (3, M)),
        (node("Unsqueeze", scalar(N), ints(0)), (N,)),
        (node("Cast", ints(N), to=6), (N,)),
        (node("Mul", ints(N, 2), scalar(M)), (M * N, 2 * M)),
        (node("Div", ints(N, -7), scalar(2)), (N // 2, -3)),
        (node("Div", ints(N - 9), scalar(M)), (maximum(0, N - 9) // M - maximum(0, 9 - N) // M,)),
        (node("Div", ints(4 * N, 7), scalar(2)), (2 * N, 3)),
        (node("Div", ints(-7), ints(2)), (-3,)),
        (node("Div", ints(7), ints(0)), None),
        (node("Mod", ints(7, N), scalar(4)), (3, N - 4 * (N // 4))),
        (node("Mod", ints(-7), ints(4)), (1,)),
        (node("Mod", ints(N - 7), ints(4), fmod=1), None),
        (node("Min", ints(N, 3), ints(N + 1, 5)), (N, 3)),
        (node("Max", ints(N, 3), ints(N + 1, 5)), (N + 1, 5)),
        (node("Equal", ints(N, N, 3), ints(N, -1, 4)), (1, 0, 0)),
        (node("Equal", ints(*[N] * 9), ints(3)), None),
        (node("Where", Fact(TensorType("bool", (2,)), elements=(1, 0)), ints(N, 1), ints(2, M)), (N, M)),
        (node("ReduceProd", ints(N, 3), ints(0), keepdims=0), (3 * N,)),
        (node("Range", scalar(1), scalar(4), scalar(1)), (1, 2, 3)),
        (node("ConstantOfShape", ints(3), value=Constant.of(np.array([7]))), (7, 7, 7)),
        (node("ScatterElements", ints(N, 3), ints(1), ints(M)), (N, M)),
        (node("Cast", ints(2**40), to=6), None),
        (node("Add", ints(2**62, 1), ints(2**62, 1)), None),
    ],
)  # fmt: skip
def test_elements(found: tuple[Fact, ...], expected: tuple[Size, ...] | None) -> None:
    assert found[0].elements == expected


def test_one_unknown_element_does_not_hide_the_others() -> None:
    found = [node("Div", ints(N, N), ints(2, N - 9))[0].elements for _ in range(2)]
    assert found[0] == found[1]
    assert found[0] is not None
    assert found[0][0] == N // 2
    assert is_anonymous(found[0][1])


def test_unknown_elements_get_numbers_so_that_equal_shapes_stay_equal() -> None:
    found = output_types("x: float32[n]\ns: int64[2]\na = Reshape(x, s)\nb = Relu(Reshape(x, s))\nreturn a, b")
    assert found[0] == found[1]
    assert found[0] != output_types("x: float32[n]\ns: int64[2]\na = Reshape(x, s)\nreturn a")[0]


def test_updates_have_the_axes_that_indices_and_data_ask_for() -> None:
    data, indices = of(9, 4), Fact(TensorType("int64", (N, 1)))
    assert node("ScatterND", data, indices, of(N, 4))[0].shape == (9, 4)
    with pytest.raises(InvalidModelError, match="the updates have 1 axes, and not 2"):
        node("ScatterND", data, indices, of(N))


# -- bounds


@pytest.mark.parametrize(
    ("found", "low", "high"),
    [
        (node("Relu", of(N)), 0, np.inf),
        (node("HardSigmoid", of(N)), 0, 1),
        (node("Sigmoid", of(N)), 0, ABOUT_ONE),
        (node("Clip", of(N), const(-1), const(6)), -1, 6),
        (node("Clip", replace(of(N), low=2.0), None, const(6)), 2, 6),
        (node("Clip", of(N), const(3), const(1)), 1, 1),
        (node("Add", *node("HardSigmoid", of(N)), const([1.0, 3.0])), 1, 4),
        (node("Mul", *node("HardSigmoid", of(N)), const(-2)), -2, 0),
        (node("Div", *node("Relu", of(N)), const(2)), 0, np.inf),
        (node("Concat", *node("Relu", of(N)), *node("Sign", of(N)), axis=0), -1, np.inf),
        (node("Cast", *node("Sigmoid", of(N)), to=7), -np.inf, np.inf),
        (node("Shape", of(N, 3)), 0, np.inf),
        (node("Sub", *node("Shape", of(N)), *node("Shape", of(M))), -np.inf, np.inf),
        (node("Identity", of(3, dtype="uint8")), 0, 255),
        (node("Add", const(200, "uint8"), replace(of(N, dtype="uint8"), low=100.0, high=255.0)), 0, 255),
        (node("Pow", of(N), const(2)), 0, np.inf),
        (node("Sqrt", replace(of(N), high=4.0)), 0, 2),
        (node("ReduceMax", *node("HardSigmoid", of(0, 3)), ints(0)), -np.inf, 1),
        (node("Pad", replace(of(3), low=2.0, high=3.0), ints(1, 1)), 0, 3),
    ],
)
def test_bounds(found: tuple[Fact, ...], low: float, high: float) -> None:
    assert (found[0].low, found[0].high) == (low, high)


@settings(deadline=None)
@given(
    st.lists(st.floats(width=32), min_size=4, max_size=4), st.sampled_from(["Add", "Sub", "Mul", "Div", "Min", "Max"])
)
def test_bounds_hold_of_what_is_computed(numbers: list[float], op: str) -> None:
    a, b = (Constant.of(np.array(pair, np.float32)) for pair in (numbers[:2], numbers[2:]))
    facts = [replace(fact_of(c), constant=None) for c in (a, b)]
    (fact,) = infer_node(op, Attrs(), facts, 1, 21)
    array = evaluate(op, Attrs(), (a, b), 1, 21)[0].array
    kept = array[~np.isnan(array)]
    assert all(fact.low <= v <= fact.high for v in kept)


# -- against what onnx's own tests compute


def generalized(case: Case) -> tuple[list[Fact | None], dict[str, Size]]:
    """The inputs' facts with a symbol for every size but 1, and what the symbols stand for."""
    sizes: dict[str, Size] = {}
    facts: list[Fact | None] = []
    for constant in case.inputs:
        fact = None if constant is None else fact_of(constant)
        if fact is not None and fact.elements is None:
            assert constant is not None
            symbolic = tuple(n if n == 1 else symbol(f"d{n}") for n in constant.shape)
            sizes.update((f"d{n}", n) for n in constant.shape)
            fact = Fact(TensorType(constant.dtype, symbolic), constant=constant if constant.size <= 8 else None)
        facts.append(fact)
    return facts, sizes


def disagreement(fact: Fact, actual: Constant, sizes: dict[str, Size]) -> str | None:
    """What a fact says that is not so, in words."""
    if fact.type is not None and fact.dtype != actual.dtype:
        return f"the dtype is {actual.dtype}, not {fact.dtype}"
    if fact.shape is not None:
        shape = [substitute(s, sizes) for s in fact.shape]
        if len(shape) != len(actual.shape) or any(
            isinstance(s, int) and s != n for s, n in zip(shape, actual.shape, strict=True)
        ):
            return f"the shape is {actual.shape}, not {shape}"
    if actual.dtype == "string" or actual.array.dtype.kind == "c":
        return None
    if fact.elements is not None:
        elements = [substitute(e, sizes) for e in fact.elements]
        if any(isinstance(e, int) and e != n for e, n in zip(elements, actual.array.reshape(-1), strict=True)):
            return f"the elements are {actual.array}, not {elements}"
    numbers = actual.array.astype(np.float64)
    numbers = numbers[~np.isnan(numbers)]
    if not all(fact.low <= v <= fact.high for v in numbers.reshape(-1)):
        return f"the elements are not in {fact.low} to {fact.high}"
    return None


def plain(case: Case) -> tuple[list[Fact | None], dict[str, Size]]:
    """The inputs' types and bounds."""
    return [None if c is None else replace(fact_of(c), constant=None) for c in case.inputs], {}


@pytest.mark.parametrize("abstraction", [plain, generalized])
def test_facts_hold_of_what_onnx_tests_expect(abstraction: object) -> None:
    wrong = []
    for case in cases():
        facts, sizes = abstraction(case)  # type: ignore[operator]
        node = case.node
        for fact, actual in zip(
            infer_node(node.op, node.attrs, facts, node.n_outputs, case.opset), case.outputs, strict=True
        ):
            problem = disagreement(fact, actual, sizes) if actual is not None else None
            if problem is not None:
                wrong.append(f"{case.name}: {problem}")
    assert wrong == []


# -- against random shapes


@st.composite
def shapes(draw: st.DrawFn, rank: int) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(0, 5), min_size=rank, max_size=rank)))


def check(op: str, arrays: Sequence[np.ndarray], opset: int = 21, **attrs: object) -> None:
    """What is inferred from symbols in the place of sizes, and of elements, agrees with what is computed."""
    sizes: dict[str, Size] = {}
    facts = []
    for i, array in enumerate(arrays):
        symbolic: list[Size] = []
        for axis, size in enumerate(array.shape):
            sizes[f"d{i}_{axis}"] = size
            symbolic.append(symbol(f"d{i}_{axis}"))
        elements: tuple[Size, ...] | None = None
        if array.dtype == np.int64:
            symbolic = list(array.shape)
            names = [f"e{i}_{k}" for k in range(array.size)]
            values = array.reshape(-1).tolist()
            sizes.update(zip(names, values, strict=True))
            elements = tuple(symbol(n) if v > 1 and v % 2 else v for n, v in zip(names, values, strict=True))
        facts.append(Fact(TensorType(array.dtype.name, tuple(symbolic)), elements=elements))
    constants = [Constant.of(a) for a in arrays]
    (actual,) = evaluate(op, Attrs(attrs), constants, 1, opset)
    (fact,) = infer_node(op, Attrs(attrs), facts, 1, opset)
    assert disagreement(fact, actual, sizes) is None


@settings(deadline=None)
@given(st.data(), st.integers(0, 3), st.integers(0, 3))
def test_broadcasting(data: st.DataObject, a: int, b: int) -> None:
    full = data.draw(shapes(max(a, b)))
    parts = []
    for rank in (a, b):
        tail = full[len(full) - rank :]
        ones = data.draw(st.lists(st.booleans(), min_size=rank, max_size=rank))
        parts.append(np.zeros([1 if one else n for one, n in zip(ones, tail, strict=True)], np.float32))
    check("Add", parts)


@settings(deadline=None)
@given(st.integers(0, 6), st.integers(-8, 8), st.integers(-8, 8), st.sampled_from([1, 2, 3, -1, -2]))
def test_slicing(size: int, start: int, end: int, step: int) -> None:
    check("Slice", [np.zeros((2, size), np.float32), *(np.array([v]) for v in (start, end, 1, step))])


@settings(deadline=None)
@given(st.data(), shapes(3))
def test_reshaping(data: st.DataObject, shape: tuple[int, ...]) -> None:
    total = int(np.prod(shape))
    first = data.draw(st.sampled_from([n for n in range(1, 60) if total % n == 0])) if total else 1
    rest = -1 if total and data.draw(st.booleans()) else total // first
    check("Reshape", [np.zeros(shape, np.float32), np.array([first, rest])], allowzero=1 if rest == 0 else 0)


@settings(deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 2),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]),
)
def test_windows(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int], auto_pad: str) -> None:
    padded = size + (sum(pads) if auto_pad == "NOTSET" else 0)
    if padded < dilation * (kernel - 1) + 1:
        return
    attrs: dict[str, object] = {"strides": (stride,), "dilations": (dilation,), "auto_pad": auto_pad}
    if auto_pad == "NOTSET":
        attrs["pads"] = pads
    if not auto_pad.startswith("SAME"):
        check("Conv", [np.zeros((1, 2, size), np.float32), np.zeros((3, 2, kernel), np.float32)], **attrs)


@settings(deadline=None)
@given(st.data(), shapes(3), st.integers(-3, 2))
def test_joining_padding_and_tiling(data: st.DataObject, shape: tuple[int, ...], axis: int) -> None:
    x = np.zeros(shape, np.float32)
    check("Concat", [x, x, x], axis=axis)
    check("Tile", [x, np.array(data.draw(shapes(3)))])
    check("Pad", [x, np.array(data.draw(shapes(6)))])
    check("Gather", [np.zeros((*shape[:1], 3), np.float32), np.array([0, 2, 1])], axis=1)


# -- graphs


@pytest.mark.parametrize("path", LIGHT, ids=lambda p: p.stem)
def test_light_models_agree_with_onnx(path: Path) -> None:
    model = onnx.load(path)
    del model.graph.value_info[:]
    expected = shape_inference.infer_shapes(model, data_prop=True)
    graph = load(model)
    found = infer(graph)
    values = {name: value for value, name in graph.names.items()}
    assert [
        (info.name, read_type(info.type), found[values[info.name]].type)
        for info in expected.graph.value_info
        if read_type(info.type) != found[values[info.name]].type
    ] == []


def test_declared_types_complete_what_is_not_known() -> None:
    graph = parse("x: float32[n, 4]\ny = their::Op(x)\nz = Relu(y)\nreturn z")
    x, y = graph.inputs[0], next(v for v, name in graph.names.items() if name == "y")
    graph.types[y] = TensorType("float32", (N, 9))
    found = infer(graph)
    assert found[graph.outputs[0]].type == TensorType("float32", (N, 9))
    assert not found[y].is_const
    graph.types[graph.outputs[0]] = TensorType("float32", (7, 7))  # wrong: what is inferred wins
    assert infer(graph)[graph.outputs[0]].type == TensorType("float32", (N, 9))
    assert infer(graph, {x: of(2, 4)})[x].shape == (2, 4)


def test_declared_sizes_replace_sizes_that_nobody_named() -> None:
    graph = parse("x: float32[n, 4]\ny = NonZero(x)\nreturn y")
    y = graph.outputs[0]
    assert is_anonymous(infer(graph)[y].shape[1])  # type: ignore[index]
    graph.types[y] = TensorType("int64", (2, symbol("found")))
    assert infer(graph)[y].shape == (2, symbol("found"))


@pytest.mark.parametrize(
    "line",
    ["y = Reshape(x, s)", "z = Reshape(x, s)\ny = Relu(z)", "t = Add(s, s)\ny = Expand(x, t)", "y = Slice(x, s, e)"],
)
def test_a_declared_number_of_what_goes_after_an_inputs_elements_is_that_of_one_run(line: str) -> None:
    graph = parse(f"x: float32[n, 4]\ns: int64[2]\ne: int64[2]\n{line}\nreturn y")
    y = graph.outputs[0]
    assert y is not None
    graph.types[y] = TensorType("float32", (3, 4))
    assert is_anonymous(infer(graph)[y].shape[0])  # type: ignore[index]
    if line == "y = Reshape(x, s)":  # a name holds in every run
        graph.types[y] = TensorType("float32", (symbol("rows"), 4))
        assert infer(graph)[y].shape[0] == symbol("rows")  # type: ignore[index]


def test_a_declared_number_of_what_goes_after_sizes_is_believed() -> None:
    graph = parse("x: float32[n, 4]\na = Shape(x)\ns = their::Op(a)\ny = Reshape(x, s)\nreturn y")
    y = graph.outputs[0]
    assert y is not None
    graph.types[y] = TensorType("float32", (2, 8))
    assert infer(graph)[y].shape == (2, 8)


@pytest.mark.parametrize(
    ("lines", "declared", "known"),
    [
        ("y = Squeeze(x)", (symbol("any"), symbol("other")), (N, M)),
        ("y = Squeeze(x)", (N,), None),
        ("s = Squeeze(x)\ny = Sigmoid(s)", (N,), None),
        ("s = Squeeze(x)\nt = Mul(s, 2.0)\ny = Add(t, s)", (N, M), None),
        (
            "s = If(c | x, then_branch={ q: ? r = [1.0] return r }, else_branch={ q: ? return q })\ny = Neg(s)",
            (1,),
            None,
        ),
        (
            "s = Loop(n, c, 0.0 | x, body={ i: int64[] go: bool[] u: ? q: ? r = Add(u, q) return go, r })\ny = Neg(s)",
            (N, 1, M),
            None,
        ),
    ],
)
def test_a_declared_rank_that_only_a_run_says_is_not_believed(
    lines: str, declared: tuple[Size, ...], known: tuple[Size, ...] | None
) -> None:
    graph = parse(f"x: float32[N, 1, M]\nc: bool[]\nn: int64[]\n{lines}\nreturn y")
    y = graph.outputs[0]
    assert y is not None
    graph.types[y] = TensorType("float32", declared)
    assert infer(graph)[y].shape == known


NESTED = "r = If(d, then_branch={ e = [1.0] return e }, else_branch={ e = [1.0, 2.0] return e })"


@pytest.mark.parametrize("declared", [N, 3])
@pytest.mark.parametrize(
    "no",
    [
        "q: ? d: ? return q",
        f"q: ? d: ? {NESTED} return r",
        "q: ? d: ? zero = [0] i = NonZero(q) j = Squeeze(i, zero) r = Gather(q, j) return r",
    ],
)
def test_a_declared_size_of_branches_that_differ_is_not_believed(declared: Size, no: str) -> None:
    yes = "q: ? d: ? r = [0.0, 1.0, 2.0, 3.0] return r"
    call = f"c | x, d, then_branch={{ {yes} }}, else_branch={{ {no} }}"
    graph = parse(f"x: float32[N] c: bool[] d: bool[] s = If({call}) y = Neg(s) return s, y")
    values = [v for v in graph.outputs if v is not None]
    graph.types |= dict.fromkeys(values, TensorType("float32", (declared,)))
    s, y = (infer(graph)[v].shape for v in values)
    assert s == y
    assert s is not None
    assert is_open_size(s[0])


@pytest.mark.parametrize("declared", [N, 3])
def test_a_declared_size_that_rounds_of_a_loop_change_is_not_believed(declared: Size) -> None:
    body = "i: int64[] go: bool[] u: ? r = Concat(u, u, axis=0) return go, r"
    graph = parse(f"x: float32[N] c: bool[] n: int64[] s = Loop(n, c, x, body={{ {body} }}) y = Neg(s) return s, y")
    values = [v for v in graph.outputs if v is not None]
    graph.types |= dict.fromkeys(values, TensorType("float32", (declared,)))
    for value in values:
        (size,) = infer(graph)[value].shape or ()
        assert is_open_size(size)


def test_errors_name_the_node() -> None:
    with pytest.raises(InvalidModelError, match=r"node 'y': MatMul of float32\[3, 4\] and float32\[5, 6\]"):
        infer(parse("a: float32[3, 4]\nb: float32[5, 6]\ny = MatMul(a, b)\nreturn y"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: float32[3]\nb = int64[3]{1, 2, 3}\ny = Add(a, b)", "Add .*: B has to be float32, as an input before"),
        ("a: float32[n]\nb: float64[n]\ny = Concat(a, a, b, axis=0)", "inputs has to be float32"),
        ("a: bool[]\nx: float32[3]\nb: int32[3]\ny = Where(a, x, b)", "Y has to be float32"),
    ],
)
def test_inputs_of_one_call_that_are_of_different_types_are_invalid(text: str, reason: str) -> None:
    with pytest.raises(InvalidModelError, match=f"node 'y': .*{reason}"):
        infer(parse(f"{text}\nreturn y"), is_model=True)


def test_an_output_declared_to_be_what_it_is_not_is_invalid() -> None:
    graph = parse("a: float32[n, 4]\ny = Relu(a)\nreturn y")
    graph.types[graph.outputs[0]] = TensorType("int64", (N, 4))  # type: ignore[index]
    with pytest.raises(InvalidModelError, match="output 'y' is declared int64, and Relu gives float32"):
        infer(graph, is_model=True)


def body(
    inputs: Sequence[Type | None], *steps: tuple[str, tuple[int, ...], dict[str, object]], outputs: Sequence[int]
) -> Graph:
    """A body whose values are numbered: inputs first, then one for each step."""
    graph = Graph()
    values: list[Value] = [graph.add_input(f"i{i}", type) for i, type in enumerate(inputs)]
    for op, operands, attrs in steps:
        values.append(graph.add(op, tuple(values[i] for i in operands), Attrs(attrs)).outputs[0])
    for i in outputs:
        graph.add_output(f"o{i}", values[i])
    return graph


def test_bodies_that_do_not_fit_are_invalid() -> None:
    graph = Graph()
    condition = graph.add_input("c", TensorType("bool", ()))
    two, one = (body([TensorType("bool", ())], outputs=[0] * n) for n in (2, 1))
    graph.add("If", (condition, condition), Attrs(then_branch=two, else_branch=one), 2, captures=1)
    with pytest.raises(InvalidModelError, match="inputs or outputs of If and its bodies do not fit together"):
        infer(graph)
    graph.update(1, attrs=Attrs(then_branch=one, else_branch=one))
    with pytest.raises(InvalidModelError, match="If has 2 outputs, its bodies give 1"):
        infer(graph)
    graph.update(1, op="Loop", attrs=Attrs())
    with pytest.raises(InvalidModelError, match="do not fit together"):
        infer(graph)


def test_both_branches_of_an_if() -> None:
    graph = Graph()
    condition = graph.add_input("c", TensorType("bool", ()))
    x = graph.add_input("x", TensorType("float32", (N, 4)))
    attrs = Attrs(
        then_branch=body([None], ("Relu", (0,), {}), outputs=[1]),
        else_branch=body([None], ("Concat", (0, 0), {"axis": 0}), outputs=[1]),
    )
    (y,) = graph.add("If", (condition, x), attrs, captures=1).outputs
    shape = infer(graph)[y].shape
    assert shape is not None
    assert is_anonymous(shape[0])
    assert shape[1] == 4
    known = infer(graph, {condition: fact_of(Constant.of(np.array(False)))})
    assert known[y].shape == (2 * N, 4)


def loop(step: tuple[str, tuple[int, ...], dict[str, object]]) -> tuple[Type | None, Type | None]:
    """The types of a loop's state, which a step makes of values 2 (the state) and 3 (the captured x), and its scan."""
    graph = Graph()
    trips = graph.add_input("trips", TensorType("int64", ()))
    x = graph.add_input("x", TensorType("float32", (N, 4)))
    inner = body([None] * 4, step, outputs=[1, 4, 3])
    node = graph.add("Loop", (trips, None, x, x), Attrs(body=inner), 2, captures=1)
    found = infer(graph)
    return found[node.outputs[0]].type, found[node.outputs[1]].type


def test_a_loop_that_keeps_the_shape_of_its_state() -> None:
    state, scan = loop(("Add", (2, 3), {}))
    assert state == TensorType("float32", (N, 4))
    assert isinstance(scan, TensorType)
    assert isinstance(scan.shape, tuple)
    assert scan.shape[1:] == (N, 4)


def test_a_loop_whose_state_grows() -> None:
    state, _ = loop(("Concat", (2, 3), {"axis": 0}))
    assert isinstance(state, TensorType)
    assert isinstance(state.shape, tuple)
    assert state.shape[1] == 4
    assert "N" not in symbols(state.shape[0])


def test_a_loop_whose_state_changes_its_rank() -> None:
    state, _ = loop(("Unsqueeze", (2, 0), {}))
    assert isinstance(state, TensorType)
    assert isinstance(state.shape, Unranked)


def test_lengths_of_slices_of_an_open_size() -> None:
    bounds = [-(2**63), -5, -2, -1, 0, 1, 3, 2**63 - 1]
    for start, end, step in product(bounds, bounds, (-3, -2, -1, 1, 2)):
        length = slice_length(N, start, end, step)
        assert length is not None
        for size in range(7):
            assert substitute(length, {"N": size}) == len(range(size)[start:end:step]), (size, start, end, step)


def test_a_scan_slices_and_stacks() -> None:
    graph = Graph()
    start = graph.add_input("start", TensorType("float32", (4,)))
    x = graph.add_input("x", TensorType("float32", (N, 4)))
    inner = body([None] * 2, ("Add", (0, 1), {}), ("Neg", (2,), {}), outputs=[2, 3])
    node = graph.add("Scan", (start, x), Attrs(body=inner, num_scan_inputs=1), 2)
    found = infer(graph)
    assert [found[v].shape for v in node.outputs] == [(4,), (N, 4)]


def test_local_functions_are_looked_into() -> None:
    from graphopt.ir.graph import AttrRef

    inner = Graph()
    value = inner.add_input("v")
    inner.add_output("w", inner.add("Concat", (value, value), Attrs(axis=AttrRef("along", 2))).outputs[0])
    graph = Graph(functions={("mine::Twice", ""): Function("mine", "Twice", "", inner, ("along",))})
    x = graph.add_input("x", TensorType("float32", (N, 4)))
    (y,) = graph.add("mine::Twice", (x,), Attrs(along=1)).outputs
    assert infer(graph)[y].shape == (N, 8)


def test_functions_that_multiply_are_not_followed_to_their_end() -> None:
    functions: dict[tuple[str, str], Function] = {}
    for depth in range(30):
        inner = Graph(functions=functions)
        value = inner.add_input("v")
        for _ in range(2):
            (value,) = inner.add(f"mine::F{depth + 1}" if depth < 29 else "Relu", (value,)).outputs
        inner.add_output("w", value)
        functions[f"mine::F{depth}", ""] = Function("mine", f"F{depth}", "", inner)
    graph = Graph(functions=functions)
    (y,) = graph.add("mine::F0", (graph.add_input("x", TensorType("float32", (N,))),)).outputs
    start = process_time()
    assert infer(graph)[y] == Fact()
    assert process_time() - start < 60


def test_elements_of_a_sequence_may_differ() -> None:
    parts = [of(2, 3), of(4, 3)]
    (sequence,) = node("SequenceConstruct", *parts)
    assert isinstance(sequence.type, SequenceType)
    first, second = (shape("SequenceAt", sequence, scalar(i)) for i in (0, 1))
    assert first is not None
    assert second is not None
    assert first[1] == second[1] == 3
    assert first[0] != second[0]


def test_a_chain_is_inferred_in_linear_time() -> None:
    graph = Graph()
    value = graph.add_input("x", TensorType("float32", (N, 4)))
    for _ in range(5000):
        (value,) = graph.add("Add", (value, value)).outputs
    start = process_time()
    assert infer(graph)[value].shape == (N, 4)
    assert process_time() - start < 30


def test_fresh_symbols_are_fresh() -> None:
    assert fresh_symbol() != fresh_symbol()


SENSELESS = {
    "y = Conv(x, float32[1, 1, 1, 1]{0.5}, strides=[0, 0])": "node 'y': Conv of .*: .* its stride is 0",
    "y = MaxPool(x, kernel_shape=[1, 1], strides=[0, 1])": "node 'y': MaxPool of .* its stride is 0",
    'y = Einsum(x, equation="abcd->q")': "'q' in the result, and in no operand",
    "y = Resize(x, _, [1.0, 1.0, inf, 1.0])": "a scale of inf: expected a positive number",
    "y = Resize(x, _, [1.0, 1.0, nan, 1.0])": "a scale of nan",
    "y = Shape()": "node 'y': Shape of : its first input is missing",
    "y = Relu(_)": "its first input is missing",
    "y = Gather(x, [0], axis=7)": "node 'y'",
    f"y = Expand(Reshape(x, [16]), {[9] * 60 + [16]})": "node 'y': Expand of rank 61 has more than 2\\*\\*63 elements",
}


@pytest.mark.parametrize("call", SENSELESS)
def test_numbers_that_make_no_sense_together(call: str) -> None:
    with pytest.raises(InvalidModelError, match=SENSELESS[call]):
        infer(parse(f"x: float32[1, 1, 4, 4] {call} return y"))


@pytest.mark.parametrize(
    "wrong", [ZeroDivisionError("division"), OverflowError(), KeyError("q"), IndexError(), TypeError()]
)
def test_what_python_raises_within_an_inference_is_an_invalid_model(
    wrong: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> Types:
        raise wrong

    monkeypatch.setitem(INFERENCES, "Relu", fail)
    with pytest.raises(InvalidModelError, match=rf"node 'y': Relu of float32\[2\]: {type(wrong).__name__}"):
        infer(parse("x: float32[2] y = Relu(x) return y"))


def test_any_number_but_0_transposes() -> None:
    def node(left: int) -> onnx.ModelProto:
        return onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 18]> g (float[2,3] x, float[2,5] w) => (float[3,5] y) '
            f"{{ y = Gemm<transA: int = {left}>(x, w) }}"
        )

    graph = load(node(5))
    assert infer(graph)[graph.outputs[0]].shape == (3, 5)
    assert graph.key() == load(node(1)).key()  # so that rules may compute with it


def test_only_what_changed_is_inferred_again(monkeypatch: pytest.MonkeyPatch) -> None:
    inferred, infer_one = list[str](), infer_module.infer_node
    monkeypatch.setattr(infer_module, "infer_node", lambda op, *rest: inferred.append(op) or infer_one(op, *rest))
    graph = parse("x: float32[n, 4]\na = Relu(x)\nb = Tanh(x)\nc = Neg(b)\ny = Add(a, c)\nreturn y")
    first = infer_module.infer(graph)
    assert sorted(inferred) == ["Add", "Neg", "Relu", "Tanh"]
    assert infer_module.infer(graph) == first == infer_module.infer(graph.copy())
    assert len(inferred) == 4
    twin = graph.copy()
    tanh = next(node for node in twin.nodes() if node.op == "Tanh")
    twin.update(tanh.id, op="Sigmoid")
    assert infer_module.infer(twin)[tanh.outputs[0]].low == 0
    assert inferred[4:] == ["Sigmoid", "Neg", "Add"]  # what is known below has changed, too
    twin.types[twin.inputs[0]] = TensorType("float32", (2, 4))
    assert infer_module.infer(twin)[tanh.outputs[0]].shape == (2, 4)
    assert infer_module.infer(graph)[tanh.outputs[0]] == first[tanh.outputs[0]]


def test_of_equal_calls_one_is_inferred(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, tanh = [], INFERENCES["Tanh"]
    monkeypatch.setitem(INFERENCES, "Tanh", lambda call: asked.append(call.inputs) or tanh(call))
    (first,), (second,), (third,) = (infer_node("Tanh", Attrs(), [of(2, n)], 1, 21) for n in (3, 3, 4))
    assert first == second != third
    assert first is not second  # what follows from one of them need not from the other
    assert len(asked) == 2
    for _ in range(2):
        infer_node("Tanh", Attrs(), [of(2, N)], 1, 21)
    assert len(asked) == 4


def test_calls_that_differ_in_the_sign_of_a_bound_are_not_equal() -> None:
    lows = [infer_node("Relu", Attrs(), [replace(of(2), low=low)], 1, 21)[0].low for low in (0.0, -0.0)]
    highs = [infer_node("Neg", Attrs(), [replace(of(2), low=low)], 1, 21)[0].high for low in (0.0, -0.0)]
    assert lows == [0, 0]
    assert list(map(str, highs)) == ["-0.0", "0.0"]


def test_equal_calls_have_sizes_of_their_own_where_elements_decide() -> None:
    places = [infer_node("NonZero", Attrs(), [of(2, 3)], 1, 21)[0].shape for _ in range(2)]
    assert places[0] != places[1]


def test_images_of_columns_and_of_pooled_images_have_open_sizes() -> None:
    (columns,) = infer_text("x: float32[n, 27, 64] y = Col2Im(x, [10, 10], [3, 3]) return y")
    assert columns == (symbol("n"), 3, 10, 10)
    call = "MaxUnpool(x, i, kernel_shape=[2, 2], strides=[2, 2])"
    (image,) = infer_text(f"x: float32[1, c, h, 5] i: int64[1, c, h, 5] y = {call} return y")
    assert image == (1, symbol("c"), 2 * symbol("h"), 10)


def test_a_window_has_one_axis_whatever_its_length() -> None:
    for text in ("n: int64[] y = HannWindow(n) return y", "y = HammingWindow(9) return y"):
        (shape,) = infer_text(text)
        assert shape is not None
        assert len(shape) == 1
    (filters,) = infer_text("n: int64[] y = MelWeightMatrix(n, 512, 16000, 0.0, 8000.0) return y")
    assert filters is not None
    assert filters[0] == 257


def infer_text(text: str) -> list[tuple[Size, ...] | None]:
    """The shapes of a graph's outputs."""
    graph = parse(text)
    facts = infer(graph)
    return [facts[value].shape for value in graph.outputs]


def test_a_declared_number_says_nothing_of_a_size_that_an_input_leaves_open() -> None:
    graph = parse("x: float32[?, 4] y: float32[1, 4] = Relu(x) return y")
    facts, (x,), (y,) = infer(graph), graph.inputs, graph.outputs
    assert y is not None
    assert facts[y].shape == facts[x].shape
    assert not isinstance((facts[y].shape or (1,))[0], int)


def test_sizes_that_an_op_asks_to_be_equal_may_have_two_names() -> None:
    rois, images = of(N, 4), of(M, dtype="int64")
    assert shape("RoiAlign", of(1, 4, 8, 8), rois, images, output_height=7) == (N, 4, 7, 1)
